"""The rules with a row correction: the default's, adaptive temperature scaling, and retired ones.

The row correction is a temperature and a shift of the label for each row. With the
log-probabilities L of a row, its most likely class c and margins d_k = L_c - L_k,

    scores_k = -a d_k  for k != c,    scores_c = b,    a = exp(f . log_scale),  b = f . shift,

where f are 1 and the standardised features of the row: the log-odds that its label survives Gumbel
noise of several widths (its label stabilities), the entropy, and the mean and the standard
deviation of the margins. The corrected probabilities are the softmax of the scores.

Rules of files of earlier versions, which no fit makes any more, are read, and predict: the default
of 0.2 to 0.4 averaged the probabilities of three candidates, or scaled each class.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Annotated, Any, ClassVar

import numpy as np

from hokical._core.arrays import Array, FloatArray, Namespace
from hokical._core.checks import ArrayOf, Checked, Temperature, check_array
from hokical._core.logits import MAX_MARGIN, Logits, at_label, put_at_label, put_masked
from hokical._core.special import (
    at_most,
    clip,
    exponential,
    normalized_exponential,
    plus,
    row_dots,
    row_sums,
    times,
)
from hokical._core.storage import record_class, storable
from hokical.rules.base import Rule, as_log_proba, as_scores, floored_margins, softmax, uncalibrated
from hokical.rules.scaling import StructuredRule, mix_evenly

#: Widths of the Gumbel noise. Each is half of the one before, so that squares of one exponential
#: serve all.
WIDTHS = (4.0, 2.0, 1.0, 0.5)
#: Label stabilities, then the entropy, and mean and standard deviation of the margins.
N_FEATURES = len(WIDTHS) + 3
#: Log-odds are clipped to the first two, and margins for their mean and deviation to the third.
LEAST_LOG_ODDS, LARGEST_LOG_ODDS, LARGEST_MARGIN = -8.0, 20.0, 50.0
#: The same for what the other classes sum to, in units of the label.
LEAST_REST, LARGEST_REST = exp(-LARGEST_LOG_ODDS), exp(-LEAST_LOG_ODDS)
#: Standardised features, the log of the scale and the shift are clipped to plus and minus these.
LARGEST_FEATURE, LARGEST_LOG_SCALE, LARGEST_SHIFT = 4.0, 3.0, 4.0
#: Where labels are kept, their score is above all others by this, which float32 can show.
LEAST_LEAD = 1e-6


@storable("row-correction")
@dataclass(frozen=True, eq=False)
class RowCorrection(Checked):
    """`centre` and `spread` (7,) standardise features; `log_scale` and `shift` (8,) weigh them."""

    centre: Annotated[FloatArray, ArrayOf((N_FEATURES,))]
    spread: Annotated[FloatArray, ArrayOf((N_FEATURES,), 1e-100)]
    log_scale: Annotated[FloatArray, ArrayOf((1 + N_FEATURES,))]
    shift: Annotated[FloatArray, ArrayOf((1 + N_FEATURES,))]

    def __str__(self) -> str:
        return (
            f"a temperature and a shift of the label for each row, by {N_FEATURES} features of it"
        )

    def scores(self, logits: Logits) -> Array:
        """Scores (n, columns)."""
        return corrected_scores(logits, *self.scale_and_shift(logits))

    def scale_and_shift(self, logits: Logits, temperature: Array = 1.0) -> tuple[Array, Array]:
        """a and b, (n,) each, of logits divided by a temperature."""
        xp = logits.xp
        design = standardise(row_features(logits, temperature), self.centre, self.spread, xp)
        weights = xp.stack([self.log_scale, self.shift], axis=1)[:, :, None]
        found = weights[0, :, :]
        # Term by term, as matrix products and NumPy's sums round by the number of rows.
        for place in range(1, 1 + N_FEATURES):
            found = found + weights[place, :, :] * design[place, :]
        log_scale = clip(found[0, :], -LARGEST_LOG_SCALE, LARGEST_LOG_SCALE, xp)
        return xp.exp(log_scale), clip(found[1, :], -LARGEST_SHIFT, LARGEST_SHIFT, xp)


def corrected_scores(logits: Logits, scale: Array, shift: Array) -> Array:
    """Minus `scale` (n,) times the margins, (n, columns), and `shift` (n,) for the label."""
    return put_at_label(logits.margins * -scale[:, None], shift[:, None], logits)


def row_features(logits: Logits, temperature: Array = 1.0) -> Array:
    """The features (7, n) of logits divided by a temperature; a tail counts as classes."""
    xp, tail = logits.xp, logits.tail
    odds = exponential(logits.margins * (-1.0 / (WIDTHS[0] * temperature)), xp)
    odds = put_at_label(odds, 0.0 * odds[:, :1], logits)
    inside = at_most(logits.margins * (1.0 / temperature), LARGEST_MARGIN, xp)
    inside = put_masked(inside, 0.0, logits)
    sums = [row_sums(inside, xp), row_dots(inside, inside, xp)]
    hidden, beside = 0.0, 0.0
    if tail is not None:
        hidden = xp.exp(tail.margin * (-1.0 / (WIDTHS[0] * temperature)))
        beside = at_most(tail.margin / temperature, LARGEST_MARGIN, xp)
        sums = [s + tail.count * beside**power for power, s in enumerate(sums, 1)]
    rests, entropy = [], 0.0
    for place, width in enumerate(WIDTHS):
        if place:
            odds = times(odds, odds, xp)
            hidden = hidden * hidden
        rest = row_sums(odds, xp) + (0.0 if tail is None else tail.count * hidden)
        rests.append(rest)
        if width == 1.0:
            mean = row_dots(odds, inside, xp)
            mean = mean + (0.0 if tail is None else tail.count * hidden * beside)
            entropy = xp.log1p(rest) + mean / (1.0 + rest)
    stabilities = -xp.log(clip(xp.stack(rests, axis=0), LEAST_REST, LARGEST_REST, xp))
    mean, square = (total / logits.possible_counts for total in sums)
    others = xp.stack([entropy, mean, _root(square - mean * mean, xp)], axis=0)
    return xp.concat([stabilities, others], axis=0)


def _root(variance: Array, xp: Namespace) -> Array:
    """Square roots (n,), 0 below 0, with finite gradients."""
    positive, ones = variance > 0.0, xp.ones_like(variance)
    return xp.where(positive, xp.sqrt(xp.where(positive, variance, ones)), 0.0 * ones)


def standardise(features: Array, centre: Array, spread: Array, xp: Namespace) -> Array:
    """1 and the standardised features, (8, n)."""
    unit = (features - centre[:, None]) / spread[:, None]
    unit = clip(unit, -LARGEST_FEATURE, LARGEST_FEATURE, xp)
    return xp.concat([xp.ones_like(unit[:1, :]), unit], axis=0)


#: The candidates whose probabilities are averaged, in the order of the weights, and their titles.
CANDIDATES = {
    "uncalibrated": "the uncalibrated probabilities",
    "temps": "temperature scaling",
    "structured": "structured scaling",
}


@storable("auto-average")
@dataclass(frozen=True, eq=False)
class Average(Checked):
    """Probabilities averaged with `weights` (3,) over `CANDIDATES`.

    The last two candidates share the floor and the temperature of `structured`.
    """

    weights: Annotated[FloatArray, ArrayOf((len(CANDIDATES),), 0.0, 1.0)]
    structured: StructuredRule

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.weights.sum() - 1.0) > 0.01:  # stored as half precision, they may be off
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")

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


@dataclass(frozen=True, eq=False)
class AutoRule(Rule):
    """The softmax of the scores of `base`, after the row `correction` where there is one.

    A share `base.even` of the uniform distribution comes last.
    """

    name: ClassVar[str] = "auto"

    base: StructuredRule
    correction: RowCorrection | None
    keep_labels: bool

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


@dataclass(frozen=True, eq=False)
class AdaptiveRule(Rule):
    """The softmax at `temperature` after the `correction`, whose shift leaves the label on top."""

    name: ClassVar[str] = "adaptive"
    accepts_top_k: ClassVar[bool] = True

    temperature: Temperature
    correction: RowCorrection

    def _scale_and_shift(self, logits: Logits) -> tuple[Array, Array]:
        """What multiplies the margins, and the label's score, (n,) each."""
        scale, shift = self.correction.scale_and_shift(logits, self.temperature)
        scale = scale / self.temperature
        gaps = clip(logits.gaps, 0.0, MAX_MARGIN, logits.xp)  # finite, for the gradient's sake
        return scale, logits.xp.maximum(shift, LEAST_LEAD - scale * gaps)

    def confidence(self, logits: Logits) -> Array:
        xp, tail = logits.xp, logits.tail
        if tail is None:
            return at_label(self.proba(logits), logits)
        scale, shift = self._scale_and_shift(logits)
        odds = xp.exp(logits.margins * -scale[:, None])
        rest = xp.sum(put_at_label(odds, 0.0 * odds[:, :1], logits), axis=1)
        rest = rest + tail.count * xp.exp(tail.margin * -scale)
        return 1.0 / (1.0 + rest * xp.exp(-shift))

    def proba(self, logits: Logits) -> Array:
        return softmax(corrected_scores(logits, *self._scale_and_shift(logits)), logits)
