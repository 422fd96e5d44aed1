"""Rules of files of earlier versions, which no fit makes any more: they are read, and predict.

The default of 0.2 to 0.4 averaged the probabilities of three candidates, or scaled each class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.special import normalized_exponential, plus, times
from hokical._core.storage import record_class, storable
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import check_array
from hokical.rules._probabilities import as_log_proba, floored_margins, softmax, uncalibrated
from hokical.rules._row_correction import RowCorrection
from hokical.rules._structured import StructuredRule, mix_evenly

#: The candidates whose probabilities are averaged, in the order of the weights, and their titles.
CANDIDATES = {
    "uncalibrated": "the uncalibrated probabilities",
    "temps": "temperature scaling",
    "structured": "structured scaling",
}


@storable("auto-average")
@dataclass(frozen=True, eq=False)
class Average:
    """Probabilities averaged with `weights` (3,) over `CANDIDATES`.

    The last two candidates share the floor and the temperature of `structured`.
    """

    weights: FloatArray
    structured: StructuredRule

    def __post_init__(self) -> None:
        check_array("weights", self.weights, (len(CANDIDATES),), 0.0, 1.0)
        if abs(self.weights.sum() - 1.0) > 0.01:  # stored as half precision, they may be off
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")
        if not isinstance(self.structured, StructuredRule):
            raise ValueError(f"`structured` must be a StructuredRule; got {self.structured!r}.")

    def __str__(self) -> str:
        each = zip(CANDIDATES.values(), self.weights, strict=True)
        shares = (f"{title} ({weight:.0%})" for title, weight in each if weight > 0.0)
        numbers = (
            f"temperature {self.structured.temperature:.5g}, floor {self.structured.floor:.3g}"
        )
        return f"{' + '.join(shares)}; {numbers}"

    @property
    def n_classes(self) -> int:
        return self.structured.n_classes

    def logits(self, logits: Logits) -> Logits:
        """Log-probabilities of the average, as logits."""
        return as_log_proba(self._mix(logits), logits)

    def proba(self, logits: Logits) -> Array:
        """The candidates' probabilities, averaged, (n, classes)."""
        found = self._mix(logits)
        return times(found, 1.0 / logits.xp.sum(found, axis=1, keepdims=True), logits.xp)

    def _mix(self, logits: Logits) -> Array:
        """The average (n, classes), which sums to 1 up to rounding."""
        rule, xp = self.structured, logits.xp
        # A graph is traced for all weights.
        with_first, _, with_last = (not logits.is_numpy or w > 0.0 for w in self.weights)
        plain = uncalibrated(logits) if with_first else None
        if with_last:
            features = rule.features(logits, plain)
            scaled = features[2] * self.weights[1]
            found = mix_evenly(
                softmax(rule.scores_from(features, logits), logits), rule.even, logits
            )
            found = plus(times(found, self.weights[2], xp), scaled, xp)
        else:
            below = floored_margins(logits, rule.floor, plain)
            found = softmax(below * (-1.0 / rule.temperature), logits)
            found = times(found, self.weights[1], xp)
        return found if plain is None else plus(found, times(plain, self.weights[0], xp), xp)


@storable("auto-class-scaling")
class ClassScaling:
    """Scores with a scale and a bias for each class: structured scaling without other terms."""

    @classmethod
    def from_stored(cls, given: dict[str, Any]) -> StructuredRule:
        scale, none = given["scale"], np.zeros(0)
        check_array("scale", scale, (None,), 1e-6, 1e6)
        given = {
            "shape": none,
            "scale": scale,
            "bias": given["bias"],
            "cross": none.reshape(0, 0),
        } | given
        return StructuredRule(floor=0.0, even=0.0, **given)


@dataclass(frozen=True, eq=False)
class AveragedRule(Rule):
    """The probabilities of `base`, after the row `correction` where there is one."""

    name: ClassVar[str] = "auto-averaged"

    base: Average
    correction: RowCorrection | None
    keep_labels: bool

    def __post_init__(self) -> None:
        if not isinstance(self.base, Average):
            raise ValueError(f"`base` must be an Average; got {self.base!r}.")
        check_parts(self.correction, self.keep_labels)

    @classmethod
    def from_stored(cls, given: dict[str, Any]) -> Rule:
        """The rule of a file; those of 0.2 and 0.3 with a profile need hokical-paper."""
        if "structured" not in given:
            return cls(**given)
        base = Average(given["weights"], given["structured"])
        average = cls(base, None, given["keep_labels"])
        if given.get("profile") is None:
            return average
        profiled: Rule = record_class("rule:auto-profiled")(average, given["profile"])
        return profiled

    @property
    def preserves_labels(self) -> bool:  # type: ignore[override]
        return self.keep_labels

    @property
    def n_classes(self) -> int | None:
        return self.base.n_classes

    def proba(self, logits: Logits) -> Array:
        if self.correction is None:
            return self.base.proba(logits)
        # Scores are at most the largest shift, and one is at least the least.
        return normalized_exponential(self.correction.scores(self.base.logits(logits)), logits.xp)


def is_averaged(given: dict[str, Any]) -> bool:
    """Whether the fields of a stored default are those of an average of probabilities."""
    return "structured" in given or isinstance(given.get("base"), Average)


def check_parts(correction: Any, keep_labels: Any) -> None:
    """Of a rule that is read from a file."""
    if not isinstance(correction, RowCorrection | None):
        raise ValueError(f"`correction` must be a RowCorrection or None; got {correction!r}.")
    if not isinstance(keep_labels, bool):
        raise ValueError(f"`keep_labels` must be True or False; got {keep_labels!r}.")
