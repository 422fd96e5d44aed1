"""Calibration examples: in memory, and as collections that are read block by block.

`Partition.reduce(work, combine)` calls `work` on every checked block of rows and combines the
results in the order of the blocks, so the same fit runs on arrays in memory, over files and over a
cluster. Most methods read a sample of rows this way (`row_sample`); Hoki's counts are a sum over
all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.parallel import cut_rows
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._core.warn import warn_user
from hokical.guarantees._row_sketch import row_draws

#: What a reduction makes of a block, and of two results; it must be possible to pickle it.
Result = TypeVar("Result")

_NO_WEIGHT = "`sample_weight` must not be zero everywhere. Give some example a weight."
_MASKING = "Mask only classes that cannot occur."
#: Fewer examples than this are a handful, from which nothing can be learned.
FEWEST_EXAMPLES = 10
#: How far `from_probabilities` puts zeros below the top of their row; nothing is farther.
ZEROS_BELOW = (700.0, 745.0)


@dataclass(frozen=True, eq=False)
class Examples:
    """Checked rows in memory: `logits`, `labels` (n,), and `weights` (n,) or None for 1 each.

    `first_row` is the number of the first row in the data. If the rows are a sample, `sampled_from`
    is the number of rows with a weight that it was drawn from.
    """

    logits: Logits
    labels: IntArray
    weights: FloatArray | None = None
    first_row: int = 0
    sampled_from: int | None = None

    @property
    def n_rows(self) -> int:
        return self.logits.n_rows

    @property
    def n_classes(self) -> int:
        return self.logits.n_classes

    @cached_property
    def correct(self) -> BoolArray:
        """Whether the classifier's own label is the true one, (n,)."""
        return np.asarray(self.logits.to_host(self.logits.labels) == self.labels)

    @property
    def counting(self) -> BoolArray:
        """Rows of a weight above 0, (n,)."""
        return np.ones(self.n_rows, np.bool_) if self.weights is None else self.weights > 0.0

    @property
    def counts(self) -> FloatArray:
        """The weight of each row, (n,), or 1."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @cached_property
    def share(self) -> FloatArray:
        """Weights (n,) that sum to 1."""
        return np.asarray(self.counts / self.counts.sum())

    @cached_property
    def effective_size(self) -> float:
        return effective_size(self.share)

    @cached_property
    def true_margins(self) -> FloatArray:
        """The margin of the true class below the row's top, (n,), 0 to MAX_MARGIN."""
        with np.errstate(over="ignore"):
            margins = self.logits.to_host(self.logits.top) - self.logits.of_class(self.labels)
        return np.asarray(np.minimum(margins, MAX_MARGIN))

    @cached_property
    def mean_true_margin(self) -> float:
        return float(np.sum(self.share * self.true_margins))

    @property
    def description(self) -> str:
        """How many of how many rows were used; "" if all were."""
        if self.sampled_from is None:
            return ""
        return f"fitted on {self.n_rows:,} of {self.sampled_from:,} rows"

    def take(self, rows: NDArray[Any]) -> Examples:
        """Some of the rows, by number or by a mask."""
        weights = None if self.weights is None else self.weights[rows]
        some = Examples(self.logits.take(rows), self.labels[rows], weights)
        if "correct" in self.__dict__:  # on a device it takes a pass and a wait to find it
            some.__dict__["correct"] = self.correct[rows]
        return some

    def every(self, step: int) -> Examples:
        """One of `step` rows each."""
        return self.take(spaced_rows(0, self.n_rows, step))

    def cut(self, n_rows: int) -> Iterator[Examples]:
        """Itself if it has at most `n_rows`; else consecutive parts of that size, not copied."""
        if self.n_rows <= n_rows:
            yield self
            return
        for rows in cut_rows(self.n_rows, n_rows):
            weights = None if self.weights is None else self.weights[rows]
            first = self.first_row + rows.start
            yield Examples(self.logits.take(rows), self.labels[rows], weights, first)

    def without_weightless(self) -> Examples:
        """The same without rows of weight 0, which must leave no trace."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))

    @property
    def is_learnable(self) -> BoolArray:
        """Rows (n,) of a weight above 0 whose true class is not masked."""
        return self.counting & ~self._masked_truth

    @property
    def learnable(self) -> Examples:
        """The rows that a log-loss fit can learn from, with a warning about the others.

        Where the true class is masked (logit -inf), the log loss is infinite whatever is fitted.
        """
        kept, n_masked = self.is_learnable, int(self._masked_truth.sum())
        if not kept.any():
            if not n_masked:
                raise ValueError(_NO_WEIGHT)
            raise ValueError(
                "`labels` must name a possible class in at least one example; the logit of the "
                f"true class is -inf in all {n_masked} that count. Check that `labels` index the "
                f"columns of `logits`. {_MASKING}"
            )
        if n_masked:
            warn_user(
                f"{n_masked} of {self.n_rows} examples are left out of the fit: the logit of their "
                "true class is -inf, which makes the log loss infinite whatever is fitted. "
                f"{_MASKING}",
                RuntimeWarning,
            )
        return self if kept.all() else self.take(np.flatnonzero(kept))

    def warn_about_masked_truth(self) -> None:
        """For fits other than those of the log loss, which keep such examples."""
        count = int(self._masked_truth.sum())
        if count:
            warn_user(
                f"{count} of {self.n_rows} examples have a true class with logit -inf; they only "
                f"show that the other classes were wrong. {_MASKING}",
                RuntimeWarning,
            )

    @cached_property
    def _masked_truth(self) -> BoolArray:
        return np.asarray((self.logits.of_class(self.labels) == -np.inf) & self.counting)


class Partition(ABC):
    """Examples that can be reduced block by block."""

    n_classes: int
    #: Whether the blocks can be read more than once.
    repeatable: bool = True
    #: Groups of all rows, in order, for methods that learn from them.
    groups: Any = None

    @abstractmethod
    def reduce(
        self, work: Callable[[Examples], Result], combine: Callable[[Result, Result], Result]
    ) -> Result:
        """`work` of every block, combined in order; both are pure functions."""


class InMemory(Partition):
    """All examples in one block."""

    def __init__(self, block: Examples) -> None:
        self.block = block
        self.n_classes = block.logits.n_classes

    def reduce(
        self, work: Callable[[Examples], Result], combine: Callable[[Result, Result], Result]
    ) -> Result:
        return work(self.block)


def spaced_rows(first_row: int, n_rows: int, step: int) -> IntArray:
    """One row of every `step`, the same wherever blocks begin.

    A pseudo-random one, as the order of the rows may be periodic.
    """
    first, last = first_row // step, -(-(first_row + n_rows) // step)
    within = (row_draws(first, last - first) * step).astype(np.int64)
    places = np.arange(first, last) * step + within - first_row
    return places[(places >= 0) & (places < n_rows)]


def effective_size(share: FloatArray) -> float:
    """Kish's effective number of examples, by weights (n,) that sum to 1."""
    return 1.0 / float(np.sum(share * share))


def mean_and_error(gaps: FloatArray, share: FloatArray) -> tuple[float, float]:
    """Weighted mean of differences, and its standard error; the weights sum to 1."""
    mean = float(np.sum(share * gaps))
    return mean, float(np.sqrt(np.sum((share * (gaps - mean)) ** 2)))


def has_zeros(logits: Logits) -> bool:
    """Whether the logits are those of probabilities, some of them 0."""
    if logits.tail is not None:
        return False
    xp = logits.xp
    lowest, highest = float(xp.min(logits.values)), float(xp.max(logits.top))
    if lowest > -np.inf and highest - lowest < ZEROS_BELOW[0]:  # one quick pass tells, as a rule
        return False

    def farthest(block: Logits) -> Array:
        margins = block.margins
        return xp.max(xp.where(block.possible, margins, xp.zeros_like(margins)), axis=1)

    return bool(ZEROS_BELOW[0] <= per_row(farthest, logits).max() <= ZEROS_BELOW[1])
