"""A floor below probabilities, in front of another rule.

A model's probability of 0 shows its resolution (no tree voted for the class), not certainty. The
floor is fitted together with a temperature (`hokical._fitting.floor`) where logits come from
probabilities with zeros, and becomes part of the rule.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical.rules._base import Rule, WrappedRule
from hokical.rules._checks import store_float
from hokical.rules._probabilities import keep_first_maximum, log_probabilities, smooth


def add_floor(logits: Logits, floor: Array) -> Logits:
    """Logits log(p + floor) for a block; impossible classes and labels stay."""
    xp = logits.xp
    values = xp.where(logits.possible, smooth(log_probabilities(logits), floor, xp), -xp.inf)
    made = Logits(values, xp.max(values, axis=1), logits.backend)
    made.__dict__["labels"] = logits.labels  # also where classes that differed have become equal
    return made


@dataclass(frozen=True, eq=False)
class FlooredRule(WrappedRule):
    """`rule` on the logits log(p + floor), where p is the softmax of the logits."""

    name: ClassVar[str] = "floored"

    floor: float
    rule: Rule

    def __post_init__(self) -> None:
        store_float(self, "floor", 0.0, 1.0)
        inner = self.rule
        if not isinstance(inner, Rule) or isinstance(inner, FlooredRule):
            raise ValueError(f"`rule` must be a rule for logits, without a floor; got {inner!r}.")

    def own_fields(self) -> dict[str, Any]:
        return {"floor": self.floor} | self.rule.own_fields()

    def labels(self, logits: Logits) -> Array:
        return self.rule.labels(add_floor(logits, self.floor))

    def confidence(self, logits: Logits) -> Array:
        return self.rule.confidence(add_floor(logits, self.floor))

    def proba(self, logits: Logits) -> Array:
        found = self.rule.proba(add_floor(logits, self.floor))
        # The rule sees float64, whatever type its answers will have.
        kept = self.preserves_labels and not logits.is_numpy
        return keep_first_maximum(found, logits) if kept else found

    def label_interval(self, logits: Logits) -> tuple[Array, Array] | None:
        return self.rule.label_interval(add_floor(logits, self.floor))

    def neighbour_levels(self, logits: Logits) -> Array:
        return self.rule.neighbour_levels(add_floor(logits, self.floor))
