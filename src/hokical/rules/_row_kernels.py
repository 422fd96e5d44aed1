"""Compiled steps on one row of logits, for answers and for fits. They trust their caller."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import FAR, exp_minus, log_of
from hokical._core.jit import kernel
from hokical._core.types import AnyArray, FloatArray

Row = NDArray[Any]  # (classes,) float32 or float64


@kernel
def odds_row(row: Row, highest: float, beta: float, out: AnyArray) -> float:
    """out[i] = exp(-beta (highest - row[i])), nearly 0 where impossible; their sum.

    `out` is not `row`: the compiler could not tell, and would take one number at a time.
    """
    total = 0.0
    for i in range(row.shape[0]):
        odds = exp_minus(min(max((highest - row[i]) * beta, 0.0), FAR))
        out[i] = odds
        total += odds
    return total


@kernel
def floor_row(row: Row, share: float, floor: float, out: FloatArray) -> None:
    """Odds in `out` become log(p + floor) for p = odds times share; -inf where impossible."""
    for i in range(row.shape[0]):
        value = log_of(out[i] * share + floor)
        out[i] = value if row[i] > -np.inf else -np.inf


@kernel
def floor_rows(block: AnyArray, top: FloatArray, floor: float, out: FloatArray) -> None:
    """out[n, i] = log(p + floor), p the softmax of a row; -inf where a class is impossible."""
    for n in range(block.shape[0]):
        total = odds_row(block[n], top[n], 1.0, out[n])
        floor_row(block[n], 1.0 / total, floor, out[n])
