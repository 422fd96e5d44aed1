"""Counts of examples and mistakes at each level of a score; tables can be added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.core.bins import sum_by
from hokical.core.storage import storable
from hokical.core.types import FloatArray, IntArray
from hokical.guarantees.scores import LEVELS

#: Integers up to here are exact in float64.
_EXACT = 2.0**53


class LevelCounts:
    """Base of tables: a frozen dataclass of the examples at each level, and of a part of them.

    Stored and pickled are the occupied levels only: most are empty.
    """

    def __post_init__(self) -> None:
        check_counts(type(self)._stored_as, *vars(self).values())  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_stored, (self.to_stored(),)  # type: ignore[attr-defined]

    def to_stored(self) -> dict[str, Any]:
        """The levels that hold examples, as arrays (occupied,)."""
        count, _ = vars(self).values()
        level = np.flatnonzero(count).astype(np.int64)
        return {"level": level} | {name: array[level] for name, array in vars(self).items()}


@storable("scores")
@dataclass(frozen=True, eq=False)
class ScoreTable(LevelCounts):
    """`count` and `wrong`, each (LEVELS,) int64, from the lowest level of the score up."""

    count: IntArray
    wrong: IntArray

    @classmethod
    def from_examples(
        cls, level: IntArray, wrong: NDArray[np.bool_], weights: FloatArray | None = None
    ) -> ScoreTable:
        """Count examples; weights, if given, are integers: how often each was seen."""
        weights = np.ones(level.size) if weights is None else weights
        count, errors = (
            sum_by(level, values, LEVELS).astype(np.int64) for values in (weights, weights * wrong)
        )
        return cls(count, errors)

    @property
    def total(self) -> int:
        return int(self.count.sum())

    @property
    def accuracy(self) -> float:
        return 1.0 - int(self.wrong.sum()) / self.total

    def __add__(self, other: ScoreTable) -> ScoreTable:
        return ScoreTable(self.count + other.count, self.wrong + other.wrong)

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> ScoreTable:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be counts."""
        return cls(*spread_counts(stored, LEVELS, ("count", "wrong")))


#: No table has more levels than this.
_MOST_LEVELS = 1 << 24


def spread_counts(
    stored: dict[str, Any], levels: int, names: tuple[str, str]
) -> tuple[IntArray, IntArray]:
    """Counts of all levels, (levels,) each, from those of the occupied ones; checked."""
    level, count, part = (np.asarray(stored[name]) for name in ("level", *names))
    if not 1 <= levels <= _MOST_LEVELS:
        raise ValueError(f"a table must have from 1 to {_MOST_LEVELS} levels; got {levels}")
    kinds = {array.dtype.kind for array in (level, count, part)}
    if kinds != {"i"} or level.ndim != 1 or not level.shape == count.shape == part.shape:
        raise ValueError("a table of counts must hold three 1-D arrays of integers of one length")
    if level.size and (level[0] < 0 or level[-1] >= levels or (np.diff(level) <= 0).any()):
        raise ValueError(f"levels of a table must rise from 0 to {levels - 1} at most")
    whole, some = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    whole[level], some[level] = count, part
    return whole, some


def check_counts(name: str, count: Any, part: Any) -> None:
    """Two arrays of integers of one length, 0 <= part <= count."""
    arrays = isinstance(count, np.ndarray) and isinstance(part, np.ndarray)
    if not arrays or count.dtype.kind != "i" or part.dtype.kind != "i" or count.shape != part.shape:
        raise ValueError(f"`{name}` must hold two arrays of integers of one length.")
    if ((part < 0) | (part > count)).any():
        raise ValueError(f"`{name}` must have counts of which a part lies between 0 and all.")


def can_be_counts(weights: FloatArray | None) -> bool:
    """Whether weights are integers, so that what they count can be binomial."""
    if weights is None:
        return True
    return bool((weights == np.rint(weights)).all() and weights.sum() < _EXACT)
