"""Calibration errors, over bins and smooth, proper scores, and how confidence ranks rows.

With D = 1{correct} - confidence, w_j the weight of bin j and g_j its sum of D,

    ECE_p = (sum_j w_j/W |g_j/w_j|^p)^(1/p),   p = 1: the ECE.

The smooth ECE (Blasiok and Nakkiran, 2024) has a kernel for bins, and needs no choice of bandwidth.
With residuals r_i = correct_i - confidence_i at f_i and the Gaussian kernel reflected at 0 and 1,

    smECE_s = integral over [0, 1] of |mean_i r_i K_s(t, f_i)| dt,   smECE = the s with smECE_s = s.

Cosines are the eigenfunctions of the reflected kernel: smoothing multiplies the k-th coefficient by
exp(-(pi k s)^2 / 2), however many reflections that takes. So residuals are put on a grid (each
shared by its two nearest cells), and one cosine transform is inverted per bandwidth. Sums add up
over chunks.

AUROC, selective risk and the area under it say how well confidence separates right from wrong.
Examples of equal confidence cannot be ordered, so these average over their orders. Risk is the
share of wrong predictions among those kept, the most confident first.

The table of levels counts right and wrong rows by level of confidence; every metric of the
predicted label is made of it. Up to `MOST_EXACT` rows a level is one value of the confidence, and
metrics are exact. Of more rows nearby confidences share a level. Over-confident networks say
1 - 1e-9 when they are right and 1 - 1e-6 when they are wrong, so levels are fine near 0 and 1. With
d = min(c, 1 - c),

    d >= 2^-8:  d is rounded to a multiple of 2^-18,
    d <  2^-8:  d is rounded to 10 binary digits after its first, down to 2^-53,

so d changes by at most 2^-11 of itself (0.05 %) and by at most 2^-19 (2e-6); every level keeps the
mean confidence of its rows. 1 - c is exact for c >= 1/2, and bits are shifted instead of taking a
logarithm: levels are the same on every machine. Counts add up, over chunks and machines, to those
of all rows at once; without weights to the bit.

Metrics read arrays, Dask arrays, or chunks (proba, labels) or (proba, labels, sample_weight): a
list of them, an iterator, or a function that returns one replaces the first argument, as in
`ece(chunks, n_bins=10)`. A table of levels replaces it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any, Literal, Self, cast

import numpy as np

from hokical._core import reading
from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, lazy_arrays
from hokical._core.checks import bin_index, check_choice, check_count, sum_by
from hokical._core.conversion import check_probability_rows
from hokical._core.logits import row_slices

Bins = Literal["width", "mass"]

#: Rows up to which every confidence is a level of its own.
MOST_EXACT = 1 << 20
_BLOCK = 1 << 20

_STEPS = 1 << 18
_DIGITS = 10
_DROPPED = 52 - _DIGITS
#: The shortened float of level 0; 2^-53, the smallest 1 - c, is level 1.
_ZEROTH = ((1023 - 53) << _DIGITS) - 1
#: Level of 2^-8, where even steps begin, and of 1/2.
_EVEN = (53 - 8 << _DIGITS) + 1
_HALF = _EVEN + _STEPS // 2 - (_STEPS >> 8)
#: Number of levels: those of c up to 1/2, and of 1 - c down to 0.
MOST_LEVELS = 2 * _HALF + 1


class _WeightedRows:
    """Rows: a column or table first, and a `weight` (n,), or None if all count alike."""

    weight: FloatArray | None

    @property
    def n_rows(self) -> int:
        return len(next(iter(vars(self).values())))

    def filled_weight(self) -> FloatArray:
        """The weights; ones if there are none."""
        return np.ones(self.n_rows) if self.weight is None else self.weight

    def counted(self) -> Self:
        """The rows of weight above 0."""
        if self.weight is None or self.weight.all():
            return self
        kept = self.weight > 0
        columns = (column if column is None else column[kept] for column in vars(self).values())
        return type(self)(*columns)


@dataclass(frozen=True, eq=False)
class Predictions(_WeightedRows):
    """Checked full-vector data: `proba` (n, classes), `labels` (n,), `weight` (n,) or None."""

    proba: AnyArray
    labels: IntArray
    weight: FloatArray | None

    @property
    def top_label(self) -> Outcomes:
        """The probability of the most likely class, and whether it is the true one."""
        # At most 1: rows of float16 may sum to a little more.
        confidence = np.minimum(self.proba.max(axis=1).astype(np.float64), 1.0)
        correct = self.proba.argmax(axis=1) == self.labels
        return Outcomes(confidence, correct, self.weight, self.labels, self.proba)

    def event(self, positive: int = 1) -> Outcomes:
        """The probability of one class, and whether it is the true one."""
        risk = np.clip(self.proba[:, positive].astype(np.float64), 0.0, 1.0)
        return Outcomes(risk, self.labels == positive, self.weight)


@dataclass(frozen=True, eq=False)
class Outcomes(_WeightedRows):
    """Checked top-label data: `confidence` (n,), `correct` (n,), `weight` (n,) or None.

    Of all classes, if known, the true one, `truth` (n,), and the probabilities `proba`
    (n, classes).
    """

    confidence: FloatArray
    correct: BoolArray
    weight: FloatArray | None = None
    truth: IntArray | None = None
    proba: AnyArray | None = None

    @property
    def vectors(self) -> Predictions | None:
        """The probabilities of all classes, if known."""
        if self.proba is None or self.truth is None:
            return None
        return Predictions(self.proba, self.truth, self.weight)


def as_examples(
    proba: Any, labels: Any, sample_weight: Any = None, *, event: bool = False
) -> Outcomes:
    """Check (n,) confidences and whether each was right, or (n, classes) and labels.

    Of an `event`: probabilities (n,) and whether it happened, or (n, 2) and labels. Rows of weight
    0 are dropped.
    """
    if np.ndim(proba) == 2:
        data = as_predictions(proba, labels, sample_weight)
        n_classes = data.proba.shape[1]
        if event and n_classes != 2:
            remedy = "Pass the probability of one of them, (n,), and whether it is the true one"
            raise ValueError(f"`proba` must be of two classes; got {n_classes}. {remedy}.")
        return data.event() if event else data.top_label
    name, of, what = "confidence", "correct", "`predicted == labels`"
    if event:
        name, of, what = "probability", "outcome", "whether the event happened"
    values, array = as_confidence(proba, name), _as_numbers(labels, of, "booleans, or 0 and 1")
    reading.check_length(array, values.size, of)
    rule = f"`{of}` must be True or False (or 1 or 0)"
    reading.refuse((array != 0) & (array != 1), array, rule, f"Pass {what}, not the labels.")
    weight = reading.as_weights(sample_weight, values.size)
    return Outcomes(values, array.astype(np.bool_), weight).counted()


def as_predictions(proba: Any, labels: Any, sample_weight: Any = None) -> Predictions:
    """Check full-vector data and drop rows of weight 0. Rows are never rescaled."""
    table = _as_numbers(proba, "proba", "numbers in [0, 1]")
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] < 2:
        rule = "must be 2-D (n, classes) with a row per example and at least two columns"
        raise ValueError(f"`proba` {rule}; got shape {table.shape}.")
    remedy = "For logits apply a softmax first."
    for rows in row_slices(*table.shape):
        block = table[rows].astype(np.float64)
        check_probability_rows(block, "proba", remedy=remedy, first_row=rows.start, slack=0.0)
    weight = reading.as_weights(sample_weight, table.shape[0])
    return Predictions(table, reading.as_labels(labels, *table.shape), weight).counted()


def as_confidence(confidence: Any, name: str = "confidence") -> FloatArray:
    """Checked confidences (n,), or other probabilities of that name."""
    values = _as_numbers(confidence, name, "numbers in [0, 1]").astype(np.float64)
    if values.ndim != 1 or not values.size:
        rule = f"`{name}` must be 1-D (n,), of at least one entry, or (n, classes)"
        remedy = "Flatten it, or use `hokical.Dense`"
        raise ValueError(f"{rule}; got shape {values.shape}. {remedy}.")
    remedy = "Logits and percentages are not probabilities; clip what rounding put just outside."
    bad = ~((values >= 0.0) & (values <= 1.0))  # NaN compares false
    reading.refuse(bad, values, f"`{name}` must lie in [0, 1]", remedy)
    return values


def _as_numbers(values: Any, name: str, rule: str) -> AnyArray:
    array = reading.to_numpy(values, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must be {rule}; got dtype {array.dtype}.")
    return array


@dataclass(frozen=True, eq=False)
class Levels:
    """Counts that add with `+`, and the table that metrics are computed from; see the module.

    `value` (levels,) ascends; `weight` is that of its rows, `errors` that of the wrong ones, and
    `shift` the weighted sum of confidence - value. `n_rows` have a weight above 0, and `squares` is
    the sum of the squared weights. Of rows in clusters, `design` has by metric how many rows are
    worth one that is independent of the others; see `of`. `of_classes` are sums over the
    probabilities of all classes, by metric; see `hokical.metrics.calibration.class_sums`.

    >>> rows = [Outcomes(np.array([c]), np.array([True])) for c in (0.9, 0.8, 0.9)]
    >>> first, second, third = map(Levels.from_rows, rows)
    >>> (first + second + third).weight
    array([1., 2.])
    """

    value: FloatArray
    weight: FloatArray
    errors: FloatArray
    shift: FloatArray
    n_rows: int
    squares: float
    design: dict[str, float] = field(default_factory=dict)
    of_classes: dict[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Outcomes) -> Self:
        """Counts of examples that were checked."""
        n, weight, parts = rows.n_rows, rows.filled_weight(), []
        for start in range(0, n, _BLOCK):  # which bounds the memory
            some = slice(start, start + _BLOCK)
            own = weight[some]
            sums = np.stack([own, own * ~rows.correct[some], np.zeros(own.size)])
            parts.append(_collect(rows.confidence[some], sums, n))
        value, sums = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
        value, sums = (value, sums) if len(parts) == 1 else _collect(value, sums, n)
        with np.errstate(over="ignore"):  # infinite of weights above 1e150
            return cls(value, sums[0], sums[1], sums[2], n, float((weight**2).sum()))

    def __add__(self, other: Self) -> Self:
        n_rows = self.n_rows + other.n_rows
        value = np.concatenate([self.value, other.value])
        columns = [(part.weight, part.errors, part.shift) for part in (self, other)]
        value, sums = _collect(value, np.concatenate(columns, axis=1), n_rows)
        classes = {name: own + other.of_classes[name] for name, own in self.of_classes.items()}
        squares = self.squares + other.squares
        return type(self)(value, sums[0], sums[1], sums[2], n_rows, squares, {}, classes)

    def of(self, metric: str) -> Self:
        """The levels with as many rows as those in clusters are worth for a metric."""
        if not self.design:
            return self
        return replace(self, squares=self.squares * self.design.get(metric, 1.0), design={})

    @cached_property
    def confidence(self) -> FloatArray:
        """The mean confidence of each level, ascending and distinct."""
        return np.asarray(np.clip(self.value + self.shift / self.weight, 0.0, 1.0))

    @cached_property
    def correct(self) -> FloatArray:
        """Weight of the correct examples, (levels,)."""
        return self.weight - self.errors

    @cached_property
    def gap(self) -> FloatArray:
        """Sum of 1{correct} - confidence, (levels,)."""
        return self.weight * (1.0 - self.confidence) - self.errors

    @cached_property
    def weight_above(self) -> FloatArray:
        """Weight at or above each confidence, kept by a threshold there, (levels,)."""
        return np.cumsum(self.weight[::-1])[::-1]

    @cached_property
    def errors_above(self) -> FloatArray:
        """Weight of the errors at or above each confidence, (levels,)."""
        return np.cumsum(self.errors[::-1])[::-1]

    @property
    def roc_places(self) -> tuple[FloatArray, FloatArray, float]:
        """Share of wrong rows below a right one, of right rows above a wrong one, and the AUROC.

        The AUROC is NaN without right or without wrong rows.
        """
        with np.errstate(invalid="ignore"):
            sides = np.stack([self.errors, self.correct])
            reached = np.cumsum(sides, axis=1)
            below, share = (reached - 0.5 * sides) / reached[:, -1:]
            return below, 1.0 - share, float((self.correct * below).sum() / self.correct.sum())

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weight_above[0])

    @property
    def rows_per_weight(self) -> float:
        """How many unweighted rows a unit of weight is worth."""
        return self.total / self.squares

    @property
    def worth(self) -> float:
        """How many unweighted rows all are worth."""
        return self.total * self.rows_per_weight

    @property
    def weighted(self) -> bool:
        """Whether rows count differently from one each, or belong together."""
        return bool(self.design) or self.squares != self.n_rows or self.total != self.n_rows

    def power_means(self, right: FloatArray, wrong: FloatArray) -> FloatArray:
        """Means of a score, its square and its cube, of its values for right and wrong rows."""
        rows = ((self.correct, right), (self.errors, wrong))
        with np.errstate(invalid="ignore"):  # a score is infinite where no row has it
            sums = [sum(np.where(n > 0, n * s**k, 0.0).sum() for n, s in rows) for k in (1, 2, 3)]
        return np.array(sums) / self.total

    def bin_starts(self, n_bins: int, bins: Bins) -> IntArray:
        """The first level of each bin that is not empty.

        In bins of equal mass a level is in bin floor(n_bins * share of the weight below it, half
        its own included), so equal confidences are in one bin and the order of rows does not
        matter.
        """
        check_choice("bins", bins, Bins)
        if bins == "width":
            place = bin_index(self.confidence, n_bins)
            return np.flatnonzero(np.diff(place, prepend=-1))
        middle = n_bins * (2.0 * self.weight_above - self.weight)  # doubled, from the top
        cuts = 2.0 * self.total * np.arange(n_bins, 0, -1)
        starts = self.confidence.size - np.searchsorted(middle[::-1], cuts, side="right")
        return np.unique(starts[starts < self.confidence.size])

    def by_bin(self, n_bins: int, bins: Bins = "width") -> tuple[FloatArray, ...]:
        """Sums of correct - confidence, of weight and of correct by bin that is not empty."""
        starts = self.bin_starts(n_bins, bins)
        # Sums of multiples of 2^-26 are exact, so that equal confidence and accuracy cancel.
        head = np.rint(self.confidence * 2.0**26) * 2.0**-26
        rounded, rest = self.correct - self.weight * head, self.weight * (self.confidence - head)
        columns = (rounded, rest, self.weight, self.correct)
        sums = [np.add.reduceat(column, starts) for column in columns]
        return sums[0] - sums[1], *sums[2:]


def _collect(value: FloatArray, sums: FloatArray, n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Values and sums (3, n) with equal values, or those of one level, merged."""
    if n_rows <= MOST_EXACT:
        distinct, place = np.unique(value, return_inverse=True)
        return distinct, np.stack([sum_by(place, row, distinct.size) for row in sums])
    level = confidence_level(value)
    rows = (sums[0], sums[1], sums[2] + sums[0] * (value - level_confidence(level)))
    whole = np.stack([sum_by(level, row, MOST_LEVELS) for row in rows])
    kept = np.flatnonzero(whole[0])
    return level_confidence(kept), whole[:, kept]


