"""Exact stability for checked logits: the family decides which integral is solved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits
from hokical.noise import Noise
from hokical.stability import gaussian, gumbel, uniform

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


def exact_stability(logits: Logits, noise: Noise) -> FloatArray:
    """gamma of every row, (n,)."""
    return _STABILITY[noise.family](logits, noise.width)


def exact_distribution(logits: Logits, noise: Noise) -> FloatArray:
    """pi of every row and class, (n, classes); rows sum to 1."""
    return _DISTRIBUTION[noise.family](logits, noise.width)
