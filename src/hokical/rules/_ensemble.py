"""Ensemble temperature scaling as a rule: a mixture of three softmaxes."""

from dataclasses import dataclass
from typing import ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import check_array, store_temperature
from hokical.rules._probabilities import first_maximum
from hokical.stability import _gumbel as gumbel

#: How far from 1 rounding may put the sum of the weights.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class EnsembleRule(Rule):
    """Softmax at `temperature`, plain softmax and uniform distribution, mixed by `weights` (3,)."""

    name: ClassVar[str] = "ets"
    accepts_top_k: ClassVar[bool] = True

    temperature: float
    weights: FloatArray

    def __post_init__(self) -> None:
        store_temperature(self)
        check_array("weights", self.weights, (3,), 0.0, 1.0)
        if abs(self.weights.sum() - 1.0) > _ROUNDING:
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")

    def confidence(self, logits: Logits) -> Array:
        scaled, plain = (gumbel.stability(logits, scale) for scale in (self.temperature, 1.0))
        return self._mix(scaled, plain, 1.0 / logits.possible_counts, logits)

    def proba(self, logits: Logits) -> Array:
        xp = logits.xp
        scaled, plain = (gumbel.distribution(logits, scale) for scale in (self.temperature, 1.0))
        even = xp.where(logits.possible, 1.0 / logits.possible_counts[:, None], 0.0)
        return first_maximum(self._mix(scaled, plain, even, logits), logits)

    def _mix(self, scaled: Array, plain: Array, even: Array, logits: Logits) -> Array:
        """Their mean by the weights, which rounding must not lift above 1."""
        first, second, third = (self.weights[i] for i in range(3))
        return logits.xp.clip(first * scaled + second * plain + third * even, None, 1.0)