def confidence_level(confidence: FloatArray) -> IntArray:
    """Level of each confidence in [0, 1], monotone, from 0 for 0.0 to MOST_LEVELS - 1 for 1.0.

    >>> level = confidence_level(np.array([0.0, 0.5, 1 - 1e-9, 1 - 1e-10, 1.0]))
    >>> level.tolist()
    [0, 176129, 328629, 332066, 352258]
    """
    distance = np.minimum(confidence, 1.0 - confidence)
    half = np.int64(1) << np.int64(_DROPPED - 1)
    short = ((distance.view(np.int64) + half) >> _DROPPED) - _ZEROTH
    even = np.rint(distance * _STEPS).astype(np.int64) - (_STEPS >> 8) + _EVEN
    # Level 0 is 0 alone: a log loss is infinite there and nowhere else.
    near = np.where(distance < 2.0**-8, np.maximum(short, distance > 0.0), even)
    return np.asarray(np.where(confidence < 0.5, near, MOST_LEVELS - 1 - near))


def level_confidence(level: IntArray) -> FloatArray:
    """The confidence that represents each level.

    >>> level_confidence(np.array([0, 176129, MOST_LEVELS - 1]))
    array([0. , 0.5, 1. ])
    """
    near = np.minimum(level, MOST_LEVELS - 1 - level)
    short = ((near + _ZEROTH) << _DROPPED).view(np.float64)
    even = (near - _EVEN + (_STEPS >> 8)) / _STEPS
    distance = np.where(near < _EVEN, np.where(near > 0, short, 0.0), even)
    return np.asarray(np.where(level <= _HALF, distance, 1.0 - distance))


