"""Sums over examples that log-loss fits are made of, in float64 and a block of rows at a time.

Every block's sum is kept apart and the blocks are added in order, so that the number of threads
changes no result. Sums over classes are written once, for arrays of any library, and stay on the
device of the logits; labels, weights and what is kept per example are on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast
from weakref import proxy

import numpy as np

from hokical._core.arrays import Array, Namespace
from hokical._core.blocks import per_row, sum_over_blocks
from hokical._core.jit import has_kernels
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.special import FAR
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._fitting.impossible import find_impossible, report_left_out
from hokical._fitting.partitions import SUMMED_ON_HOST, Block
from hokical.guarantees._row_sketch import row_draws

#: A median is where this share is reached: the same one, whatever the rounding.
BARELY_HALF = 0.5 - 1e-9
#: Margins of fewer logits than this are kept between passes.
KEEP_BELOW = 1_000_000
#: Large fits start from the answer for evenly spaced rows, at least this many rows and logits.
COARSE_ROWS, COARSE_SIZE = 500, 10_000

Made = TypeVar("Made")
Moments = tuple[Array, Array, Array]


@dataclass(frozen=True, eq=False)
class WeightedExamples:
    """Examples in memory: logits, possible true labels (n,), and weights (n,) that sum to 1."""

    logits: Logits
    labels: IntArray
    weights: FloatArray

    @cached_property
    def true_margins(self) -> FloatArray:
        """How far the true class lies below the row's top, (n,), 0 to MAX_MARGIN."""
        with np.errstate(over="ignore"):
            margins = self.logits.to_host(self.logits.top) - self.logits.of_class(self.labels)
        return np.asarray(np.minimum(margins, MAX_MARGIN))

    @cached_property
    def weights_on_device(self) -> Array:
        """The weights (n,) in the library and on the device of the logits."""
        return self.logits.from_host(self.weights)

    @property
    def n_classes(self) -> int:
        return self.logits.n_classes

    @cached_property
    def mean_true_margin(self) -> float:
        """How far the true class lies below the top, on average."""
        return float(np.sum(self.weights * self.true_margins))

    def keep(self, make: Callable[..., Made], *given: Any) -> Made:
        """`make(self, *given)`, made once.

        It sees these examples by a weak reference: a circle would outlive the fit.
        """
        key = (make, *given)
        if key not in self._kept:
            self._kept[key] = make(proxy(self), *given)
        return cast(Made, self._kept[key])

    def coarse(self) -> WeightedExamples | None:
        """Evenly spaced examples for a cheap first answer, or None where they save little."""
        step = min(self.labels.size // COARSE_ROWS, self.logits.size // COARSE_SIZE)
        return self.every(step) if step >= 4 else None

    def positive_median(self, found: FloatArray) -> float:
        """Weighted median of the values (n,) that are above 0, or 1 if none is."""
        rows = np.flatnonzero((found > 0.0) & (self.weights > 0.0))
        if rows.size == 0:
            return 1.0
        rows = rows[np.argsort(found[rows])]
        reached = np.cumsum(self.weights[rows])
        middle = int(np.searchsorted(reached, BARELY_HALF * reached[-1]))
        return float(found[rows[middle]])

    def every(self, step: int) -> WeightedExamples:
        """One of `step` examples each, with weights that sum to 1 again (or 0 if none counts)."""
        some = self.take(self.every_rows(step))
        return replace(some, weights=some.weights / (some.weights.sum() or 1.0))

    def every_rows(self, step: int) -> IntArray:
        """The numbers of one of `step` examples each."""
        return spaced_rows(0, self.labels.size, step)

    def take(self, rows: slice | IntArray) -> WeightedExamples:
        """Some of the examples, with their weights as they are."""
        return WeightedExamples(self.logits.take(rows), self.labels[rows], self.weights[rows])

    def sum_over_blocks(self, work: Callable[[slice, Logits], Array]) -> FloatArray:
        """The sum of `work(rows, block)` over blocks of rows, on the host."""
        return sum_over_blocks(self.logits, work, self.block)

    def block(self, rows: slice) -> Logits:
        """Consecutive rows; kept, with their margins, where that costs little memory."""
        if rows.stop - rows.start == self.logits.n_rows:
            return self.logits
        if self.logits.size >= KEEP_BELOW:
            return self.logits.take(rows)
        key = (rows.start, rows.stop)
        if key not in self._kept:
            self._kept[key] = self.logits.take(rows)
        return cast(Logits, self._kept[key])

    @cached_property
    def _kept(self) -> dict[tuple[Any, ...], Any]:
        return {}


def count_block(block: Block) -> WeightedExamples:
    """Examples in memory that a log-loss fit can learn from, with a warning about the others."""
    weights, impossible = leave_out_impossible(block)
    total = float(weights.sum())
    report_left_out(int(impossible.sum()), block.n_rows, weight_left=total)
    return scale_weights(block, weights, total)


def leave_out_impossible(block: Block) -> tuple[FloatArray, BoolArray]:
    """Weights (n,) that are 0 where the true class is impossible, and those rows that counted."""
    impossible = find_impossible(block)
    return np.where(impossible, 0.0, block.counts) if impossible.any() else block.counts, impossible


def scale_weights(block: Block, weights: FloatArray, total: float) -> WeightedExamples:
    """A block's examples with weights (n,) divided by a total.

    Where weight and true class are gone, the label that the classifier gave keeps sums finite.
    """
    labels = block.labels
    if not weights.all():
        own = block.logits.to_host(block.logits.labels)
        labels = np.where(weights > 0.0, labels, own)
    return WeightedExamples(block.logits, labels, weights / total)


def spaced_rows(first_row: int, n_rows: int, step: int) -> IntArray:
    """One row of every `step`, the same wherever blocks begin.

    Which one looks random, as rows may take turns.
    """
    first, last = first_row // step, -(-(first_row + n_rows) // step)
    within = (row_draws(first, last - first) * step).astype(np.int64)
    places = np.arange(first, last) * step + within - first_row
    return places[(places >= 0) & (places < n_rows)]


def absent_classes(labels: IntArray, n_classes: int) -> BoolArray:
    """Which classes (classes,) have no example."""
    return np.asarray(np.bincount(labels, minlength=n_classes) == 0)


def effective_size(weights: FloatArray) -> float:
    """How many examples of equal weight would tell as much as weights (n,) that sum to 1 (Kish)."""
    return 1.0 / float(np.sum(weights * weights))


def mean_and_error(gaps: FloatArray, share: FloatArray) -> tuple[float, float]:
    """Weighted mean of differences, and its standard error; the weights sum to 1."""
    mean = float(np.sum(share * gaps))
    return mean, float(np.sqrt(np.sum((share * (gaps - mean)) ** 2)))


def typical_spread(examples: WeightedExamples) -> float:
    """Weighted median over examples of the mean margin of the possible classes, or 1 if all are 0.

    A median, so that a few examples with extreme logits do not set the units for all.
    """
    return examples.positive_median(mean_margins(examples))


def mean_margins(examples: WeightedExamples) -> FloatArray:
    """Mean margin of the possible classes that have a column, of each example, (n,)."""

    def work(block: Logits) -> Array:
        xp, possible = block.xp, block.possible
        total = xp.sum(xp.where(possible, block.margins, xp.zeros_like(block.margins)), axis=1)
        return total / xp.sum(xp.astype(possible, xp.float64), axis=1)

    return per_row(work, examples.logits)


def softmax_moments(examples: WeightedExamples, beta: float) -> tuple[float, float, float]:
    """Weighted means of three numbers per row, for the softmax of beta z.

    With scaled margins x_i = beta (top - z_i): the log of sum_i exp(-x_i), and the mean and the
    variance of x under the softmax.
    """

    def work(rows: slice, block: Logits) -> Array:
        xp, to_host = block.xp, block.n_rows <= SUMMED_ON_HOST
        zeroth, first, second = moment_sums(block, beta)
        if to_host and not block.is_numpy:
            zeroth, first, second = block.to_host(xp.stack([zeroth, first, second]))
            xp = np
        mean = first / zeroth
        three = xp.stack([xp.log(zeroth), mean, second / zeroth - mean * mean], axis=0)
        weights = examples.weights if to_host else examples.weights_on_device
        return xp.sum(three * weights[rows], axis=1)

    log_sum, mean, variance = examples.sum_over_blocks(work).tolist()
    return log_sum, mean, variance


def moment_sums(logits: Logits, beta: Array | float) -> Moments:
    """sum_i x_i^r exp(-x_i) for r = 0, 1, 2 of each row, three arrays (n,), columns and tail.

    x_i are the margins times `beta`, a number or one for each row (n,).
    """
    sums, tail = column_moments(logits, beta), logits.tail
    if tail is None:
        return sums  # type: ignore[no-any-return]
    x = logits.xp.clip(tail.margin * beta, None, FAR)
    term = tail.count * logits.xp.exp(-x)
    zeroth, first, second = sums
    return zeroth + term, first + x * term, second + x * x * term


def column_moments(logits: Logits, beta: Array | float) -> Moments:
    """The same over the columns alone."""
    if not has_kernels(logits):
        return portable_moments(logits, beta)
    from hokical._fitting.kernels import margin_moments

    out, rows = np.empty((3, logits.n_rows)), np.empty(logits.n_rows)
    rows[:] = beta
    margin_moments(logits.block(), logits.top, rows, FAR, out)
    return tuple(out)


def portable_moments(logits: Logits, beta: Array | float) -> Moments:
    """`column_moments` for arrays of any library."""
    xp = logits.xp
    minus_x = logits.margins * -(
        beta if isinstance(beta, float) else beta[:, None]
    )  # finite, and so is its product with exp(-x) = 0
    term = xp.exp(minus_x)
    zeroth = row_sums(term, xp)
    term *= minus_x
    return zeroth, -row_sums(term, xp), row_dots(term, minus_x, xp)


def row_sums(table: Array, xp: Namespace) -> Array:
    """Sums of the rows of a table, (n,). NumPy's own `sum` is slow for short rows."""
    return np.einsum("ni->n", table) if xp is np else xp.sum(table, axis=1)


def row_dots(left: Array, right: Array, xp: Namespace) -> Array:
    """Products of the rows of two tables, (n,). NumPy's own `vecdot` is slow for short rows."""
    return np.einsum("ni,ni->n", left, right) if xp is np else xp.vecdot(left, right)


def exp_in_place(array: Array, xp: Namespace) -> Array:
    """exp of an array that nobody else needs, in its place if it is NumPy's."""
    return np.exp(array, out=array) if xp is np else xp.exp(array)
