"""The one thing that fits ask of their examples: reduce them, block by block.

`Partition.reduce(work, combine)` calls `work` on every checked block and combines the results in
the order of the blocks, so the same fit runs on arrays in memory, over files and over a cluster.
Most methods read a sample of rows this way (`row_sample`); Hoki's counts are a sum over all rows.
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
from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows
from hokical._core.types import FloatArray, IntArray

#: Arrays that can be added.
State = tuple[NDArray[Any], ...]
#: What a reduction makes of a block, and of two results; it must be possible to pickle it.
Result = TypeVar("Result")

#: Up to so many rows, their numbers are added up on the host: on a GPU each sum costs a launch.
SUMMED_ON_HOST = 1 << 16


@dataclass(frozen=True, eq=False)
class Block:
    """Checked rows: `logits`, `labels` (n,), `weights` (n,) or None, and the first row's number."""

    logits: Logits
    labels: IntArray
    weights: FloatArray | None
    first_row: int = 0

    @property
    def n_rows(self) -> int:
        return self.logits.n_rows

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the classifier's own label is right, (n,)."""
        return np.asarray(self.logits.to_host(self.logits.labels) == self.labels)

    @property
    def counting(self) -> NDArray[np.bool_]:
        """Rows of a weight above 0, (n,)."""
        return np.ones(self.n_rows, np.bool_) if self.weights is None else self.weights > 0.0

    @property
    def counts(self) -> FloatArray:
        """What each row counts, (n,): its weight, or 1."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @cached_property
    def counts_beside(self) -> Array:
        """`counts` (n,) in the library and on the device of the logits."""
        return self.logits.from_host(self.counts)

    @cached_property
    def hits(self) -> FloatArray:
        """`counts` (n,), 0 where the label is wrong."""
        return self.counts * self.correct

    @cached_property
    def hits_beside(self) -> Array:
        """`hits` (n,) in the library and on the device of the logits."""
        return self.logits.from_host(self.hits)

    def take(self, rows: NDArray[Any]) -> Block:
        """Some of the rows, by number or by a mask."""
        weights = None if self.weights is None else self.weights[rows]
        some = Block(self.logits.take(rows), self.labels[rows], weights)
        if "correct" in self.__dict__:  # found once, on a device by a pass and a wait
            some.__dict__["correct"] = self.correct[rows]
        return some

    def cut(self, n_rows: int) -> Iterator[Block]:
        """Itself if it has at most so many rows; else blocks of so many, without a copy."""
        if self.n_rows <= n_rows:
            yield self
            return
        for rows in cut_rows(self.n_rows, n_rows):
            weights = None if self.weights is None else self.weights[rows]
            first = self.first_row + rows.start
            yield Block(self.logits.take(rows), self.labels[rows], weights, first)

    def without_weightless(self) -> Block:
        """The same without rows of weight 0, which must leave no trace."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))


class Partition(ABC):
    """Examples that can be reduced block by block."""

    n_classes: int
    #: Whether the blocks can be read more than once.
    repeatable: bool = True
    #: Groups of all rows, in order, for methods that learn from them.
    groups: Any = None

    @abstractmethod
    def reduce(
        self, work: Callable[[Block], Result], combine: Callable[[Result, Result], Result]
    ) -> Result:
        """`work` of every block, combined in order; both are pure functions."""


class InMemory(Partition):
    """All examples in one block."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.n_classes = block.logits.n_classes

    def reduce(
        self, work: Callable[[Block], Result], combine: Callable[[Result, Result], Result]
    ) -> Result:
        return work(self.block)


def add_states(left: State, right: State) -> State:
    """Two states, array by array."""
    return tuple(a + b for a, b in zip(left, right, strict=True))