def read_levels(proba: Any, labels: Any, sample_weight: Any, *, event: bool = False) -> Levels:
    """The table of levels, from a metric's arguments; see `as_examples`."""
    if isinstance(proba, Levels):
        return proba

    def make(*rows: Any) -> Levels:
        return Levels.from_rows(as_examples(*rows, event=event))

    return cast(Levels, add_chunks(make, proba, labels, sample_weight))


def add_chunks(make: Callable[..., Any], *columns: Any) -> Any:
    """The sums `make(*columns)` of arrays; of chunks or Dask arrays, added up."""
    if not is_chunked(columns[0]):
        return make(*columns)
    found, lazy, kinds = None, lazy_arrays(columns[0]), set[int]()
    if lazy is not None:
        found = lazy.reduce_rows(partial(sums_if_any, make), add_known, columns)
    elif any(other is not None for other in columns[1:]):
        raise TypeError("chunks hold all that a metric needs; pass nothing beside them.")
    else:
        for chunk in columns[0]() if callable(columns[0]) else columns[0]:
            if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
                rule = "a chunk must be (proba, labels) or (proba, labels, sample_weight)"
                raise TypeError(f"{rule}; got {type(chunk).__name__}.")
            if len(kinds := kinds | {np.ndim(chunk[0])}) > 1:
                rule = "chunks must all have probabilities (n, classes), or all confidences (n,)"
                raise ValueError(f"{rule}; got both.")
            found = add_known(found, sums_if_any(make, *chunk))
    if found is None:
        raise ValueError("there must be at least one chunk with rows of weight above 0; got none.")
    return found


