"""Exact stability under Gumbel noise: the softmax at temperature `scale`, in closed form."""

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import by_blocks
from hokical._core.jit import has_kernels
from hokical._core.logits import Logits
from hokical._core.types import AnyArray, FloatArray, IntArray


def stability(logits: Logits, scale: Array) -> Array:
    """gamma of every row, (n,) float64: 1 / sum_i exp(-d_i), over the columns and the tail."""
    fused = logits.backend.stability("gumbel", logits, scale)
    if fused is not None:
        return fused
    if _is_compiled(logits):
        return by_blocks(lambda block: _compiled_stability(block, scale), logits)
    return portable_stability(logits, scale)


def distribution(logits: Logits, scale: Array) -> Array:
    """pi of every row and class, (n, classes)."""
    if not _is_compiled(logits):
        return portable_distribution(logits, scale)

    def work(block: Logits) -> FloatArray:
        out = np.empty((block.n_rows, block.n_columns))
        fill_distribution(block, scale, 0.0, out)
        return out

    return by_blocks(work, logits)


def fill_distribution(logits: Logits, scale: float, least: float, out: AnyArray) -> IntArray | None:
    """Write pi into NumPy's `out` (n, classes), at least `least` for a possible class.

    Rows (m,) in which several classes have the largest number; None if nothing was written.
    """
    if not _is_compiled(logits):
        return None
    from hokical.stability._kernels import softmax_of_rows

    tied = np.empty(logits.n_rows, np.bool_)
    softmax_of_rows(logits.block(), logits.top, 1.0 / scale, least, out, tied)
    return np.flatnonzero(tied)


def portable_stability(logits: Logits, scale: Array) -> Array:
    """`stability` for arrays of any library."""

    def work(block: Logits) -> Array:
        xp, tail = block.xp, block.tail
        total = xp.sum(xp.exp(block.margins / -scale), axis=1)
        if tail is not None:
            total = total + tail.count * xp.exp(tail.margin / -scale)
        return 1.0 / total

    return by_blocks(work, logits)


def portable_distribution(logits: Logits, scale: Array) -> Array:
    """`distribution` for arrays of any library."""

    def work(block: Logits) -> Array:
        xp = block.xp
        weights = xp.exp(block.margins / -scale)
        return weights / xp.sum(weights, axis=1, keepdims=True)

    return by_blocks(work, logits)


def _is_compiled(logits: Logits) -> bool:
    return has_kernels(logits) and logits.tail is None


def _compiled_stability(logits: Logits, scale: float) -> FloatArray:
    from hokical.stability._kernels import softmax_of_top

    out = np.empty(logits.n_rows)
    softmax_of_top(logits.block(), logits.top, 1.0 / scale, out)
    return out
