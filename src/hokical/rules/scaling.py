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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import exp, sqrt
from operator import add, attrgetter, mul
from typing import Annotated, Any, ClassVar, Self

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


#: Shape terms, in the order of `shape_features`. A new one comes last, so that rules of
#: files without it predict as before.
SHAPE_TERMS = ("log(1 - p)", "p")
N_SHAPES = len(SHAPE_TERMS)
#: Least probability of another class that the shape terms distinguish from 0.
LEAST_OTHERS = 1e-12


@dataclass(frozen=True, eq=False)
class StructuredRule(Rule):
    """`scale` and `bias` (classes,), `shape` (shape terms,), `cross` (classes,
    classes); or (0,) and (0, 0).

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
        n_classes = self.scale.shape[0]
        check_array("shape", self.shape, (min(np.size(self.shape), N_SHAPES),))
        check_array("cross", self.cross, (n_classes if np.size(self.cross) else 0,) * 2)

    def __str__(self) -> str:
        phrases = [f"temperature {self.temperature:.5g}", f"floor {self.floor:.3g}"]
        phrases.append(f"a scale and a bias for each of {self.n_classes} classes")
        phrases += [f"{self.shape.size} shape terms"] * bool(self.shape.size)
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
        z, *shapes = shape_features(floored_scores(logits, self.floor, factor), logits)
        scores = plus(z * self.scale[None, :], self.bias[None, :], xp)
        if self.cross.shape[0]:
            scores = plus(
                scores, special.contract(z, xp.permute_dims(self.cross, (1, 0)), xp), xp
            )
        for index, shape in enumerate(shapes[: self.shape.shape[0]]):
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


def shape_features(scores: Array, logits: Logits) -> tuple[Array, ...]:
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
    return plus(scores, -norm, xp), miss, p


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
#: Features of a row besides its label stabilities, in the order of `row_features`. A
#: new one comes last, so that files without it can be read: `RowCorrection.from_stored`.
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
#: Rows up to which a scale and a shift are found row by row; one row of few classes is
#: computed twice.
FEW_ROWS = 2


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

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The correction of a file, which may be of a version with fewer features.

        Features that were added since then come last, and have no weight.
        """
        n_added = N_FEATURES - np.size(stored["centre"])
        if 0 < n_added < N_FEATURES:
            unused = {"centre": 0.0, "spread": 1.0, "log_scale": 0.0, "shift": 0.0}
            stored = stored | {
                name: np.append(stored[name], np.full(n_added, number))
                for name, number in unused.items()
            }
        return cls(**stored)

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
        sums = _sum_rows(logits, temperature)
        if logits.is_numpy and logits.n_rows <= FEW_ROWS:
            rows = [self._log_scale_and_shift(row) for row in np.array(sums).T.tolist()]
            log_scale, shift = np.array(rows).T
            return np.exp(log_scale), shift
        unit = standardise(_features(sums, xp), self.centre, self.spread, xp)
        weights = special.stack_rows([self.log_scale, self.shift], xp)
        weighted = _weigh_features(weights, unit, xp)
        log_scale = clip(weighted[0, :], -LARGEST_LOG_SCALE, LARGEST_LOG_SCALE, xp)
        shift = clip(weighted[1, :], -LARGEST_SHIFT, LARGEST_SHIFT, xp)
        return xp.exp(log_scale), shift

    def odds_of_row(self, margins: list[float]) -> list[float]:
        """What the `proba` of one row without masked classes are in proportion to."""
        label = margins.index(0.0)
        log_scale, shift = self._log_scale_and_shift(_sums_of_row(margins, label))
        scale, label_odds = _exp([log_scale, shift])
        odds = _exp([margin * -scale for margin in margins])
        odds[label] = label_odds
        return odds

    def _log_scale_and_shift(self, sums: list[float]) -> tuple[float, float]:
        """The log of a, and b, of one row from its `_sum_rows`.

        To the bit what arrays give; but an operation on an array of one number takes as
        long as twenty on floats.
        """
        centres = self.centre.tolist()
        spreads = self.spread.tolist()
        units = [
            _limit((feature - centre) / spread, LARGEST_FEATURE)
            for feature, centre, spread in zip(
                _features_of_row(sums), centres, spreads, strict=True
            )
        ]
        log_scale = _weigh_row(self.log_scale.tolist(), units)
        shift = _weigh_row(self.shift.tolist(), units)
        return _limit(log_scale, LARGEST_LOG_SCALE), _limit(shift, LARGEST_SHIFT)


def corrected_scores(logits: Logits, scale: Array, shift: Array) -> Array:
    """Minus `scale` (n,) times the margins, (n, columns), and `shift` (n,) for the
    label.
    """
    return logits.put_at_label(logits.margins * -scale[:, None], shift[:, None])


def row_features(logits: Logits, temperature: Array = 1.0) -> Array:
    """The features (features, n) of logits divided by a temperature; a tail counts
    as classes.
    """
    return _features(_sum_rows(logits, temperature), logits.xp)


