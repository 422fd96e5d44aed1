"""Exact stability under Gumbel noise: the softmax at temperature `scale`, in closed form."""

from hokical._core.accelerate import accelerated
from hokical._core.arrays import Array
from hokical._core.blocks import by_blocks
from hokical._core.logits import Logits
from hokical._core.types import AnyArray, IntArray


@accelerated
def stability(logits: Logits, scale: Array) -> Array:
    """gamma of every row, (n,) float64: 1 / sum_i exp(-d_i), over the columns and the tail."""

    def work(block: Logits) -> Array:
        xp = block.xp
        total = xp.sum(xp.exp(block.margins / -scale), axis=1)
        tail = block.tail
        if tail is not None:
            total = total + tail.count * xp.exp(tail.margin / -scale)
        return 1.0 / total

    return by_blocks(work, logits)


@accelerated
def fill_distribution(logits: Logits, scale: float, least: float, out: AnyArray) -> IntArray | None:
    """Write pi into NumPy's `out` (n, classes), at least `least` for a possible class.

    Rows (m,) in which several classes have the largest number; None if nothing was written.
    """
    return None


@accelerated
def distribution(logits: Logits, scale: Array) -> Array:
    """pi of every row and class, (n, classes)."""

    def work(block: Logits) -> Array:
        xp = block.xp
        weights = xp.exp(block.margins / -scale)
        return weights / xp.sum(weights, axis=1, keepdims=True)

    return by_blocks(work, logits)
