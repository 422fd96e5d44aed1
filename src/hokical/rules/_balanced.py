"""Another class balance, behind another rule: probabilities times a weight per class."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._base import Rule, WrappedRule
from hokical.rules._checks import check_array

#: Rows of which less than this is left, all in classes of weight 0, keep their probabilities.
_LEAST = 1e-30


@dataclass(frozen=True, eq=False)
class BalancedRule(WrappedRule):
    """p'(k | x) proportional to p(k | x) `weights`[k], where p are the probabilities of `rule`.

    `weights` (classes,) are how much commoner each class has become. The label is the likeliest
    class of the new probabilities.
    """

    name: ClassVar[str] = "balanced"
    preserves_labels = False
    cheap_proba = True

    rule: Rule
    weights: FloatArray

    def __post_init__(self) -> None:
        check_array("weights", self.weights, (None,), 0.0)
        if not isinstance(self.rule, Rule) or isinstance(self.rule, BalancedRule):
            raise ValueError(f"`rule` must be a rule of the old balance; got {self.rule!r}.")
        if self.rule.n_classes not in (None, self.weights.size) or not np.any(self.weights > 0.0):
            raise ValueError("`weights` must have a number for each class, some above 0.")

    @property
    def n_classes(self) -> int:
        return int(self.weights.shape[0])

    def proba(self, logits: Logits) -> Array:
        xp, old = logits.xp, self.rule.proba(logits)
        found = old * self.weights
        total = xp.sum(found, axis=1, keepdims=True)
        lost = total < _LEAST
        return xp.where(lost, old, found / xp.where(lost, xp.ones_like(total), total))
