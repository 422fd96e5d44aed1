"""Counts of examples and mistakes at each level of a score; tables can be added."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.storage import storable
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import clopper_pearson
from hokical.guarantees._control import can_be_counts, remembered
from hokical.guarantees._scores import LEVELS

__all__ = ["NeighbourTable", "ScoreTable", "accuracy_intervals", "can_be_counts", "group_of_level"]

#: No table has more levels than this.
_MOST_LEVELS = 1 << 24


class LevelCounts:
    """Base of tables: a frozen dataclass of the examples at each level, and of a part of them.

    Stored and pickled are the occupied levels only: most are empty.
    """

    #: How many levels all tables of the kind have; None if that is stored with each.
    n_levels: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        """Two arrays of integers of one length, 0 <= part <= count."""
        name, (count, part) = type(self).__name__, self._parts().values()
        arrays = isinstance(count, np.ndarray) and isinstance(part, np.ndarray)
        if not arrays or {count.dtype.kind, part.dtype.kind} != {"i"} or count.shape != part.shape:
            raise ValueError(f"`{name}` must hold two arrays of integers of one length.")
        if ((part < 0) | (part > count)).any():
            raise ValueError(f"`{name}` must have counts of which a part lies between 0 and all.")

    def _parts(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_stored, (self.to_stored(),)

    def to_stored(self) -> dict[str, Any]:
        """The levels that hold examples, as arrays (occupied,)."""
        count, _ = self._parts().values()
        level = np.flatnonzero(count).astype(np.int64)
        whole = {} if self.n_levels else {"levels": count.size}
        return whole | {"level": level} | {name: a[level] for name, a in self._parts().items()}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be counts."""
        levels = cls.n_levels or int(stored["levels"])
        names = ("level", *(field.name for field in fields(cls)))  # type: ignore[arg-type]
        level, count, part = (np.asarray(stored[name]) for name in names)
        if not 1 <= levels <= _MOST_LEVELS:
            raise ValueError(f"a table must have from 1 to {_MOST_LEVELS} levels; got {levels}")
        kinds = {array.dtype.kind for array in (level, count, part)}
        if kinds != {"i"} or level.ndim != 1 or not level.shape == count.shape == part.shape:
            raise ValueError(
                "a table of counts must hold three 1-D arrays of integers of one length"
            )
        if level.size and (level[0] < 0 or level[-1] >= levels or (np.diff(level) <= 0).any()):
            raise ValueError(f"levels of a table must rise from 0 to {levels - 1} at most")
        whole = np.zeros((2, levels), np.int64)
        whole[:, level] = count, part
        return cls(*whole)


@storable("scores")
@dataclass(frozen=True, eq=False)
class ScoreTable(LevelCounts):
    """`count` and `wrong`, each (LEVELS,) int64, from the lowest level of the score up."""

    n_levels: ClassVar[int | None] = LEVELS

    count: IntArray
    wrong: IntArray

    @classmethod
    def from_examples(
        cls, level: IntArray, wrong: BoolArray, weights: FloatArray | None = None
    ) -> Self:
        """Count examples; weights, if given, are integers: how often each was seen."""
        weights = np.ones(level.size) if weights is None else weights
        count, errors = (
            sum_by(level, values, LEVELS).astype(np.int64) for values in (weights, weights * wrong)
        )
        return cls(count, errors)

    @property
    def correct(self) -> IntArray:
        return self.count - self.wrong

    @property
    def total(self) -> int:
        return int(self.count.sum())

    @property
    def accuracy(self) -> float:
        return 1.0 - int(self.wrong.sum()) / self.total

    def __add__(self, other: Self) -> Self:
        return type(self)(self.count + other.count, self.wrong + other.wrong)


@storable("neighbours")
@dataclass(frozen=True, eq=False)
class NeighbourTable(LevelCounts):
    """The number of examples at each level of a score, and how many of them are right."""

    count: IntArray
    correct: IntArray


def group_of_level(count: IntArray) -> IntArray:
    """Divide levels into groups of neighbours with at least n^(2/3) examples each, (levels,).

    About n^(1/3) groups: both the width of a group and that of its interval shrink as n grows.
    The groups depend on the scores, never on the labels, and levels are not split.
    """
    reached = np.cumsum(count)
    total = int(reached[-1])
    size = math.ceil(total ** (2.0 / 3.0))
    last_levels: list[int] = []
    done = 0
    while total - done >= 2 * size:
        last_levels.append(int(np.searchsorted(reached, done + size)))
        done = int(reached[last_levels[-1]])
    if last_levels and total - done < size:
        last_levels.pop()
    return np.searchsorted(np.array(last_levels, np.int64), np.arange(count.size))


def accuracy_intervals(
    table: ScoreTable | NeighbourTable, wanted: IntArray, delta: float, *, doubt: int = 0
) -> FloatArray:
    """Clopper-Pearson interval (n, 2) of the group that each `wanted` level (n,) belongs to.

    Where a level within `doubt` of it belongs to another group, the interval covers both.
    """
    group, found = remembered(table, ("intervals", delta), lambda: _group_intervals(table, delta))
    first, last = (group[np.clip(wanted + k, 0, group.size - 1)] for k in (-doubt, doubt))
    low, high = (np.stack([found[first, k], found[last, k]]) for k in (0, 1))
    return np.stack([low.min(axis=0), high.max(axis=0)], axis=1)


def _group_intervals(
    table: ScoreTable | NeighbourTable, delta: float
) -> tuple[IntArray, FloatArray]:
    """The group of each level, (levels,), and the interval of each group, (groups, 2)."""
    group = group_of_level(table.count)
    hits, trials = (
        sum_by(group, part.astype(np.float64), int(group[-1]) + 1)
        for part in (table.correct, table.count)
    )
    return group, clopper_pearson(hits, trials, delta=delta)
