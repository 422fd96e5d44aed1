"""Smooth ECE (Blasiok and Nakkiran, 2024): a kernel instead of bins, and no bandwidth to choose.

With residuals r_i = correct_i - confidence_i at f_i and the Gaussian kernel reflected at 0 and 1,

    smECE_s = integral over [0, 1] of |mean_i r_i K_s(t, f_i)| dt,   smECE = the s with smECE_s = s.

Cosines are the eigenfunctions of the reflected kernel: smoothing multiplies the k-th coefficient by
exp(-(pi k s)^2 / 2), however many reflections that takes. Residuals are therefore spread over a
grid (each over its two nearest cells) and one cosine transform is inverted per bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, idct

from hokical.metrics.checks import as_examples, check_inside
from hokical.metrics.chunked import chunks_too
from hokical.metrics.ranked import Ranked, run_starts

FloatArray = NDArray[np.float64]

_LEAST_CELLS, _MOST_CELLS = 1 << 12, 1 << 18
_MAX_STEPS = 60


@chunks_too
def smooth_ece(
    confidence: Any, correct: Any, *, bandwidth: float | None = None, sample_weight: Any = None
) -> float:
    """Smooth calibration error, at its own bandwidth or at a given one.

    The grid follows the bandwidth (64 cells in it, at most 2^18 in all), so the result is right to
    about 1e-5 of itself, or to 2e-6 where that is more.

    Parameters
    ----------
    confidence, correct, sample_weight : array-like of shape (n,)
        As in `ece`.
    bandwidth : float, optional
        Standard deviation s of the kernel, above 0. By default the one that equals its own error,
        which makes the result continuous in the confidences.

    Examples
    --------
    >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [True, True, True, False]), 4)
    0.15
    """
    ranked = Ranked.from_examples(as_examples(confidence, correct, sample_weight))
    if bandwidth is None:
        return _refined(ranked)
    width = check_inside("bandwidth", bandwidth, 0.0, np.inf)
    coefficients = dct(grid_masses(ranked, cells_for(width)), norm="ortho")
    return float(_size(coefficients, np.array(width)))


def own_bandwidth(masses: FloatArray, tolerance: float) -> FloatArray:
    """The s with smECE_s = s for each row of gridded residuals (..., cells), as (...).

    smECE_s falls as s grows, so |smECE_s - s| bounds the distance to the solution: it is both the
    stopping rule and, from either side, a bracket.
    """
    coefficients = dct(masses, axis=-1, norm="ortho")
    low = np.abs(masses.sum(axis=-1))
    high = np.maximum(np.abs(masses).sum(axis=-1), low)
    return _fixed_point(lambda s: _size(coefficients, s), low, high, tolerance)


def grid_masses(ranked: Ranked, cells: int) -> FloatArray:
    """Residuals shared between the two nearest of the cells' centres, (..., cells).

    Beyond the first and last centre the neighbour is the example's mirror image, whose cell is its
    own.
    """
    place = ranked.confidence * cells - 0.5
    lower = np.floor(place).astype(np.int64)
    upper_share = place - lower
    masses = ranked.gap / ranked.total[..., None]
    starts = run_starts(lower)
    into = lower[starts] + 1  # one cell is added at either end, and folded back below
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


def _refined(ranked: Ranked) -> float:
    """Solve on a coarse grid, then on one fine enough for the bandwidth that was found."""
    rough = float(own_bandwidth(grid_masses(ranked, _LEAST_CELLS), 1e-6))
    return float(own_bandwidth(grid_masses(ranked, cells_for(rough)), 1e-12))


def _size(coefficients: FloatArray, bandwidth: FloatArray) -> FloatArray:
    """Sum over the cells of |smoothed residuals|, (...)."""
    cells = coefficients.shape[-1]
    # Sharing a point between two cells widens it by h^2/6 on average; the kernel gives that back.
    variance = np.maximum(bandwidth**2 - 1.0 / (6.0 * cells**2), 0.0)
    damping = np.exp(np.multiply.outer(variance, -0.5 * (np.pi * np.arange(cells)) ** 2))
    return np.asarray(np.abs(idct(coefficients * damping, axis=-1, norm="ortho")).sum(axis=-1))


def _fixed_point(
    size: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray, tolerance: float
) -> FloatArray:
    """Solve size(s) = s for a falling function in each entry: secant steps inside a bracket."""
    s = np.clip(0.02, low, high)
    value = size(s)
    last_s, last_value, error = s, value, np.full(s.shape, np.inf)
    for _ in range(_MAX_STEPS):
        low, high = np.maximum(low, np.minimum(s, value)), np.minimum(high, np.maximum(s, value))
        slow = np.abs(value - s) > 0.5 * error
        error = np.abs(value - s)
        if not error.max() > tolerance:
            break
        open_ = error > tolerance  # the others stay, so that no entry depends on its neighbours
        guess = s + (value - s) / (1.0 - _slope(s - last_s, value - last_value))
        inside = ~slow & (guess >= low) & (guess <= high)
        last_s, last_value = s, value
        s = np.where(open_, np.where(inside, guess, 0.5 * (low + high)), s)
        value = size(s)
    return np.asarray(np.minimum(np.maximum(value, low), high))


def _slope(run: FloatArray, rise: FloatArray) -> FloatArray:
    """Slope of a falling function from two of its points; 0 where they coincide."""
    slope = np.divide(rise, run, out=np.zeros_like(run), where=run != 0)
    return np.minimum(slope, 0.0)
