"""Probabilities of labels that do not exclude each other, from one score for each."""

from __future__ import annotations

from dataclasses import dataclass

from hokical._core.arrays import Array, Backend, to_float64
from hokical._core.special import expit
from hokical._core.storage import storable
from hokical._core.types import FloatArray
from hokical.rules._checks import check_array

#: Scores and answers (log-odds) are cut here.
FARTHEST = 30.0


def score_features(scores: Array, backend: Backend) -> tuple[Array, Array]:
    """Cut log-odds, and the log of p (1 - p), of scores of any shape."""
    xp = backend.namespace(scores)
    odds = xp.clip(to_float64(scores, xp), -FARTHEST, FARTHEST)
    size = xp.abs(odds)
    return odds, -(size + 2.0 * xp.log1p(xp.exp(-size)))


@storable("rule:multilabel")
@dataclass(frozen=True, eq=False)
class MultilabelCurves:
    """Log-odds of label k: `shift`, `slope` times the score, `tilt` times the log of p (1 - p).

    Each is (labels,).
    """

    shift: FloatArray
    slope: FloatArray
    tilt: FloatArray

    def __post_init__(self) -> None:
        check_array("shift", self.shift, (None,))
        for name in ("slope", "tilt"):
            check_array(name, getattr(self, name), self.shift.shape)

    def proba(self, scores: Array, backend: Backend) -> Array:
        """Probabilities (n, labels), float64, of scores (n, labels)."""
        parts = (self.shift, self.slope, self.tilt)
        return curve_proba(scores, backend, *(backend.from_host(part, scores) for part in parts))


def curve_proba(scores: Array, backend: Backend, shift: Array, slope: Array, tilt: Array) -> Array:
    """The same with the numbers (labels,) where the scores are."""
    xp, (odds, spread) = backend.namespace(scores), score_features(scores, backend)
    return expit(xp.clip(shift + slope * odds + tilt * spread, -FARTHEST, FARTHEST), xp)
