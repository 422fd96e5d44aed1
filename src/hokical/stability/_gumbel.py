"""Exact stability under Gumbel noise: the softmax at temperature `scale`, in closed form."""

from hokical._core.arrays import Array
from hokical._core.blocks import by_blocks
from hokical._core.logits import Logits
from hokical._core.special import exponential, normalized_exponential, row_sums


def stability(logits: Logits, scale: Array) -> Array:
    """gamma of every row, (n,) float64: 1 / sum_i exp(-d_i), over the columns and the tail."""
    fused = logits.backend.stability("gumbel", logits, scale)
    return portable_stability(logits, scale) if fused is None else fused


def portable_stability(logits: Logits, scale: Array) -> Array:
    """`stability` for arrays of any library."""

    def work(block: Logits) -> Array:
        xp, tail = block.xp, block.tail
        total = row_sums(exponential(block.margins * (-1.0 / scale), xp), xp)
        if tail is not None:
            total = total + tail.count * xp.exp(tail.margin / -scale)
        return 1.0 / total

    return by_blocks(work, logits)


def distribution(logits: Logits, scale: Array) -> Array:
    """pi of every row and class, (n, classes)."""
    return by_blocks(
        lambda block: normalized_exponential(block.margins * (-1.0 / scale), block.xp), logits
    )
