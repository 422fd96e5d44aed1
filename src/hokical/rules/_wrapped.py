"""Rules around another rule: a floor before it; groups or other class frequencies after it."""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.grouped_logits import GroupedLogits
from hokical._core.groups import GroupCoding, combine_codes
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import check_array, store_float
from hokical.rules._predicting import probabilities
from hokical.rules._probabilities import (
    add_floor,
    as_log_proba,
    keep_first_maximum,
    softmax,
)

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
    logits_kind: ClassVar[type[Logits]] = GroupedLogits

    rule: Rule
    coding: GroupCoding
    scale: FloatArray
    bias: FloatArray
    keep_labels: bool
    terms: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule) or self.rule.logits_kind is not Logits:
            raise ValueError(f"`rule` must be a rule for logits; got {self.rule!r}.")
        if not isinstance(self.coding, GroupCoding) or not isinstance(self.keep_labels, bool):
            raise ValueError("`coding` must be a GroupCoding, and `keep_labels` True or False.")
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
        assert isinstance(logits, GroupedLogits)
        xp = logits.xp
        log_p = as_log_proba(probabilities(self.rule, logits), logits).values
        log_p = xp.where(logits.possible, log_p, xp.zeros_like(log_p))
        scale, bias, first = 1.0, 0.0, 0
        for term, sizes in self._parts():
            row = combine_codes([logits.column(k) for k in term], sizes, xp)
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
    weights: FloatArray

    def __post_init__(self) -> None:
        check_array("weights", self.weights, (None,), 0.0)
        if not isinstance(self.rule, Rule) or isinstance(self.rule, BalancedRule):
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
