"""Checked rows, of arrays or of chunks, and the table of levels that metrics are
computed from.

The table of levels counts right and wrong rows by level of confidence; every metric of
the predicted label is made of it. Up to `MOST_EXACT` rows a level is one value of the
confidence, and metrics are exact. Of more rows nearby confidences share a level.
Over-confident networks say 1 - 1e-9 when they are right and 1 - 1e-6 when they are
wrong, so levels are fine near 0 and 1. With d = min(c, 1 - c),

    d >= 2^-8:  d is rounded to a multiple of 2^-18,
    d <  2^-8:  d is rounded to 10 binary digits after its first, down to 2^-53,

so d changes by at most 2^-11 of itself (0.05 %) and by at most 2^-19 (2e-6); every
level keeps the mean confidence of its rows. 1 - c is exact for c >= 1/2, and bits are
shifted instead of taking a logarithm: levels are the same on every machine. Counts add
up, over chunks and machines, to those of all rows at once; without weights to the bit.

Metrics read arrays, Dask arrays, or chunks (proba, labels) or (proba, labels,
sample_weight): a list of them, an iterator, or a function that returns one replaces the
first argument, as in `ece(chunks, n_bins=10)`. A table of levels replaces it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, cast

import numpy as np

from hokical._core import reading
from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, lazy_arrays
from hokical._core.checks import bin_index, check_choice, sum_by
from hokical._core.conversion import check_probability_rows
from hokical._core.logits import row_slices
from hokical._core.votes import read_votes
from hokical.rules import base as rules

Bins = Literal["width", "mass"]

#: Predictions give no possible class less than `LEAST`: a probability at or below it
#: counts as 0, also where it has been through a logarithm.
IMPOSSIBLE = rules.LEAST * (1.0 + 1e-9)

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
#: Weights of one size have an effect of 1, but for rounding.
_ROUNDED = 1.0 + 1e-9
#: Number of levels: those of c up to 1/2, and of 1 - c down to 0.
MOST_LEVELS = 2 * _HALF + 1


class _WeightedRows:
    """Rows: a column or table first, and a `weight` (n,), or None if all count
    alike.
    """

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
        counting = self.weight > 0
        columns = (
            column if column is None else column[counting]
            for column in vars(self).values()
        )
        return type(self)(*columns)


@dataclass(frozen=True, eq=False)
class Predictions(_WeightedRows):
    """Checked full-vector data: `proba` (n, classes), `labels` (n,), `weight` (n,)
    or None.
    """

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

    def event(self, positive: int = 1) -> EventOutcomes:
        """The probability of one of two classes, and whether it is the true one."""
        risk = np.clip(self.proba[:, positive].astype(np.float64), 0.0, 1.0)
        happened = self.labels == positive
        return EventOutcomes(risk, happened, self.weight, self.labels, self.proba)


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


class EventOutcomes(Outcomes):
    """Whether an event of two classes happened, and the probability of it.

    The log loss is that of both columns: 1 - probability has lost the digits of a rare
    outcome of the other class.
    """


def as_examples(
    proba: object, labels: object, sample_weight: object = None, *, event: bool = False
) -> Outcomes:
    """Check (n,) confidences and whether each was right, or (n, classes) and labels.

    Of an `event`: probabilities (n,) and whether it happened, or (n, 2) and labels.
    Rows of weight 0 are dropped.
    """
    if len(reading.shape_of(proba)) == 2:
        data = as_predictions(proba, labels, sample_weight)
        n_classes = data.proba.shape[1]
        if event and n_classes != 2:
            raise ValueError(
                f"`proba` must be of two classes, or confidences (n,); got {n_classes} "
                "classes. Pass the probability of one class, and whether it is the "
                "true one."
            )
        return data.event() if event else data.top_label
    name, label_name = (
        ("probability", "outcome") if event else ("confidence", "correct")
    )
    reading.check_row_order(proba, labels, label_name, name)
    values = as_confidence(proba, name)
    expected = "whether the event happened" if event else "`predicted == labels`"
    remedy = f"Pass {expected}, not the labels; drop rows without one."
    outcomes = reading.as_outcomes(labels, values.size, label_name, remedy)
    weight = reading.as_weights(sample_weight, values.size)
    return Outcomes(values, outcomes, weight).counted()


def as_predictions(
    proba: object, labels: object, sample_weight: object = None
) -> Predictions:
    """Check full-vector data and drop rows of weight 0. Rows are never rescaled.

    Labels may be votes (n, classes), which make weighted rows of each row.
    """
    reading.check_row_order(proba, labels, "labels", "proba")
    table = _as_numbers(proba, "proba", "numbers in [0, 1]")
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] < 2:
        raise ValueError(
            "`proba` must be 2-D (n, classes) with a row per example and at least two "
            f"columns; got shape {table.shape}. Pass confidences as one column, (n,)."
        )
    remedy = "For logits apply a softmax first."
    for rows in row_slices(*table.shape):
        block = table[rows].astype(np.float64)
        check_probability_rows(
            block, "proba", remedy=remedy, first_row=rows.start, slack=0.0
        )
    columns = reading.column_names(proba)
    if (votes := read_votes(labels, *table.shape, names=(columns,))) is not None:
        weight = votes.weigh(sample_weight, table.shape[0])
        table = table if votes.are_hard else table[votes.rows]
        return Predictions(table, votes.labels, weight).counted()
    weight = reading.as_weights(sample_weight, table.shape[0])
    return Predictions(table, reading.as_labels(labels, *table.shape), weight).counted()


def as_confidence(confidence: object, name: str = "confidence") -> FloatArray:
    """Checked confidences (n,), or other probabilities of that name."""
    values = _as_numbers(confidence, name, "numbers in [0, 1]").astype(np.float64)
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"`{name}` must be 1-D (n,) of at least one entry, one per example, or "
            f"probabilities (n, classes); got shape {values.shape}. Flatten it, or use "
            "`hokical.Dense`."
        )
    remedy = (
        "Logits and percentages are not probabilities; clip what rounding put just "
        "outside."
    )
    rule = f"`{name}` must lie in [0, 1]"
    reading.refuse(np.isnan(values), values, rule, "Drop rows without one.")
    reading.refuse((values < 0.0) | (values > 1.0), values, rule, remedy)
    return values


def _as_numbers(values: object, name: str, rule: str) -> AnyArray:
    array = reading.to_numpy(values, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must be {rule}; got dtype {array.dtype}.")
    return array


@dataclass(frozen=True, eq=False)
class Levels:
    """Counts that add with `+`, and the table that metrics are computed from; see the
    module.

    `value` (levels,) ascends; `weight` is that of its rows, `errors` that of the wrong
    ones, and `shift` the weighted sum of confidence - value. `n_rows` have a weight
    above 0, and `squares` is the sum of the squared weights. Of rows in clusters,
    `design` has by metric how many rows are worth one that is independent of the
    others; see `of`. Of weighted rows, `moments` has by metric the sums (4,) of w x, w x^2,
    w^2 x and w^2 x^2, with the weights w and the numbers x whose mean is the metric.
    `of_classes` are sums over the probabilities of all classes, by
    metric; see `hokical.metrics.calibration.RowScore`.

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
    moments: dict[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Outcomes) -> Self:
        """Counts of examples that were checked."""
        n = rows.n_rows
        weight = rows.filled_weight()
        tables = []
        for start in range(0, n, _BLOCK):  # which bounds the memory
            block = slice(start, start + _BLOCK)
            block_weight = weight[block]
            sums = np.stack(
                [
                    block_weight,
                    block_weight * ~rows.correct[block],
                    np.zeros(block_weight.size),
                ]
            )
            tables.append(_collect(rows.confidence[block], sums, n))
        value = np.concatenate([values for values, _ in tables])
        sums = np.concatenate([sums for _, sums in tables], axis=1)
        if len(tables) > 1:
            value, sums = _collect(value, sums, n)
        with np.errstate(over="ignore"):  # infinite of weights above 1e150
            return cls(value, sums[0], sums[1], sums[2], n, float((weight**2).sum()))

    def __add__(self, other: Self) -> Self:
        n_rows = self.n_rows + other.n_rows
        value = np.concatenate([self.value, other.value])
        columns = [
            (levels.weight, levels.errors, levels.shift) for levels in (self, other)
        ]
        value, sums = _collect(value, np.concatenate(columns, axis=1), n_rows)
        classes = {
            name: sums_of_class + other.of_classes[name]
            for name, sums_of_class in self.of_classes.items()
        }
        both = self.moments.keys() & other.moments.keys()
        moments = {name: self.moments[name] + other.moments[name] for name in both}
        squares = self.squares + other.squares
        weight, errors, shift = sums
        joined = type(self)(value, weight, errors, shift, n_rows, squares)
        return replace(joined, of_classes=classes, moments=moments)

    def of(self, metric: str) -> Self:
        """The levels with as many rows as those in clusters, or with weights, are worth
        for a metric.
        """
        if not self.design and not self.moments:
            return self
        effect = self.design[metric] if self.design else 1.0
        weight_effect = self._weight_effect(metric)
        if weight_effect > _ROUNDED:
            effect *= weight_effect
        return replace(self, squares=self.squares * effect, design={}, moments={})

    def _weight_effect(self, metric: str) -> float:
        """By how much the variance of a mean exceeds that of weights that have nothing
        to do with what is averaged.

        For the AUROC, of which the rarer outcome decides, it is that of its weights.
        """
        if metric == "auroc" and "accuracy" in self.moments:
            right = float(self.correct.sum()), float(self.moments["accuracy"][2])
            wrong = float(self.errors.sum()), self.squares - right[1]
            rarer, squares = min(right, wrong)
            return squares / rarer * self.rows_per_weight if rarer > 0.0 else 1.0
        if metric not in self.moments:
            return 1.0
        first, second, heavy_first, heavy_second = self.moments[metric].tolist()
        mean = first / self.total
        variance = second / self.total - mean**2
        if not 1e-12 * second / self.total < variance < np.inf:
            return 1.0
        spread = heavy_second - 2.0 * mean * heavy_first + mean**2 * self.squares
        return float(spread / self.total * self.rows_per_weight / variance)

    def has_worth(self, metric: str) -> bool:
        """Whether it is known how many rows those in clusters are worth for a metric."""
        return not self.design or metric in self.design

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
        """Share of wrong rows below a right one, of right rows above a wrong one, and
        the AUROC.

        The AUROC is NaN without right or without wrong rows.
        """
        with np.errstate(invalid="ignore"):
            sides = np.stack([self.errors, self.correct])
            reached = np.cumsum(sides, axis=1)
            below, share = (reached - 0.5 * sides) / reached[:, -1:]
            return (
                below,
                1.0 - share,
                float((self.correct * below).sum() / self.correct.sum()),
            )

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weight_above[0])

    @property
    def accuracy(self) -> float:
        """Share of the correct examples."""
        return float(self.correct.sum()) / self.total

    @property
    def mean_confidence(self) -> float:
        """Mean of the confidences."""
        return float(self.weight @ self.confidence) / self.total

    @property
    def rows_per_weight(self) -> float:
        """How many unweighted rows a unit of weight is worth."""
        if not 0.0 < self.squares < np.inf:
            raise ValueError(
                "`sample_weight` must have squares that are neither 0 nor infinite, for "
                f"intervals; got a sum of {self.squares}. Weights are relative: divide "
                "them by their largest."
            )
        return self.total / self.squares

    @property
    def worth(self) -> float:
        """How many unweighted rows all are worth."""
        return self.total * self.rows_per_weight

    @property
    def weighted(self) -> bool:
        """Whether rows count differently from one each, or belong together."""
        return (
            bool(self.design)
            or self.squares != self.n_rows
            or self.total != self.n_rows
        )

    def power_means(self, right: FloatArray, wrong: FloatArray) -> FloatArray:
        """Means of a score, its square and its cube, of its values for right and
        wrong rows.
        """
        rows = ((self.correct, right), (self.errors, wrong))
        with np.errstate(invalid="ignore"):  # a score is infinite where no row has it
            sums = [
                sum(np.where(n > 0, n * s**k, 0.0).sum() for n, s in rows)
                for k in (1, 2, 3)
            ]
        return np.array(sums) / self.total

    def bin_starts(self, n_bins: int, bins: Bins) -> IntArray:
        """The first level of each bin that is not empty.

        In bins of equal mass a level is in bin floor(n_bins * share of the weight below
        it, half its own included), so equal confidences are in one bin and the order of
        rows does not matter.
        """
        check_choice("bins", bins, Bins)
        if bins == "width":
            bin_of_level = bin_index(self.confidence, n_bins)
            return np.flatnonzero(np.diff(bin_of_level, prepend=-1))
        # Doubled, from the top.
        middle = n_bins * (2.0 * self.weight_above - self.weight)
        cuts = 2.0 * self.total * np.arange(n_bins, 0, -1)
        starts = self.confidence.size - np.searchsorted(
            middle[::-1], cuts, side="right"
        )
        return np.unique(starts[starts < self.confidence.size])

    def by_bin(self, n_bins: int, bins: Bins = "width") -> tuple[FloatArray, ...]:
        """Sums of correct - confidence, of weight and of correct by bin that is not
        empty.
        """
        starts = self.bin_starts(n_bins, bins)
        # Sums of multiples of 2^-26 are exact, so that equal confidence and accuracy
        # cancel.
        head = np.rint(self.confidence * 2.0**26) * 2.0**-26
        rounded = self.correct - self.weight * head
        tail = self.weight * (self.confidence - head)
        columns = (rounded, tail, self.weight, self.correct)
        sums = [np.add.reduceat(column, starts) for column in columns]
        return sums[0] - sums[1], *sums[2:]


