"""The default's rule: an average of candidates, half of it corrected by the stability profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hokical.core.arrays import Array
from hokical.core.logits import Logits
from hokical.core.types import FloatArray
from hokical.rules.base import Rule
from hokical.rules.checks import check_array, store_float, store_temperature
from hokical.rules.probabilities import softmax
from hokical.rules.profile import ProfileRule
from hokical.rules.structured import StructuredRule, structured_features

#: The candidates whose probabilities are averaged, in the order of the weights.
PARTS = ("uncalibrated", "temps", "vector", "matrix")
#: Probabilities below this count as this, so that their logarithm is finite.
LEAST = 1e-300
#: The share of the profile's answer, where there is one: half of its correction proved safest.
PROFILE_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class AutoRule(Rule):
    """Probabilities averaged with `weights` (4,) over `PARTS`, then half of the `profile` of those.

    `vector` and `matrix` are structured scaling without and with cross terms, None where their
    weight is 0. All candidates but the first share `floor` and `temperature`.
    """

    name: ClassVar[str] = "auto"

    weights: FloatArray
    floor: float
    temperature: float
    vector: StructuredRule | None
    matrix: StructuredRule | None
    profile: ProfileRule | None
    keep_labels: bool

    def __post_init__(self) -> None:
        check_array("weights", self.weights, (len(PARTS),), 0.0, 1.0)
        if abs(self.weights.sum() - 1.0) > 0.01:  # stored as half precision, they may be off
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")
        store_float(self, "floor", 0.0, 1.0)
        store_temperature(self)
        parts = {"vector": self.vector, "matrix": self.matrix}
        for weight, (name, part) in zip(self.weights[2:], parts.items(), strict=True):
            if (weight > 0.0) != isinstance(part, StructuredRule):
                raise ValueError(f"`{name}` must be a rule if its weight is above 0, else None.")
            if part and (part.floor, part.temperature) != (self.floor, self.temperature):
                raise ValueError(f"`{name}` must have the floor and temperature of the others.")
        if self.vector and self.matrix and self.vector.n_classes != self.matrix.n_classes:
            raise ValueError("`vector` and `matrix` must be for the same number of classes.")
        if not isinstance(self.profile, ProfileRule | None):
            raise ValueError(f"`profile` must be a ProfileRule or None; got {self.profile!r}.")
        if not isinstance(self.keep_labels, bool):
            raise ValueError(f"`keep_labels` must be True or False; got {self.keep_labels!r}.")

    @property
    def preserves_labels(self) -> bool:  # type: ignore[override]
        return self.keep_labels

    @property
    def n_classes(self) -> int | None:
        part = self.vector or self.matrix
        return part.n_classes if part else None

    def proba(self, logits: Logits) -> Array:
        average = self.average(logits)
        if self.profile is None:
            return average
        corrected = self.profile.proba(as_log_proba(average, logits))
        return PROFILE_SHARE * corrected + (1.0 - PROFILE_SHARE) * average

    def average(self, logits: Logits) -> Array:
        """The candidates' probabilities, averaged, (n, classes)."""
        structured = {2: self.vector, 3: self.matrix}
        parts = candidate_probabilities(logits, self.floor, self.temperature, structured)
        return average(parts, self.weights, logits)


def candidate_probabilities(
    logits: Logits,
    floor: Array,
    temperature: Array,
    structured: Mapping[int, StructuredRule | None],
) -> dict[int, Array]:
    """Probabilities (n, classes) by each candidate there is, by its place in `PARTS`."""
    features = structured_features(logits, floor, temperature)
    found = {0: softmax(-logits.margins, logits), 1: softmax(features[0], logits)}
    for place, rule in structured.items():
        if rule is not None:
            found[place] = rule.proba_from(features, logits)
    return found


def average(parts: dict[int, Array], weights: Array, logits: Logits) -> Array:
    """Probabilities (n, classes) averaged by weights (4,)."""
    first, *others = parts
    found = parts[first] * weights[first]
    for place in others:
        found = found + parts[place] * weights[place]
    return found / logits.xp.sum(found, axis=1, keepdims=True)


def as_log_proba(proba: Array, logits: Logits) -> Logits:
    """Logits whose softmax are these probabilities (n, classes); the same classes are possible."""
    xp = logits.xp
    possible = xp.where(logits.possible, proba, xp.ones_like(proba))
    values = xp.where(logits.possible, xp.log(xp.clip(possible, LEAST, None)), -xp.inf)
    return Logits(values, xp.max(values, axis=1), logits.backend, logits.total)
