"""The default's rule: scores of all classes, corrected row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits, put_masked
from hokical._core.special import at_least, normalized_exponential, plus, times
from hokical._core.storage import record_class, storable
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._checks import check_array, store_temperature
from hokical.rules._probabilities import LEAST, floored_margins, softmax, uncalibrated
from hokical.rules._row_correction import RowCorrection
from hokical.rules._structured import StructuredRule

#: The candidates whose probabilities are averaged, in the order of the weights, and their titles.
PARTS = {
    "uncalibrated": "the uncalibrated probabilities",
    "temps": "temperature scaling",
    "structured": "structured scaling",
}


@storable("auto-average")
@dataclass(frozen=True, eq=False)
class Average:
    """Probabilities averaged with `weights` (3,) over `PARTS`.

    The last two candidates share the floor and the temperature of `structured`.
    """

    weights: FloatArray
    structured: StructuredRule

    def __post_init__(self) -> None:
        check_array("weights", self.weights, (len(PARTS),), 0.0, 1.0)
        if abs(self.weights.sum() - 1.0) > 0.01:  # stored as half precision, they may be off
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")
        if not isinstance(self.structured, StructuredRule):
            raise ValueError(f"`structured` must be a StructuredRule; got {self.structured!r}.")

    def __str__(self) -> str:
        each = zip(PARTS.values(), self.weights, strict=True)
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
            found = times(rule.proba_from(features, logits), self.weights[2], xp)
            found = plus(found, features[2] * self.weights[1], xp)
        else:
            below = floored_margins(logits, rule.floor, plain)
            found = softmax(below * (-1.0 / rule.temperature), logits)
            found = times(found, self.weights[1], xp)
        return found if plain is None else plus(found, times(plain, self.weights[0], xp), xp)


@storable("auto-class-scaling")
@dataclass(frozen=True, eq=False)
class ClassScaling:
    """Scores `bias` - `scale` * margins / `temperature`, with a scale and a bias for each class."""

    temperature: float
    scale: FloatArray
    bias: FloatArray

    def __post_init__(self) -> None:
        store_temperature(self)
        check_array("scale", self.scale, (None,), 1e-6, 1e6)
        check_array("bias", self.bias, self.scale.shape)

    def __str__(self) -> str:
        each = f"a scale and a bias for each of {self.n_classes} classes"
        return f"temperature {self.temperature:.5g}, {each}"

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def logits(self, logits: Logits) -> Logits:
        """The scores, as logits."""
        scores = self.bias[None, :] - logits.margins * (self.scale / self.temperature)[None, :]
        return as_scores(scores, logits)

    def proba(self, logits: Logits) -> Array:
        """Probabilities (n, classes)."""
        return uncalibrated(self.logits(logits))


@dataclass(frozen=True, eq=False)
class AutoRule(Rule):
    """The probabilities of `base`, after the row `correction` where there is one."""

    name: ClassVar[str] = "auto"

    base: Average | ClassScaling
    correction: RowCorrection | None
    keep_labels: bool

    def __post_init__(self) -> None:
        if not isinstance(self.base, Average | ClassScaling):
            raise ValueError(f"`base` must be an Average or a ClassScaling; got {self.base!r}.")
        if not isinstance(self.correction, RowCorrection | None):
            raise ValueError(
                f"`correction` must be a RowCorrection or None; got {self.correction!r}."
            )
        if not isinstance(self.keep_labels, bool):
            raise ValueError(f"`keep_labels` must be True or False; got {self.keep_labels!r}.")

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


def as_log_proba(proba: Array, logits: Logits) -> Logits:
    """Logits whose softmax are these probabilities (n, classes); the same classes are possible."""
    return as_scores(logits.xp.log(at_least(proba, LEAST, logits.xp)), logits)


def as_scores(scores: Array, logits: Logits) -> Logits:
    """Scores (n, classes) as logits; the same classes are possible. NumPy's are overwritten."""
    values = put_masked(scores, -logits.xp.inf, logits)
    return Logits(values, logits.xp.max(values, axis=1), logits.backend)
