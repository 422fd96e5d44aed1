"""Scores for thresholds: log-odds that the label is right, on levels fixed in advance.

Levels are equally spaced in asinh(log-odds): linear around 0, with a fixed ratio (0.4 %) far from
it, so the same levels suit logits of any scale. Because they do not depend on data, tests at them
are valid, and their tables can be added.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import by_blocks
from hokical._core.logits import Logits, put_at_label
from hokical._core.special import exponential, safe_log
from hokical._core.types import BoolArray, FloatArray, IntArray

_PER_UNIT = 256
_LOWEST = -4 * _PER_UNIT
#: Share of a logit by which float32, and sums in float32, change a score: a few ulps.
_SLACK = 2.0**-20
#: Number of levels: log-odds from -27 to 1490, beyond the range of a softmax in float64.
LEVELS = 12 * _PER_UNIT


def score_levels(log_odds: Any, coarse: int = 1) -> IntArray:
    """Level of each of the log-odds, 0 ... LEVELS - 1; values outside are clipped.

    Or of so many times fewer levels, each of which is `coarse` of these: a power of 2.
    """
    place = np.asarray(np.arcsinh(np.asarray(log_odds, np.float64)))
    place *= _PER_UNIT / coarse
    np.floor(place, out=place)
    place -= _LOWEST / coarse
    return np.clip(place, 0, LEVELS // coarse - 1, out=place).astype(np.int64)


def middle_log_odds(n_levels: int) -> FloatArray:
    """The log-odds in the middle of each level (n_levels,), where there are so many."""
    place = LEVELS * (np.arange(n_levels) + 0.5) / n_levels + _LOWEST
    return np.asarray(np.sinh(place / _PER_UNIT))


def conservative_levels(
    log_odds: Sequence[FloatArray], wrong: BoolArray, top: FloatArray
) -> IntArray:
    """The level (n,) at which to count each example, whatever rounding does to it when served.

    In float32, or on another device, a score comes out a little different, and may fall on another
    level. So wrong examples are counted at the highest level they may reach and right ones at the
    lowest: whichever level each is served at, no threshold accepts more wrong examples than were
    counted above it, nor fewer right ones. `log_odds` are forms (n,) of the score, which can be
    off by a share of it and of the `top` logit (n,).
    """
    least, most = (reduce(join, log_odds) for join in (np.minimum, np.maximum))
    score, away = np.where(wrong, most, least), np.where(wrong, _SLACK, -_SLACK)
    size = np.abs(np.where(np.isfinite(score), score, 0.0))
    return score_levels(score + away * (1.0 + np.abs(top)) + away * size)


def level_log_odds(level: int) -> float:
    """The smallest log-odds on a level, -inf for the lowest."""
    return float(np.sinh((level + _LOWEST) / _PER_UNIT)) if level > 0 else -np.inf


def confidence_log_odds(confidence: FloatArray) -> FloatArray:
    """log(p / (1 - p)), infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(confidence) - np.log1p(-confidence))


def label_log_odds(logits: Logits) -> Array:
    """Softmax log-odds of the classifier's own label, (n,): -log sum_{i != label} exp(-d_i).

    The sum leaves the label out instead of subtracting it, so nothing cancels at high confidence.
    inf where the probability of all other classes underflows.
    """

    def work(block: Logits) -> Array:
        xp, rest = block.xp, rest_sums(block)
        if block.tail is not None:
            rest = rest + block.tail.count * xp.exp(-block.tail.margin)
        return -safe_log(rest, xp)

    return by_blocks(work, logits)


def rest_sums(logits: Logits) -> Array:
    """sum_{i != label} exp(-d_i) over the columns, (n,)."""
    fused = logits.backend.label_distances(logits)
    if fused is not None:
        return fused[0]
    terms = exponential(-logits.margins, logits.xp)
    return logits.xp.sum(put_at_label(terms, 0.0 * terms[:, :1], logits), axis=1)
