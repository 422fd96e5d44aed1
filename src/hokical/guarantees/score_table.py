"""How many examples and how many mistakes there are at each level of a score; tables add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.bins import sum_by
from hokical.guarantees.scores import LEVELS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Whole numbers up to here are exact in float64.
_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """`count` and `wrong`, each (LEVELS,) int64, from the lowest level of the score up."""

    count: IntArray
    wrong: IntArray

    @classmethod
    def from_examples(
        cls, level: IntArray, wrong: NDArray[np.bool_], weights: FloatArray | None = None
    ) -> ScoreTable:
        """Count examples; weights, where given, are whole numbers: how often each was seen."""
        weights = np.ones(level.size) if weights is None else weights
        count, errors = (
            sum_by(level, values, LEVELS).astype(np.int64) for values in (weights, weights * wrong)
        )
        return cls(count, errors)

    @property
    def total(self) -> int:
        return int(self.count.sum())

    def __add__(self, other: ScoreTable) -> ScoreTable:
        return ScoreTable(self.count + other.count, self.wrong + other.wrong)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the occupied levels: most are empty."""
        return type(self).from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, IntArray]:
        """The levels that hold examples, as arrays (occupied,)."""
        level = np.flatnonzero(self.count).astype(np.int64)
        return {"level": level, "count": self.count[level], "wrong": self.wrong[level]}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> ScoreTable:
        """The inverse of `to_dict`; raises ValueError where the numbers cannot be counts."""
        level, count, wrong = (np.asarray(stored[name]) for name in ("level", "count", "wrong"))
        kinds = {array.dtype.kind for array in (level, count, wrong)}
        if kinds != {"i"} or level.ndim != 1 or not level.shape == count.shape == wrong.shape:
            raise ValueError("a score table must hold three 1-D arrays of integers of one length")
        if level.size and (level[0] < 0 or level[-1] >= LEVELS or (np.diff(level) <= 0).any()):
            raise ValueError(f"levels of a score table must rise from 0 to {LEVELS - 1} at most")
        if ((wrong < 0) | (wrong > count)).any():
            raise ValueError("a score table must have 0 <= wrong <= count")
        table = cls(np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64))
        table.count[level], table.wrong[level] = count, wrong
        return table


def can_be_counts(weights: FloatArray | None) -> bool:
    """Whether weights are whole numbers, so that a binomial law can hold for what they count."""
    if weights is None:
        return True
    return bool((weights == np.rint(weights)).all() and weights.sum() < _EXACT)
