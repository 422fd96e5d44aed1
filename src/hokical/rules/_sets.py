"""Prediction sets as a rule: which classes are likely enough, by thresholds that were proven.

Classes are taken in the order of falling probability, equal ones in the order of their columns.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, Literal

import numpy as np

from hokical._core.arrays import Array
from hokical._core.bins import check_choice
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import store_float
from hokical.rules._predicting import set_probabilities
from hokical.rules._scaling import UncalibratedRule
from hokical.rules._wrapped import WrappedRule

#: Classes above a probability; the likeliest until they sum to a probability; or those above a
#: probability that no other class cuts off from the likeliest, in the order of columns.
Kind = Literal["smallest", "adaptive", "ordered"]
#: Share of a threshold by which float32, or another device, may change a probability.
SLACK = 2.0**-20


@dataclass(frozen=True, eq=False)
class SetRule(WrappedRule):
    """`rule`, and the classes whose score is at most a `threshold` (1,) or (classes,).

    The score of a class is minus its probability ("smallest"), minus the least probability from the
    likeliest class to it ("ordered"), or the probability of all likelier
    classes ("adaptive"), plus `penalty` for every rank beyond `free_ranks`. Probabilities are those
    of the rule or, if `own_scores`, of the classifier's softmax. At least the likeliest class
    is taken, unless `allow_empty`.
    """

    name: ClassVar[str] = "sets"

    rule: Rule
    kind: Kind
    threshold: FloatArray
    own_scores: bool = False
    penalty: float = 0.0
    free_ranks: int = 0
    allow_empty: bool = False

    def __post_init__(self) -> None:
        store_float(self, "penalty", 0.0, np.inf)
        check_choice("kind", self.kind, Kind)

    accepts_top_k = property(attrgetter("rule.accepts_top_k"))
    draws = property(lambda self: getattr(self.rule, "draws", None))

    def labels(self, logits: Logits) -> Array:
        return self.rule.labels(logits)

    def confidence(self, logits: Logits) -> Array:
        return self.rule.confidence(logits)

    def proba(self, logits: Logits) -> Array:
        return self.rule.proba(logits)

    def members(self, logits: Logits) -> Array:
        """Which classes are in the set of each row, (n, classes) bool."""
        xp = logits.xp
        proba = set_probabilities(UncalibratedRule() if self.own_scores else self.rule, logits)
        if self.kind != "adaptive":
            least = -self.threshold[None, :]
            if not self.allow_empty:
                least = xp.minimum(least, xp.max(proba, axis=1, keepdims=True))
            inside = proba >= least
            return inside if self.kind == "smallest" else _run_around_best(inside, proba, logits)
        order = xp.argsort(-proba, axis=1, stable=True)
        rank = xp.argsort(order, axis=1, stable=True)
        falling = xp.take_along_axis(proba, order, axis=1)
        sums = xp.cumulative_sum(falling, axis=1) - falling
        beyond = xp.clip(xp.astype(rank + 1 - self.free_ranks, xp.float64), 0.0, None)
        scores = xp.take_along_axis(sums, rank, axis=1) + self.penalty * beyond
        # A masked class only where nothing is left out.
        possible = (proba > 0.0) | (self.threshold == xp.inf)
        inside = (scores <= self.threshold) & possible
        return inside if self.allow_empty else inside | (rank == 0)


def _run_around_best(inside: Array, proba: Array, logits: Logits) -> Array:
    """Members (n, classes) without those behind a class that is none, seen from the likeliest."""
    xp = logits.xp
    outside = xp.astype(~inside, xp.float64)
    before = xp.cumulative_sum(outside, axis=1)  # of classes up to and with each
    best = xp.argmax(proba, axis=1)[:, None]
    at_best = xp.take_along_axis(before, best, axis=1)
    columns = logits.from_host(np.arange(proba.shape[1]))[None, :]
    gaps = xp.where(columns < best, at_best - before, before - at_best)
    return inside & (gaps == 0.0)
