"""How often examples of about the same score are right, with an exact interval."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hokical.bins import sum_by
from hokical.guarantees.binomial import clopper_pearson

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def group_of_level(count: IntArray) -> IntArray:
    """Cut levels into groups of neighbours that hold at least n^(2/3) examples, (levels,).

    About n^(1/3) groups: both the width of a group and that of its interval shrink as n grows.
    Only the scores say where to cut, never the labels, and levels are never split.
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
    count: IntArray, correct: IntArray, wanted: IntArray, level: float
) -> FloatArray:
    """Clopper-Pearson interval (n, 2) of the group that each `wanted` level (n,) belongs to."""
    group = group_of_level(count)
    hits, trials = (
        sum_by(group, part.astype(np.float64), int(group[-1]) + 1) for part in (correct, count)
    )
    return clopper_pearson(hits, trials, level=level)[group[wanted]]
