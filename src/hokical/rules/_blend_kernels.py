"""Compiled answers of structured scaling and of the default, for blocks of a few rows.

They trust their caller.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import LEAST_ODDS, log_of
from hokical._core.jit import kernel
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.rules._probabilities import LEAST
from hokical.rules._profile import LARGEST_LOG_ODDS, LEAST_LOG
from hokical.rules._row_kernels import floor_row, odds_row, shape_row
from hokical.rules._sharing import LEAST_SHARE
from hokical.stability._compiled_profile_kernels import top_two

Block = NDArray[Any]  # (rows, classes) float32 or float64, or one of them
#: The floor, 1 / three temperatures, the share of the uniform distribution; the weights (3,); then
#: shape (3,), scale and bias (classes,), and the transposed cross terms.
Blend = tuple[float, float, float, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
#: Of the profile: the share of its answer, 1 / its temperature, intercept and reach; coefficients,
#: range, centre and precision.
Link = tuple[float, float, float, float, FloatArray, FloatArray, FloatArray, FloatArray]


@kernel
def _start_row(
    row: Block, highest: float, floor: float, weight: float, logs: FloatArray, average: FloatArray
) -> float:
    """The first candidate's part of `average`, and floored log-probabilities; their largest."""
    if floor == 0.0 and weight == 0.0:
        share = 0.0
        average[:] = 0.0
    else:
        share = 1.0 / odds_row(row, highest, 1.0, logs)
        for i in range(row.shape[0]):
            average[i] = weight * share * logs[i]
    if floor > 0.0:
        floor_row(row, share, floor, logs)
        return log_of(share + floor)  # type: ignore[no-any-return]
    for i in range(row.shape[0]):
        logs[i] = row[i] - highest
    return 0.0


@kernel
def _add_cross(row: Block, cross: FloatArray, z: FloatArray, scores: FloatArray) -> None:
    """Add the cross terms; an impossible class counts as the least likely of the possible ones."""
    least = np.inf
    for i in range(row.shape[0]):
        least = min(least, z[i] if row[i] > -np.inf else np.inf)
    for i in range(row.shape[0]):
        z[i] = z[i] if row[i] > -np.inf else least
    for j in range(row.shape[0]):
        given, terms = z[j], cross[j]
        for i in range(row.shape[0]):
            scores[i] += given * terms[i]


@kernel
def _finish_row(
    row: Block, weight: float, odds: FloatArray, even: float, average: FloatArray
) -> None:
    """Add `odds` times `weight` and `even` to the average, whose sum becomes 1."""
    total = 0.0
    for i in range(row.shape[0]):
        value = average[i] + weight * odds[i] + even
        average[i] = value if row[i] > -np.inf else 0.0
        total += average[i]
    for i in range(row.shape[0]):
        average[i] /= total


@kernel
def average_rows(
    block: FloatArray,
    top: FloatArray,
    labels: IntArray,
    blend: Blend,
    average: FloatArray,
    counts: IntArray,
) -> None:
    """The average of every row's candidates, and how many classes are possible."""
    # Taken out here and not in a row: numba counts who refers to an array.
    floor, step, even, (own, tempered, scaled), (a, b, c), scale, bias, cross = blend
    room = np.empty((5, block.shape[1]))
    z, miss, p, softer, scores = room[0], room[1], room[2], room[3], room[4]
    for n in range(block.shape[0]):
        row, into, count = block[n], average[n], 0
        for i in range(row.shape[0]):
            count += 1 if row[i] > -np.inf else 0
        counts[n], start = count, _start_row(row, top[n], floor, own, scores, into)
        if scaled == 0.0:
            _finish_row(row, tempered / odds_row(scores, start, 3.0 * step, p), p, 0.0, into)
            continue
        shape_row(scores, start, labels[n], step, z, miss, p, softer)
        for i in range(row.shape[0]):
            scores[i] = z[i] * scale[i] + bias[i] + a * miss[i] + b * p[i] + c * softer[i]
            into[i] += tempered * p[i]
        if cross.shape[0] > 0:
            _add_cross(row, cross, z, scores)
        if count < row.shape[0]:
            for i in range(row.shape[0]):
                scores[i] = scores[i] if row[i] > -np.inf else -np.inf
        total = odds_row(scores, top_two(scores)[0], 1.0, z)
        _finish_row(row, scaled * (1.0 - even) / total, z, scaled * even / count, into)


