"""Compiled inner loops of the scaling methods. They trust their caller."""

from typing import Any

from numpy.typing import NDArray

from hokical._core.exp_kernels import exp_minus
from hokical._core.jit import kernel
from hokical._core.types import FloatArray

Block = NDArray[Any]  # (rows, classes) float32 or float64


@kernel
def margin_moments(
    block: Block, top: FloatArray, beta: FloatArray, far: float, out: FloatArray
) -> None:
    """out[r, n] = sum_i x^r exp(-x) for r = 0, 1, 2; x = min(beta_n (top_n - block_ni), far)."""
    for n in range(block.shape[0]):
        row = block[n]
        highest, step = top[n], beta[n]
        zeroth = first = second = 0.0
        for i in range(row.shape[0]):
            x = min((highest - row[i]) * step, far)
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
