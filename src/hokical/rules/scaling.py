"""Softmaxes of scaled logits: temperature, vector, ensemble and structured scaling; the
default.

Structured scaling is a conditional logit on smoothed, tempered log-probabilities: class
k gets the score

    scale_k z_k + bias_k + sum_j cross_kj z_j
        + shape . [log(1 - p_k), p_k],

where p is the softmax of log(softmax(logits) + floor) / temperature and z its
logarithm. Without shape terms, z is log(p / p of the label).

A row correction, as the default and adaptive temperature scaling have one, is a
temperature and a shift of the label for each row. With the log-probabilities L of a
row, its most likely class c and margins d_k = L_c - L_k,

    scores_k = -a d_k  for k != c,    scores_c = b,    a = exp(f . log_scale),  b = f .
    shift,

where f are 1 and the standardised features of the row: the log-odds that its label
survives Gumbel noise of several widths (its label stabilities), the entropy, and the
mean and the standard deviation of the margins. The corrected probabilities are the
softmax of the scores.

Rules of files of earlier versions are read, and predict: the default of 0.2 to 0.4
averaged the probabilities of three candidates, or scaled each class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import exp
from operator import add, attrgetter
from typing import Annotated, ClassVar

import numpy as np

from hokical._core import special
from hokical._core.arrays import Array, FloatArray, Namespace
from hokical._core.checks import ArrayOf, Checked, Share, Temperature, check_array
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.special import clip, exponential, plus, row_sums, times
from hokical._core.storage import storable
from hokical.rules import base
from hokical.rules.base import Rule, SoftmaxRule, as_scores, floored_scores, softmax
from hokical.stability import gumbel

#: How far from 1 rounding to float32, as of a state dict, may put the sum of the
#: weights.
_ROUNDING = 1e-6
PerClass = Annotated[FloatArray, ArrayOf(("classes",))]


@dataclass(frozen=True)
class TemperatureRule(SoftmaxRule):
    """The softmax of logits divided by `temperature`."""

    name: ClassVar[str] = "temps"

    temperature: Temperature


@dataclass(frozen=True, eq=False)
class VectorRule(Rule):
    """softmax(`scale` * log-probabilities + `bias`), both (classes,)."""

    name: ClassVar[str] = "vecs"
    preserves_labels: ClassVar[bool] = False

    scale: PerClass
    bias: PerClass

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        return 2 * self.n_classes

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def proba(self, logits: Logits) -> Array:
        features = base.log_probabilities(logits)
        return softmax(features * self.scale[None, :] + self.bias[None, :], logits)


@dataclass(frozen=True, eq=False)
class EnsembleRule(Rule):
    """Softmax at `temperature`, plain softmax and uniform distribution, mixed by
    `weights` (3,).
    """

    name: ClassVar[str] = "ets"
    accepts_top_k: ClassVar[bool] = True

    temperature: Temperature
    weights: Annotated[FloatArray, ArrayOf((3,), 0.0, 1.0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.weights.sum() - 1.0) > _ROUNDING:
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")

    def confidence(self, logits: Logits) -> Array:
        scaled, plain = (
            gumbel.stability(logits, scale) for scale in (self.temperature, 1.0)
        )
        return self._mix(scaled, plain, 1.0 / logits.possible_counts, logits)

    def proba(self, logits: Logits) -> Array:
        xp = logits.xp
        scaled, plain = (
            gumbel.distribution(logits, scale) for scale in (self.temperature, 1.0)
        )
        even = xp.where(logits.possible, 1.0 / logits.possible_counts[:, None], 0.0)
        return base.first_maximum(self._mix(scaled, plain, even, logits), logits)

    def _mix(self, scaled: Array, plain: Array, even: Array, logits: Logits) -> Array:
        """Their mean by the weights, which rounding must not lift above 1."""
        first, second, third = (self.weights[i] for i in range(3))
        return logits.xp.clip(first * scaled + second * plain + third * even, None, 1.0)


#: How many shape terms there are. In files of earlier versions there is a third, log(1
#: - p_k) at this many temperatures.
N_SHAPES = 2
SOFTER = 3.0
#: Least probability of another class that the shape terms distinguish from 0.
LEAST_OTHERS = 1e-12


@dataclass(frozen=True, eq=False)
class StructuredRule(Rule):
    """`scale` and `bias` (classes,), `shape` (2,), `cross` (classes, classes); or (0,)
    and (0, 0).

    `even` is the share of the uniform distribution over the possible classes in the
    probabilities.
    """

    name: ClassVar[str] = "structured"
    preserves_labels: ClassVar[bool] = False

    floor: Share
    temperature: Temperature
    shape: FloatArray
    scale: PerClass
    bias: PerClass
    cross: FloatArray
    even: Share

    def __post_init__(self) -> None:
        super().__post_init__()
        size = np.size(self.shape)
        n_classes = self.scale.shape[0]
        check_array(
            "shape", self.shape, (size if size in (0, N_SHAPES + 1) else N_SHAPES,)
        )
        check_array("cross", self.cross, (n_classes if np.size(self.cross) else 0,) * 2)

    def __str__(self) -> str:
        phrases = [f"temperature {self.temperature:.5g}", f"floor {self.floor:.3g}"]
        phrases.append(f"a scale and a bias for each of {self.n_classes} classes")
        phrases += ["two shape terms"] * bool(self.shape.size)
        return ", ".join(phrases + ["terms between classes"] * bool(self.cross.size))

    @property
    def n_classes(self) -> int:
        return int(self.scale.shape[0])

    def proba(self, logits: Logits) -> Array:
        return mix_evenly(softmax(self.scores(logits), logits), self.even, logits)

    def scores(self, logits: Logits) -> Array:
        """Scores (n, classes), whatever where masked."""
        xp = logits.xp
        factor = 1.0 / self.temperature
        if not self.shape.shape[0]:
            scaled = floored_scores(logits, self.floor, (self.scale * factor)[None, :])
            return plus(scaled, self.bias[None, :], xp)
        z, *shapes = shape_features(
            floored_scores(logits, self.floor, factor), logits, self.shape.shape[0]
        )
        scores = plus(z * self.scale[None, :], self.bias[None, :], xp)
        if self.cross.shape[0]:
            scores = plus(
                scores, special.contract(z, xp.permute_dims(self.cross, (1, 0)), xp), xp
            )
        for index, shape in enumerate(shapes):
            scores = plus(scores, times(shape, self.shape[index], xp), xp)
        return scores


def mix_evenly(proba: Array, even: Array, logits: Logits) -> Array:
    """Probabilities (n, classes) mixed with a share `even` of uniform ones on possible
    classes.

    NumPy's are overwritten.
    """
    xp = logits.xp
    if logits.is_numpy and even == 0.0:
        return proba
    uniform = 1.0 / logits.n_classes
    if not logits.all_possible:
        uniform = (
            xp.astype(logits.possible, xp.float64) / logits.possible_counts[:, None]
        )
    return plus(times(proba, 1.0 - even, xp), even * uniform, xp)


def shape_features(
    scores: Array, logits: Logits, n_shapes: int = N_SHAPES
) -> tuple[Array, ...]:
    """z and the shape terms (n, classes) from tempered scores (n, classes), at most 0.

    A masked class counts as the least likely of the possible ones, so that cross terms
    stay finite; its own probability is 0 anyway. The second shape term is the softmax
    of the scores, 0 for a masked class. NumPy's scores are overwritten.
    """
    xp = logits.xp
    if not logits.all_possible:
        scores = xp.where(logits.possible, scores, xp.zeros_like(scores))
        lowest = xp.min(scores, axis=1, keepdims=True)
        scores = xp.where(logits.possible, scores, lowest)
    scores = clip(scores, -special.FAR, None, xp)
    p, norm, miss = _softmax_parts(xp.exp(scores), logits)
    shapes = [miss, p]
    if n_shapes > N_SHAPES:
        shapes.append(_softmax_parts(xp.exp(scores * (1.0 / SOFTER)), logits)[2])
    return plus(scores, -norm, xp), *shapes


def _softmax_parts(odds: Array, logits: Logits) -> tuple[Array, Array, Array]:
    """Probabilities, minus the log of the label's (n, 1), and log(1 - probabilities).

    From the odds (n, classes) of every class to the label, which NumPy's are
    overwritten by. The label's 1 - p is the sum of the others, which is precise where p
    is near 1.
    """
    xp = logits.xp
    rivals = logits.put_masked(logits.clear_label(odds), 0.0)
    rival_odds = row_sums(rivals, xp)[:, None]
    share = 1.0 / (1.0 + rival_odds)
    p = logits.put_at_label(times(rivals, share, xp), share)
    miss = logits.put_at_label(1.0 - p, rival_odds * share)
    miss = clip(miss, LEAST_OTHERS, None, xp)
    return p, xp.log1p(rival_odds), np.log(miss, out=miss) if xp is np else xp.log(miss)


#: Widths of the Gumbel noise. Each is half of the one before, so that squares of one
#: exponential serve all.
WIDTHS = (4.0, 2.0, 1.0, 0.5)
#: Features of a row besides its label stabilities, in the order of `row_features`.
OTHER_FEATURES = ("entropy", "mean margin", "standard deviation of the margins")
#: Every size of the row correction follows from these two.
N_FEATURES = len(WIDTHS) + len(OTHER_FEATURES)
N_COEFFICIENTS = 1 + N_FEATURES
#: Log-odds are clipped to the first two, and margins for their mean and deviation to
#: the third.
LEAST_LOG_ODDS = -8.0
LARGEST_LOG_ODDS = 20.0
LARGEST_MARGIN = 50.0
#: The same for what the other classes sum to, in units of the label.
LEAST_REST = exp(-LARGEST_LOG_ODDS)
LARGEST_REST = exp(-LEAST_LOG_ODDS)
#: Standardised features, the log of the scale and the shift are clipped to plus and
#: minus these.
LARGEST_FEATURE = 4.0
LARGEST_LOG_SCALE = 3.0
LARGEST_SHIFT = 4.0
#: Where labels are kept, their score is above all others by this, which float32 can
#: show.
LEAST_LEAD = 1e-6


@storable("row-correction")
@dataclass(frozen=True, eq=False)
class RowCorrection(Checked):
    """`centre` and `spread` (features,) standardise features; `log_scale` and
    `shift` (1 + features,) weigh a constant 1 and them.
    """

    centre: Annotated[FloatArray, ArrayOf((N_FEATURES,))]
    spread: Annotated[FloatArray, ArrayOf((N_FEATURES,), 1e-100)]
    log_scale: Annotated[FloatArray, ArrayOf((N_COEFFICIENTS,))]
    shift: Annotated[FloatArray, ArrayOf((N_COEFFICIENTS,))]

    def __str__(self) -> str:
        return (
            f"a temperature and a shift of the label for each row, by {N_FEATURES} "
            "features of it"
        )

    def scores(self, logits: Logits) -> Array:
        """Scores (n, columns)."""
        return corrected_scores(logits, *self.scale_and_shift(logits))

    def proba(self, logits: Logits) -> Array:
        """The softmax (n, columns) of the scores, which are at most `LARGEST_SHIFT`."""
        scale, shift = self.scale_and_shift(logits)
        xp = logits.xp
        odds = exponential(logits.margins * -scale[:, None], xp)
        odds = logits.put_at_label(odds, xp.exp(shift)[:, None])
        return times(odds, 1.0 / row_sums(odds, xp)[:, None], xp)

    def scale_and_shift(
        self, logits: Logits, temperature: Array = 1.0
    ) -> tuple[Array, Array]:
        """a and b, (n,) each, of logits divided by a temperature."""
        xp = logits.xp
        features = row_features(logits, temperature)
        unit = standardise(features, self.centre, self.spread, xp)
        weights = special.stack_rows([self.log_scale, self.shift], xp)
        sums = weights[:, :1] + _weigh_features(weights[:, 1:], unit, xp)
        log_scale = clip(sums[0, :], -LARGEST_LOG_SCALE, LARGEST_LOG_SCALE, xp)
        return xp.exp(log_scale), clip(sums[1, :], -LARGEST_SHIFT, LARGEST_SHIFT, xp)


def corrected_scores(logits: Logits, scale: Array, shift: Array) -> Array:
    """Minus `scale` (n,) times the margins, (n, columns), and `shift` (n,) for the
    label.
    """
    return logits.put_at_label(logits.margins * -scale[:, None], shift[:, None])


def row_features(logits: Logits, temperature: Array = 1.0) -> Array:
    """The features (features, n) of logits divided by a temperature; a tail counts
    as classes.
    """
    xp = logits.xp
    tail = logits.tail
    odds = exponential(logits.margins * (-1.0 / (WIDTHS[0] * temperature)), xp)
    odds = logits.clear_label(odds)
    is_plain = isinstance(temperature, float) and temperature == 1.0
    inside = logits.margins if is_plain else logits.margins * (1.0 / temperature)
    inside = clip(inside, None, LARGEST_MARGIN, xp)
    inside = logits.put_masked(inside, 0.0)
    sums = [row_sums(inside, xp), special.row_dots(inside, inside, xp)]
    hidden = 0.0
    beside = 0.0
    if tail is not None:
        hidden = xp.exp(tail.margin * (-1.0 / (WIDTHS[0] * temperature)))
        beside = clip(tail.margin / temperature, None, LARGEST_MARGIN, xp)
        sums = [s + tail.count * beside**power for power, s in enumerate(sums, 1)]
    rival_odds_by_width = []
    entropy = 0.0
    for index, width in enumerate(WIDTHS):
        if index:
            odds = times(odds, odds, xp)
            hidden = hidden * hidden
        rival_odds = row_sums(odds, xp) + (0.0 if tail is None else tail.count * hidden)
        rival_odds_by_width.append(rival_odds)
        if width == 1.0:
            mean = special.row_dots(odds, inside, xp)
            mean = mean + (0.0 if tail is None else tail.count * hidden * beside)
            entropy = xp.log1p(rival_odds) + mean / (1.0 + rival_odds)
    stabilities = -xp.log(
        clip(special.stack_rows(rival_odds_by_width, xp), LEAST_REST, LARGEST_REST, xp)
    )
    mean, square = (total / logits.possible_counts for total in sums)
    variance = square - mean * mean
    margin_features = special.stack_rows(
        [entropy, mean, special.safe_sqrt(variance, xp)], xp
    )
    return xp.concat([stabilities, margin_features], axis=0)


def standardise(features: Array, centre: Array, spread: Array, xp: Namespace) -> Array:
    """Standardised features (features, n)."""
    unit = (features - centre[:, None]) / spread[:, None]
    return clip(unit, -LARGEST_FEATURE, LARGEST_FEATURE, xp)


def _weigh_features(weights: Array, unit: Array, xp: Namespace) -> Array:
    """weights (2, features) times features (features, n), term by term: matrix products
    and NumPy's sums round by the number of rows.
    """
    if xp is not np:
        return reduce(
            add, (weights[:, i : i + 1] * unit[i, :] for i in range(N_FEATURES))
        )
    several = unit if unit.shape[1] > 1 else np.repeat(unit, 2, axis=1)
    return np.einsum("cf,fn->cn", weights, several)[:, : unit.shape[1]]


@dataclass(frozen=True, eq=False)
class AutoRule(Rule):
    """The softmax of the scores of `base`, after the row `correction` where there is
    one.

    A share `base.even` of the uniform distribution comes last.
    """

    name: ClassVar[str] = "auto"

    base: StructuredRule
    correction: RowCorrection | None
    keep_labels: bool

    preserves_labels = property(attrgetter("keep_labels"))
    n_classes = property(attrgetter("base.n_classes"))

    def proba(self, logits: Logits) -> Array:
        scores = self.base.scores(logits)
        if self.correction is None:
            return mix_evenly(softmax(scores, logits), self.base.even, logits)
        proba = self.correction.proba(as_scores(scores, logits))
        return mix_evenly(proba, self.base.even, logits)


@dataclass(frozen=True, eq=False)
class AdaptiveRule(Rule):
    """The softmax at `temperature` after the `correction`, whose shift leaves the
    label on top.
    """

    name: ClassVar[str] = "adaptive"
    accepts_top_k: ClassVar[bool] = True

    temperature: Temperature
    correction: RowCorrection

    def _scale_and_shift(self, logits: Logits) -> tuple[Array, Array]:
        """What multiplies the margins, and the label's score, (n,) each."""
        scale, shift = self.correction.scale_and_shift(logits, self.temperature)
        scale = scale / self.temperature
        gaps = clip(
            logits.gaps, 0.0, MAX_MARGIN, logits.xp
        )  # finite, for the gradient's sake
        return scale, logits.xp.maximum(shift, LEAST_LEAD - scale * gaps)

    def confidence(self, logits: Logits) -> Array:
        xp = logits.xp
        tail = logits.tail
        if tail is None:
            return logits.at_label(self.proba(logits))
        scale, shift = self._scale_and_shift(logits)
        odds = xp.exp(logits.margins * -scale[:, None])
        rival_odds = xp.sum(logits.put_at_label(odds, 0.0 * odds[:, :1]), axis=1)
        rival_odds = rival_odds + tail.count * xp.exp(tail.margin * -scale)
        return 1.0 / (1.0 + rival_odds * xp.exp(-shift))

    def proba(self, logits: Logits) -> Array:
        return softmax(corrected_scores(logits, *self._scale_and_shift(logits)), logits)
