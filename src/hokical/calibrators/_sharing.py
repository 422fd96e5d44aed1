"""Whole probability vectors from a confidence: what the label leaves, by where noise would lead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.likelihood import FARTHEST
from hokical.logits import Logits
from hokical.noise import Noise
from hokical.stability.exact import exact_distribution

FloatArray = NDArray[np.float64]

#: Shares that sum to less have lost their digits.
_LEAST_TOTAL = 1e-290


def share_rest(logits: Logits, confidence: FloatArray, noise: Noise) -> FloatArray:
    """Probabilities (n, classes): the confidence for the label, the rest by the switches of noise.

    A row in which one class alone is possible gives it 1, whatever the confidence.
    """
    own = np.where(logits.single_choice, 1.0, confidence)
    shares = exact_distribution(logits, noise)
    rows = np.arange(logits.n_rows)
    shares[rows, logits.labels] = 0.0
    total = shares.sum(axis=1)
    lost = np.flatnonzero((total < _LEAST_TOTAL) & ~logits.single_choice)
    if lost.size:  # no other class within reach of the noise: share as a softmax would
        shares[lost] = _softmax_shares(logits.take(lost), noise.width)
        total[lost] = 1.0
    total[logits.single_choice] = 1.0
    shares *= ((1.0 - own) / total)[:, None]
    shares[rows, logits.labels] = own
    return shares


def _softmax_shares(logits: Logits, scale: float) -> FloatArray:
    """Softmax over the classes other than the label, (n, classes), 0 at the label."""
    margins = logits.margins(slice(0, logits.n_rows)) / scale
    # A margin that overflowed is large, not that of an impossible class.
    np.minimum(margins, FARTHEST, out=margins, where=logits.values > -np.inf)
    margins[np.arange(logits.n_rows), logits.labels] = np.inf
    weights = np.exp(margins.min(axis=1, keepdims=True) - margins)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
