"""Reports as files and in experiment trackers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import hokical
from hokical.report import tracking
from tests.conftest import synthetic_logits


@pytest.fixture(scope="module")
def evaluation() -> hokical.report.Evaluation:
    cal = hokical.make("temps").fit(*synthetic_logits(600, 3, seed=1))
    return hokical.evaluate(cal, *synthetic_logits(400, 3, seed=2))


def test_json_holds_all_numbers_before_and_after(
    evaluation: Any, tmp_path: Path
) -> None:
    text = evaluation.to_json(tmp_path / "numbers.json")
    assert (tmp_path / "numbers.json").read_text("utf-8") == text
    values = json.loads(text, parse_constant=pytest.fail)
    assert values["headline"] == evaluation.headline
    assert values["finding"] == evaluation.finding
    for method, stage in zip(values["methods"], evaluation.stages, strict=True):
        for name, estimate in stage.summary.estimates.items():
            assert method["estimates"][name]["value"] == estimate.value


def test_metrics_are_finite_and_named_by_method(comparison: Any) -> None:
    metrics = comparison.tracked_metrics("run")
    assert all(map(math.isfinite, metrics.values()))
    assert metrics["run/vecs/log_loss"] == comparison["vecs"].score("log_loss")
    assert {name.split("/")[1] for name in metrics} == {
        result.name for result in comparison.results
    }


def test_names_that_trackers_refuse_are_replaced() -> None:
    examples = synthetic_logits(200, 3, seed=1)
    comparison = hokical.compare(examples, examples, {"T(max=9)": "temps"})
    assert "run/T_max_9_/ece" in comparison.tracked_metrics("run")


def test_mlflow_gets_both_files_and_the_metrics(
    evaluation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        evaluation.log_to_mlflow(name="calibration")
    stored = mlflow.get_run(run.info.run_id)
    assert stored.data.metrics == pytest.approx(
        evaluation.tracked_metrics("calibration")
    )
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id))
    page = folder / "calibration" / "report.html"
    assert evaluation.verdict in page.read_text("utf-8")
    numbers = json.loads(tracking.json_beside(page).read_text("utf-8"))
    assert numbers["headline"] == evaluation.headline


def test_mlflow_gets_a_run_by_its_id(
    evaluation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        pass
    evaluation.log_to_mlflow(run_id=run.info.run_id)
    assert mlflow.active_run() is None
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    assert metrics["calibration/temps/ece"] == evaluation.score("ece")


def test_weights_and_biases_get_an_artifact(
    evaluation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match=r"Call `wandb.init\(\)` first"):
        evaluation.log_to_wandb()
    with wandb.init(mode="offline", dir=tmp_path, project="calibration") as run:
        evaluation.log_to_wandb(name="demo", run=run)
        assert run.summary["demo/temps/ece"] == evaluation.score("ece")


def test_a_missing_tracker_is_named(
    evaluation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(tracking, "import_module", missing)
    for log, name in (
        (evaluation.log_to_mlflow, "mlflow"),
        (evaluation.log_to_wandb, "wandb"),
    ):
        with pytest.raises(ImportError, match=f"Install it: pip install {name}"):
            log()
