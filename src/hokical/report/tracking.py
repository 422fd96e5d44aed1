"""Reports as files, and where experiments are tracked: HTML and JSON, MLflow, Weights &
Biases.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hokical._core.storage import (
    StrPath,
    as_path,
    json_values,
    write_text_atomically,
)
from hokical.report.output import TableOutput, write_text

if TYPE_CHECKING:
    from hokical.report.results import Evaluation

#: The type of artifact that Weights & Biases lists reports under.
_ARTIFACT_TYPE = "calibration-report"


class ReportOutput(TableOutput):
    """A result that is written as a report."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""

    @abstractmethod
    def write_page(self, path: Path, title: str | None) -> None:
        """Write the page of the report."""

    @abstractmethod
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The methods that the report is about."""

    def to_html(self, path: StrPath, *, title: str | None = None) -> Path:
        """Write a report as one self-contained HTML file, which is returned.

        Its numbers are written beside it: `report.metrics.json` beside `report.html`.
        """
        target = as_path(path)
        self.write_page(target, title)
        write_text_atomically(json_beside(target), self.to_json())
        return target

    def to_json(self, path: StrPath | None = None) -> str:
        """All numbers as strict JSON, where NaN and infinities are null; also written
        to `path`, if given.
        """
        values = json_values(self.to_dict())
        return write_text(f"{json.dumps(values, indent=2, allow_nan=False)}\n", path)

    def tracked_metrics(self, name: str) -> dict[str, float]:
        """Every finite metric of every method, as `name/method/metric`."""
        metrics = {}
        for evaluation in self.evaluations():
            method = re.sub(r"[^\w .-]", "_", evaluation.name)
            for metric, estimate in evaluation.all_estimates().items():
                if math.isfinite(estimate.value):
                    metrics[f"{name}/{method}/{metric}"] = estimate.value
        return metrics

    def log_to_mlflow(
        self, *, name: str = "calibration", run_id: str | None = None
    ) -> None:
        """Log the report, its JSON and the metrics to MLflow.

        Parameters
        ----------
        name : str
            Folder of the two files among the artifacts, and first part of the names of
            metrics: "calibration/auto/log_loss".
        run_id : str, optional
            The run to log to; None logs to the active run, or starts one.
        """
        mlflow = _import_tracker("mlflow")
        if run_id is None:
            run_id = (mlflow.active_run() or mlflow.start_run()).info.run_id
        mlflow.log_metrics(self.tracked_metrics(name), run_id=run_id)
        with self._temporary_files() as files:
            for file in files:
                mlflow.log_artifact(str(file), artifact_path=name, run_id=run_id)

    def log_to_wandb(self, *, name: str = "calibration", run: Any = None) -> None:
        """Log the report and its JSON as an artifact of Weights & Biases, and the
        metrics to the summary of the run.

        Parameters
        ----------
        name : str
            Name of the artifact, and first part of the names of metrics.
        run : wandb run, optional
            What `wandb.init()` returned; None for the active run.
        """
        wandb = _import_tracker("wandb")
        run = wandb.run if run is None else run
        if run is None:
            raise RuntimeError(
                "`run` must be a run of Weights & Biases where none is active; got "
                "None. Call `wandb.init()` first."
            )
        metrics = self.tracked_metrics(name)
        artifact = wandb.Artifact(name, type=_ARTIFACT_TYPE, metadata=metrics)
        with self._temporary_files() as files:
            for file in files:
                artifact.add_file(str(file))
            run.log_artifact(artifact)
        run.summary.update(metrics)

    @contextmanager
    def _temporary_files(self) -> Iterator[tuple[Path, Path]]:
        """The report and its JSON, in a folder that is removed in the end."""
        with tempfile.TemporaryDirectory() as folder:
            report = self.to_html(Path(folder) / "report.html")
            yield report, json_beside(report)


def json_beside(report: Path) -> Path:
    """The file with the numbers of a report.

    >>> json_beside(Path("report.html")).name
    'report.metrics.json'
    """
    return report.with_suffix(".metrics.json")


def _import_tracker(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is required but not installed. Install it: pip install {name}."
        ) from error
