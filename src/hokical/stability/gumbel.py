"""Exact stability under Gumbel noise: the softmax at temperature `scale`, in closed form."""

import numpy as np

from hokical._core.arrays import Array, ignore_overflow
from hokical._core.logits import Logits, by_blocks, new_margins
from hokical._core.special import exponential, normalized_exponential, row_sums


def stability(logits: Logits, scale: Array) -> Array:
    """gamma of every row, (n,) float64: 1 / sum_i exp(-d_i), over the columns and the tail."""
    fused = logits.backend.kernels.stability("gumbel", logits, scale)
    return portable_stability(logits, scale) if fused is None else fused


def portable_stability(logits: Logits, scale: Array) -> Array:
    """`stability` for arrays of any library."""

    def work(block: Logits) -> Array:
        xp, tail = block.xp, block.tail
        total = row_sums(exponential(_exponents(block, scale), xp), xp)
        if tail is not None:
            total = total + tail.count * xp.exp(tail.margin / -scale)
        return 1.0 / total

    return by_blocks(work, logits)


def distribution(logits: Logits, scale: Array) -> Array:
    """pi of every row and class, (n, classes)."""
    return by_blocks(lambda block: softmax(block, scale), logits)


def softmax(block: Logits, scale: Array) -> Array:
    """`distribution` of a block of rows."""
    return normalized_exponential(_exponents(block, scale), block.xp)


def _exponents(block: Logits, scale: Array) -> Array:
    """Minus the margins in units of the scale, (n, columns), which may be overwritten."""
    if not block.is_numpy:
        return block.margins * (-1.0 / scale)
    with ignore_overflow():
        margins = new_margins(block)
        return np.multiply(margins, -1.0 / scale, out=margins)