def sums_if_any(make: Callable[..., Any], first: Any, second: Any, weight: Any = None) -> Any:
    """The sums of a chunk, or None if it has no rows of weight above 0."""
    if np.shape(first)[:1] == np.shape(second)[:1] == (0,):
        return None
    counts = weight is None or (weight := reading.to_numpy(weight, "sample_weight")).any()
    sums = make(first, second, weight if counts else np.ones(weight.shape))  # or raises
    return sums if counts else None


def add_known(sums: Any, others: Any) -> Any:
    """Sums of two chunks, either of which may be None."""
    return others if sums is None else sums if others is None else sums + others


def is_chunked(data: Any) -> bool:
    """Whether an argument holds chunks, returns them, or is a Dask array."""
    if lazy_arrays(data) is not None:
        return True
    if isinstance(data, (list, tuple)):
        # The columns of a chunk are arrays; a row of probabilities holds numbers.
        head = data[0] if data else None
        return isinstance(head, (list, tuple)) and len(head) > 0 and np.ndim(head[0]) > 0
    streams = callable(data) or isinstance(data, Iterable)
    arrays = ("__array__", "__dlpack__", "shape")
    return streams and not any(hasattr(data, name) for name in arrays)


#: The values of a score for right and for wrong rows, by confidence.
Pair = tuple[FloatArray, FloatArray]
#: The scores (n,) whose means are metrics, by metric.
Scores = dict[str, FloatArray]
#: The largest log loss that one more row is expected to have: that of a confidence of 1 - 1e-16.
MOST_LOSS = 36.0


