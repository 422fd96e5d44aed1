"""Compiled loops over rows of logits or margins. They trust their caller."""

from math import exp, log, log1p, sqrt

import numpy as np

from hokical._core.exp_kernels import exp_minus, log_of
from hokical._core.jit import kernel
from hokical._core.special import FAR
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.rules._row_correction import (
    LARGEST_FEATURE,
    LARGEST_LOG_SCALE,
    LARGEST_MARGIN,
    LARGEST_REST,
    LARGEST_SHIFT,
    LEAST_LEAD,
    LEAST_REST,
    WIDTHS,
)

#: Margins are clipped here, so that no power of an exponential underflows.
_FARTHEST = 348.0
_WIDEST = WIDTHS[0]


@kernel
def floor_rows(block: AnyArray, top: FloatArray, floor: float, out: FloatArray) -> None:
    """out[n, i] = log(p + floor), p the softmax of a row; -inf where a class is masked."""
    for n in range(block.shape[0]):
        row, highest, into = block[n], top[n], out[n]
        total = 0.0
        for i in range(row.shape[0]):
            odds = exp_minus(min(max(highest - row[i], 0.0), FAR))
            into[i] = odds
            total += odds
        share = 1.0 / total
        for i in range(row.shape[0]):
            value = log_of(into[i] * share + floor)
            into[i] = value if row[i] > -np.inf else -np.inf


@kernel
def _features_of_row(row: FloatArray, n_left_out: float, features: FloatArray) -> None:
    """`row_features` from margins (classes,), inf for those left out."""
    first = second = third = fourth = heat = total = squares = 0.0
    for i in range(row.shape[0]):  # without a branch, so that it vectorises
        margin = min(row[i], _FARTHEST)
        odds = exp_minus(margin * (1.0 / _WIDEST))
        first += odds
        odds *= odds
        second += odds
        odds *= odds
        third += odds
        heat += odds * margin
        odds *= odds
        fourth += odds
        inside = min(margin, LARGEST_MARGIN)
        total += inside
        squares += inside * inside
    count = row.shape[0] - n_left_out + 1.0  # with the label
    mean = (total - n_left_out * LARGEST_MARGIN) / count
    square = (squares - n_left_out * LARGEST_MARGIN**2) / count
    features[0] = -log(min(max(first, LEAST_REST), LARGEST_REST))
    features[1] = -log(min(max(second, LEAST_REST), LARGEST_REST))
    features[2] = -log(min(max(third, LEAST_REST), LARGEST_REST))
    features[3] = -log(min(max(fourth, LEAST_REST), LARGEST_REST))
    features[4] = log1p(third) + heat / (1.0 + third)
    features[5] = mean
    features[6] = sqrt(max(square - mean * mean, 0.0))


@kernel
def correct_rows(
    block: FloatArray,
    labels: IntArray,
    n_left_out: FloatArray,
    least_margins: FloatArray,
    spread: FloatArray,
    weights: FloatArray,
    least: float,
) -> None:
    """Margins (rows, classes) become corrected probabilities of `least` or more, in place.

    The margins of the label and of masked classes are inf, `n_left_out` (rows,) in all. The label
    stays above the least of the other margins, `least_margins` (rows,), or (0,) if it may change.
    Without `weights`, (2, 0), there is no correction.
    """
    features = np.empty(spread.shape[1])
    for n in range(block.shape[0]):
        row = block[n]
        step, odds = 1.0, 1.0
        if weights.shape[1] > 0:
            _features_of_row(row, n_left_out[n], features)
            log_scale, shift = weights[0, 0], weights[1, 0]
            for j in range(features.shape[0]):
                unit = (features[j] - spread[0, j]) * spread[1, j]
                unit = min(max(unit, -LARGEST_FEATURE), LARGEST_FEATURE)
                log_scale += unit * weights[0, 1 + j]
                shift += unit * weights[1, 1 + j]
            step = exp(min(max(log_scale, -LARGEST_LOG_SCALE), LARGEST_LOG_SCALE))
            shift = min(max(shift, -LARGEST_SHIFT), LARGEST_SHIFT)
            if least_margins.shape[0] > 0:
                shift = max(shift, LEAST_LEAD - step * least_margins[n])
            odds = exp(shift)
        total = odds
        for i in range(row.shape[0]):
            other = exp_minus(min(row[i] * step, FAR))
            row[i] = other
            total += other
        share = 1.0 / total
        for i in range(row.shape[0]):
            row[i] = max(row[i] * share, least)
        row[labels[n]] = max(odds * share, least)
