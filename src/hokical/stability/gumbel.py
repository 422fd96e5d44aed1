"""Exact stability under Gumbel noise: the softmax at temperature `scale`, in closed
form.
"""

from hokical._core.arrays import Array
from hokical._core.logits import Logits, by_blocks
from hokical._core.special import exponential, normalized_exponential, row_sums


def stability(logits: Logits, scale: Array) -> Array:
    """gamma of every row, (n,) float64: 1 / sum_i exp(-d_i), over the columns and
    the tail.
    """
    fused = logits.backend.kernels.stability("gumbel", logits, scale)
    if fused is not None:
        return fused

    def work(block: Logits) -> Array:
        xp = block.xp
        tail = block.tail
        total = row_sums(exponential(block.new_margins(-1.0 / scale), xp), xp)
        if tail is not None:
            total = total + tail.count * xp.exp(tail.margin / -scale)
        return 1.0 / total

    return by_blocks(work, logits)


def distribution(logits: Logits, scale: Array) -> Array:
    """pi of every row and class, (n, classes)."""

    def work(block: Logits) -> Array:
        return normalized_exponential(block.new_margins(-1.0 / scale), block.xp)

    return by_blocks(work, logits)