def class_sums(data: Predictions, n_bins: int, scores: Scores) -> dict[str, FloatArray]:
    """Sums over (proba, labels) by metric, which add up over chunks.

    Of the `row_scores` the sums of the scores, their squares and cubes, the scores of wrong labels,
    their number, and what all rows would score with a wrong one, (6,); and `class_gaps`. With
    another class a row has the probability 0, or the mean of the others'.
    """
    weight = data.filled_weight()
    wrong = weight * (data.proba.argmax(axis=1) != data.labels)
    known = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    rest = np.maximum(1.0 - data.proba.max(axis=1).astype(np.float64), math.exp(-MOST_LOSS))
    mean = math.log(data.proba.shape[1] - 1) - np.log(rest)
    worst = {"brier": scores["brier"] + 2.0 * known, "log_loss": mean}
    sums = {
        name: np.array(
            [
                *((weight * values**k).sum() for k in (1, 2, 3)),
                np.where(wrong > 0.0, wrong * values, 0.0).sum(),
                wrong.sum(),
                weight @ worst[name],
            ]
        )
        for name, values in scores.items()
    }
    return sums | {"classwise_ece": class_gaps(data, n_bins)}


def class_gaps(rows: Predictions, n_bins: int) -> FloatArray:
    """Weighted sums of 1{label} - probability by class and bin, (classes, bins)."""
    n_classes, weight = rows.proba.shape[1], rows.filled_weight()
    gaps = np.zeros(n_classes * n_bins)
    for part in row_slices(*rows.proba.shape):
        proba = rows.proba[part].astype(np.float64, order="C")
        cell = n_bins * np.arange(n_classes) + bin_index(proba, n_bins)
        proba[np.arange(proba.shape[0]), rows.labels[part]] -= 1.0
        gaps -= sum_by(cell.ravel(), (proba * weight[part, None]).ravel(), gaps.size)
    return gaps.reshape(n_classes, n_bins)


def log_loss_rows(data: Predictions, limit: float = math.inf) -> FloatArray:
    """-log(probability of the true class) per example, (n,), at most `limit`."""
    likelihood = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(likelihood), limit)


def ranked_rows(data: Predictions) -> FloatArray:
    """Sum over k of (P(class <= k) - 1{label <= k})^2 per example, (n,)."""
    cumulative = np.cumsum(data.proba[:, :-1], axis=1, dtype=np.float64)
    reached = data.labels[:, None] <= np.arange(data.proba.shape[1] - 1)
    return np.asarray(((cumulative - reached) ** 2).sum(axis=1))


def brier_rows(data: Predictions) -> FloatArray:
    """Sum over classes of (proba - 1{label})^2 per example, (n,)."""
    out = np.empty(data.n_rows)
    for rows in row_slices(*data.proba.shape):
        block = data.proba[rows].astype(np.float64, order="C")  # which decides the order of sums
        block[np.arange(block.shape[0]), data.labels[rows]] -= 1.0
        out[rows] = np.einsum("ij,ij->i", block, block)
    return out


def squared_errors(confidence: FloatArray) -> Pair:
    """(1{correct} - confidence)^2 of right and of wrong rows."""
    return (1.0 - confidence) ** 2, confidence**2


