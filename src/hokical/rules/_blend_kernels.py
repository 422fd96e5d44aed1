"""Compiled answers of structured scaling and of the default, for blocks of a few rows.

They trust their caller.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import log_of
from hokical._core.jit import kernel
from hokical._core.types import FloatArray, IntArray
from hokical.rules._row_kernels import floor_row, odds_row, shape_row
from hokical.stability._softmax_kernels import top_two

Block = NDArray[Any]  # (rows, classes) float32 or float64, or one of them
#: The floor, 1 / three temperatures, the share of the uniform distribution; the weights (3,); then
#: shape (3,), scale and bias (classes,), and the transposed cross terms.
Blend = tuple[float, float, float, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


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
def write_rows(average: FloatArray, least: float, block: FloatArray) -> None:
    """The answers in place of the logits, at least `least` for a possible class."""
    for n in range(block.shape[0]):
        row, given = block[n], average[n]
        for i in range(row.shape[0]):
            row[i] = max(given[i], least) if row[i] > -np.inf else 0.0
