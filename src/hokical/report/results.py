"""What a comparison holds: the results of each method, and where the numbers come from."""

import hashlib
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

from hokical.calibrators.calibrator import Calibrator
from hokical.core.arrays import to_host
from hokical.core.blocks import row_slices
from hokical.core.logits import Logits
from hokical.core.types import BoolArray, FloatArray, IntArray
from hokical.metrics import Summary
from hokical.report.entrants import method_title


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method on the test set: confidence and correctness (n,), and its scores.

    `summary` has all metrics with bootstrap intervals, the bounds on the true calibration error
    and the table of classes. `row_scores` (n,) are the scores whose mean is a metric. `fit_seconds`
    is None if the calibrator came fitted.
    """

    name: str
    calibrator: Calibrator
    fit_seconds: float | None
    confidence: FloatArray
    correct: BoolArray
    notes: tuple[str, ...]
    summary: Summary
    row_scores: dict[str, FloatArray] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The method in full words; "" if it has none."""
        return method_title(self.calibrator)

    @property
    def label(self) -> str:
        """The method in full words, its name in brackets."""
        known = not self.title or self.title in self.name
        return self.name if known else f"{self.title} ({self.name})"

    @property
    def converged(self) -> bool:
        """Whether the fit converged; True for methods without iterations."""
        return bool(getattr(self.calibrator, "converged_", True))

    def score(self, name: str) -> float:
        """The value of one metric of the summary."""
        return self.summary[name].value

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "method": self.name,
            "title": self.title,
            "fit_seconds": self.fit_seconds,
            "converged": self.converged,
            "notes": list(self.notes),
            **self.summary.to_dict(),
        }


@dataclass(frozen=True)
class DataFacts:
    """The data of a comparison: enough to tell whether another run used the same."""

    n_rows: int
    n_classes: int
    dtype: str
    accuracy: float
    sha256: str
    name: str | None = None


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers: data, versions, seed, date."""

    validation: DataFacts
    test: DataFacts
    seed: int
    versions: dict[str, str]
    machine: str
    date: str = ""

    @property
    def tested_on_validation(self) -> bool:
        """Whether both sets are the same examples, which makes everything look too good."""
        return self.validation.sha256 == self.test.sha256


def data_facts(logits: Logits, labels: IntArray, name: str | None) -> DataFacts:
    """The facts of logits and labels."""
    digest = hashlib.sha256()
    for rows in row_slices(logits.n_rows, logits.n_columns):
        digest.update(np.ascontiguousarray(to_host(logits.values[rows])).tobytes())
    digest.update(labels.astype("<i8").tobytes())
    return DataFacts(
        n_rows=logits.n_rows,
        n_classes=logits.n_classes,
        dtype=str(logits.values.dtype),
        accuracy=float((to_host(logits.labels) == labels).mean()),
        sha256=digest.hexdigest(),
        name=name,
    )


def library_versions() -> dict[str, str]:
    """Python and the libraries that the numbers depend on."""
    names = ("hokical", "numpy", "scipy", "scikit-learn")
    return {"python": platform.python_version()} | {name: version(name) for name in names}
