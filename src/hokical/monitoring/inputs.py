"""Have the inputs shifted? The window's histogram of confidence against the reference's.

No labels are needed. The p-value is that of a two-sample chi-square test, valid for one look; the
population stability index (PSI) measures the size of the shift. A shift is reported only if it is
both significant and large enough to matter.
"""

import math
from dataclasses import dataclass

import numpy as np

from hokical.core.types import FloatArray, IntArray

#: The usual threshold of PSI for a moderate shift.
PSI_OF_A_SHIFT = 0.1

#: The chi-square approximation needs about this many expected examples in a cell.
_LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class InputDrift:
    """The window's confidences compared with the reference's.

    `p_value` is valid for a single look. `shifted`: it is below delta and `psi` is 0.1 or more.
    """

    n: int
    psi: float
    p_value: float
    shifted: bool


def input_drift(counts: IntArray, reference: FloatArray, delta: float) -> InputDrift:
    """Compare counts per bin, (J,), with the reference's weights per bin, (J,).

    >>> same = input_drift(np.array([10, 30, 60]), np.array([100.0, 300.0, 600.0]), 0.01)
    >>> same.p_value, same.shifted
    (1.0, False)
    >>> input_drift(np.array([60, 30, 10]), np.array([100.0, 300.0, 600.0]), 0.01).shifted
    True
    """
    table = _merge_small_cells(np.array([counts, reference], dtype=np.float64))
    psi, p_value = _stability_index(table), _p_value(table)
    shifted = p_value < delta and psi >= PSI_OF_A_SHIFT
    return InputDrift(int(counts.sum()), psi, p_value, shifted)


def _merge_small_cells(table: FloatArray) -> FloatArray:
    """Join neighbouring bins until both samples expect enough examples in each, (2, cells)."""
    pooled, sizes = table.sum(axis=0), table.sum(axis=1)
    least = _LEAST_EXPECTED * sizes.sum() / sizes.min()
    group = np.zeros(pooled.shape[0], dtype=np.int64)
    cell, held = 0, 0.0
    for place, weight in enumerate(pooled):
        group[place], held = cell, held + weight
        if held >= least:
            cell, held = cell + 1, 0.0
    if held < least and cell > 0:  # too few are left over: they join the last full cell
        group[group == cell] = cell - 1
    return np.array([np.bincount(group, row, int(group.max()) + 1) for row in table])


def _stability_index(table: FloatArray) -> float:
    share = (table + 0.5) / (table + 0.5).sum(axis=1, keepdims=True)  # no empty cells
    return float(((share[0] - share[1]) * np.log(share[0] / share[1])).sum())


def _p_value(table: FloatArray) -> float:
    from scipy.special import chdtrc

    freedom = table.shape[1] - 1
    if freedom == 0:
        return 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    return float(chdtrc(freedom, statistic)) if math.isfinite(statistic) else 0.0
