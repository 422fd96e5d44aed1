"""Adaptive temperature scaling: a temperature, and a row correction that keeps the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import MAX_MARGIN, Logits, at_label, put_at_label
from hokical._core.special import clip
from hokical.rules._base import Rule
from hokical.rules._checks import store_temperature
from hokical.rules._probabilities import softmax
from hokical.rules._row_correction import (
    LEAST_LEAD,
    RowCorrection,
    corrected_scores,
)


@dataclass(frozen=True, eq=False)
class AdaptiveRule(Rule):
    """The softmax at `temperature` after the `correction`, whose shift leaves the label on top."""

    name: ClassVar[str] = "adaptive"
    accepts_top_k: ClassVar[bool] = True

    temperature: float
    correction: RowCorrection

    def __post_init__(self) -> None:
        store_temperature(self)
        if not isinstance(self.correction, RowCorrection):
            raise ValueError(f"`correction` must be a RowCorrection; got {self.correction!r}.")

    def _scale_and_shift(self, logits: Logits) -> tuple[Array, Array]:
        """What multiplies the margins, and the label's score, (n,) each."""
        scale, shift = self.correction.scale_and_shift(logits, self.temperature)
        scale = scale / self.temperature
        gaps = clip(logits.gaps, 0.0, MAX_MARGIN, logits.xp)  # finite, for the gradient's sake
        return scale, logits.xp.maximum(shift, LEAST_LEAD - scale * gaps)

    def confidence(self, logits: Logits) -> Array:
        xp, tail = logits.xp, logits.tail
        if tail is None:
            return at_label(self.proba(logits), logits)
        scale, shift = self._scale_and_shift(logits)
        odds = xp.exp(logits.margins * -scale[:, None])
        rest = xp.sum(put_at_label(odds, 0.0 * odds[:, :1], logits), axis=1)
        rest = rest + tail.count * xp.exp(tail.margin * -scale)
        return 1.0 / (1.0 + rest * xp.exp(-shift))

    def proba(self, logits: Logits) -> Array:
        return softmax(corrected_scores(logits, *self._scale_and_shift(logits)), logits)
