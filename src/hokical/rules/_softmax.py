"""The rules that scale all logits alike: the softmax itself, and temperature scaling."""

from dataclasses import dataclass
from typing import ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import AnyArray, IntArray
from hokical.rules._base import Rule
from hokical.rules._checks import store_temperature
from hokical.rules._probabilities import first_maximum, least_probability
from hokical.stability import _gumbel as gumbel


class SoftmaxRule(Rule):
    """The softmax of logits divided by a temperature."""

    accepts_top_k: ClassVar[bool] = True
    temperature: float

    def confidence(self, logits: Logits) -> Array:
        return gumbel.stability(logits, self.temperature)

    def proba(self, logits: Logits) -> Array:
        return first_maximum(gumbel.distribution(logits, self.temperature), logits)

    def fill_proba(self, logits: Logits, out: AnyArray) -> IntArray | None:
        found: IntArray | None = gumbel.fill_distribution(
            logits, self.temperature, least_probability(logits), out
        )
        return found


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
