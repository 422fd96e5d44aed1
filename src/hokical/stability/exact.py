"""Exact stability for checked logits: the family decides which integral is solved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits
from hokical.noise import Noise
from hokical.stability import gaussian, gumbel, uniform
from hokical.stability.bounds import gaussian_bounds, gumbel_bounds, uniform_bounds
from hokical.topk import TopK

FloatArray = NDArray[np.float64]

Solver = Callable[[Logits, float], FloatArray]

_STABILITY: dict[str, Solver] = {
    "gaussian": gaussian.stability,
    "uniform": uniform.stability,
    "gumbel": gumbel.stability,
}
_DISTRIBUTION: dict[str, Solver] = {
    "gaussian": gaussian.distribution,
    "uniform": uniform.distribution,
    "gumbel": gumbel.distribution,
}
_BOUNDS: dict[str, Callable[[TopK, float], tuple[FloatArray, FloatArray]]] = {
    "gaussian": gaussian_bounds,
    "uniform": uniform_bounds,
    "gumbel": gumbel_bounds,
}


def exact_stability(logits: Logits, noise: Noise) -> FloatArray:
    """gamma of every row, (n,); the midpoint of its bounds where classes are hidden."""
    if isinstance(logits, TopK):
        lower, upper = exact_bounds(logits, noise)
        return 0.5 * (lower + upper)
    return _STABILITY[noise.family](logits, noise.width)


def exact_bounds(logits: Logits, noise: Noise) -> tuple[FloatArray, FloatArray]:
    """The least and the greatest gamma of every row, (n,) each; equal where no class is hidden."""
    if isinstance(logits, TopK):
        return _BOUNDS[noise.family](logits, noise.width)
    gamma = exact_stability(logits, noise)
    return gamma, gamma.copy()


def exact_distribution(logits: Logits, noise: Noise) -> FloatArray:
    """pi of every row and class, (n, classes); rows sum to 1.

    Hidden classes are taken as equals, and the label's chance is then not the midpoint.
    """
    dense = logits.filled() if isinstance(logits, TopK) else logits
    return _DISTRIBUTION[noise.family](dense, noise.width)
