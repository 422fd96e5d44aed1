"""The chi-square test: its tail, and cells that hold enough for it."""

import numpy as np

from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._binomial import scipy_special


def chi_square_tail(freedom: int, statistic: float) -> float:
    """The probability that a chi-square variable of `freedom` degrees exceeds the statistic.

    >>> round(chi_square_tail(1, 3.841), 3), round(chi_square_tail(2, 5.991), 3)
    (0.05, 0.05)
    """
    return float(scipy_special().chdtrc(freedom, statistic))


def merge_cells(expected: FloatArray, least: float) -> IntArray:
    """Groups (cells,) of neighbouring cells that each expect at least so many examples.

    >>> merge_cells(np.array([3.0, 3.0, 9.0, 2.0, 1.0]), 5.0)
    array([0, 0, 1, 1, 1])
    """
    group = np.zeros(expected.shape[0], dtype=np.int64)
    cell, held = 0, 0.0
    for place, weight in enumerate(expected):
        group[place], held = cell, held + weight
        if held >= least:
            cell, held = cell + 1, 0.0
    if held < least and cell > 0:  # too few are left over: they join the last full cell
        group[group == cell] = cell - 1
    return group
