"""The default's rule: scores of all classes, corrected row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical.rules._base import Rule
from hokical.rules._frozen import AveragedRule, check_parts, is_averaged
from hokical.rules._probabilities import as_scores, softmax
from hokical.rules._row_correction import RowCorrection
from hokical.rules._structured import StructuredRule, mix_evenly


@dataclass(frozen=True, eq=False)
class AutoRule(Rule):
    """The softmax of the scores of `base`, after the row `correction` where there is one.

    A share `base.even` of the uniform distribution comes last.
    """

    name: ClassVar[str] = "auto"

    base: StructuredRule
    correction: RowCorrection | None
    keep_labels: bool

    def __post_init__(self) -> None:
        if not isinstance(self.base, StructuredRule):
            raise ValueError(f"`base` must be a StructuredRule; got {self.base!r}.")
        check_parts(self.correction, self.keep_labels)

    @classmethod
    def from_stored(cls, given: dict[str, Any]) -> Rule:
        """The rule of a file; in those of 0.2 to 0.4 it may average probabilities."""
        return AveragedRule.from_stored(given) if is_averaged(given) else cls(**given)

    @property
    def preserves_labels(self) -> bool:  # type: ignore[override]
        return self.keep_labels

    @property
    def n_classes(self) -> int | None:
        return self.base.n_classes

    def scores(self, logits: Logits) -> Array:
        """Scores (n, classes), whatever where masked."""
        found = self.base.scores(logits)
        if self.correction is None:
            return found
        return self.correction.scores(as_scores(found, logits))

    def proba(self, logits: Logits) -> Array:
        return mix_evenly(softmax(self.scores(logits), logits), self.base.even, logits)
