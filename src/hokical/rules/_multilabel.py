"""Probabilities of labels that do not exclude each other, from one score for each."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from hokical._core.arrays import Array, Backend, to_float64
from hokical._core.special import expit
from hokical._core.storage import storable
from hokical._core.types import FloatArray
from hokical.rules._checks import check_array

#: Scores and calibrated log-odds are cut here.
FARTHEST_SCORE = 30.0


def _widest() -> FloatArray:
    return np.array([-FARTHEST_SCORE, FARTHEST_SCORE])


def score_features(
    scores: Array, backend: Backend, edges: Array, ends: Array
) -> tuple[Array, Array, Array, Array]:
    """Of scores of any shape: log-odds, the log of p (1 - p), and what lies outside either edge.

    Log-odds are cut to the `ends` (2,).
    """
    xp = backend.namespace(scores)
    wide = to_float64(scores, xp)
    odds = xp.minimum(xp.maximum(wide, ends[0]), ends[1])
    size = xp.abs(odds)
    return odds, -(size + 2.0 * xp.log1p(xp.exp(-size))), wide < edges[0], wide > edges[1]


@storable("rule:multilabel")
@dataclass(frozen=True, eq=False)
class MultilabelCurves:
    """Log-odds of label k: `shift`, `slope` times the score, `tilt` times the log of p (1 - p).

    Each is (labels,). Scores are cut to the `ends` (2,). Those outside the `edges` (2,), where the
    scores of the fit pile up as rounded ones do, add the `jumps` (2, labels), or (2, 1).
    """

    name: ClassVar[str] = "multilabel"

    shift: FloatArray
    slope: FloatArray
    tilt: FloatArray
    edges: FloatArray = field(default_factory=_widest)
    ends: FloatArray = field(default_factory=_widest)
    jumps: FloatArray = field(default_factory=lambda: np.zeros((2, 1)))

    def __post_init__(self) -> None:
        check_array("shift", self.shift, (None,))
        for name in ("slope", "tilt"):
            check_array(name, getattr(self, name), self.shift.shape)
        for name in ("edges", "ends"):
            check_array(name, getattr(self, name), (2,), -FARTHEST_SCORE, FARTHEST_SCORE)
        check_array("jumps", self.jumps, (2, None))
        if self.jumps.shape[1] not in (1, self.shift.size):
            raise ValueError("`jumps` must be (2, labels), or (2, 1).")

    def proba(self, scores: Array, backend: Backend) -> Array:
        """Probabilities (n, labels), float64, of scores (n, labels)."""
        numbers = {f.name: backend.from_host(getattr(self, f.name), scores) for f in fields(self)}
        return curve_proba(scores, backend, SimpleNamespace(**numbers))


def curve_proba(scores: Array, backend: Backend, rule: Any) -> Array:
    """The same with the attributes of a rule that are where the scores are."""
    xp = backend.namespace(scores)
    odds, spread, low, high = score_features(scores, backend, rule.edges, rule.ends)
    eta = rule.shift + rule.slope * odds + rule.tilt * spread
    eta = eta + xp.where(low, rule.jumps[0], 0.0) + xp.where(high, rule.jumps[1], 0.0)
    return expit(xp.clip(eta, -FARTHEST_SCORE, FARTHEST_SCORE), xp)
