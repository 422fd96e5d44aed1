"""Smooth ECE (Blasiok and Nakkiran, 2024): a calibration error without bins.

It uses a kernel, and needs no choice of bandwidth. With
residuals r_i = correct_i - confidence_i at f_i and the Gaussian kernel reflected at 0 and 1,

    smECE_s = integral over [0, 1] of |mean_i r_i K_s(t, f_i)| dt,   smECE = the s with smECE_s = s.

Cosines are the eigenfunctions of the reflected kernel: smoothing multiplies the k-th coefficient by
exp(-(pi k s)^2 / 2), however many reflections that takes. So residuals are put on a grid (each
shared by its two nearest cells), and one cosine transform is inverted per bandwidth.
"""

from typing import Any

import numpy as np

from hokical._core.types import FloatArray
from hokical.metrics._chunked import read_levels
from hokical.metrics._examples import check_inside
from hokical.metrics._levels import Levels, run_starts

_LEAST_CELLS, _MOST_CELLS = 1 << 12, 1 << 18


def smooth_ece(
    proba: Any,
    labels: Any = None,
    *,
    bandwidth: float | None = None,
    sample_weight: Any = None,
) -> float:
    """Smooth calibration error, at its own bandwidth or at a given one.

    The `bandwidth` is the standard deviation s of the kernel, above 0; by default the one that
    equals its own error, which makes the result continuous in the confidences. The grid has 64
    cells per bandwidth (at most 2^18 in all), so the result is accurate to about 1e-5 relative, or
    2e-6 absolute if that is more. Other arguments are as in `ece`.

    >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [True, True, True, False]), 4)
    0.15
    """
    from scipy.fft import dct

    levels = read_levels(proba, labels, sample_weight)
    if bandwidth is None:
        return smooth_error(levels)
    width = check_inside("bandwidth", bandwidth, 0.0, np.inf)
    return _size(dct(grid_masses(levels, cells_for(width)), norm="ortho"), width)


def smooth_error(levels: Levels) -> float:
    """The error that equals its own bandwidth."""
    rough = own_bandwidth(grid_masses(levels, _LEAST_CELLS), 1e-6)  # decides on the grid
    return own_bandwidth(grid_masses(levels, cells_for(rough)), 1e-12)


def own_bandwidth(masses: FloatArray, tolerance: float) -> float:
    """The s with smECE_s = s for gridded residuals (cells,); smECE_s decreases in s."""
    from scipy.fft import dct
    from scipy.optimize import brentq

    coefficients = dct(masses, norm="ortho")
    low, high = abs(float(masses.sum())), float(np.abs(masses).sum())

    def excess(s: float) -> float:
        return _size(coefficients, s) - s

    for end, sign in ((low, -1.0), (high, 1.0)):  # as when all residuals have one sign
        if sign * excess(end) >= 0.0:
            return end
    return float(brentq(excess, low, high, xtol=tolerance, rtol=1e-15))


def grid_masses(levels: Levels, cells: int) -> FloatArray:
    """Residuals shared between the two nearest of the cells' centres, (cells,).

    Beyond the first and last centre the neighbour is the mirror image, in the same cell.
    """
    place = levels.confidence * cells - 0.5
    lower = np.floor(place).astype(np.int64)
    upper_share = place - lower
    masses = levels.gap / levels.total
    starts = run_starts(lower)
    into = lower[starts] + 1  # one extra cell at either end, folded back below
    out = np.zeros(cells + 2)
    out[into] += np.add.reduceat(masses * (1.0 - upper_share), starts)
    out[into + 1] += np.add.reduceat(masses * upper_share, starts)
    out[1] += out[0]
    out[-2] += out[-1]
    return out[1:-1]


def cells_for(bandwidth: float) -> int:
    """A power of two with 64 cells per bandwidth, within limits."""
    wanted = 64 / max(bandwidth, 64 / _MOST_CELLS)
    return max(_LEAST_CELLS, 1 << int(np.ceil(np.log2(wanted))))


def _size(coefficients: FloatArray, bandwidth: float) -> float:
    """Sum over the cells of |smoothed residuals|."""
    from scipy.fft import idct

    cells = coefficients.shape[-1]
    # Sharing a point between two cells adds a variance of h^2/6 on average: correct for it.
    variance = max(bandwidth**2 - 1.0 / (6.0 * cells**2), 0.0)
    damping = np.exp(-0.5 * variance * (np.pi * np.arange(cells)) ** 2)
    return float(np.abs(idct(coefficients * damping, norm="ortho")).sum())