@kernel
def log_rows(
    block: FloatArray, average: FloatArray, logs: FloatArray, top: FloatArray, gaps: FloatArray
) -> None:
    """Log-probabilities, -inf where impossible; their largest, and how far the next is below it."""
    for n in range(block.shape[0]):
        row, given, into = block[n], average[n], logs[n]
        for i in range(row.shape[0]):
            value = log_of(max(given[i], LEAST))
            into[i] = value if row[i] > -np.inf else -np.inf
        top[n], second = top_two(into)
        gaps[n] = top[n] - second


@kernel
def _confidence(
    features: FloatArray,
    intercept: float,
    reach: float,
    coef: FloatArray,
    limits: FloatArray,
    centre: FloatArray,
    precision: FloatArray,
) -> float:
    """`ProfileRule.confidence_from` of one row's features, before they are cut."""
    features[0] = min(max(features[0], -LARGEST_LOG_ODDS), LARGEST_LOG_ODDS)
    linear, squared = intercept, 0.0
    for j in range(features.size):
        if j > 0:
            features[j] = min(max(features[j], LEAST_LOG), 0.0)
        linear += features[j] * coef[j]
    for j in range(features.size):
        part = 0.0
        for k in range(features.size):
            part += precision[j, k] * (features[k] - centre[k])
        squared += part * (features[j] - centre[j])
    correction = min(max(linear, limits[0]), limits[1])
    trust = reach / squared if squared > reach else 1.0
    log_odds = features[0] + correction * trust
    return 1.0 / (1.0 + math.exp(-min(max(log_odds, -LARGEST_LOG_ODDS), LARGEST_LOG_ODDS)))


@kernel
def correct_rows(
    logs: FloatArray,
    top: FloatArray,
    counts: IntArray,
    profile: FloatArray,
    link: Link,
    average: FloatArray,
    left: BoolArray,
) -> None:
    """A share of the profile's answer in place of as much of the average of every row.

    `logs` and `top` are those of the average, `profile` (rows, 2 W) is its features but the first.
    left[n] says that digits were lost.
    """
    mixed, beta, intercept, reach, coef, limits, centre, precision = link
    odds, features, kept = np.empty(logs.shape[1]), np.empty(coef.size), 1.0 - mixed
    for n in range(logs.shape[0]):
        row, into, label = logs[n], average[n], 0
        while row[label] < top[n]:
            label += 1
        odds_row(row, top[n], beta, odds)
        odds[label] = rest = 0.0
        for i in range(odds.shape[0]):
            odds[i] = odds[i] if odds[i] > LEAST_ODDS else 0.0
            rest += odds[i]
        left[n] = counts[n] > 1 and rest < LEAST_SHARE * odds.shape[0]
        if counts[n] < 2 or left[n]:
            continue
        features[0] = -math.log(rest)
        for j in range(profile.shape[1]):  # an assignment of arrays takes seconds to compile
            features[1 + j] = profile[n, j]
        own = _confidence(features, intercept, reach, coef, limits, centre, precision)
        own = max(own, 1.0 / counts[n])
        factor, at_label = mixed * (1.0 - own) / rest, mixed * own + kept * into[label]
        for i in range(odds.shape[0]):
            into[i] = factor * odds[i] + kept * into[i]
        into[label] = at_label


@kernel
def write_rows(average: FloatArray, least: float, block: FloatArray) -> None:
    """The answers in place of the logits, at least `least` for a possible class."""
    for n in range(block.shape[0]):
        row, given = block[n], average[n]
        for i in range(row.shape[0]):
            row[i] = max(given[i], least) if row[i] > -np.inf else 0.0