def _collect(
    value: FloatArray, sums: FloatArray, n_rows: int
) -> tuple[FloatArray, FloatArray]:
    """Values and sums (3, n) with equal values, or those of one level, merged."""
    if n_rows <= MOST_EXACT:
        distinct, index = np.unique(value, return_inverse=True)
        return distinct, np.stack([sum_by(index, row, distinct.size) for row in sums])
    level = confidence_level(value)
    rows = (sums[0], sums[1], sums[2] + sums[0] * (value - level_confidence(level)))
    level_sums = np.stack([sum_by(level, row, MOST_LEVELS) for row in rows])
    used = np.flatnonzero(level_sums[0])
    return level_confidence(used), level_sums[:, used]


def confidence_level(confidence: FloatArray) -> IntArray:
    """Level of each confidence in [0, 1], monotone, from 0 for 0.0 to MOST_LEVELS - 1
    for 1.0.

    >>> level = confidence_level(np.array([0.0, 0.5, 1 - 1e-9, 1 - 1e-10, 1.0]))
    >>> level.tolist()
    [0, 176129, 328629, 332066, 352258]
    """
    distance = np.minimum(confidence, 1.0 - confidence)
    half = np.int64(1) << np.int64(_DROPPED - 1)
    short = ((distance.view(np.int64) + half) >> _DROPPED) - _ZEROTH
    even = np.rint(distance * _STEPS).astype(np.int64) - (_STEPS >> 8) + _EVEN
    # Level 0 is what counts as 0: a log loss is infinite there and nowhere else.
    near = np.where(distance < 2.0**-8, np.maximum(short, distance > IMPOSSIBLE), even)
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


