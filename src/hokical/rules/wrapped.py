"""Rules around another rule: a floor before it; groups, class frequencies or sets after it.

A set has the classes that are likely enough, by thresholds that were proven. They are taken in the
order of falling probability, equal ones in the order of their columns.
"""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from hokical._core.arrays import Array, FloatArray
from hokical._core.checks import ArrayOf, Share, Within, check_array, check_choice, check_count
from hokical._core.groups import GroupCoding, combine_codes
from hokical._core.logits import Logits
from hokical.rules.base import (
    Rule,
    add_floor,
    as_log_proba,
    keep_first_maximum,
    probabilities,
    set_probabilities,
    softmax,
)
from hokical.rules.scaling import UncalibratedRule

#: Log-probabilities are scaled by no less than this, so that their order stays.
LEAST_SCALE = 0.05
#: Rows of which less than this is left, all in classes of weight 0, keep their probabilities.
_LEAST_TOTAL = 1e-30


class WrappedRule(Rule):
    """A rule around another: what it does not define is the inner rule's."""

    rule: Rule

    preserves_labels = property(attrgetter("rule.preserves_labels"))
    logits_kind = property(attrgetter("rule.logits_kind"))
    needed_groups = property(attrgetter("rule.needed_groups"))
    binary_only = property(attrgetter("rule.binary_only"))
    n_classes = property(attrgetter("rule.n_classes"))
    cheap_proba = property(attrgetter("rule.cheap_proba"))
    core = property(attrgetter("rule.core"))

    def own_fields(self) -> dict[str, Any]:
        return self.rule.own_fields()


@dataclass(frozen=True, eq=False)
class FlooredRule(WrappedRule):
    """`rule` on the logits log(p + floor), where p is the softmax of the logits.

    A model's probability of 0 shows its resolution (no tree voted for the class), not certainty.
    The floor is fitted together with a temperature where logits come from probabilities with zeros.
    """

    name: ClassVar[str] = "floored"

    floor: Share
    rule: Rule

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rule, FlooredRule):
            raise ValueError(f"`rule` must be without a floor; got {self.rule!r}.")

    def own_fields(self) -> dict[str, Any]:
        return {"floor": self.floor} | self.rule.own_fields()

    def labels(self, logits: Logits) -> Array:
        return self.rule.labels(add_floor(logits, self.floor))

    def confidence(self, logits: Logits) -> Array:
        return self.rule.confidence(add_floor(logits, self.floor))

    def proba(self, logits: Logits) -> Array:
        found = self.rule.proba(add_floor(logits, self.floor))
        # The rule sees float64, whatever type its predictions will have.
        kept = self.preserves_labels and not logits.is_numpy
        return keep_first_maximum(found, logits) if kept else found

    def label_interval(self, logits: Logits) -> tuple[Array, Array] | None:
        return self.rule.label_interval(add_floor(logits, self.floor))

    def class_interval(self, logits: Logits, label: int) -> tuple[Array, Array] | None:
        return self.rule.class_interval(add_floor(logits, self.floor), label)


@dataclass(frozen=True, eq=False)
class GroupedRule(WrappedRule):
    """The softmax of (1 + scale) log p + bias, where p are the probabilities of `rule`.

    `scale` (groups,) and `bias` (groups, classes), or (groups, 1) of zeros, have a row for every
    group of every term, term after term; the terms of a row add up. A term is a column of `coding`,
    whose last group is for rows whose group is missing or unknown, or several, (0, 2) say, with a
    group for every combination. Without `terms`, they are the columns.
    """

    name: ClassVar[str] = "grouped"

    rule: Rule
    coding: GroupCoding
    scale: FloatArray
    bias: FloatArray
    keep_labels: bool
    terms: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule.logits_kind is not Logits or self.rule.needed_groups is not None:
            raise ValueError(f"`rule` must be a rule for logits; got {self.rule!r}.")
        n_columns = len(self.coding.columns)
        if any(not term or not all(0 <= k < n_columns for k in term) for term in self.terms):
            raise ValueError(f"`terms` must be of the {n_columns} columns; got {self.terms}.")
        n_groups = sum(math.prod(sizes) for _, sizes in self._parts())
        check_array("scale", self.scale, (n_groups,))
        check_array("bias", self.bias, (n_groups, self.bias.shape[-1]))

    needed_groups = property(attrgetter("coding"))
    preserves_labels = property(attrgetter("keep_labels"))

    @property
    def n_classes(self) -> int | None:
        n_columns = int(self.bias.shape[-1])
        return n_columns if n_columns > 1 else self.rule.n_classes

    def _parts(self) -> list[tuple[tuple[int, ...], list[int]]]:
        """The columns of each term, and how many codes they have."""
        terms = self.terms or tuple((k,) for k in range(len(self.coding.columns)))
        return [(term, [self.coding.sizes[k] for k in term]) for term in terms]

    def proba(self, logits: Logits) -> Array:
        xp = logits.xp
        log_p = as_log_proba(probabilities(self.rule, logits), logits).values
        log_p = xp.where(logits.possible, log_p, xp.zeros_like(log_p))
        scale, bias, first = 1.0, 0.0, 0
        for term, sizes in self._parts():
            row = combine_codes([logits.group_column(k) for k in term], sizes, xp)
            scale = scale + xp.take(self.scale, row + first, axis=0)
            bias = bias + xp.take(self.bias, row + first, axis=0)
            first += math.prod(sizes)
        return softmax(xp.clip(scale, LEAST_SCALE, None)[:, None] * log_p + bias, logits)


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
    weights: Annotated[FloatArray, ArrayOf((None,), 0.0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rule, BalancedRule):
            raise ValueError(f"`rule` must be a rule of the old frequencies; got {self.rule!r}.")
        if self.rule.n_classes not in (None, self.weights.size) or not np.any(self.weights > 0.0):
            raise ValueError("`weights` must have a number for each class, some above 0.")

    @property
    def n_classes(self) -> int:
        return int(self.weights.shape[0])

    def proba(self, logits: Logits) -> Array:
        xp, old = logits.xp, self.rule.proba(logits)
        found = old * self.weights
        total = xp.sum(found, axis=1, keepdims=True)
        lost = total < _LEAST_TOTAL
        return xp.where(lost, old, found / xp.where(lost, xp.ones_like(total), total))


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
    threshold: Annotated[FloatArray, ArrayOf((None,), -np.inf, np.inf)]
    own_scores: bool = False
    penalty: Annotated[float, Within(0.0, np.inf)] = 0.0
    free_ranks: int = 0
    allow_empty: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kind", self.kind, Kind)
        check_count(self.free_ranks, name="free_ranks", least=0)

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
