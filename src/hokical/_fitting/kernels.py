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
