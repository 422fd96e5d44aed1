"""Accuracy of examples with a similar score, with an exact interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical.core.bins import sum_by
from hokical.core.storage import storable
from hokical.core.types import FloatArray, IntArray
from hokical.guarantees.binomial import clopper_pearson
from hokical.guarantees.score_table import LevelCounts, spread_counts


@storable("neighbours")
@dataclass(frozen=True, eq=False)
class NeighbourTable(LevelCounts):
    """The number of examples at each level of a score, and how many of them are right."""

    count: IntArray
    correct: IntArray

    def to_stored(self) -> dict[str, Any]:
        """The number of levels, and those that hold examples."""
        return {"levels": self.count.size} | super().to_stored()

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> NeighbourTable:
        """The inverse of `to_stored`."""
        return cls(*spread_counts(stored, int(stored["levels"]), ("count", "correct")))


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
    count: IntArray, correct: IntArray, wanted: IntArray, delta: float, *, doubt: int = 0
) -> FloatArray:
    """Clopper-Pearson interval (n, 2) of the group that each `wanted` level (n,) belongs to.

    Where a level within `doubt` of it belongs to another group, the interval covers both.
    """
    group = group_of_level(count)
    hits, trials = (
        sum_by(group, part.astype(np.float64), int(group[-1]) + 1) for part in (correct, count)
    )
    found = clopper_pearson(hits, trials, delta=delta)
    first, last = (group[np.clip(wanted + k, 0, group.size - 1)] for k in (-doubt, doubt))
    low, high = (np.stack([found[first, k], found[last, k]]) for k in (0, 1))
    return np.stack([low.min(axis=0), high.max(axis=0)], axis=1)
