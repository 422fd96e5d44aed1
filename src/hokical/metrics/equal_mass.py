"""Bins that hold about equal weight; equal confidences always share a bin."""

from __future__ import annotations

import numpy as np

from hokical.core.bins import sum_by
from hokical.core.types import FloatArray, IntArray


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
    middle = upto - own + upto  # doubled: an integer if the weights are
    index = np.floor_divide(n_bins * middle, 2.0 * upto[-1]).astype(np.int64)
    return np.asarray(np.minimum(index, n_bins - 1)[place])
