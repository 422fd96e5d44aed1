"""What a comparison knows about one method."""

from dataclasses import dataclass, field
from typing import Any

from hokical.calibrators.calibrator import Calibrator
from hokical.core.types import BoolArray, FloatArray
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
