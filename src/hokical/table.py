"""The sufficient statistic of Hoki: weights and correct answers per level of label stability.

Two examples with the same stability and the same starting bin share their bin for ever, so the
whole design-time algorithm needs only this table. Stability is kept as an integer level, gamma =
level / levels: with M draws the levels are the M + 1 possible counts, and exact stability is
rounded to 2^-16. All sums are then sums of integers (as long as weights are), so tables add up to
the same bits in whatever order and however the data was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.bins import sum_by

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Levels for exact stability: finer than the 1e-5 to which anything is claimed.
EXACT_LEVELS = 1 << 16


def stability_levels(stability: FloatArray, levels: int = EXACT_LEVELS) -> IntArray:
    """Integer level nearest to each stability."""
    return np.rint(stability * levels).astype(np.int64)


@dataclass(frozen=True, eq=False)
class StabilityTable:
    """`weight` and `correct`, each (starting bins, levels + 1). Tables of one shape add."""

    levels: int
    weight: FloatArray
    correct: FloatArray

    @classmethod
    def from_examples(
        cls,
        level: IntArray,
        correct: NDArray[np.bool_],
        *,
        levels: int,
        sample_weight: FloatArray | None = None,
        start: IntArray | None = None,
        n_starts: int = 1,
    ) -> StabilityTable:
        """Count examples by stability level, and by starting bin where there are several."""
        cell = level if start is None else start * (levels + 1) + level
        size = n_starts * (levels + 1)
        weight = np.ones(level.shape[0]) if sample_weight is None else sample_weight
        shape = (n_starts, levels + 1)
        return cls(
            levels,
            sum_by(cell, weight, size).reshape(shape),
            sum_by(cell, weight * correct, size).reshape(shape),
        )

    def __add__(self, other: object) -> StabilityTable:
        if not isinstance(other, StabilityTable):
            return NotImplemented
        if self.weight.shape != other.weight.shape:
            raise ValueError(
                "stability tables must have the same levels and starting bins to be added; got "
                f"shapes {self.weight.shape} and {other.weight.shape}."
            )
        return StabilityTable(self.levels, self.weight + other.weight, self.correct + other.correct)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the occupied cells: most are empty."""
        return _unpickle, (self.occupied(), self.levels, self.weight.shape[0])

    @property
    def total(self) -> float:
        """Sum of the weights: the number of examples, if they were not weighted."""
        return float(self.weight.sum())

    @property
    def accuracy(self) -> float:
        """Share of correct examples."""
        return float(self.correct.sum() / self.weight.sum())

    def occupied(self) -> Cells:
        """The cells that hold weight, as flat arrays."""
        start, level = np.nonzero(self.weight)
        return Cells(
            start.astype(np.int64),
            level.astype(np.int64),
            self.weight[start, level],
            self.correct[start, level],
        )

    @classmethod
    def from_cells(cls, cells: Cells, *, levels: int, n_starts: int) -> StabilityTable:
        """The inverse of `occupied`."""
        weight = np.zeros((n_starts, levels + 1))
        correct = np.zeros((n_starts, levels + 1))
        weight[cells.start, cells.level] = cells.weight
        correct[cells.start, cells.level] = cells.correct
        return cls(levels, weight, correct)


@dataclass(frozen=True, eq=False)
class Cells:
    """Occupied cells of a table, all arrays (n_cells,)."""

    start: IntArray
    level: IntArray
    weight: FloatArray
    correct: FloatArray


def _unpickle(cells: Cells, levels: int, n_starts: int) -> StabilityTable:
    return StabilityTable.from_cells(cells, levels=levels, n_starts=n_starts)
