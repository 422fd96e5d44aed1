"""The sufficient statistic of Hoki: weights and correct predictions per level of label stability.

Two examples with the same stability and the same starting bin share their bin in every step, so the
whole design-time algorithm needs only this table. Stability is kept as an integer level, gamma =
level / levels: with M draws the levels are the M + 1 possible counts, and exact stability is
rounded to 2^-16. All sums are then sums of integers (as long as weights are), so tables add up to
the same bits in whatever order. An example halfway between two levels may be counted at either,
because small and large inputs are computed in forms that differ in the last digits.

Files hold this table, and `load` reads them: the module needs NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.bins import sum_by
from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray

#: Levels for exact stability: finer than the 1e-5 to which anything is claimed.
EXACT_LEVELS = 1 << 16
#: Cells beyond this are a damaged file, not a table.
_MOST_CELLS = 1 << 28


def stability_levels(stability: FloatArray, levels: int = EXACT_LEVELS) -> IntArray:
    """Integer level nearest to each stability."""
    return np.rint(stability * levels).astype(np.int64)


@storable("stability-table")
@dataclass(frozen=True, eq=False)
class StabilityTable:
    """`weight` and `correct`, each (starting bins, levels + 1). Tables of one shape add."""

    weight: FloatArray
    correct: FloatArray

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or self.weight.shape[0] < 1 or self.weight.shape[1] < 2:
            raise ValueError(f"`weight` must be (starts, levels + 1); got {self.weight.shape}.")
        if self.correct.shape != self.weight.shape:
            raise ValueError(f"`correct` must have shape {self.weight.shape}.")
        inside = (self.correct >= 0.0) & (self.correct <= self.weight)
        if not inside.all() or not self.weight.sum() < np.inf:
            raise ValueError("`weight` must be finite, and `correct` lie between 0 and `weight`.")

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
        """Count examples by stability level, and by starting bin if there are several."""
        cell = level if start is None else start * (levels + 1) + level
        shape = (n_starts, levels + 1)
        weight = np.ones(level.shape[0]) if sample_weight is None else sample_weight
        parts = (
            sum_by(cell, part, shape[0] * shape[1]).reshape(shape)
            for part in (weight, weight * correct)
        )
        return cls(*parts)

    def __add__(self, other: object) -> StabilityTable:
        if not isinstance(other, StabilityTable):
            return NotImplemented
        if self.weight.shape != other.weight.shape:
            raise ValueError(
                "stability tables must have the same levels and starting bins to be added; got "
                f"shapes {self.weight.shape} and {other.weight.shape}."
            )
        return StabilityTable(self.weight + other.weight, self.correct + other.correct)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the occupied cells: most are empty."""
        return type(self).from_stored, (self.to_stored(),)

    @property
    def levels(self) -> int:
        """The highest level: stability 1."""
        return int(self.weight.shape[1]) - 1

    @property
    def n_starts(self) -> int:
        """How many starting bins there are."""
        return int(self.weight.shape[0])

    @property
    def total(self) -> float:
        """Sum of the weights: the number of examples, if they were not weighted."""
        return float(self.weight.sum())

    @property
    def accuracy(self) -> float:
        """Share of correct examples."""
        return float(self.correct.sum() / self.weight.sum())

    def occupied_cells(self) -> Cells:
        """The cells that hold weight, as flat arrays."""
        place = np.flatnonzero(self.weight.ravel() > 0.0)
        start, level = np.divmod(place, self.levels + 1)
        return Cells(start, level, self.weight.ravel()[place], self.correct.ravel()[place])

    def to_stored(self) -> dict[str, Any]:
        """Shape and occupied cells."""
        return {"n_starts": self.n_starts, "levels": self.levels, **vars(self.occupied_cells())}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> StabilityTable:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be a table."""
        shape = (int(stored["n_starts"]), int(stored["levels"]) + 1)
        if min(shape) < 1 or shape[0] * shape[1] > _MOST_CELLS:
            raise ValueError(f"a stability table cannot have shape {shape}")
        cells = Cells(*(np.asarray(stored[name]) for name in Cells.__dataclass_fields__))
        if len({array.shape for array in vars(cells).values()}) != 1 or cells.start.ndim != 1:
            raise ValueError("a stability table must hold 1-D arrays of one length")
        for index, size in zip((cells.start, cells.level), shape, strict=True):
            if index.dtype.kind != "i" or ((index < 0) | (index >= size)).any():
                raise ValueError(f"cells of a stability table must lie in {shape}")
        weight, correct = np.zeros(shape), np.zeros(shape)
        weight[cells.start, cells.level] = cells.weight
        correct[cells.start, cells.level] = cells.correct
        return cls(weight, correct)


@dataclass(frozen=True, eq=False)
class Cells:
    """Occupied cells of a table, all arrays (n_cells,)."""

    start: IntArray
    level: IntArray
    weight: FloatArray
    correct: FloatArray
