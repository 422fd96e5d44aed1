"""Bins that hold about equal weight; equal confidences always share a bin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.bins import sum_by

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def mass_index(confidence: FloatArray, n_bins: int, weight: FloatArray | None = None) -> IntArray:
    """Bin of each confidence: floor(n_bins * share of the weight below it, half its own included).

    Ties are never split, so the bins do not depend on the order of the rows; where many examples
    share one confidence, neighbouring bins stay empty.

    >>> mass_index(np.array([0.9, 0.1, 0.2, 0.8, 0.8, 0.8]), 3)
    array([2, 0, 0, 1, 1, 1])
    """
    values, place = np.unique(confidence, return_inverse=True)
    own = sum_by(place, np.ones_like(confidence) if weight is None else weight, values.shape[0])
    upto = np.cumsum(own)
    return mass_bins(upto - own, upto, n_bins)[place]


def mass_bins(below: FloatArray, upto: FloatArray, n_bins: int) -> IntArray:
    """The rule, from the weight below and up to each sorted distinct confidence, (groups,)."""
    doubled_total = 2.0 * upto[-1]  # twice the mid-points are integers where the weights are
    index = np.floor_divide(n_bins * (below + upto), doubled_total).astype(np.int64)
    return np.asarray(np.minimum(index, n_bins - 1))
