"""Calibration errors over bins, and proper scores.

With D = 1{correct} - confidence, w_j the weight of bin j and g_j its sum of D,

    ECE_p = (sum_j w_j/W |g_j/w_j|^p)^(1/p),   p = 1: the ECE.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical._core.types import FloatArray
from hokical.metrics._chunked import add_chunks, level_sums, read_levels
from hokical.metrics._examples import Predictions, as_predictions, check_norm
from hokical.metrics._levels import Bins, BinSums, LevelSums
from hokical.metrics._vectors import (
    Pair,
    VectorSums,
    brier_rows,
    log_loss_rows,
    log_losses,
    ranked_rows,
    squared_errors,
)


def ece(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    norm: float = 1,
    sample_weight: Any = None,
) -> float:
    """Expected calibration error, in [0, 1]: the gap of confidence and accuracy, by bins.

    `proba` (n,) is the probability that each predicted label is right, and `labels` (n,) whether it
    was: booleans, or 0 and 1. Or `proba` (n, classes) are the probabilities of all classes, whose
    rows sum to 1 (within 1e-2, for float16) and are not rescaled, and `labels` (n,) the true
    classes as column indices; then the likeliest class is the predicted label. `sample_weight` (n,)
    says how often each example counts; 2 is the same as passing it twice. Without weights the
    result does not depend on the order of the rows, to the bit.

    With `bins="width"` the J = `n_bins` bins are [j/J, (j+1)/J), the last closed; "mass" puts about
    equal weight in each, and equal confidences in one. `norm`, any exponent of at least 1 or inf,
    says how the bins' gaps are averaged.

    >>> round(ece([0.9, 0.9, 0.6, 1.0], [True, False, True, True]), 6)
    0.3
    >>> round(ece([[0.1, 0.9], [0.9, 0.1], [0.4, 0.6]], [1, 1, 1]), 6)
    0.4
    """
    n_bins, norm = check_count(n_bins), check_norm(norm)
    found = read_levels(proba, labels, sample_weight).by_bin(n_bins, bins)
    return gap_norm(found, norm)


def debiased_ece(
    proba: Any,
    labels: Any = None,
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
    itself, which is negative about half the time for a perfect model. Arguments are as in `ece`.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(size=2000)
    >>> correct = rng.uniform(size=2000) < confidence  # a perfect model
    >>> round(ece(confidence, correct, norm=2), 4), round(debiased_ece(confidence, correct), 4)
    (0.0407, 0.0207)
    """
    found = read_levels(proba, labels, sample_weight).by_bin(check_count(n_bins), bins)
    return debiased_error(found, squared=squared)


def classwise_ece(
    proba: Any, labels: Any = None, *, n_bins: int = 15, sample_weight: Any = None
) -> float:
    """Mean over the classes of the ECE of (proba[:, k], labels == k) (Kull et al., 2019).

    `proba` (n, classes) and the other arguments are as in `ece`. All classes count alike, even one
    that never occurs. With many classes most probabilities are near 0, and so is this mean: compare
    it only between models of the same classes.

    >>> round(classwise_ece([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)
    0.3
    """
    n_bins = check_count(n_bins)

    def make(*chunk: Any) -> VectorSums:
        return VectorSums.from_rows(as_predictions(*chunk), n_bins)

    return add_chunks(make, proba, labels, sample_weight).classwise_ece()


def brier(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """The Brier score of all classes (n, classes), in [0, 2], or of a confidence (n,), in [0, 1].

    The mean of the squared distance of the probabilities to what happened: of all classes the sum
    over them of (proba - 1{label})^2, of a confidence (1{correct} - confidence)^2. Arguments are as
    in `ece`. Of two classes it is twice scikit-learn's `brier_score_loss`.

    >>> round(brier([0.9, 0.6], [True, False]), 6), round(brier([[0.7, 0.2, 0.1]], [0]), 6)
    (0.185, 0.14)
    """
    return _mean_score(brier_rows, squared_errors, proba, labels, sample_weight)


def log_loss(
    proba: Any, labels: Any = None, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(probability given to what happened), in nats.

    Of probabilities (n, classes) that is the probability of the true class; of a confidence (n,),
    that of being right, or wrong. Arguments are as in `ece`. Probabilities are raised to at least
    `clip`. By default they are not, and a label that was certain and wrong makes the result inf.
    scikit-learn uses 2.2e-16.

    >>> round(log_loss([0.9, 0.6], [True, False]), 6), round(log_loss([[0.7, 0.2, 0.1]], [0]), 6)
    (0.510826, 0.356675)
    >>> log_loss([0.9, 1.0], [True, False])
    inf
    """
    if not 0.0 <= clip < 0.5:
        raise ValueError(f"`clip` must be at least 0 and below 1/2; got {clip!r}.")
    return _mean_score(
        lambda data: log_loss_rows(data, clip),
        lambda confidence: log_losses(confidence, clip),
        proba, labels, sample_weight,
    )  # fmt: skip


def ranked_probability_score(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Mean over examples of the sum over k of (P(class <= k) - 1{label <= k})^2, below classes - 1.

    A proper score for classes whose columns are in order (Epstein, 1969): being off by one grade
    costs less than by two. Arguments are as in `ece`.

    >>> [round(ranked_probability_score([[0.7, 0.2, 0.1]], [label]), 2) for label in (0, 1, 2)]
    [0.1, 0.5, 1.3]
    """
    return _mean_score(ranked_rows, None, proba, labels, sample_weight)


def _mean_score(
    of_rows: Callable[[Predictions], FloatArray],
    of_confidence: Callable[[FloatArray], Pair] | None,
    *columns: Any,
) -> float:
    """A proper score of all classes, or of a confidence if it has one; the shape decides."""

    def make(*chunk: Any) -> Any:
        if of_confidence is not None and np.ndim(chunk[0]) != 2:
            return level_sums(*chunk)
        data = as_predictions(*chunk)
        weight = data.filled_weight()
        return np.array([(weight * of_rows(data)).sum(), weight.sum()])

    found = add_chunks(make, *columns)
    if of_confidence is not None and isinstance(found, LevelSums):
        return float(found.levels.power_means(*of_confidence(found.levels.confidence))[0])
    return float(found[0] / found[1])


def gap_norm(bins: BinSums, norm: float = 1.0) -> float:
    """The p-norm of gap / weight under the bins' shares of weight."""
    size, weight = np.abs(bins.gap), bins.weight
    whole = float(weight.sum())
    if norm == 1.0:
        return float(size.sum()) / whole
    mean = size / weight
    largest = float(mean.max())
    if math.isinf(norm) or largest == 0.0:
        return largest
    # Relative to the largest gap, so that powers of small gaps do not all underflow.
    power = float((weight * (mean / largest) ** norm).sum()) / whole
    return float(largest * power ** (1.0 / norm))


def debiased_error(bins: BinSums, *, squared: bool = False) -> float:
    """Kumar's estimate of the squared calibration error, or its root."""
    enough = bins.weight > 1
    gap, w, correct = (column[enough] for column in bins)
    accuracy = correct / w
    square = (gap / w) ** 2 - accuracy * (1.0 - accuracy) / (w - 1.0)
    mean = float((w * square).sum() / bins.weight.sum())
    return mean if squared else math.sqrt(max(mean, 0.0))
