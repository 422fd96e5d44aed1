"""Compiled inner loops of the stability profile. They trust their caller."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.core.fast_exp import exp_minus
from hokical.core.jit import kernel, max_kernel
from hokical.core.types import FloatArray
from hokical.stability.compiled_kernels import _chebyshev_moments as chebyshev_moments

Block = NDArray[Any]  # (rows, classes) float32 or float64

#: exp(-FAR) is nothing beside 1, so larger numbers are cut here.
_FAR = 700.0


@max_kernel
def runner_up(block: Block, top: FloatArray, out: FloatArray) -> None:
    """out[n] = how far the second largest of row n lies below its largest, `top`; 0 for a tie."""
    for n in range(block.shape[0]):
        row = block[n]
        highest = row.dtype.type(top[n])
        second = row.dtype.type(-np.inf)
        tied = 0
        for i in range(row.shape[0]):
            below = row[i] < highest
            second = max(second, row[i] if below else row.dtype.type(-np.inf))
            tied += 0 if below else 1
        out[n] = 0.0 if tied > 1 else top[n] - second


@kernel
def rest_sums(
    block: Block, top: FloatArray, gaps: FloatArray, beta: float, out: FloatArray
) -> None:
    """out[n] = sum of exp(-beta (d_i - gap_n)) over all columns but the label's.

    The label's own term is cut to exp(0) and taken off; the runner-up's is exp(0) too, so nothing
    cancels.
    """
    for n in range(block.shape[0]):
        row = block[n]
        start = top[n] - gaps[n]
        total = 0.0
        for i in range(row.shape[0]):
            total += exp_minus(min(max((start - row[i]) * beta, 0.0), _FAR))
        out[n] = total - 1.0


@kernel
def _keep_near(row: Block, top: float, step: float, near: Block) -> int:
    """Put what lies within the series' reach into `near`, and return how many there are.

    Classes beyond it would be clipped to its end, where the series is 0.
    """
    count = 0
    for i in range(row.shape[0]):
        near[count] = row[i]
        count += 1 if (top - row[i]) * step < 2.0 else 0
    return count


@kernel
def gaussian_chances(
    block: Block,
    top: FloatArray,
    last: FloatArray,
    step: float,
    rule: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    out: FloatArray,
) -> None:
    """out[0, n] and out[1, n]: the sums over nodes of weight * survival, and of what is lost.

    `rule` is the nodes (K,), weights (K,), series (R + 1, K) and the label's own factor (K,). What
    is lost is counted up to the node last[n]; before the first node, 1 and 0 are written.
    """
    nodes, weights, series, own = rule
    moments = np.empty(series.shape[0])
    products = np.empty(nodes.size)
    near = np.empty(block.shape[1], block.dtype)
    for n in range(block.shape[0]):
        out[0, n] = 1.0
        out[1, n] = 0.0
        if last[n] < nodes[0]:
            continue
        count = _keep_near(block[n], top[n], step, near)
        chebyshev_moments(near[:count], top[n], step, moments)
        for k in range(nodes.size):
            products[k] = own[k]
        for r in range(series.shape[0]):
            for k in range(nodes.size):
                products[k] -= moments[r] * series[r, k]
        kept = lost = 0.0
        for k in range(nodes.size):
            survival = exp_minus(min(max(products[k], 0.0), _FAR))
            kept += weights[k] * survival
            lost += weights[k] * (1.0 - survival) if nodes[k] <= last[n] else 0.0
        out[0, n] = kept
        out[1, n] = lost


@kernel
def overtaking(
    block: Block,
    top: FloatArray,
    far: NDArray[np.intp],
    gaps: FloatArray,
    inverse_scale: float,
    negligible: float,
    out: FloatArray,
) -> None:
    """out[j] = sum of Phi(-d_i / sqrt 2) over the rivals of row far[j], d_i in scales.

    The label is told from the others by half the gap; classes too far to count are skipped.
    """
    for j in range(far.size):
        row, highest = block[far[j]], top[far[j]]
        low, high = 0.5 * gaps[j], math.sqrt(gaps[j] * gaps[j] + negligible)
        total = 0.0
        for i in range(row.shape[0]):
            d = (highest - row[i]) * inverse_scale
            if low < d < high:
                total += 0.5 * math.erfc(0.5 * d)
        out[j] = total
