"""Compiled inner loops of the scaling methods. They trust their caller."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._jit import kernel

FloatArray = NDArray[np.float64]
Block = NDArray[Any]  # (rows, classes) float32 or float64

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453


@kernel
def exp_minus(x: float) -> float:
    """exp(-x) for 0 <= x <= 700, to about 1e-14: a call to the C library could not become SIMD.

    x = k ln 2 - r with |r| <= ln(2)/2; exp(r) by its series, and 2^-k by writing the exponent.
    """
    k = int(x * _LOG2_E + 0.5)
    r = k * _LN_2 - x
    p = 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power: Any = np.int64((1023 - k) << 52)
    return p * power.view(np.float64)  # type: ignore[no-any-return]


@kernel
def margin_moments(block: Block, top: FloatArray, beta: float, far: float, out: FloatArray) -> None:
    """out[r, n] = sum_i x^r exp(-x) for r = 0, 1, 2, with x = min(beta (top_n - block_ni), far)."""
    for n in range(block.shape[0]):
        row = block[n]
        highest = top[n]
        zeroth = first = second = 0.0
        for i in range(row.shape[0]):
            x = min((highest - row[i]) * beta, far)
            term = exp_minus(x)
            zeroth += term
            first += x * term
            second += x * x * term
        out[0, n] = zeroth
        out[1, n] = first
        out[2, n] = second


@kernel
def margin_products(
    block: Block, top: FloatArray, beta: float, far: float, out: FloatArray
) -> None:
    """out[k, r, n] = sum_i x^r e f_k with e = exp(-x) and f = 1, e, exp(-(top_n - block_ni)).

    x = min(beta (top_n - block_ni), far), r = 0, 1, 2.
    """
    for n in range(block.shape[0]):
        row = block[n]
        highest = top[n]
        a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = 0.0
        for i in range(row.shape[0]):
            margin = highest - row[i]
            x = min(margin * beta, far)
            term = exp_minus(x)
            plain = exp_minus(min(margin, far))
            first = x * term
            second = x * first
            a0 += term
            a1 += first
            a2 += second
            b0 += term * term
            b1 += first * term
            b2 += second * term
            c0 += term * plain
            c1 += first * plain
            c2 += second * plain
        out[0, 0, n], out[0, 1, n], out[0, 2, n] = a0, a1, a2
        out[1, 0, n], out[1, 1, n], out[1, 2, n] = b0, b1, b2
        out[2, 0, n], out[2, 1, n], out[2, 2, n] = c0, c1, c2
