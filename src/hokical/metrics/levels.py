"""Right and wrong examples counted by level of confidence: what every top-label metric is made of.

Up to `MOST_EXACT` rows a level is one value of the confidence, and metrics are exact. Of more rows
nearby confidences share a level. Over-confident networks say 1 - 1e-9 when they are right and
1 - 1e-6 when they are wrong, so levels are fine near 0 and 1. With d = min(c, 1 - c),

    d >= 2^-8:  d is rounded to a multiple of 2^-18,
    d <  2^-8:  d is rounded to 10 binary digits after its first, down to 2^-53,

so d changes by at most 2^-11 of itself (0.05 %) and by at most 2^-19 (2e-6); every level keeps the
mean confidence of its rows. 1 - c is exact for c >= 1/2, and bits are shifted instead of taking a
logarithm: levels are the same on every machine. Counts add up, over chunks and machines, to those
of all rows at once; without weights to the bit.

Metrics read arrays, Dask arrays, or chunks (proba, labels) or (proba, labels, sample_weight): a
list of them, an iterator, or a function that returns one replaces the first argument, as in
`ece(chunks, n_bins=10)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np

from hokical._core.arrays import AnyArray, FloatArray, IntArray, lazy_arrays
from hokical._core.checks import bin_index, sum_by
from hokical._core.reading import to_numpy
from hokical.metrics.examples import Outcomes, as_examples

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


@dataclass(frozen=True, eq=False)
class LevelSums:
    """Counts that add with `+`; see the module.

    `value` (levels,) ascends; `sums` (3, levels) are the weight of its rows, the weight of the
    wrong ones, and the weighted sum of confidence - value. `n_rows` have a weight above 0, and
    `squares` is the sum of the squared weights.

    >>> rows = [Outcomes(np.array([c]), np.array([True]), None) for c in (0.9, 0.8, 0.9)]
    >>> first, second, third = map(LevelSums.from_rows, rows)
    >>> (first + second + third).levels.weight
    array([1., 2.])
    """

    value: FloatArray
    sums: FloatArray
    n_rows: int
    squares: float
    design: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Outcomes) -> Self:
        """Counts of examples that were checked."""
        n, weight, parts = rows.n_rows, rows.filled_weight(), []
        for start in range(0, n, _BLOCK):  # which bounds the memory
            some = slice(start, start + _BLOCK)
            sums = np.stack([weight[some], weight[some] * ~rows.correct[some]])
            sums = np.concatenate([sums, np.zeros((1, sums.shape[1]))])
            parts.append(_collect(rows.confidence[some], sums, n))
        value, sums = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
        value, sums = (value, sums) if len(parts) == 1 else _collect(value, sums, n)
        with np.errstate(over="ignore"):  # infinite of weights above 1e150
            return cls(value, sums, n, float((weight**2).sum()))

    def __add__(self, other: Self) -> Self:
        n_rows = self.n_rows + other.n_rows
        value = np.concatenate([self.value, other.value])
        found = _collect(value, np.concatenate([self.sums, other.sums], axis=1), n_rows)
        return type(self)(*found, n_rows, self.squares + other.squares)

    @cached_property
    def levels(self) -> Levels:
        """The table that metrics are computed from."""
        weight, errors, shift = self.sums
        centre = np.clip(self.value + shift / weight, 0.0, 1.0)
        return Levels(centre, weight, errors, self.squares, self.design)

    @property
    def weighted(self) -> bool:
        """Whether rows count differently from one each, or belong together."""
        return bool(self.design) or self.squares != self.n_rows or self.levels.total != self.n_rows


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


class BinSums(NamedTuple):
    """Sums of correct - confidence, of weight and of correct by bin, (bins,) each."""

    gap: FloatArray
    weight: FloatArray
    correct: FloatArray


@dataclass(frozen=True, eq=False)
class Levels:
    """`confidence` ascending and distinct, `weight` of all rows and of `errors`, (levels,) each.

    `squares` is the sum of the rows' squared weights. Of rows in clusters, `design` has by metric
    how many rows are worth one that is independent of the others; see `of`.
    """

    confidence: FloatArray
    weight: FloatArray
    errors: FloatArray
    squares: float
    design: dict[str, float] = field(default_factory=dict)

    def of(self, metric: str) -> Levels:
        """The levels with as many rows as those in clusters are worth for a metric."""
        if not self.design:
            return self
        return replace(self, squares=self.squares * self.design.get(metric, 1.0), design={})

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
        return sum_from_top(self.weight)

    @cached_property
    def errors_above(self) -> FloatArray:
        """Weight of the errors at or above each confidence, (levels,)."""
        return sum_from_top(self.errors)

    @property
    def roc_places(self) -> tuple[FloatArray, FloatArray, float]:
        """Share of wrong rows below a right one, of right rows above a wrong one, and the AUROC."""
        right, wrong = self.correct, self.errors
        below = (np.cumsum(wrong) - 0.5 * wrong) / float(wrong.sum())
        above = 1.0 - (np.cumsum(right) - 0.5 * right) / float(right.sum())
        return below, above, float(right @ below) / float(right.sum())

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weight_above[0])

    @property
    def rows_per_weight(self) -> float:
        """How many unweighted rows a unit of weight is worth."""
        return self.total / self.squares

    def power_means(self, right: FloatArray, wrong: FloatArray) -> FloatArray:
        """Means of a score, its square and its cube, of its values for right and wrong rows."""
        rows = ((self.correct, right), (self.errors, wrong))
        with np.errstate(invalid="ignore"):  # a score is infinite where no row has it
            sums = [
                sum(np.where(n > 0, n * score**k, 0.0).sum() for n, score in rows)
                for k in (1, 2, 3)
            ]
        return np.array(sums) / self.total

    def bin_starts(self, n_bins: int, bins: Bins) -> IntArray:
        """The first level of each bin that is not empty.

        In bins of equal mass a level is in bin floor(n_bins * share of the weight below it, half
        its own included), so equal confidences are in one bin and the order of rows does not
        matter.
        """
        if bins not in ("width", "mass"):
            raise ValueError(f"`bins` must be one of ['width', 'mass']; got {bins!r}.")
        if bins == "width":
            return run_starts(bin_index(self.confidence, n_bins))
        middle = n_bins * (2.0 * self.weight_above - self.weight)  # doubled, from the top
        cuts = 2.0 * self.total * np.arange(n_bins, 0, -1)
        starts = self.confidence.size - np.searchsorted(middle[::-1], cuts, side="right")
        return np.unique(starts[starts < self.confidence.size])

    def by_bin(self, n_bins: int, bins: Bins = "width") -> BinSums:
        """Sums by bin, of the bins that are not empty."""
        starts = self.bin_starts(n_bins, bins)
        # Sums of multiples of 2^-26 are exact, so that equal confidence and accuracy cancel.
        head = np.rint(self.confidence * 2.0**26) * 2.0**-26
        rounded, rest = self.correct - self.weight * head, self.weight * (self.confidence - head)
        columns = (rounded, rest, self.weight, self.correct)
        sums = [np.add.reduceat(column, starts) for column in columns]
        return BinSums(sums[0] - sums[1], *sums[2:])


def sum_from_top(values: FloatArray) -> FloatArray:
    """Sums from each entry to the last."""
    return np.cumsum(values[::-1])[::-1]


def run_starts(sorted_values: AnyArray) -> IntArray:
    """Where each run of equal values begins, for `np.add.reduceat`.

    >>> run_starts(np.array([3, 3, 5, 7, 7]))
    array([0, 2, 3])
    """
    changed = np.flatnonzero(sorted_values[1:] != sorted_values[:-1]) + 1
    return np.concatenate([[0], changed]).astype(np.int64)


Sums = TypeVar("Sums")
_ARRAYS = ("__array__", "__dlpack__", "shape")


def level_sums(proba: Any, labels: Any, sample_weight: Any = None) -> LevelSums:
    """Counts by level of confidence, of the arrays of one chunk."""
    return LevelSums.from_rows(as_examples(proba, labels, sample_weight))


def read_levels(proba: Any, labels: Any, sample_weight: Any) -> Levels:
    """The table of levels, from a metric's arguments."""
    return add_chunks(level_sums, proba, labels, sample_weight).levels


