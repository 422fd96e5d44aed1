"""Calibration errors over bins; `binned_sums` has the formulas.

The classwise error judges the probabilities of all classes (Kull et al., 2019).
"""

import math
from typing import Any

import numpy as np

from hokical.core.bins import check_count
from hokical.core.types import FloatArray
from hokical.metrics.binned_sums import Bins, debiased_root, debiased_square, gap_norm, gap_sums
from hokical.metrics.checks import Examples, Predictions, as_predictions, check_norm
from hokical.metrics.chunked import is_chunked, read_gaps, sum_chunks
from hokical.metrics.sums import FullSums


def ece(
    confidence: Any,
    correct: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: Any = None,
) -> float:
    """Expected calibration error, in [0, 1]: the gap of confidence and accuracy, by bins.

    `confidence` (n,) is the probability, in [0, 1], that each predicted label is right, and
    `correct` (n,) whether it was: booleans, or 0 and 1. `sample_weight` (n,) says how often each
    example counts; 2 is the same as passing it twice. Without weights the result does not depend on
    the order of the rows, to the bit.

    With `bins="width"` the J = `n_bins` bins are [j/J, (j+1)/J), the last closed; "mass" puts about
    equal weight in each, and equal confidences in one. `norm`, any exponent of at least 1 or inf,
    says how the bins' gaps are averaged.

    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.3
    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True], norm=2), 6)
    0.34641
    """
    gap, weight, _ = read_gaps(confidence, correct, sample_weight, n_bins, bins)
    return float(gap_norm(gap, weight, check_norm(norm)))


def mce(
    confidence: Any,
    correct: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    sample_weight: Any = None,
) -> float:
    """Maximum calibration error: the largest gap of any bin that holds examples.

    >>> round(mce([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.4
    """
    return ece(
        confidence, correct, n_bins=n_bins, bins=bins, norm=math.inf, sample_weight=sample_weight
    )


def debiased_ece(
    confidence: Any,
    correct: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    squared: bool = False,
    sample_weight: Any = None,
) -> float:
    """The 2-norm calibration error without the bias that sampling adds (Kumar et al., 2019).

    sum_j w_j/W [gap_j^2 - acc_j (1 - acc_j)/(w_j - 1)]. The noise of a bin with one example cannot
    be estimated; it adds 0. Weights are read as numbers of examples. The result is the root, on the
    scale of `ece(norm=2)`, or 0 if the estimate is negative; `squared=True` gives the estimate
    itself, which is negative about half the time for a perfect model.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(size=2000)
    >>> correct = rng.uniform(size=2000) < confidence  # a perfect model
    >>> round(ece(confidence, correct, norm=2), 4), round(debiased_ece(confidence, correct), 4)
    (0.0407, 0.0207)
    """
    estimate = debiased_square if squared else debiased_root
    return float(estimate(*read_gaps(confidence, correct, sample_weight, n_bins, bins)))


def classwise_ece(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: Any = None,
) -> float:
    """Mean over the classes of the ECE of (proba[:, k], labels == k); options as in `ece`.

    `proba` (n, classes) has rows that sum to 1 (within 1e-2, for float16) and are not rescaled;
    `labels` (n,) are column indices. All classes count alike, even one that never occurs. With many
    classes most probabilities are near 0, and so is this mean: compare it only between models of
    the same classes.

    >>> round(classwise_ece([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)
    0.3
    """
    n_bins, norm = check_count(n_bins), check_norm(norm)
    if not is_chunked(proba):
        data = as_predictions(proba, labels, sample_weight)
        return float(class_errors(data, n_bins, bins, norm).mean())
    if bins != "width":
        raise ValueError(
            f'`bins` must be "width" for chunks, as equal-mass bins need all rows; got {bins!r}.'
        )
    columns = (proba, labels, sample_weight)
    return sum_chunks(FullSums.from_predictions, *columns, n_bins=n_bins).classwise_ece(norm)


def class_errors(data: Predictions, n_bins: int, bins: Bins, norm: float) -> FloatArray:
    """ECE of each class's probability, (classes,)."""
    errors = np.empty(data.n_classes)
    for k in range(data.n_classes):
        column = data.proba[:, k].astype(np.float64)
        gap, weight, _ = gap_sums(Examples(column, data.labels == k, data.weight), n_bins, bins)
        errors[k] = gap_norm(gap, weight, norm)
    return errors
