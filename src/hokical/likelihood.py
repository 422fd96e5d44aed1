"""Sums over examples that log-loss fits are made of, in float64 and a block of rows at a time.

Every block's sum is kept apart and the blocks are added in their order, so that neither the
number of threads nor their luck can change a result. A fit sees an `ExampleSet`, of which it asks
for sums; whether the examples are in memory (`Examples`), in files or on other machines is the
set's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hokical._warnings import warn_user
from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Passes over fewer logits than this are made by NumPy.
COMPILE_FROM = 1_000_000
#: exp(-FAR) is nothing beside 1, so larger margins are cut here; -inf logits then need no care.
FAR = 700.0
#: Where margins that overflow are cut, so that their sums stay finite.
FARTHEST = 1.7e308
#: A median is where this share is reached: the same one, whatever the rounding.
BARELY_HALF = 0.5 - 1e-9


#: Large fits start from the answer for evenly spaced rows, at least this many rows and logits.
COARSE_ROWS, COARSE_SIZE = 500, 10_000

Made = TypeVar("Made", covariant=True)


class Parts(Protocol[Made]):
    """Something made of every part of the examples, to be summed over as often as one likes."""

    def total(self, work: Callable[[Made], FloatArray]) -> FloatArray:
        """The sum of `work` over the parts."""


class ExampleSet(ABC):
    """What a log-loss fit asks of examples whose weights sum to 1, wherever they are."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Columns of the logits."""

    @property
    @abstractmethod
    def mean_true_margin(self) -> float:
        """How far the true class lies below the top, on average."""

    @abstractmethod
    def prepared(self, make: Callable[[Examples], Made]) -> Parts[Made]:
        """Parts that know what `make` makes of them: kept in memory, or made anew in a pass."""

    @abstractmethod
    def coarse(self) -> Examples | None:
        """Evenly spaced examples for a cheap first answer, or None where they save little."""

    @abstractmethod
    def positive_median(self, values: Callable[[Examples], FloatArray]) -> float:
        """Weighted median of the values (n,) that are above 0, or 1 if none is."""

    def total(self, work: Callable[[Examples], FloatArray]) -> FloatArray:
        """The sum of `work` over the examples' parts."""
        return self.prepared(_as_it_is).total(work)


def _as_it_is(examples: Examples) -> Examples:
    return examples


@dataclass(frozen=True, eq=False)
class Whole(Parts[Made]):
    """All examples in one part."""

    made: Made

    def total(self, work: Callable[[Made], FloatArray]) -> FloatArray:
        return work(self.made)


@dataclass(frozen=True, eq=False)
class Examples(ExampleSet):
    """Examples in memory: logits, possible true labels (n,), and weights (n,) that sum to 1."""

    logits: Logits
    labels: IntArray
    weights: FloatArray

    @cached_property
    def true_margins(self) -> FloatArray:
        """How far the true class lies below the row's top, (n,), finite and >= 0."""
        with np.errstate(over="ignore"):
            margins = self.logits.top - self.logits.of_class(self.labels)
        return np.asarray(np.minimum(margins, FARTHEST))

    @property
    def n_classes(self) -> int:
        return self.logits.n_classes

    @property
    def mean_true_margin(self) -> float:
        return float(np.sum(self.weights * self.true_margins))

    def prepared(self, make: Callable[[Examples], Made]) -> Parts[Made]:
        return Whole(make(self))

    def coarse(self) -> Examples | None:
        step = min(self.labels.size // COARSE_ROWS, self.logits.size // COARSE_SIZE)
        return self.every(step) if step >= 4 else None

    def positive_median(self, values: Callable[[Examples], FloatArray]) -> float:
        found = values(self)
        rows = np.flatnonzero((found > 0.0) & (self.weights > 0.0))
        if rows.size == 0:
            return 1.0
        rows = rows[np.argsort(found[rows])]
        reached = np.cumsum(self.weights[rows])
        middle = int(np.searchsorted(reached, BARELY_HALF * reached[-1]))
        return float(found[rows[middle]])

    @property
    def small(self) -> bool:
        """Whether NumPy is done with a pass before the compiler has been imported."""
        return self.logits.size < COMPILE_FROM

    def margins(self, rows: slice) -> FloatArray:
        """`Logits.margins`, made once where that costs little memory. Not to be written to."""
        return self._all_margins[rows] if self.small else self.logits.margins(rows)

    @cached_property
    def _all_margins(self) -> FloatArray:
        return self.logits.margins(slice(0, self.logits.n_rows))

    def every(self, step: int) -> Examples:
        """Every `step`-th example, with weights that sum to 1 again (or 0 if none counts)."""
        rows = slice(None, None, step)
        weights = self.weights[rows]
        total = weights.sum()
        return Examples(
            self.logits.take(rows), self.labels[rows], weights / (total if total else 1.0)
        )


def countable_examples(logits: Logits, labels: IntArray, weights: FloatArray | None) -> Examples:
    """The examples a log-loss fit can learn from, with a warning about the others.

    A true class with logit -inf costs infinitely much whatever the parameters are. Such examples
    get weight 0, and the label that the classifier gave, so that no infinity enters a sum.
    """
    weights = np.ones(labels.size) if weights is None else weights
    values = logits.of_class(labels)
    impossible = (values == -np.inf) & (weights > 0.0)
    if impossible.any():
        weights = np.where(impossible, 0.0, weights)
        if not weights.any():
            raise ValueError(
                "`labels` must name a possible class in at least one example; the logit of the "
                "true class is -inf in all of them. Mask only classes that cannot occur."
            )
        warn_user(
            f"{int(impossible.sum())} of {labels.size} examples are left out of the fit: the "
            "logit of their true class is -inf, which makes the log loss infinite whatever is "
            "fitted. Mask only classes that cannot occur.",
            RuntimeWarning,
        )
    own = values == -np.inf
    labels = np.where(own, logits.labels, labels) if own.any() else labels
    return Examples(logits, labels, weights / weights.sum())


def typical_spread(examples: ExampleSet) -> float:
    """Weighted median over examples of the mean margin of the possible classes, or 1 if all are 0.

    A median, so that a few examples with extreme logits do not set the units for all.
    """
    return examples.positive_median(mean_margins)


def mean_margins(examples: Examples) -> FloatArray:
    """Mean margin of the possible classes that have a column, of each example, (n,)."""
    return mean_margins_of(examples.logits)


@singledispatch
def mean_margins_of(logits: Logits) -> FloatArray:
    """The same of logits."""
    means = np.empty(logits.n_rows)

    def work(rows: slice) -> None:
        margins = logits.margins(rows)
        possible = logits.values[rows] > -np.inf
        np.minimum(margins, FARTHEST / logits.n_columns, out=margins)  # the sum stays finite
        means[rows] = margins.sum(axis=1, where=possible) / possible.sum(axis=1)

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_columns))
    return means


