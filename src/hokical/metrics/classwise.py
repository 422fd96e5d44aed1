"""Calibration of every class's probability, not only the predicted one (Kull et al., 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.bins import check_count
from hokical.metrics.binned import Bins, gap_norm, gap_sums
from hokical.metrics.checks import Examples, Predictions, as_predictions, check_norm
from hokical.metrics.chunked import chunks_too

FloatArray = NDArray[np.float64]


@chunks_too
def classwise_ece(
    proba: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: Any = None,
) -> float:
    """Mean over the classes of the ECE of (proba[:, k], labels == k).

    Every class counts alike, also one that never occurs. With many classes most probabilities are
    near 0 and so is this mean: compare it only between models of the same classes.

    Parameters
    ----------
    proba : array-like of shape (n, classes)
        Rows that sum to 1; used as they are.
    labels : array-like of shape (n,)
        The true class of each row, as a column index.
    n_bins, bins, norm, sample_weight
        As in `ece`.

    Examples
    --------
    >>> round(classwise_ece([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)
    0.3
    """
    data = as_predictions(proba, labels, sample_weight)
    return float(class_errors(data, check_count(n_bins), bins, check_norm(norm)).mean())


def class_errors(data: Predictions, n_bins: int, bins: Bins, norm: float) -> FloatArray:
    """ECE of each class's probability, (classes,)."""
    errors = np.empty(data.n_classes)
    for k in range(data.n_classes):
        column = data.proba[:, k].astype(np.float64)
        gap, weight, _ = gap_sums(Examples(column, data.labels == k, data.weight), n_bins, bins)
        errors[k] = gap_norm(gap, weight, norm)
    return errors
