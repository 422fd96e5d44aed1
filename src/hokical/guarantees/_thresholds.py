"""Thresholds of sets: order statistics of scores, one for all examples or one for each cell.

Proofs are in `docs/sets-theory.md`. Cells are classes or groups (Mondrian); those with too few
examples to promise anything alone share one threshold.
"""

import math
from dataclasses import dataclass

import numpy as np

from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import binomial_tail, check_chance
from hokical.guarantees._score_table import can_be_counts

#: What rounding may take from the number of examples that must be covered.
_ROUNDING = 1e-9


def fewest_for_coverage(coverage: float, delta: float | None = None) -> int:
    """The number of examples below which only a set of all classes has that coverage.

    >>> fewest_for_coverage(0.9), fewest_for_coverage(0.9, delta=0.1)
    (9, 22)
    """
    check_chance("coverage", coverage)
    if delta is None:
        return math.ceil(coverage / (1.0 - coverage) - _ROUNDING)
    return math.ceil(math.log(check_chance("delta", delta)) / math.log(coverage) - _ROUNDING)


def examples_to_cover(n: int, coverage: float, delta: float | None = None) -> int:
    """The number k of n examples that sets must cover; n + 1 if even all are not enough.

    (n + 1) coverage, rounded up: a further example is covered with that probability. With `delta`
    the least k for which Beta(k, n + 1 - k), the law of the true coverage, is above `coverage` with
    probability 1 - delta.

    >>> examples_to_cover(999, 0.9), examples_to_cover(999, 0.9, delta=0.05)
    (900, 915)
    """
    check_chance("coverage", coverage)
    if delta is None:
        return min(math.ceil((n + 1) * coverage - _ROUNDING), n + 1)
    if n < fewest_for_coverage(coverage, delta):
        return n + 1
    passes, fails = 0, n + 1  # numbers of misses
    while fails - passes > 1:
        middle = (passes + fails) // 2
        sure = float(binomial_tail(middle, n, 1.0 - coverage)) <= delta
        passes, fails = (middle, fails) if sure else (passes, middle)
    return n - passes


@dataclass(frozen=True, eq=False)
class Thresholds:
    """`values` (cells,), inf for sets of everything; which cells are `pooled` (cells,)."""

    values: FloatArray
    pooled: BoolArray
    fewest: int


def find_thresholds(
    scores: FloatArray,
    weights: FloatArray | None,
    unit: float,
    cells: IntArray,
    n_cells: int,
    coverage: float,
    delta: float | None,
) -> Thresholds:
    """A threshold for each cell of examples (n,) with these scores, the larger the stranger.

    `unit` is the most that a new example may weigh beside the weights (n,) of these.
    A cell with fewer examples than `fewest` gets the one of all examples of cells with at most
    that many: what the cells are is then the same whichever of the examples is the new one.
    """
    if delta is not None and not can_be_counts(weights):
        raise ValueError(
            "`delta` needs examples that count as whole numbers; got other `sample_weight` in "
            "`certify`, or a new balance of classes. Leave `delta` out, for coverage on average, "
            "or call `certify` with examples of the new balance."
        )
    counts = np.ones(scores.size) if weights is None else weights
    fewest, sizes = fewest_for_coverage(coverage, delta), np.bincount(cells, counts, n_cells)
    small, pooled = sizes <= fewest * unit, sizes < fewest * unit
    order = np.argsort(scores, kind="stable")
    scores, counts, cells = scores[order], counts[order], cells[order]

    def one(rows: BoolArray) -> float:
        reached, n = np.cumsum(counts[rows]), float(counts[rows].sum())
        goal = (n + unit) * coverage - _ROUNDING * unit
        if delta is not None:
            goal = float(examples_to_cover(round(n), coverage, delta))
        place = int(np.searchsorted(reached, goal))
        return float(scores[rows][place]) if place < reached.size else np.inf

    if n_cells == 1:
        return Thresholds(np.array([one(cells == 0)]), np.zeros(1, np.bool_), fewest)
    common = one(small[cells]) if pooled.any() else np.inf
    values = [common if pooled[k] else one(cells == k) for k in range(n_cells)]
    return Thresholds(np.array(values), pooled, fewest)
