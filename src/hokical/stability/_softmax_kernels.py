"""Compiled softmaxes of blocks of rows. They trust their caller."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import FAR, LEAST_ODDS, exp_minus
from hokical._core.jit import kernel
from hokical._core.types import BoolArray, FloatArray

Block = NDArray[Any]  # (rows, classes) float32 or float64


@kernel
def _rest_sum(row: Block, start: float, beta: float) -> float:
    """sum of exp(-beta (start - z_i)), each term at most 1, over all columns but the label's."""
    total = 0.0
    for i in range(row.shape[0]):
        total += exp_minus(min(max((start - row[i]) * beta, 0.0), FAR))
    return total - 1.0


@kernel
def softmax_of_top(block: Block, top: FloatArray, beta: float, out: FloatArray) -> None:
    """out[n] = the softmax of row n's largest, `top`, at temperature 1 / beta."""
    for n in range(block.shape[0]):
        out[n] = 1.0 / (1.0 + _rest_sum(block[n], top[n], beta))


@kernel
def softmax_of_rows(
    block: Block, top: FloatArray, beta: float, least: float, out: Block, tied: BoolArray
) -> None:
    """out[n] = the softmax of row n, whose largest is `top`, at temperature 1 / beta.

    No possible class gets less than `least`. `out` is written once, as new memory is dear;
    tied[n] says whether several classes share its largest number.
    """
    odds, most = np.empty(block.shape[1]), np.empty(1, out.dtype)
    for n in range(block.shape[0]):
        row, highest, into = block[n], top[n], out[n]
        for i in range(row.shape[0]):
            odds[i] = exp_minus(min(max((highest - row[i]) * beta, 0.0), FAR))
        total = 0.0
        for i in range(row.shape[0]):
            total += odds[i]
        share = 1.0 / total
        for i in range(row.shape[0]):  # what was cut at `FAR` is 0
            value = max(odds[i] * share if odds[i] > LEAST_ODDS else 0.0, least)
            into[i] = value if row[i] > -np.inf else 0.0
        most[0], count = share, 0
        for i in range(row.shape[0]):
            count += 1 if into[i] >= most[0] else 0
        tied[n] = count > 1
