"""Stability on integer levels, so that tables of it are sums of whole numbers."""

import numpy as np
from numpy.typing import NDArray

#: Levels for exact stability: finer than the 1e-5 to which anything is claimed.
EXACT_LEVELS = 1 << 16


def stability_levels(
    stability: NDArray[np.float64], levels: int = EXACT_LEVELS
) -> NDArray[np.int64]:
    """Integer level nearest to each stability."""
    return np.rint(stability * levels).astype(np.int64)
