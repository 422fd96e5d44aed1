"""Calibration errors over bins, and proper scores.

Top-label functions take (confidence, correct); `classwise_ece` (Kull et al., 2019) and the `_full`
ones take (proba, labels) and use every class. `binned_sums` has the formulas.
"""

from functools import partial
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical.metrics._binned_sums import (
    Bins,
    GapSums,
    debiased_error,
    gap_norm,
    gap_table,
)
from hokical.metrics._chunked import (
    add_chunks,
    is_chunked,
    mean_of_rows,
    read_bins,
    read_gaps,
)
from hokical.metrics._examples import Examples, as_examples, as_predictions, check_clip, check_norm
from hokical.metrics._sums import FullSums, full_losses, full_squares, ranked_squares, top_losses


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
    sums = read_gaps(confidence, correct, sample_weight, n_bins, bins)
    return float(gap_norm(sums.gap, sums.weight, check_norm(norm)))


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
    sums = read_gaps(confidence, correct, sample_weight, n_bins, bins)
    return float(debiased_error(*sums, squared=squared))


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
    columns = (proba, labels, sample_weight)
    if bins == "width":
        return add_chunks(FullSums.from_predictions, *columns, n_bins=n_bins).classwise_ece(norm)
    if is_chunked(proba):
        raise ValueError(
            f'`bins` must be "width" for chunks, as equal-mass bins need all rows; got {bins!r}.'
        )
    data, errors = as_predictions(*columns), []
    for k in range(data.n_classes):
        column = data.proba[:, k].astype(np.float64)
        rows = Examples(column, data.labels == k, data.weight)
        sums = GapSums.from_table(gap_table(rows, n_bins, bins))
        errors.append(gap_norm(sums.gap, sums.weight, norm))
    return float(np.mean(errors))


def brier(confidence: Any, correct: Any = None, *, sample_weight: Any = None) -> float:
    """Mean of (1{correct} - confidence)^2, in [0, 1].

    >>> round(brier([0.9, 0.6], [True, False]), 6)
    0.185
    """
    return read_bins(confidence, correct, sample_weight, 1).brier()


def log_loss(
    confidence: Any, correct: Any = None, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(probability given to what happened, right or wrong), in nats.

    Probabilities are raised to at least `clip`. By default they are not, and a label that was
    certain and wrong makes the result inf. scikit-learn uses 2.2e-16.

    >>> round(log_loss([0.9, 0.6], [True, False]), 6)
    0.510826
    >>> log_loss([0.9, 1.0], [True, False])
    inf
    """
    losses = partial(top_losses, clip=check_clip(clip))
    return mean_of_rows(losses, as_examples, confidence, correct, sample_weight)


def brier_full(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Mean over examples of the sum over classes of (proba - 1{label})^2, in [0, 2].

    >>> round(brier_full([[0.7, 0.2, 0.1]], [0]), 6)
    0.14
    """
    return mean_of_rows(full_squares, as_predictions, proba, labels, sample_weight)


def ranked_probability_score(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Mean over examples of the sum over k of (P(class <= k) - 1{label <= k})^2, below classes - 1.

    A proper score for classes whose columns are in order (Epstein, 1969): being off by one grade
    costs less than by two.

    >>> [round(ranked_probability_score([[0.7, 0.2, 0.1]], [label]), 2) for label in (0, 1, 2)]
    [0.1, 0.5, 1.3]
    """
    return mean_of_rows(ranked_squares, as_predictions, proba, labels, sample_weight)


def log_loss_full(
    proba: Any, labels: Any = None, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(probability of the true class), in nats; `clip` as in `log_loss`.

    >>> round(log_loss_full([[0.7, 0.2, 0.1]], [0]), 6)
    0.356675
    """
    losses = partial(full_losses, clip=check_clip(clip))
    return mean_of_rows(losses, as_predictions, proba, labels, sample_weight)
