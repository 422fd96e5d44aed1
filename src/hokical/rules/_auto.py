"""The default's rule: an average of candidates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.properties import cached_property
from hokical._core.storage import record_class
from hokical._core.types import FloatArray
from hokical.rules._base import Rule
from hokical.rules._blend_kernels import Blend
from hokical.rules._blended import BlendedRule
from hokical.rules._checks import check_array
from hokical.rules._probabilities import LEAST, softmax
from hokical.rules._structured import StructuredRule, structured_features

#: The candidates whose probabilities are averaged, in the order of the weights.
PARTS = ("uncalibrated", "temps", "structured")


@dataclass(frozen=True, eq=False)
class AutoRule(BlendedRule):
    """Probabilities averaged with `weights` (3,) over `PARTS`.

    The last two candidates share the floor and the temperature of `structured`.
    """

    name: ClassVar[str] = "auto"

    weights: FloatArray
    structured: StructuredRule
    keep_labels: bool

    def __post_init__(self) -> None:
        check_array("weights", self.weights, (len(PARTS),), 0.0, 1.0)
        if abs(self.weights.sum() - 1.0) > 0.01:  # stored as half precision, they may be off
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")
        if not isinstance(self.structured, StructuredRule):
            raise ValueError(f"`structured` must be a StructuredRule; got {self.structured!r}.")
        if not isinstance(self.keep_labels, bool):
            raise ValueError(f"`keep_labels` must be True or False; got {self.keep_labels!r}.")

    @classmethod
    def from_stored(cls, given: dict[str, Any]) -> Rule:
        """The rule of a file's record; one of 0.2 or 0.3 with a profile is hokical-paper's."""
        profile = given.pop("profile", None)
        average = cls(**given)
        if profile is None:
            return average
        corrected: Rule = record_class("rule:auto-profiled")(average, profile)
        return corrected

    @property
    def preserves_labels(self) -> bool:  # type: ignore[override]
        return self.keep_labels

    @property
    def n_classes(self) -> int | None:
        return self.structured.n_classes

    @cached_property
    def _pass(self) -> Blend:
        return self.structured.blend(self.weights)

    def portable_proba(self, logits: Logits) -> Array:
        return self.average(logits)

    def average(self, logits: Logits) -> Array:
        """The candidates' probabilities, averaged, (n, classes)."""
        features = structured_features(logits, self.structured.floor, self.structured.temperature)
        makers: tuple[Callable[[], Array], ...] = (
            lambda: softmax(-logits.margins, logits),
            lambda: softmax(features[0], logits),
            lambda: self.structured.proba_from(features, logits),
        )
        found: Array = 0.0
        for weight, make in zip(self.weights, makers, strict=True):
            if not logits.is_numpy or weight > 0.0:  # a graph is traced for all weights
                found = found + make() * weight
        return found / logits.xp.sum(found, axis=1, keepdims=True)


def average(parts: tuple[Array, ...], weights: Array, logits: Logits) -> Array:
    """Probabilities (n, classes) averaged by weights (3,)."""
    first, second, third = parts
    found = first * weights[0] + second * weights[1] + third * weights[2]
    return found / logits.xp.sum(found, axis=1, keepdims=True)


def as_log_proba(proba: Array, logits: Logits) -> Logits:
    """Logits whose softmax are these probabilities (n, classes); the same classes are possible."""
    xp = logits.xp
    possible = xp.where(logits.possible, proba, xp.ones_like(proba))
    values = xp.where(logits.possible, xp.log(xp.clip(possible, LEAST, None)), -xp.inf)
    return Logits(values, xp.max(values, axis=1), logits.backend)