def add_chunks(make: Callable[..., Sums], *columns: Any) -> Sums:
    """The sums `make(*columns)` of arrays; of chunks or Dask arrays, added up."""
    if not is_chunked(columns[0]):
        return make(*columns)
    found: Sums | None = None
    shapes = set[int]()
    make_if_any = partial(sums_if_any, make)
    lazy = lazy_arrays(columns[0])
    if lazy is not None:
        found = lazy.reduce_rows(make_if_any, add_known, columns)
    else:
        if any(other is not None for other in columns[1:]):
            raise TypeError("chunks hold all that a metric needs; pass nothing beside them.")
        for chunk in columns[0]() if callable(columns[0]) else columns[0]:
            if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
                raise TypeError(
                    "a chunk must be (proba, labels) or (proba, labels, sample_weight); got "
                    f"{type(chunk).__name__}."
                )
            shapes.add(np.ndim(chunk[0]))
            if len(shapes) > 1:
                raise ValueError(
                    "chunks must all have probabilities (n, classes), or all confidences (n,); got "
                    "both."
                )
            found = add_known(found, make_if_any(*chunk))
    if found is None:
        raise ValueError("there must be at least one chunk with rows of weight above 0; got none.")
    return found


def sums_if_any(make: Callable[..., Any], first: Any, second: Any, weight: Any = None) -> Any:
    """The sums of a chunk, or None if it has no rows of weight above 0."""
    if np.shape(first)[:1] == np.shape(second)[:1] == (0,):
        return None
    if weight is None:
        return make(first, second)
    weights = to_numpy(weight, "sample_weight")
    if weights.any():
        return make(first, second, weights)
    make(first, second, np.ones(weights.shape))  # still raises for bad rows
    return None


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
    return streams and not any(hasattr(data, name) for name in _ARRAYS)
