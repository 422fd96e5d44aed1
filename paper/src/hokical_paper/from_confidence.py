"""Hoki from each example's softmax confidence, in place of the accuracy: the paper's
other start.

Algorithm 2 then depends on where a row starts, so that its steps are recorded and
repeated. Files of hokical up to 0.4 in which `Hoki` had `init="confidence"` are read as
this method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hokical import Hoki
from hokical.calibrators import MethodInfo
from hokical.rules import Logits
from hokical.stability import StabilityTable
from hokical_paper.core import (
    MOST_STEPS,
    ArrayOf,
    Checked,
    HokiRule,
    Within,
    bin_edges,
    storable,
)
from hokical_paper.core.fitting import Schedule
from hokical_paper.core.stability import stability as softmax_confidence
from hokical_paper.types import Array, FloatArray, Namespace

StepTable = Annotated[
    FloatArray, ArrayOf(("steps", "bins"), 0.0, 1.0, nan_allowed=True)
]


@storable("hoki-steps")
@dataclass(frozen=True, eq=False)
class Steps(Checked):
    """The recursion's alpha and beta (steps, bins), NaN in bins that leave a confidence
    as it is.

    Below the least stability that was `seen` (2,), confidence falls towards `chance`,
    that of a guess; above the greatest it stays. Algorithm 2 as printed has [0, 1] for
    it.
    """

    alpha: StepTable
    beta: StepTable
    seen: Annotated[FloatArray, ArrayOf((2,), 0.0, 1.0)] = field(
        default_factory=lambda: np.array([0.0, 1.0])
    )
    chance: Annotated[float, Within(0.0, 0.5)] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        n_steps = len(self.alpha)
        most = MOST_STEPS
        if n_steps > most:
            raise ValueError(f"`alpha` must have at most {most} steps; got {n_steps}.")
        if (np.isnan(self.alpha) != np.isnan(self.beta)).any():
            raise ValueError("`alpha` and `beta` must be NaN in the same places.")
        if self.seen[0] > self.seen[1]:
            raise ValueError(
                f"`seen` must be the smaller number first; got {self.seen}."
            )

    def replay(self, stability: Array, start: Array, logits: Logits) -> Array:
        """Algorithm 2: confidence (n,) from stability (n,) and starting confidence
        (n,).
        """
        xp = logits.xp
        confidence = start
        least = self.seen[:1]
        level = stability
        stability = xp.minimum(xp.maximum(stability, least), self.seen[1:])
        inner = logits.from_host(bin_edges(self.alpha.shape[1])[1:-1])
        for step in range(self.alpha.shape[0]):
            where = logits.backend.without_gradient(confidence)
            bins = xp.searchsorted(inner, where, side="right")
            alpha, beta = (
                xp.take(table[step, :], bins) for table in (self.alpha, self.beta)
            )
            empty = xp.isnan(alpha)
            alpha, beta = (
                xp.where(empty, xp.zeros_like(table), table) for table in (alpha, beta)
            )
            updated = xp.clip((alpha - beta) * stability + beta, 0.0, 1.0)
            confidence = xp.where(empty, confidence, updated)
        return xp.where(level < least, self._lower(confidence, level, xp), confidence)

    def _lower(self, confidence: Array, stability: Array, xp: Namespace) -> Array:
        """Confidence (n,) at less stability than seen, from that at the least:
        `Curve.held_by`.
        """
        least = self.seen[:1]
        chance = self.chance
        room = xp.maximum(least - chance, xp.full_like(least, 1e-9))
        line = chance + (confidence - chance) * ((stability - chance) / room)
        low = xp.where(confidence < least, xp.minimum(confidence, stability), line)
        floor = xp.minimum(confidence, xp.full_like(confidence, chance))
        return xp.where(least > chance, xp.maximum(low, floor), confidence)


@dataclass(frozen=True, eq=False)
class SteppedRule(HokiRule):
    """Stability under `noise`, and the recorded steps from the softmax confidence
    on.
    """

    name: ClassVar[str] = "hoki_from_p0"

    link: Steps  # type: ignore[assignment]

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """Two per bin."""
        return 2 * int(self.link.alpha.shape[1])

    def confidence_at(self, level: NDArray[np.int64], start: FloatArray) -> FloatArray:
        no_rows = Logits(np.zeros((1, 2)), np.zeros(1))
        return np.asarray(self.link.replay(level / self.levels, start, no_rows))

    def confidence(self, logits: Logits) -> Array:
        stability = self.level(logits) / float(self.levels)
        return self.link.replay(stability, softmax_confidence(logits, 1.0), logits)


class HokiFromConfidence(Hoki):
    """`Hoki`, whose recursion starts at each example's softmax confidence.

    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = HokiFromConfidence().fit(val_logits, val_labels)
    >>> right = cal.predict(logits) == labels
    >>> bool(abs(cal.predict_confidence(logits).mean() - right.mean()) < 0.01)
    True
    """

    method = MethodInfo(
        SteppedRule,
        "Hoki from the softmax confidence",
        Hoki.method.reference,
        Hoki.method.cost,
        fits_floor=False,  # it looks at whether the label was right
        accepts_top_k=True,
    )

    rule_: SteppedRule

    def _n_starts(self, n_bins: int) -> int:
        return n_bins

    def _link(self, schedule: Schedule, table: StabilityTable, chance: float) -> Any:
        if self.unseen == "as_printed":
            return Steps(schedule.alpha, schedule.beta)
        seen = np.flatnonzero(table.weight.any(axis=0))[[0, -1]] / table.levels
        return Steps(*schedule.smoothed(), seen, chance)
