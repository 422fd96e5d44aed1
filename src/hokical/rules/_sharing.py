"""Whole probability vectors from a confidence: what the label leaves, by where noise would lead."""

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.types import FloatArray

#: Shares below this have lost their digits.
LEAST_SHARE = 1e-290


def distribute_remainder(logits: Logits, confidence: Array, shares: Array, width: Array) -> Array:
    """Probabilities (n, classes): the confidence (n,) for the label, the rest as in `shares`.

    `shares` (n, classes) are those of each class under noise of that `width`. A row in which
    one class alone is possible gives it 1, whatever the confidence. Where no other class is within
    reach of the noise, they share as a softmax of that width would. NumPy's `shares` are
    overwritten.
    """
    if logits.is_numpy:
        return _share_on_host(logits, confidence, shares, width)
    return distribute_remainder_portably(logits, confidence, shares, width)


def _share_on_host(
    logits: Logits, confidence: FloatArray, shares: FloatArray, width: float
) -> FloatArray:
    """The same in two passes over memory, but for rows whose shares have lost their digits."""
    label = (np.arange(logits.n_rows), logits.label_columns)
    alone = logits.single_choice
    shares = np.asarray(shares, order=logits.order)
    shares[label] = 0.0
    total = shares.sum(axis=1)
    lost = np.flatnonzero((total < LEAST_SHARE * logits.n_columns) & ~alone)
    if lost.size:
        few = distribute_remainder_portably(
            logits.take(lost), confidence[lost], shares[lost], width
        )
    total[alone] = total[lost] = 1.0
    own = np.where(alone, 1.0, confidence)
    shares *= ((1.0 - own) / total)[:, None]
    shares[label] = own
    if lost.size:
        shares[lost] = few
    return shares


def distribute_remainder_portably(
    logits: Logits, confidence: Array, shares: Array, width: Array
) -> Array:
    """`distribute_remainder` for arrays of any library."""
    xp, is_label = logits.xp, logits.is_label
    alone = logits.single_choice[:, None]
    own = xp.where(alone, 1.0, confidence[:, None])
    shares = xp.where(is_label, 0.0, shares)
    # In units of the largest, which is no part of the gradient: 1 / 1e-290^2 would overflow.
    unit = logits.backend.without_gradient(xp.max(shares, axis=1, keepdims=True))
    lost = (unit < LEAST_SHARE) & ~alone
    shares = shares / xp.where(lost | alone, 1.0, unit)
    shares = xp.where(lost, _softmax_shares(logits, width), shares)
    total = xp.where(alone, 1.0, xp.sum(shares, axis=1, keepdims=True))
    return xp.where(is_label, own, shares * ((1.0 - own) / total))


def _softmax_shares(logits: Logits, width: Array) -> Array:
    """Softmax over the classes other than the label, (n, classes), 0 at the label."""
    xp = logits.xp
    others = logits.possible & ~logits.is_label
    margins = xp.where(others, logits.margins, xp.inf)
    least = xp.min(margins, axis=1, keepdims=True)
    least = xp.where(least < xp.inf, least, 0.0)
    beyond = xp.where(others, logits.margins - least, 0.0)
    weights = xp.where(others, xp.exp(beyond / -width), 0.0)
    total = xp.sum(weights, axis=1, keepdims=True)
    return weights / xp.where(total > 0.0, total, 1.0)