def _sum_rows(logits: Logits, temperature: Array) -> list[Array]:
    """Sums over the classes of each row, (n,) each, from which its features follow.

    The odds of the other classes to the label for every width of the noise; margins
    times odds at the width 1; margins and their squares; and the number of classes.
    """
    xp = logits.xp
    tail = logits.tail
    odds = exponential(logits.margins * (-1.0 / (WIDTHS[0] * temperature)), xp)
    odds = logits.clear_label(odds)
    is_plain = isinstance(temperature, float) and temperature == 1.0
    inside = logits.margins if is_plain else logits.margins * (1.0 / temperature)
    inside = clip(inside, None, LARGEST_MARGIN, xp)
    inside = logits.put_masked(inside, 0.0)
    sums = [row_sums(inside, xp), _row_dots(inside, inside, logits)]
    hidden = 0.0
    beside = 0.0
    if tail is not None:
        hidden = xp.exp(tail.margin * (-1.0 / (WIDTHS[0] * temperature)))
        beside = clip(tail.margin / temperature, None, LARGEST_MARGIN, xp)
        sums = [s + tail.count * beside**power for power, s in enumerate(sums, 1)]
    rival_odds = []
    drawn = 0.0
    for index, width in enumerate(WIDTHS):
        if index:
            odds = times(odds, odds, xp)
            hidden = hidden * hidden
        total = row_sums(odds, xp)
        rival_odds.append(total if tail is None else total + tail.count * hidden)
        if width == 1.0:
            drawn = _row_dots(odds, inside, logits)
            if tail is not None:
                drawn = drawn + tail.count * hidden * beside
    return [*rival_odds, drawn, *sums, logits.possible_counts]


def _row_dots(left: Array, right: Array, logits: Logits) -> Array:
    """Products of the rows of two tables, (n,); of few classes class after class, as
    `_sums_of_row` has them.
    """
    if logits.is_numpy and logits.order == "F":
        return row_sums(left * right, np)
    return special.row_dots(left, right, logits.xp)


def _features(sums: list[Array], xp: Namespace) -> Array:
    """The features (features, n) from the `_sum_rows`."""
    *rival_odds, drawn, total, square, count = sums
    rest = clip(special.stack_rows(rival_odds, xp), LEAST_REST, LARGEST_REST, xp)
    unit_odds = rival_odds[WIDTHS.index(1.0)]
    entropy = xp.log1p(unit_odds) + drawn / (1.0 + unit_odds)
    mean = total / count
    deviation = special.safe_sqrt(square / count - mean * mean, xp)
    others = special.stack_rows([entropy, mean, deviation], xp)
    return xp.concat([times(xp.log(rest), -1.0, xp), others], axis=0)


def _features_of_row(sums: list[float]) -> list[float]:
    """`_features` of one row, to the bit."""
    *rival_odds, drawn, total, square, count = sums
    rest = [min(max(odds, LEAST_REST), LARGEST_REST) for odds in rival_odds]
    unit_odds = rival_odds[WIDTHS.index(1.0)]
    entropy = float(np.log1p(unit_odds)) + drawn / (1.0 + unit_odds)
    mean = total / count
    deviation = sqrt(max(0.0, square / count - mean * mean))
    return [*(-np.log(np.array(rest))).tolist(), entropy, mean, deviation]


def _weigh_row(weights: list[float], units: list[float]) -> float:
    """`_weigh_features` of one row, by one row of weights."""
    return weights[0] + _sum(map(mul, weights[1:], units))


def _limit(number: float, largest: float) -> float:
    """A number between minus and plus the largest."""
    return min(max(number, -largest), largest)


def standardise(features: Array, centre: Array, spread: Array, xp: Namespace) -> Array:
    """Standardised features (features, n)."""
    away = features - centre[:, None]
    if xp is not np:
        return xp.clip(away / spread[:, None], -LARGEST_FEATURE, LARGEST_FEATURE)
    np.divide(away, spread[:, None], out=away)
    return away.clip(-LARGEST_FEATURE, LARGEST_FEATURE, out=away)


