"""A floor below probabilities, in front of another rule.

A model's probability of 0 shows its resolution (no tree voted for the class), not certainty. The
floor is fitted together with a temperature (`hokical._fitting.floor`) where logits come from
probabilities with zeros, and becomes part of the rule.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.jit import has_kernels
from hokical._core.logits import Logits
from hokical._core.types import AnyArray, IntArray
from hokical.rules._base import Rule, WrappedRule
from hokical.rules._checks import store_float
from hokical.rules._probabilities import keep_first_maximum, log_probabilities, smooth

#: Smaller floors are left to the portable form: the compiled one takes exp(-700) for 0.
LEAST_FLOOR = 1e-250


def add_floor(logits: Logits, floor: Array) -> Logits:
    """Logits log(p + floor) for a block; impossible classes and labels stay."""
    values = floored_values(logits, floor)
    made = Logits(values, logits.xp.max(values, axis=1), logits.backend)
    made.__dict__["labels"] = logits.labels  # also where classes that differed have become equal
    return made


def floored_values(logits: Logits, floor: Array) -> Array:
    """log(p + floor) (n, classes) of a block."""
    if has_kernels(logits) and floor >= LEAST_FLOOR:
        from hokical.rules._kernels import floor_rows

        out = np.empty((logits.n_rows, logits.n_columns))
        floor_rows(logits.block(), logits.top, floor, out)
        return out
    return portable_values(logits, floor)


def portable_values(logits: Logits, floor: Array) -> Array:
    """The same for arrays of any library, the reference of the compiled form."""
    xp = logits.xp
    return xp.where(logits.possible, smooth(log_probabilities(logits), floor, xp), -xp.inf)


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

    def fill_proba(self, logits: Logits, out: AnyArray) -> IntArray | None:
        return (
            self.rule.fill_proba(add_floor(logits, self.floor), out)
            if has_kernels(logits)
            else None
        )

    def label_interval(self, logits: Logits) -> tuple[Array, Array] | None:
        return self.rule.label_interval(add_floor(logits, self.floor))

    def neighbour_levels(self, logits: Logits) -> Array:
        return self.rule.neighbour_levels(add_floor(logits, self.floor))