def sum_over_blocks(logits: Logits, size: int, work: Callable[[slice], Any]) -> FloatArray:
    """The sum (size,) of `work(rows)` (size,) over all blocks of rows, always in their order."""
    step = logits.rows_per_block
    parts = np.empty((-(-logits.n_rows // step), size))

    def one(rows: slice) -> None:
        parts[rows.start // step] = work(rows)

    for_row_blocks(one, logits.n_rows, step)
    return np.asarray(parts.sum(axis=0))


def softmax_moments(examples: ExampleSet, beta: float) -> tuple[float, float, float]:
    """Weighted means of three numbers per row, for the softmax of beta z.

    With scaled margins x_i = beta (top - z_i): the log of sum_i exp(-x_i), and the mean and the
    variance of x under the softmax.
    """
    log_sum, mean, variance = examples.total(lambda part: _moments(part, beta)).tolist()
    return log_sum, mean, variance


def _moments(examples: Examples, beta: float) -> FloatArray:
    def work(rows: slice) -> FloatArray:
        zeroth, first, second = moment_sums(examples, rows, beta)
        mean = first / zeroth
        rows_of_three = np.stack([np.log(zeroth), mean, second / zeroth - mean * mean])
        return np.asarray((rows_of_three * examples.weights[rows]).sum(axis=1))

    return sum_over_blocks(examples.logits, 3, work)


def moment_sums(examples: Examples, rows: slice, beta: float) -> FloatArray:
    """sum_i x_i^r exp(-x_i) for r = 0, 1, 2 per row, (3, rows), over columns and tail."""
    return moment_sums_of(examples.logits, examples, rows, beta)


@singledispatch
def moment_sums_of(logits: Logits, examples: Examples, rows: slice, beta: float) -> FloatArray:
    """The same; how they are summed depends on where the examples' logits are."""
    if examples.small:
        sums = plain_moment_sums(examples.margins(rows), beta)
    else:
        sums = compiled_moment_sums(logits, rows, beta)
    tail = logits.tail
    if tail is not None:
        sums += tail.count[rows] * plain_moment_sums(tail.margin[rows, None], beta)
    return sums


def plain_moment_sums(margins: FloatArray, beta: float) -> FloatArray:
    """The NumPy twin of the compiled kernel."""
    x = scaled_margins(margins, beta)
    term = np.exp(-x)
    sums = [term.sum(axis=1)]
    for _ in range(2):
        term *= x
        sums.append(term.sum(axis=1))
    return np.stack(sums)


def compiled_moment_sums(logits: Logits, rows: slice, beta: float) -> FloatArray:
    """The same through the compiled kernel."""
    from hokical.calibrators._kernels import margin_moments

    out = np.empty((3, rows.stop - rows.start))
    margin_moments(logits.block(rows), logits.top[rows], beta, FAR, out)
    return out


def scaled_margins(margins: FloatArray, beta: float) -> FloatArray:
    """beta d, cut at FAR, in a new array."""
    x = margins * beta
    return np.minimum(x, FAR, out=x)
