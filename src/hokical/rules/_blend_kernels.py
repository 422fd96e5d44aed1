"""Compiled answers of structured scaling and of the default: a row is read and written once.

They trust their caller. What a row's answer needs stays in a few rows of memory.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import log_of
from hokical._core.jit import kernel
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.rules._probabilities import LEAST
from hokical.rules._profile import LARGEST_LOG_ODDS, LEAST_LOG
from hokical.rules._row_kernels import (
    LEAST_ODDS,
    floor_row,
    odds_row,
    shape_row,
)
from hokical.rules._sharing import LEAST_SHARE
from hokical.stability import _compiled_profile_kernels as profiles
from hokical.stability._compiled_profile_kernels import profile_row, room_for_profile, top_two

Block = NDArray[Any]  # (rows, classes) float32 or float64, or one of them
#: The floor, 1 / three temperatures, the share of the uniform distribution; the weights (3,); then
#: shape (3,), scale and bias (classes,), and the transposed cross terms.
Blend = tuple[float, float, float, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
#: The share of the profile's answer, 1 / its temperature, intercept and reach; coefficients, range,
#: centre and precision; and its tables.
Profile = tuple[
    float, float, float, float, FloatArray, FloatArray, FloatArray, FloatArray,
    profiles.Steps, profiles.Rule,
]  # fmt: skip


@kernel
def _add_scaled(
    row: Block, count: int, blend: Blend, room: FloatArray, average: FloatArray
) -> None:
    """Add the third candidate of a row from its features, the first four rows of `room`."""
    even, weight = blend[2], blend[3][2]
    (a, b, c), scale, bias, cross = blend[4], blend[5], blend[6], blend[7]
    z, miss, p, softer, scores = room[0], room[1], room[2], room[3], room[4]
    for i in range(row.shape[0]):
        scores[i] = z[i] * scale[i] + bias[i] + a * miss[i] + b * p[i] + c * softer[i]
    if cross.shape[0] > 0:
        _add_cross(row, count, cross, z, scores)
    if count < row.shape[0]:
        for i in range(row.shape[0]):
            scores[i] = scores[i] if row[i] > -np.inf else -np.inf
    total = odds_row(scores, top_two(scores)[0], 1.0, z)
    share, least = weight * (1.0 - even) / total, weight * even / count
    for i in range(row.shape[0]):
        average[i] += share * z[i] + least


@kernel
def _add_cross(
    row: Block, count: int, cross: FloatArray, z: FloatArray, scores: FloatArray
) -> None:
    """Add the cross terms; an impossible class counts as the least likely of the possible ones."""
    if count < row.shape[0]:
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
def _average_row(
    row: Block, highest: float, label: int, blend: Blend, room: FloatArray, average: FloatArray
) -> int:
    """The average of a row's candidates into `average`; how many classes are possible."""
    floor, step, weights = blend[0], blend[1], blend[3]
    z, miss, p, softer, logs = room[0], room[1], room[2], room[3], room[4]
    count, start = 0, 0.0
    for i in range(row.shape[0]):
        count += 1 if row[i] > -np.inf else 0
        average[i] = 0.0
    if floor > 0.0 or weights[0] > 0.0:
        share = 1.0 / odds_row(row, highest, 1.0, logs)
        for i in range(row.shape[0]):
            average[i] = weights[0] * share * logs[i]
    if floor > 0.0:
        floor_row(row, share, floor, logs)
        start = log_of(share + floor)
    else:
        for i in range(row.shape[0]):
            logs[i] = row[i] - highest
    if weights[2] > 0.0:
        shape_row(logs, start, label, step, z, miss, p, softer)
        _add_scaled(row, count, blend, room, average)
        share = weights[1]
    else:
        share = weights[1] / odds_row(logs, start, 3.0 * step, p)
    total = 0.0
    for i in range(row.shape[0]):
        value = average[i] + share * p[i]
        average[i] = value if row[i] > -np.inf else 0.0
        total += average[i]
    for i in range(row.shape[0]):
        average[i] /= total
    return count


@kernel
def _confidence(features: FloatArray, profile: Profile) -> float:
    """`ProfileRule.confidence_from` of one row's features, before they are cut."""
    intercept, reach, coef, limits, centre, precision = profile[2:8]
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
def _correct_row(
    row: Block,
    average: FloatArray,
    count: int,
    profile: Profile,
    steps: profiles.Steps,
    rule: profiles.Rule,
    room: FloatArray,
    own_room: profiles.Room,
    features: FloatArray,
    pairs: FloatArray,
) -> bool:
    """A share of the profile's answer in place of as much of `average`; False if digits are lost.

    Of a row with two possible classes or more. `pairs` (W, 2) are the features but the first.
    """
    mixed, beta = profile[0], profile[1]
    logs, odds = room[0], room[1]
    for i in range(average.shape[0]):
        value = log_of(max(average[i], LEAST))
        logs[i] = value if row[i] > -np.inf else -np.inf
    label, (highest, second) = 0, top_two(logs)
    while logs[label] < highest:
        label += 1
    odds_row(logs, highest, beta, odds)
    odds[label] = rest = 0.0
    for i in range(average.shape[0]):
        odds[i] = odds[i] if odds[i] > LEAST_ODDS else 0.0
        rest += odds[i]
    if rest < LEAST_SHARE * average.shape[0]:
        return False
    features[0] = -math.log(rest)
    profile_row(logs, highest, highest - second, steps, rule, own_room, pairs)
    own = max(_confidence(features, profile), 1.0 / max(count, 2))
    factor, kept = mixed * (1.0 - own) / rest, 1.0 - mixed
    at_label = mixed * own + kept * average[label]
    for i in range(average.shape[0]):
        average[i] = factor * odds[i] + kept * average[i]
    average[label] = at_label
    return True


@kernel
def blend_rows(
    block: FloatArray,
    top: FloatArray,
    labels: IntArray,
    blend: Blend,
    profile: Profile,
    least: float,
    left: BoolArray,
) -> None:
    """The answers to the rows of a block, in their place, at least `least` for a possible class.

    left[n] says that digits were lost. A profile whose share is 0 is not asked.
    """
    n_columns = block.shape[1]
    room, average = np.empty((5, n_columns)), np.empty(n_columns)
    steps, rule, features = profile[8], profile[9], np.empty(profile[4].size)
    own_room, pairs = room_for_profile(average, rule), features[1:].reshape(steps[0].size, 2)
    for n in range(block.shape[0]):
        row = block[n]
        count = _average_row(row, top[n], labels[n], blend, room, average)
        left[n] = False
        if profile[0] > 0.0 and count > 1:
            left[n] = not _correct_row(
                row, average, count, profile, steps, rule, room, own_room, features, pairs
            )
        for i in range(n_columns):
            row[i] = max(average[i], least) if row[i] > -np.inf else 0.0
