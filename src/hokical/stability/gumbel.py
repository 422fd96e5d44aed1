"""Exact stability under Gumbel noise: the softmax at temperature `scale`, in closed
form.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from hokical._core.arrays import Array, FloatArray
from hokical._core.logits import Logits, by_blocks
from hokical._core.special import exponential, log, normalized_exponential, row_sums
from hokical.stability.families import Noise, Scale, register_family


def stability(logits: Logits, scale: Array) -> Array:
    """gamma of every row, (n,) float64: 1 / sum_i exp(-d_i), over the columns and
    the tail.
    """
    fused = Gumbel.fused_stability(logits, scale)
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


@register_family
@dataclass(frozen=True)
class Gumbel(Noise):
    """Gumbel noise: the stability it gives is the softmax confidence at temperature
    `scale`.

    >>> from hokical import label_stability
    >>> label_stability([[2.0, 0.0]], Gumbel(1.0)).round(4).tolist()
    [0.8808]
    """

    family: ClassVar[str] = "gumbel"
    unit_deviation: ClassVar[float] = math.pi / math.sqrt(6.0)
    has_cheap_distribution: ClassVar[bool] = True  # a softmax
    kernel: ClassVar[str | None] = "gumbel_stability"
    scale: Scale

    exact_stability = staticmethod(stability)
    exact_distribution = staticmethod(distribution)

    @property
    def width(self) -> float:
        return self.scale

    def from_uniform(self, uniform: FloatArray) -> FloatArray:
        return -self.scale * log(-log(uniform))
