"""Softmaxes of scaled logits: temperature, vector and ensemble temperature scaling."""

from dataclasses import dataclass
from typing import ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import check_array, store_temperature
from hokical.rules._probabilities import are_apart, first_maximum, log_probabilities, softmax
from hokical.stability import _gumbel as gumbel

#: How far from 1 rounding to float32, as of a state dict, may put the sum of the weights.
_ROUNDING = 1e-6


class SoftmaxRule(Rule):
    """The softmax of logits divided by a temperature."""

    accepts_top_k: ClassVar[bool] = True
    temperature: float

    def confidence(self, logits: Logits) -> Array:
        return gumbel.stability(logits, self.temperature)

    def proba(self, logits: Logits) -> Array:
        found = gumbel.softmax(logits, self.temperature)
        return found if are_apart(logits, self.temperature) else first_maximum(found, logits)


@dataclass(frozen=True)
class UncalibratedRule(SoftmaxRule):
    """The classifier's own softmax."""

    name: ClassVar[str] = "uncalibrated"
    temperature: ClassVar[float] = 1.0  # type: ignore[misc]


@dataclass(frozen=True)
class TemperatureRule(SoftmaxRule):
    """The softmax of logits divided by `temperature`."""

    name: ClassVar[str] = "temps"

    temperature: float

    def __post_init__(self) -> None:
        store_temperature(self)


@dataclass(frozen=True, eq=False)
class VectorRule(Rule):
    """softmax(`scale` * log-probabilities + `bias`), both (classes,)."""

    name: ClassVar[str] = "vecs"
    preserves_labels: ClassVar[bool] = False

    scale: FloatArray
    bias: FloatArray

    def __post_init__(self) -> None:
        check_array("scale", self.scale, (None,))
        check_array("bias", self.bias, self.scale.shape)

    @property
    def n_parameters(self) -> int:
        return 2 * self.n_classes

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def proba(self, logits: Logits) -> Array:
        features = log_probabilities(logits)
        return softmax(features * self.scale[None, :] + self.bias[None, :], logits)


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
