"""Proper scores, of the confidence and of the whole vector, and how the Brier score splits.

Top-label functions take (confidence, correct); `_full` ones take (proba, labels) and use every
class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.logits import iter_row_blocks
from hokical.metrics.binned import BinnedSums, Bins
from hokical.metrics.checks import Predictions, as_examples, as_predictions
from hokical.metrics.chunked import chunks_too

FloatArray = NDArray[np.float64]


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


@chunks_too
def brier(confidence: Any, correct: Any, *, sample_weight: Any = None) -> float:
    """Mean of (1{correct} - confidence)^2, in [0, 1].

    >>> round(brier([0.9, 0.6], [True, False]), 6)
    0.185
    """
    return BinnedSums.from_examples(
        confidence, correct, n_bins=1, sample_weight=sample_weight
    ).brier()


@chunks_too
def sharpness(confidence: Any, *, sample_weight: Any = None) -> float:
    """Variance of the confidence, in [0, 1/4]: how far a method dares to differ from its mean.

    >>> sharpness([0.5, 1.0])
    0.0625
    """
    correct = np.zeros(np.shape(confidence), np.bool_)
    examples = as_examples(confidence, correct, sample_weight)
    return examples.mean((examples.confidence - examples.mean(examples.confidence)) ** 2)


@chunks_too
def log_loss(
    confidence: Any, correct: Any, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(chance given to what happened), in nats; top label: right or wrong.

    Parameters
    ----------
    confidence, correct, sample_weight : array-like of shape (n,)
        As in `ece`.
    clip : float
        Chances are raised to at least this. By default they are not: someone who was certain and
        wrong has lost everything, and the result is inf. scikit-learn uses 2.2e-16.

    Examples
    --------
    >>> round(log_loss([0.9, 0.6], [True, False]), 6)
    0.510826
    >>> log_loss([0.9, 1.0], [True, False])
    inf
    """
    examples = as_examples(confidence, correct, sample_weight)
    losses = top_losses(examples.confidence, examples.correct, check_clip(clip))
    return examples.mean(losses)


@chunks_too
def brier_full(proba: Any, labels: Any, *, sample_weight: Any = None) -> float:
    """Mean over examples of the sum over classes of (proba - 1{label})^2, in [0, 2].

    >>> round(brier_full([[0.7, 0.2, 0.1]], [0]), 6)
    0.14
    """
    data = as_predictions(proba, labels, sample_weight)
    return data.mean(full_squares(data))


@chunks_too
def log_loss_full(
    proba: Any, labels: Any, *, clip: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of -log(probability of the true class), in nats; `clip` as in `log_loss`.

    >>> round(log_loss_full([[0.7, 0.2, 0.1]], [0]), 6)
    0.356675
    """
    data = as_predictions(proba, labels, sample_weight)
    return data.mean(full_losses(data, check_clip(clip)))


@chunks_too
def brier_split(
    confidence: Any,
    correct: Any,
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
    return split_sums(
        BinnedSums.from_examples(
            confidence,
            correct,
            n_bins=n_bins,
            bins=bins,
            sample_weight=sample_weight,
        )
    )


@chunks_too
def refinement(
    confidence: Any,
    correct: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    sample_weight: Any = None,
) -> float:
    """Mean of acc (1 - acc) over bins: the part of the Brier score no recalibration removes.

    `brier_split` gives the other parts too.

    >>> round(refinement([0.9, 0.9, 0.6, 0.6], [True, True, True, False]), 6)
    0.125
    """
    return brier_split(
        confidence, correct, n_bins=n_bins, bins=bins, sample_weight=sample_weight
    ).refinement


def split_sums(sums: BinnedSums) -> BrierSplit:
    """The split, from per-bin sums (so that it works for a stream as well)."""
    whole = sums.total_weight
    share = sums.correct.sum() / whole
    occupied = sums.weight > 0
    weight, correct = sums.weight[occupied], sums.correct[occupied]
    calibration = float((sums.gap[occupied] ** 2 / weight).sum() / whole)
    refined = float(bin_refinement(weight, correct))
    resolution = float((weight * (correct / weight - share) ** 2).sum() / whole)
    return BrierSplit(
        sums.brier(),
        calibration,
        refined,
        sums.brier() - calibration - refined,
        float(share * (1.0 - share)),
        resolution,
    )


def bin_refinement(weight: FloatArray, correct: FloatArray) -> FloatArray:
    """Mean of acc (1 - acc) along the last axis; empty bins add nothing."""
    wrong = weight - correct
    spread = np.divide(correct * wrong, weight, out=np.zeros_like(weight), where=weight > 0)
    return np.asarray(spread.sum(axis=-1) / weight.sum(axis=-1))


def top_losses(confidence: FloatArray, correct: NDArray[np.bool_], clip: float) -> FloatArray:
    """-log(chance of what happened) per example, (n,)."""
    with np.errstate(divide="ignore"):
        # log1p keeps the digits of 1 - confidence that a subtraction would round away.
        lost = np.where(correct, -np.log(confidence), -np.log1p(-confidence))
    return np.minimum(lost, _loss_limit(clip))


def full_losses(data: Predictions, clip: float) -> FloatArray:
    """-log(probability of the true class) per example, (n,)."""
    chance = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(chance), _loss_limit(clip))


def full_squares(data: Predictions) -> FloatArray:
    """Sum over classes of (proba - 1{label})^2 per example, (n,)."""
    out = np.empty(data.n_rows)
    for rows in iter_row_blocks(data.n_rows, data.n_classes):
        block = data.proba[rows].astype(np.float64)
        block[np.arange(block.shape[0]), data.labels[rows]] -= 1.0
        out[rows] = np.einsum("ij,ij->i", block, block)
    return out


def _loss_limit(clip: float) -> float:
    return float("inf") if clip == 0.0 else float(-np.log(clip))


def check_clip(clip: float) -> float:
    """The least chance a log loss uses: 0 for none."""
    if not 0.0 <= clip < 0.5:
        raise ValueError(f"`clip` must be at least 0 and below 1/2; got {clip!r}.")
    return float(clip)
