"""Proper scores, of the confidence and of the whole vector, and the parts of the Brier score.

Top-label functions take (confidence, correct); `_full` ones take (proba, labels) and use every
class.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical.core.types import FloatArray
from hokical.metrics.binned_sums import BinnedSums, Bins
from hokical.metrics.checks import as_examples, as_predictions, check_clip
from hokical.metrics.chunked import is_chunked, is_lazy, read_bins, sum_chunks
from hokical.metrics.sums import FullSums, MetricSums, full_losses, full_squares, top_losses


@dataclass(frozen=True)
class BrierSplit:
    """The Brier score's parts: brier = calibration + refinement + within_bins.

    `refinement` = uncertainty - resolution is what recalibrating the bins would leave;
    `within_bins` is what the bins hide, and may be negative.
    """

    brier: float
    calibration: float
    refinement: float
    within_bins: float
    uncertainty: float
    resolution: float


def brier(confidence: Any, correct: Any = None, *, sample_weight: Any = None) -> float:
    """Mean of (1{correct} - confidence)^2, in [0, 1].

    >>> round(brier([0.9, 0.6], [True, False]), 6)
    0.185
    """
    return read_bins(confidence, correct, sample_weight, 1).brier()


def sharpness(confidence: Any, *, sample_weight: Any = None) -> float:
    """Variance of the confidence, in [0, 1/4].

    >>> sharpness([0.5, 1.0])
    0.0625
    """
    if is_chunked(confidence):  # a Dask array comes without `correct`, so make one up
        made_up = confidence > 1.0 if is_lazy(confidence) else None
        return read_bins(confidence, made_up, sample_weight, 1).sharpness()
    correct = np.zeros(np.shape(confidence), np.bool_)
    examples = as_examples(confidence, correct, sample_weight)
    return examples.mean((examples.confidence - examples.mean(examples.confidence)) ** 2)


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
    check_clip(clip)
    if is_chunked(confidence):
        columns = (confidence, correct, sample_weight)
        return sum_chunks(MetricSums.from_examples, *columns, clip=clip, levels=False).log_loss()
    examples = as_examples(confidence, correct, sample_weight)
    return examples.mean(top_losses(examples.confidence, examples.correct, clip))


def brier_full(proba: Any, labels: Any = None, *, sample_weight: Any = None) -> float:
    """Mean over examples of the sum over classes of (proba - 1{label})^2, in [0, 2].

    >>> round(brier_full([[0.7, 0.2, 0.1]], [0]), 6)
    0.14
    """
    if is_chunked(proba):
        return sum_chunks(FullSums.from_predictions, proba, labels, sample_weight).brier()
    data = as_predictions(proba, labels, sample_weight)
    return data.mean(full_squares(data))


def log_loss_full(
    proba: Any, labels: Any = None, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(probability of the true class), in nats; `clip` as in `log_loss`.

    >>> round(log_loss_full([[0.7, 0.2, 0.1]], [0]), 6)
    0.356675
    """
    check_clip(clip)
    if is_chunked(proba):
        columns = (proba, labels, sample_weight)
        return sum_chunks(FullSums.from_predictions, *columns, clip=clip).log_loss()
    data = as_predictions(proba, labels, sample_weight)
    return data.mean(full_losses(data, clip))


def brier_split(
    confidence: Any,
    correct: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    sample_weight: Any = None,
) -> BrierSplit:
    """Split the Brier score into calibration and refinement, over bins.

    >>> split = brier_split([0.9, 0.9, 0.6, 0.6], [True, True, True, False])
    >>> round(split.brier, 4), round(split.calibration, 4), round(split.refinement, 4)
    (0.135, 0.01, 0.125)
    """
    return split_sums(read_bins(confidence, correct, sample_weight, n_bins, bins))


def refinement(
    confidence: Any,
    correct: Any = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    sample_weight: Any = None,
) -> float:
    """Mean of acc (1 - acc) over bins: the part of `brier_split` that no recalibration removes.

    >>> round(refinement([0.9, 0.9, 0.6, 0.6], [True, True, True, False]), 6)
    0.125
    """
    return brier_split(
        confidence, correct, n_bins=n_bins, bins=bins, sample_weight=sample_weight
    ).refinement


def split_sums(sums: BinnedSums) -> BrierSplit:
    """The split, from per-bin sums: works for a stream too."""
    whole, share = sums.total_weight, sums.overall_accuracy
    occupied = sums.weight > 0
    weight, correct = sums.weight[occupied], sums.correct[occupied]
    calibration = float((sums.gap[occupied] ** 2 / weight).sum() / whole)
    left = float(bin_refinement(weight, correct))
    return BrierSplit(
        brier=sums.brier(),
        calibration=calibration,
        refinement=left,
        within_bins=sums.brier() - calibration - left,
        uncertainty=share * (1.0 - share),
        resolution=float((weight * (correct / weight - share) ** 2).sum() / whole),
    )


def bin_refinement(weight: FloatArray, correct: FloatArray) -> FloatArray:
    """Mean of acc (1 - acc) along the last axis; empty bins add nothing."""
    wrong = weight - correct
    spread = np.divide(correct * wrong, weight, out=np.zeros_like(weight), where=weight > 0)
    return np.asarray(spread.sum(axis=-1) / weight.sum(axis=-1))
