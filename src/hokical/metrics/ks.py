"""Kolmogorov-Smirnov calibration error: no bins, only running sums (Gupta et al., 2021)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.metrics.checks import as_examples
from hokical.metrics.chunked import chunks_too
from hokical.metrics.ranked import Ranked

FloatArray = NDArray[np.float64]


@chunks_too
def ks_error(confidence: Any, correct: Any, *, sample_weight: Any = None) -> float:
    """Largest distance between the running sums of confidence and of correctness.

    max over t of |sum over examples with confidence <= t of (correct - confidence)| / n. Examples
    of equal confidence enter together, so the order of the rows does not matter.

    Parameters
    ----------
    confidence, correct, sample_weight : array-like of shape (n,)
        As in `ece`.

    Examples
    --------
    >>> round(ks_error([0.2, 0.6, 0.9], [False, True, True]), 6)
    0.1
    """
    return float(ks_distance(Ranked.from_examples(as_examples(confidence, correct, sample_weight))))


def ks_distance(ranked: Ranked) -> FloatArray:
    """The error of each resample, (...)."""
    return np.asarray(np.abs(ranked.gap_upto).max(axis=-1) / ranked.total)
