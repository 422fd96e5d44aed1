"""Proper scores of every row: what metrics, sums and resamples are means of."""

from __future__ import annotations

import math

import numpy as np

from hokical.core.blocks import row_slices
from hokical.core.types import BoolArray, FloatArray
from hokical.metrics.checks import Predictions


def top_losses(confidence: FloatArray, correct: BoolArray, clip: float) -> FloatArray:
    """-log(probability of what happened) per example, (n,)."""
    with np.errstate(divide="ignore"):
        # log1p keeps digits of 1 - confidence that a subtraction would round away.
        losses = np.where(correct, -np.log(confidence), -np.log1p(-confidence))
    return np.minimum(losses, _loss_limit(clip))


def full_losses(data: Predictions, clip: float) -> FloatArray:
    """-log(probability of the true class) per example, (n,)."""
    chance = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(chance), _loss_limit(clip))


def full_squares(data: Predictions) -> FloatArray:
    """Sum over classes of (proba - 1{label})^2 per example, (n,)."""
    out = np.empty(data.n_rows)
    for rows in row_slices(data.n_rows, data.n_classes):
        block = data.proba[rows].astype(np.float64)
        block[np.arange(block.shape[0]), data.labels[rows]] -= 1.0
        out[rows] = np.einsum("ij,ij->i", block, block)
    return out


def _loss_limit(clip: float) -> float:
    return math.inf if clip == 0.0 else -math.log(clip)
