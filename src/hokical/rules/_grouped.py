"""Corrections by group, behind another rule: its log-probabilities are scaled and moved."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

from hokical._core.arrays import Array
from hokical._core.grouped_logits import GroupedLogits
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical.rules._auto import as_log_proba
from hokical.rules._base import Rule
from hokical.rules._checks import check_array
from hokical.rules._predicting import probabilities
from hokical.rules._probabilities import softmax

#: Log-probabilities are scaled by no less than this, so that their order stays.
LEAST_SCALE = 0.05


@dataclass(frozen=True, eq=False)
class GroupedRule(Rule):
    """The softmax of (1 + scale) log p + bias, where p are the probabilities of `rule`.

    `scale` (groups,) and `bias` (groups, classes), or (groups, 1) of zeros, have a row for every
    group of every column of `coding`, column after column, the last of each for rows whose group is
    missing or unknown; the columns of a row add up.
    """

    name: ClassVar[str] = "grouped"
    logits_kind: ClassVar[type[Logits]] = GroupedLogits

    rule: Rule
    coding: GroupCoding
    scale: FloatArray
    bias: FloatArray
    keep_labels: bool

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule) or self.rule.logits_kind is not Logits:
            raise ValueError(f"`rule` must be a rule for logits; got {self.rule!r}.")
        if not isinstance(self.coding, GroupCoding) or not isinstance(self.keep_labels, bool):
            raise ValueError("`coding` must be a GroupCoding, and `keep_labels` True or False.")
        n_groups = sum(self.coding.sizes)
        check_array("scale", self.scale, (n_groups,))
        check_array("bias", self.bias, (n_groups, self.bias.shape[-1]))

    binary_only = property(attrgetter("rule.binary_only"))
    cheap_proba = property(attrgetter("rule.cheap_proba"))
    core = property(attrgetter("rule.core"))
    needed_groups = property(attrgetter("coding"))
    preserves_labels = property(attrgetter("keep_labels"))

    @property
    def n_classes(self) -> int | None:
        n_columns = int(self.bias.shape[-1])
        return n_columns if n_columns > 1 else self.rule.n_classes

    def own_fields(self) -> dict[str, Any]:
        return self.rule.own_fields()

    def proba(self, logits: Logits) -> Array:
        assert isinstance(logits, GroupedLogits)
        xp = logits.xp
        log_p = as_log_proba(probabilities(self.rule, logits), logits).values
        log_p = xp.where(logits.possible, log_p, xp.zeros_like(log_p))
        scale, bias, first = 1.0, 0.0, 0
        for k, size in enumerate(self.coding.sizes):
            own = logits.column(k)
            unknown = (own < 0) | (own >= size)
            row = xp.where(unknown, xp.full_like(own, size - 1), own) + first
            scale = scale + xp.take(self.scale, row, axis=0)
            bias = bias + xp.take(self.bias, row, axis=0)
            first += size
        return softmax(xp.clip(scale, LEAST_SCALE, None)[:, None] * log_p + bias, logits)
