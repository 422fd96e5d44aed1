"""The compiled row correction of NumPy's rows of many classes, on scaled margins."""

from math import exp, log, log1p, sqrt

import numpy as np

from hokical._core.fast_exp import FAR, exp_minus
from hokical._core.jit import kernel, max_kernel
from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.rules._predicting import to_float32
from hokical.rules._row_correction import (
    LARGEST_FEATURE,
    LARGEST_LOG_SCALE,
    LARGEST_MARGIN,
    LARGEST_REST,
    LARGEST_SHIFT,
    LEAST_LEAD,
    LEAST_REST,
    WIDTHS,
    RowCorrection,
)

#: Logits that are worked on at a time, as float64: a copy that stays in the cache costs little,
#: and the pass is compiled for one type.
_AT_ONCE = 1 << 15
#: Margins are clipped here, so that no power of an exponential underflows.
_FARTHEST = 348.0
_WIDEST = WIDTHS[0]


def fill_corrected(
    logits: Logits,
    scale: FloatArray,
    bias: FloatArray,
    correction: RowCorrection | None,
    least: float,
    out: AnyArray,
    *,
    keeps_labels: bool,
) -> None:
    """Write corrected probabilities of scores bias - scale * margins into `out` (n, classes).

    `scale` (classes,) and `bias` (classes,), or (0,) for none. Possible classes get `least` or
    more. Without a `correction` they are the softmax of the scores. The label is the first maximum
    of the scores; or, if labels are kept, that of the logits.
    """
    block = logits.block()
    labels = logits.labels if keeps_labels else np.empty(0, np.int64)
    weights, spread = np.zeros((2, 0)), np.zeros((2, 0))
    if correction is not None:
        weights = np.stack([correction.log_scale, correction.shift])
        spread = np.stack([correction.centre, 1.0 / correction.spread])
    room = np.empty((max(1, _AT_ONCE // logits.n_columns), logits.n_columns))
    for rows in cut_rows(logits.n_rows, len(room)):
        part = room[: rows.stop - rows.start] if out.dtype == np.float32 else out[rows]
        with np.errstate(over="ignore"):  # 1e308 above -1e308: far, but not masked
            np.subtract(logits.top[rows, None], block[rows], out=part, dtype=np.float64)
        masked = None if logits.all_possible else block[rows] == -np.inf
        n_masked = np.zeros(len(part)) if masked is None else masked.sum(axis=1, dtype=np.float64)
        correct_rows(part, n_masked, scale, bias, spread, weights, least, labels[rows])
        if masked is not None:
            part[masked] = 0.0
        if out.dtype == np.float32:
            out[rows] = to_float32(part)


@max_kernel
def _score_row(row: FloatArray, scale: FloatArray, bias: FloatArray) -> float:
    """Margins become margins below the largest score, in place; that score."""
    highest = -np.inf
    for i in range(row.shape[0]):
        row[i] = bias[i] - row[i] * scale[i]
        highest = max(highest, row[i])
    for i in range(row.shape[0]):
        row[i] = highest - row[i]
    return highest


@kernel
def correct_rows(
    block: FloatArray,
    n_masked: FloatArray,
    scale: FloatArray,
    bias: FloatArray,
    spread: FloatArray,
    weights: FloatArray,
    least: float,
    labels: IntArray,
) -> None:
    """Margins (rows, classes) of logits become probabilities, in place, but for masked classes.

    `n_masked` (rows,) counts these, whose margins are inf. `labels` (rows,) are to stay the most
    likely classes; (0,) if they may change.
    """
    keeps_labels = labels.shape[0] > 0
    features = np.empty(spread.shape[1])
    for n in range(block.shape[0]):
        row = block[n]
        if bias.shape[0] > 0:
            _score_row(row, scale, bias)
        else:
            for i in range(row.shape[0]):
                row[i] *= scale[i]
        label = labels[n] if keeps_labels else 0
        while row[label] > 0.0:
            label += 1
        row[label] = np.inf  # left out of all sums
        if weights.shape[1] == 0:
            _softmax_of_row(row, label, 1.0, 1.0, least)
            continue
        _features_of_row(row, n_masked[n] + 1.0, features)
        log_scale, shift = weights[0, 0], weights[1, 0]
        for j in range(features.shape[0]):
            unit = (features[j] - spread[0, j]) * spread[1, j]
            unit = min(max(unit, -LARGEST_FEATURE), LARGEST_FEATURE)
            log_scale += unit * weights[0, 1 + j]
            shift += unit * weights[1, 1 + j]
        step = exp(min(max(log_scale, -LARGEST_LOG_SCALE), LARGEST_LOG_SCALE))
        shift = min(max(shift, -LARGEST_SHIFT), LARGEST_SHIFT)
        if keeps_labels:
            shift = max(shift, LEAST_LEAD - step * _least_of_row(row))
        _softmax_of_row(row, label, step, exp(shift), least)


@max_kernel
def _least_of_row(row: FloatArray) -> float:
    least = np.inf
    for i in range(row.shape[0]):
        least = min(least, row[i])
    return least


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
def _softmax_of_row(row: FloatArray, label: int, step: float, odds: float, least: float) -> None:
    """Margins become probabilities, in place; `odds` are the label's."""
    total = odds
    for i in range(row.shape[0]):
        other = exp_minus(min(row[i] * step, FAR))
        row[i] = other
        total += other
    share = 1.0 / total
    for i in range(row.shape[0]):
        row[i] = max(row[i] * share, least)
    row[label] = max(odds * share, least)