def _weigh_features(weights: Array, unit: Array, xp: Namespace) -> Array:
    """Weights (2, 1 + features) times 1 and features (features, n), term by term: matrix
    products round by the number of rows.
    """
    if xp is np:
        terms = weights[:, 1:, None] * unit
        return weights[:, :1] + np.add.reduce(terms, axis=1)
    products = (weights[:, i + 1 : i + 2] * unit[i, :] for i in range(N_FEATURES))
    return weights[:, :1] + reduce(add, products)


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
        if logits.is_numpy and logits.n_rows <= FEW_ROWS and logits.order == "F":
            few = self._proba_of_few(logits)
            if few is not None:
                return few
        scores = self.base.scores(logits)
        if self.correction is None:
            return mix_evenly(softmax(scores, logits), self.base.even, logits)
        proba = self.correction.proba(as_scores(scores, logits))
        return mix_evenly(proba, self.base.even, logits)

    def _proba_of_few(self, logits: Logits) -> FloatArray | None:
        """`proba` of a row or two of few classes, row by row; None where some class is
        masked, or the rule is of a version with fewer shape terms.
        """
        is_older = 0 < self.base.shape.size < N_SHAPES
        if is_older or not logits.all_possible:
            return None
        rows = logits.margins.tolist()
        first = self._proba_of_row(rows[0])
        is_same = rows[-1] == rows[0]  # one row is computed as two
        last = first if is_same else self._proba_of_row(rows[-1])
        return np.array([first, last][-len(rows) :], order="F")

    def _proba_of_row(self, margins: list[float]) -> list[float]:
        scores = _scores_of_row(self.base, margins)
        even = self.base.even
        highest = max(scores)
        if self.correction is None:
            odds = _exp([score - highest for score in scores])
        else:
            below = [highest - score for score in scores]
            odds = self.correction.odds_of_row(below)
        share = 1.0 / _sum(odds)
        if even == 0.0:
            return [k * share for k in odds]
        uniform = even * (1.0 / len(odds))
        return [k * share * (1.0 - even) + uniform for k in odds]


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
        # Finite, for the gradient's sake.
        gaps = clip(logits.gaps, 0.0, MAX_MARGIN, logits.xp)
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


# The default for one row of few classes, in plain floats. A call of NumPy takes as long
# as some twenty operations on floats, and the rule is a hundred calls. The operations
# are those above in the same order, so the results are the same to the bit.


def _scores_of_row(rule: StructuredRule, margins: list[float]) -> list[float]:
    """`StructuredRule.scores` of one row without masked classes."""
    factor = 1.0 / rule.temperature
    scales = rule.scale.tolist()
    biases = rule.bias.tolist()
    if not rule.shape.size:
        factors = [scale * factor for scale in scales]
        return list(map(add, _floored_row(margins, rule.floor, factors), biases))
    label = margins.index(0.0)
    tempered = _floored_row(margins, rule.floor, [factor] * len(margins))
    z, misses, proba = _shapes_of_row(tempered, label)
    between = [0.0] * len(z)
    if rule.cross.size:
        between = special.contract_row(z, rule.cross.T)
    by_miss, by_proba = rule.shape.tolist()
    return [
        k * scale + bias + others + miss * by_miss + p * by_proba
        for k, scale, bias, others, miss, p in zip(
            z, scales, biases, between, misses, proba, strict=True
        )
    ]


def _floored_row(
    margins: list[float], floor: float, factors: list[float]
) -> list[float]:
    """`floored_scores` of one row, with a factor for each class."""
    if floor == 0.0:
        return [
            margin * -factor for margin, factor in zip(margins, factors, strict=True)
        ]
    odds = _exp([-margin for margin in margins])
    floor_odds = _sum(odds) * floor
    logs = np.log(np.array([(k + floor_odds) / (1.0 + floor_odds) for k in odds]))
    return list(map(mul, logs.tolist(), factors))


def _shapes_of_row(
    scores: list[float], label: int
) -> tuple[list[float], list[float], list[float]]:
    """`shape_features` of one row."""
    scores = [max(score, -special.FAR) for score in scores]
    rivals = _exp(scores)
    rivals[label] = 0.0
    rival_odds = _sum(rivals)
    share = 1.0 / (1.0 + rival_odds)
    proba = [odds * share for odds in rivals]
    proba[label] = share
    misses = [1.0 - p for p in proba]
    misses[label] = rival_odds * share
    misses = np.log(np.array([max(miss, LEAST_OTHERS) for miss in misses])).tolist()
    norm = float(np.log1p(rival_odds))
    return [score - norm for score in scores], misses, proba


def _sums_of_row(margins: list[float], label: int) -> list[float]:
    """`_sum_rows` of one row without masked classes, at the temperature 1."""
    odds = _exp([margin * (-1.0 / WIDTHS[0]) for margin in margins])
    odds[label] = 0.0
    inside = [min(margin, LARGEST_MARGIN) for margin in margins]
    rival_odds = [_sum(odds)]
    for _ in WIDTHS[1:]:
        odds = [k * k for k in odds]
        rival_odds.append(_sum(odds))
        if len(rival_odds) - 1 == WIDTHS.index(1.0):
            drawn = _sum(map(mul, odds, inside))
    squares = _sum(map(mul, inside, inside))
    return [*rival_odds, drawn, _sum(inside), squares, float(len(margins))]


def _exp(numbers: list[float]) -> list[float]:
    """NumPy's exponentials: those of `math` are rounded otherwise."""
    exponentials: list[float] = np.exp(np.array(numbers)).tolist()
    return exponentials


def _sum(numbers: Iterable[float]) -> float:
    """One after the other, which Python's own `sum` does not guarantee."""
    return reduce(add, numbers)
