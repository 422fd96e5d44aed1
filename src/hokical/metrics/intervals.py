"""Intervals of means, shares and sums, from few or many rows.

Scores such as the log loss are mostly small and rarely large: what matters is how many
rows had a rare large value, and that a sample may have none of them by luck. So
intervals allow for one more row with the worst value (Fay and Feuer, 1997, Statistics
in Medicine 16, 791-801).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray
from hokical.guarantees import bounds
from hokical.metrics.calibration import MOST_LOSS
from hokical.metrics.levels import Levels

Ends = tuple[float, float]
NONE: Ends = (math.nan, math.nan)


def share_ends(share: Any, n: Any, delta: float) -> Any:
    """Clopper and Pearson's interval, low and high, of a share of n rows; a list of
    several.
    """
    hits = np.minimum(np.round(np.multiply(share, n), 9), n)
    return bounds.clopper_pearson(hits, n, delta=delta).tolist()


def mean_ends(powers: FloatArray, n: float, delta: float, worst: float = 0.0) -> Ends:
    """Interval of a mean, from the means of a score, its square and its cube, (3,).

    Scores such as the log loss are mostly small and rarely large: the t statistic is
    transformed to remove its skewness (Hall, 1992, Journal of the Royal Statistical
    Society B 54, 221-228). A sample that by luck has none of the rare rows does not
    know its skewness. So for scores of at least 0, of which one more row may add up to
    `worst`, the interval is at least that of a gamma distribution: below, of this mean
    and variance; above, with one more row of `worst`. That is Fay and Feuer's for sums
    of rare events (1997, Statistics in Medicine 16, 791-801). None for scores so large
    that their cubes are no numbers.
    """
    mean, second, third = powers.tolist()
    if not n > 2.0 or second > 1e180 or (second < 1e-180 and worst == 0.0):
        return NONE
    variance = max(second - mean**2, 0.0)
    low, high = NONE
    if second >= 1e-180 and variance > 1e-14 * second:
        skewness = (third - 3.0 * mean * second + 2.0 * mean**3) / variance**1.5
        a = skewness / math.sqrt(n)
        z = -float(bounds.scipy_special().stdtrit(n - 1.0, 0.5 * delta))
        low, high = (mean - math.sqrt(variance / (n - 1.0)) * unskewed(a, z)).tolist()
    if worst > 0.0:
        spread = variance / (n - 1.0)
        step = worst / n
        low = min(gamma_quantile(mean, spread, 0.5 * delta), low)
        high = max(
            gamma_quantile(mean + step, spread + step**2, 1.0 - 0.5 * delta), high
        )
    return low, high


def gamma_quantile(mean: float, variance: float, tail: float) -> float:
    """Below which a gamma distribution has the probability `tail`; its mean if it
    hardly varies.
    """
    if not variance > 1e-14 * mean**2:
        return mean
    shape = mean**2 / variance
    return float(bounds.scipy_special().gammaincinv(shape, tail)) * variance / mean


def unskewed(a: float, z: float) -> FloatArray:
    """The t statistics (2,) that Hall's transformation takes to z and -z, by
    skewness / root n.
    """
    y = np.array([z, -z])
    return y if abs(a) < 1e-9 else 3.0 / a * (np.cbrt(1.0 + a * (y - a / 6.0)) - 1.0)


def worst_score(levels: Levels, right: FloatArray, wrong: FloatArray) -> float:
    """The score of one more row of the worse outcome, as far as it adds to the mean.

    It is the mean over the rows with that outcome and one row that is like all rows had
    they had it, weighted by what the outcome adds to their scores: errors of rows that
    score alike with either outcome say nothing about the score of rare errors.
    """
    is_error = wrong >= right
    counts = np.where(is_error, levels.errors, levels.correct) * levels.rows_per_weight
    better, worse = np.minimum(np.sort([right, wrong], axis=0), MOST_LOSS)
    added = (counts + levels.weight / levels.total) * (worse - better)
    if not added.any():  # as with every confidence at one half
        added = levels.weight
    return float(added @ worse) / float(added.sum())


def deviation_ends(
    deviations: FloatArray, counts: FloatArray, worst: Ends, delta: float
) -> Ends:
    """How far the expected sum may be below and above the sum of `deviations`.

    The `deviations` are of values from their mean, each of `counts` rows, both of any
    one shape. One more row may be below the mean by worst[0] and above it by worst[1].

    Values above the mean and values below it have sums of their own, each with Fay and
    Feuer's interval of a sum of rare values. The intervals are combined as those of a
    difference (MOVER: Zou and Donner, 2008, Statistics in Medicine 27, 1693-1702). For
    many rows that is a normal interval; for few it is as skewed as a Poisson count.

    >>> none = deviation_ends(np.zeros(1), np.array([50.0]), (0.0, 1.0), 0.05)
    >>> [round(distance, 2) for distance in none]  # an event that was never seen
    [0.0, 3.69]
    """
    sides = []
    for sign, most in ((-1.0, worst[0]), (1.0, worst[1])):
        size = np.maximum(sign * deviations, 0.0)
        total = float((counts * size).sum())
        variance = float((counts * size**2).sum())
        low = gamma_quantile(total, variance, 0.5 * delta)
        more = (total + most, variance + most**2)
        high = gamma_quantile(*more, 1.0 - 0.5 * delta) if more[0] > 0.0 else 0.0
        sides.append((total - low, high - total))
    (fewer_below, more_below), (fewer_above, more_above) = sides
    return math.hypot(more_below, fewer_above), math.hypot(more_above, fewer_below)