def log_loss_pair(confidence: FloatArray, limit: float = math.inf) -> Pair:
    """-log(probability of what happened) of right and of wrong rows, at most `limit`."""
    with np.errstate(divide="ignore"):
        # log1p keeps digits of 1 - confidence that a subtraction would round away.
        return np.minimum(-np.log(confidence), limit), np.minimum(-np.log1p(-confidence), limit)


def row_scores(rows: Outcomes) -> Scores:
    """The scores (n,) whose means are metrics: of all classes if known, else of the label."""
    if (data := rows.vectors) is not None:
        return {"brier": brier_rows(data), "log_loss": log_loss_rows(data)}
    pairs = {"brier": squared_errors(rows.confidence), "log_loss": log_loss_pair(rows.confidence)}
    return {name: np.where(rows.correct, *pair) for name, pair in pairs.items()}


def ece(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: Any = None,
) -> float:
    """Expected calibration error, in [0, 1]: the gap of confidence and accuracy, by bins.

    `proba` (n,) is the probability that each predicted label is right, and `labels` (n,) whether it
    was: booleans, or 0 and 1. Or `proba` (n, classes) are the probabilities of all classes, whose
    rows sum to 1 (within 1e-2, for float16) and are not rescaled, and `labels` (n,) the true
    classes as column indices; then the likeliest class is the predicted label. `sample_weight` (n,)
    says how often each example counts; 2 is the same as passing it twice. Without weights the
    result does not depend on the order of the rows, to the bit.

    With `bins="width"` the J = `n_bins` bins are [j/J, (j+1)/J), the last closed; "mass" puts about
    equal weight in each, and equal confidences in one. `norm`, any exponent of at least 1 or inf,
    says how the bins' gaps are averaged.

    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.3
    >>> round(ece([[0.1, 0.9], [0.9, 0.1], [0.4, 0.6]], [1, 1, 1]), 6)
    0.4
    """
    if isinstance(norm, bool) or not (isinstance(norm, Real) and norm >= 1):
        rule = "must be a number of at least 1, or inf"
        raise ValueError(f"`norm` {rule}; got {norm!r}. Use 1, 2 or math.inf.")
    levels = read_levels(proba, labels, sample_weight)
    gap, weight, _ = levels.by_bin(check_count(n_bins), bins)
    size, whole = np.abs(gap), float(weight.sum())
    if norm == 1:
        return float(size.sum()) / whole
    mean = size / weight
    largest = float(mean.max())
    if norm == math.inf or largest == 0.0:
        return largest
    # Relative to the largest gap, so that powers of small gaps do not all underflow.
    power = float((weight * (mean / largest) ** float(norm)).sum()) / whole
    return float(largest * power ** (1.0 / float(norm)))


def debiased_ece(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    squared: bool = False,
    sample_weight: Any = None,
) -> float:
    """The 2-norm calibration error without the bias that sampling adds (Kumar et al., 2019).

    sum_j w_j/W [gap_j^2 - acc_j (1 - acc_j)/(w_j - 1)]. The noise of a bin with one example cannot
    be estimated; it adds 0. Weights are read as numbers of examples. The result is the root, on the
    scale of `ece(norm=2)`, or 0 if the estimate is negative; `squared=True` gives the estimate
    itself, which is negative about half the time for a perfect model. Arguments are as in `ece`.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(size=2000)
    >>> correct = rng.uniform(size=2000) < confidence  # a perfect model
    >>> round(ece(confidence, correct, norm=2), 4), round(debiased_ece(confidence, correct), 4)
    (0.0407, 0.0207)
    """
    found = read_levels(proba, labels, sample_weight).by_bin(check_count(n_bins), bins)
    gap, w, correct = (column[found[1] > 1] for column in found)
    accuracy = correct / w
    square = (gap / w) ** 2 - accuracy * (1.0 - accuracy) / (w - 1.0)
    mean = float((w * square).sum() / found[1].sum())
    return mean if squared else math.sqrt(max(mean, 0.0))


