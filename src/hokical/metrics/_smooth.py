"""Smooth ECE (Blasiok and Nakkiran, 2024): a calibration error without bins.

It uses a kernel, and needs no choice of bandwidth. With
residuals r_i = correct_i - confidence_i at f_i and the Gaussian kernel reflected at 0 and 1,

    smECE_s = integral over [0, 1] of |mean_i r_i K_s(t, f_i)| dt,   smECE = the s with smECE_s = s.

Cosines are the eigenfunctions of the reflected kernel: smoothing multiplies the k-th coefficient by
exp(-(pi k s)^2 / 2), however many reflections that takes. So residuals are put on a grid (each
shared by its two nearest cells), and one cosine transform is inverted per bandwidth.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from hokical._core.types import FloatArray
from hokical.metrics._examples import check_inside
from hokical.metrics._ranking import RankedExamples, rank, run_starts

_LEAST_CELLS, _MOST_CELLS = 1 << 12, 1 << 18
_MAX_STEPS = 60


def smooth_ece(
    confidence: Any,
    correct: Any = None,
    *,
    bandwidth: float | None = None,
    sample_weight: Any = None,
) -> float:
    """Smooth calibration error, at its own bandwidth or at a given one.

    The `bandwidth` is the standard deviation s of the kernel, above 0; by default the one that
    equals its own error, which makes the result continuous in the confidences. The grid has 64
    cells per bandwidth (at most 2^18 in all), so the result is accurate to about 1e-5 relative, or
    2e-6 absolute if that is more.

    >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [True, True, True, False]), 4)
    0.15
    """
    from scipy.fft import dct

    ranked = rank(confidence, correct, sample_weight)
    if bandwidth is not None:
        width = check_inside("bandwidth", bandwidth, 0.0, np.inf)
        coefficients = dct(grid_masses(ranked, cells_for(width)), norm="ortho")
        return float(_size(coefficients, np.array(width)))
    rough = float(own_bandwidth(grid_masses(ranked, _LEAST_CELLS), 1e-6))  # decides on the grid
    return float(own_bandwidth(grid_masses(ranked, cells_for(rough)), 1e-12))


def own_bandwidth(masses: FloatArray, tolerance: float) -> FloatArray:
    """The s with smECE_s = s for each row of gridded residuals (..., cells), as (...).

    smECE_s decreases in s, so |smECE_s - s| bounds the distance to the solution: it is the stopping
    rule, and from either side a bracket.
    """
    from scipy.fft import dct

    coefficients = dct(masses, axis=-1, norm="ortho")
    low = np.abs(masses.sum(axis=-1))
    high = np.maximum(np.abs(masses).sum(axis=-1), low)
    return _fixed_point(lambda s: _size(coefficients, s), low, high, tolerance)


def grid_masses(ranked: RankedExamples, cells: int) -> FloatArray:
    """Residuals shared between the two nearest of the cells' centres, (..., cells).

    Beyond the first and last centre the neighbour is the mirror image, in the same cell.
    """
    place = ranked.confidence * cells - 0.5
    lower = np.floor(place).astype(np.int64)
    upper_share = place - lower
    masses = ranked.gap / ranked.total[..., None]
    starts = run_starts(lower)
    into = lower[starts] + 1  # one extra cell at either end, folded back below
    out = np.zeros((*masses.shape[:-1], cells + 2))
    out[..., into] += np.add.reduceat(masses * (1.0 - upper_share), starts, axis=-1)
    out[..., into + 1] += np.add.reduceat(masses * upper_share, starts, axis=-1)
    out[..., 1] += out[..., 0]
    out[..., -2] += out[..., -1]
    return out[..., 1:-1]


def cells_for(bandwidth: float, per_bandwidth: int = 64, least: int = _LEAST_CELLS) -> int:
    """A power of two with that many cells per bandwidth, within limits."""
    wanted = per_bandwidth / max(bandwidth, per_bandwidth / _MOST_CELLS)
    return max(least, 1 << int(np.ceil(np.log2(wanted))))


def _size(coefficients: FloatArray, bandwidth: FloatArray) -> FloatArray:
    """Sum over the cells of |smoothed residuals|, (...)."""
    from scipy.fft import idct

    cells = coefficients.shape[-1]
    # Sharing a point between two cells adds a variance of h^2/6 on average: correct for it.
    variance = np.maximum(bandwidth**2 - 1.0 / (6.0 * cells**2), 0.0)
    damping = np.exp(np.multiply.outer(variance, -0.5 * (np.pi * np.arange(cells)) ** 2))
    return np.asarray(np.abs(idct(coefficients * damping, axis=-1, norm="ortho")).sum(axis=-1))


def _fixed_point(
    size: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray, tolerance: float
) -> FloatArray:
    """Solve size(s) = s for a decreasing function in each entry: secant steps in a bracket."""
    s = np.clip(0.02, low, high)
    value = size(s)
    last_s, last_value, error = s, value, np.full(s.shape, np.inf)
    for _ in range(_MAX_STEPS):
        low, high = np.maximum(low, np.minimum(s, value)), np.minimum(high, np.maximum(s, value))
        slow = np.abs(value - s) > 0.5 * error
        error = np.abs(value - s)
        if not error.max() > tolerance:
            break
        open_ = error > tolerance  # converged entries stay, so none depends on its neighbours
        run = s - last_s
        slope = np.divide(value - last_value, run, out=np.zeros_like(run), where=run != 0)
        guess = s + (value - s) / (1.0 - np.minimum(slope, 0.0))  # the function decreases
        inside = ~slow & (guess >= low) & (guess <= high)
        last_s, last_value = s, value
        s = np.where(open_, np.where(inside, guess, 0.5 * (low + high)), s)
        value = size(s)
    return np.asarray(np.minimum(np.maximum(value, low), high))