def read_levels(
    proba: object, labels: object, sample_weight: object, *, event: bool = False
) -> Levels:
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
    sums = None
    kinds = set[int]()
    if (lazy := lazy_arrays(columns[0])) is not None:
        sums = lazy.reduce_rows(partial(sums_if_any, make), add_known, columns)
    elif any(column is not None for column in columns[1:]):
        raise TypeError(
            "chunks hold all that a metric needs; pass nothing beside them."
        )
    else:
        for chunk in reading.iterate(columns[0], "proba"):
            if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
                raise TypeError(
                    "a chunk must be (proba, labels) or (proba, labels, "
                    f"sample_weight); got {type(chunk).__name__}."
                )
            kinds.add(np.ndim(chunk[0]))
            if len(kinds) > 1:
                raise ValueError(
                    "chunks must all have probabilities (n, classes), or all "
                    "confidences (n,); got both."
                )
            sums = add_known(sums, sums_if_any(make, *chunk))
    if sums is None:
        raise ValueError(
            "there must be at least one chunk with rows of weight above 0; got none."
        )
    return sums


def sums_if_any(
    make: Callable[..., Any], first: Any, second: Any, weight: Any = None
) -> Any:
    """The sums of a chunk, or None if it has no rows of weight above 0."""
    if np.shape(first)[:1] == np.shape(second)[:1] == (0,):
        return None
    if weight is None:
        return make(first, second)
    weight = reading.to_numpy(weight, "sample_weight")
    if weight.any():
        return make(first, second, weight)
    make(first, second, np.ones(weight.shape))  # raises if they are no rows
    return None


def add_known(sums: Any, others: Any) -> Any:
    """Sums of two chunks, either of which may be None."""
    return others if sums is None else sums if others is None else sums + others


def is_chunked(data: object) -> bool:
    """Whether an argument holds chunks, returns them, or is a Dask array."""
    if lazy_arrays(data) is not None:
        return True
    if isinstance(data, (list, tuple)):
        # The columns of a chunk are arrays; a row of probabilities holds numbers.
        head = data[0] if data else None
        return (
            isinstance(head, (list, tuple)) and len(head) > 0 and np.ndim(head[0]) > 0
        )
    streams = callable(data) or isinstance(data, Iterable)
    arrays = ("__array__", "__dlpack__", "shape")
    return streams and not any(hasattr(data, name) for name in arrays)
