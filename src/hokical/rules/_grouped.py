"""Corrections by group, behind another rule: its log-probabilities are scaled and moved."""

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

from hokical._core.arrays import Array
from hokical._core.grouped_logits import GroupedLogits
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._auto import as_log_proba
from hokical.rules._base import Rule, WrappedRule
from hokical.rules._checks import check_array
from hokical.rules._predicting import probabilities
from hokical.rules._probabilities import softmax

#: Log-probabilities are scaled by no less than this, so that their order stays.
LEAST_SCALE = 0.05


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
            row: Any = 0
            for k, size in zip(term, sizes, strict=True):
                own = logits.column(k)
                unknown = (own < 0) | (own >= size)
                row = row * size + xp.where(unknown, xp.full_like(own, size - 1), own)
            scale = scale + xp.take(self.scale, row + first, axis=0)
            bias = bias + xp.take(self.bias, row + first, axis=0)
            first += math.prod(sizes)
        return softmax(xp.clip(scale, LEAST_SCALE, None)[:, None] * log_p + bias, logits)
