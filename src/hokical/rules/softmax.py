"""The rules that scale all logits alike: the softmax itself, and temperature scaling."""

from dataclasses import dataclass
from typing import ClassVar

from hokical.core.arrays import Array
from hokical.core.logits import Logits
from hokical.core.topk import TopK
from hokical.rules.base import Rule
from hokical.rules.checks import store_temperature
from hokical.rules.probabilities import first_maximum
from hokical.stability import gumbel
from hokical.stability.hidden_classes import gumbel_bounds


class SoftmaxRule(Rule):
    """The softmax of logits divided by a temperature."""

    accepts_top_k: ClassVar[bool] = True
    temperature: float

    def confidence(self, logits: Logits) -> Array:
        return gumbel.stability(logits, self.temperature)

    def proba(self, logits: Logits) -> Array:
        return first_maximum(gumbel.distribution(logits, self.temperature), logits)

    def confidence_bounds(self, logits: TopK) -> tuple[Array, Array]:
        return gumbel_bounds(logits, self.temperature)


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