def classwise_ece(
    proba: Any, labels: Any = None, *, n_bins: int = 15, sample_weight: Any = None
) -> float:
    """Mean over the classes of the ECE of (proba[:, k], labels == k) (Kull et al., 2019).

    `proba` (n, classes) and the other arguments are as in `ece`. All classes count alike, even one
    that never occurs. With many classes most probabilities are near 0, and so is this mean: compare
    it only between models of the same classes.

    >>> round(classwise_ece([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)
    0.3
    """
    n_bins = check_count(n_bins)

    def make(*chunk: Any) -> FloatArray:
        data = as_predictions(*chunk)
        return np.append(class_gaps(data, n_bins), data.filled_weight().sum())

    *gaps, total = add_chunks(make, proba, labels, sample_weight)
    return float(np.abs(gaps).sum() / (len(gaps) // n_bins * total))


def brier(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """The Brier score of all classes (n, classes), in [0, 2], or of a confidence (n,), in [0, 1].

    The mean of the squared distance of the probabilities to what happened: of all classes the sum
    over them of (proba - 1{label})^2, of a confidence (1{correct} - confidence)^2. Arguments are as
    in `ece`. Of two classes it is twice scikit-learn's `brier_score_loss`.

    >>> round(brier([0.9, 0.6], [True, False]), 6), round(brier([[0.7, 0.2, 0.1]], [0]), 6)
    (0.185, 0.14)
    """
    return _mean_score(brier_rows, squared_errors, proba, labels, sample_weight)


def log_loss(
    proba: Any, labels: Any = None, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(probability given to what happened), in nats.

    Of probabilities (n, classes) that is the probability of the true class; of a confidence (n,),
    that of being right, or wrong. Arguments are as in `ece`. Probabilities are raised to at least
    `clip`. By default they are not, and a label that was certain and wrong makes the result inf.
    scikit-learn uses 2.2e-16.

    >>> round(log_loss([0.9, 0.6], [True, False]), 6), round(log_loss([[0.7, 0.2, 0.1]], [0]), 6)
    (0.510826, 0.356675)
    >>> log_loss([0.9, 1.0], [True, False])
    inf
    """
    if not 0.0 <= clip < 0.5:
        raise ValueError(f"`clip` must be at least 0 and below 1/2; got {clip!r}.")
    limit = -math.log(clip) if clip > 0.0 else math.inf
    of_rows = partial(log_loss_rows, limit=limit)
    of_confidence = partial(log_loss_pair, limit=limit)
    return _mean_score(of_rows, of_confidence, proba, labels, sample_weight)


def ranked_probability_score(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Mean over examples of the sum over k of (P(class <= k) - 1{label <= k})^2, below classes - 1.

    A proper score for classes whose columns are in order (Epstein, 1969): being off by one grade
    costs less than by two. Arguments are as in `ece`.

    >>> [round(ranked_probability_score([[0.7, 0.2, 0.1]], [label]), 2) for label in (0, 1, 2)]
    [0.1, 0.5, 1.3]
    """
    return _mean_score(ranked_rows, None, proba, labels, sample_weight)


def _mean_score(
    of_rows: Callable[[Predictions], FloatArray],
    of_confidence: Callable[[FloatArray], Pair] | None,
    *columns: Any,
) -> float:
    """A proper score of all classes, or of a confidence if it has one; the shape decides."""

    def make(*chunk: Any) -> Any:
        if of_confidence is not None and np.ndim(chunk[0]) != 2:
            return Levels.from_rows(as_examples(*chunk))
        data = as_predictions(*chunk)
        weight = data.filled_weight()
        return np.array([(weight * of_rows(data)).sum(), weight.sum()])

    found = add_chunks(make, *columns)
    if of_confidence is not None and isinstance(found, Levels):
        return float(found.power_means(*of_confidence(found.confidence))[0])
    return float(found[0] / found[1])


_LEAST_CELLS, _MOST_CELLS = 1 << 12, 1 << 18


def smooth_ece(
    proba: Any,
    labels: Any = None,
    *,
    bandwidth: float | None = None,
    sample_weight: Any = None,
) -> float:
    """Smooth calibration error, at its own bandwidth or at a given one.

    The `bandwidth` is the standard deviation s of the kernel, above 0; by default the one that
    equals its own error, which makes the result continuous in the confidences. The grid has 64
    cells per bandwidth (at most 2^18 in all), so the result is accurate to about 1e-5 relative, or
    2e-6 absolute if that is more. Other arguments are as in `ece`.

    >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [True, True, True, False]), 4)
    0.15
    """
    from scipy.optimize import brentq

    levels = read_levels(proba, labels, sample_weight)
    if bandwidth is not None:
        if not bandwidth > 0.0:
            raise ValueError(f"`bandwidth` must be above 0; got {bandwidth!r}.")
        return _smoothed_error(levels, bandwidth)(bandwidth)
    # The s with smECE_s = s, which decreases in s.
    low, high = abs(float(levels.gap.sum())), float(np.abs(levels.gap).sum())
    low, high, found = low / levels.total, high / levels.total, 1.0
    for tolerance in (1e-6, 1e-12):  # the first decides on the grid of the second
        error = _smoothed_error(levels, found)
        if error(low) <= low or error(high) >= high:  # as when all residuals have one sign
            return low if error(low) <= low else high

        def excess(s: float, error: Callable[[float], float] = error) -> float:
            return error(s) - s

        found = float(brentq(excess, low, high, xtol=tolerance, rtol=1e-15))
    return found


def _smoothed_error(levels: Levels, bandwidth: float) -> Callable[[float], float]:
    """smECE_s as a function of s, on a grid that has 64 cells per `bandwidth`, within limits."""
    from scipy.fft import dct, idct

    wanted = 64 / max(bandwidth, 64 / _MOST_CELLS)
    cells = max(_LEAST_CELLS, 1 << int(np.ceil(np.log2(wanted))))
    # Each residual is shared between the two nearest of the cells' centres. Beyond the first and
    # the last the neighbour is the mirror image, in the same cell: one more, folded back.
    place = levels.confidence * cells + 0.5
    lower = np.floor(place).astype(np.int64)
    share, masses = place - lower, levels.gap / levels.total
    grid = sum_by(lower, masses * (1.0 - share), cells + 2)
    grid += sum_by(lower + 1, masses * share, cells + 2)
    grid[1] += grid[0]
    grid[-2] += grid[-1]
    coefficients, square = dct(grid[1:-1], norm="ortho"), (np.pi * np.arange(cells)) ** 2

    def error(s: float) -> float:
        # Sharing a point between two cells adds a variance of h^2/6 on average: correct for it.
        variance = max(s**2 - 1.0 / (6.0 * cells**2), 0.0)
        damping = np.exp(-0.5 * variance * square)
        return float(np.abs(idct(coefficients * damping, norm="ortho")).sum())

    return error


def auroc(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Probability that a correct example is more confident than a wrong one; ties count 1/2.

    NaN if all examples are correct, or none: there is no pair to compare. Arguments are as
    in `ece`.

    >>> auroc([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    0.875
    """
    return read_levels(proba, labels, sample_weight).roc_places[2]


def aurc(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Area under the risk-coverage curve: the mean over k of the risk of the k most confident.

    Weights are read as numbers of examples: weights that are twice as large mean twice as many, and
    the mean over k changes a little.

    >>> round(aurc([0.9, 0.8, 0.7], [True, False, True]), 6)
    0.277778
    """
    from scipy.special import digamma

    # Within a group of ties errors are spread evenly, so the k-th risk is (E + (k - K) r)/k with E
    # errors among the K kept before and r the group's own risk. Its sum over the group is
    # r w + (E - K r)(H(K + w) - H(K)), with the harmonic numbers H(k) = 1 + 1/2 + ... + 1/k.
    levels = read_levels(proba, labels, sample_weight)
    upto = np.asarray(digamma(levels.weight_above + 1.0) + np.euler_gamma)
    steps = -np.diff(upto, append=0.0)
    # E - K r = (E + r w) - (K + w) r, in the sums that include the group
    own = levels.weight_above * levels.errors / levels.weight
    excess = float(((levels.errors_above - own) * steps).sum())
    return (excess + float(levels.errors_above[0])) / levels.total


def selective_risk(
    proba: Any, labels: Any = None, *, coverage: Any = 0.8, sample_weight: Any = None
) -> Any:
    """Share of wrong predictions among the most confident `coverage` of the examples.

    `coverage` is a share above 0 and at most 1, or several of them, which give an array. The
    example at the cut counts partly, so the risk is continuous in the coverage.

    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=0.5)
    0.0
    >>> selective_risk([0.9, 0.8, 0.7, 0.6], [True, True, False, False], coverage=[0.8, 1.0])
    array([0.375, 0.5  ])
    """
    shares = np.asarray(coverage, np.float64)
    if not ((shares > 0.0) & (shares <= 1.0)).all():
        raise ValueError(f"`coverage` must be above 0 and at most 1; got {coverage!r}.")
    levels = read_levels(proba, labels, sample_weight)
    wanted = shares * levels.total
    # The highest threshold that keeps enough.
    kept = np.searchsorted(levels.weight_above[::-1], wanted)
    place = np.maximum(levels.weight.size - 1 - kept, 0)
    partly = (levels.weight_above[place] - wanted) * levels.errors[place] / levels.weight[place]
    risks = (levels.errors_above[place] - partly) / wanted
    return risks if shares.ndim else float(risks)


def risk_coverage_curve(
    proba: Any, labels: Any = None, *, sample_weight: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Coverage and risk (groups,) at each distinct confidence as threshold, highest first.

    >>> coverage, risk = risk_coverage_curve([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    >>> coverage.tolist(), risk.round(3).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    levels = read_levels(proba, labels, sample_weight)
    kept, wrong = levels.weight_above[::-1], levels.errors_above[::-1]
    return kept / levels.total, wrong / kept
