"""What the examples of a fit were like: how sure the classifier was, and how large its top logits.

A calibrator knows nothing about rows outside these ranges; it extrapolates there, and says so.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits
from hokical._core.storage import storable
from hokical._core.types import FloatArray
from hokical.guarantees._scores import label_log_odds

#: Ranges are widened by this share, so that rows served in float32 count as the rows they are.
_SLACK = 2.0**-18


@storable("support")
@dataclass(frozen=True, eq=False)
class Support:
    """Ranges (2,) of the label's softmax log-odds (its Gumbel stability) and of the top logit.

    A further example of the same kind as the n of the fit lies outside with probability at most
    4 / (n + 1).
    """

    log_odds: FloatArray
    top: FloatArray

    def __post_init__(self) -> None:
        for name in ("log_odds", "top"):
            ends = getattr(self, name)
            array = isinstance(ends, np.ndarray) and ends.dtype == np.float64
            if not array or ends.shape != (2,) or not ends[0] <= ends[1]:
                raise ValueError(f"`{name}` must be two numbers, the smaller one first.")

    @classmethod
    def from_minima(cls, minima: FloatArray) -> Self:
        """The inverse of `minima`."""
        return cls(*(np.array([low, -high]) for low, high in (minima[:2], minima[2:])))

    @property
    def minima(self) -> FloatArray:
        """Least log-odds, minus the greatest, and the same of the top logit, (4,).

        The elementwise minimum of two of them belongs to the examples of both.
        """
        return np.array([self.log_odds[0], -self.log_odds[1], self.top[0], -self.top[1]])

    def __or__(self, other: Self) -> Self:
        return self.from_minima(np.minimum(self.minima, other.minima))

    def holds(self, logits: Logits) -> Array:
        """Which rows (n,) lie within both ranges."""
        return is_within(logits, self.edges)

    @property
    def edges(self) -> list[float]:
        """The ends of both ranges, (4,), moved outwards by what rounding may change."""
        ends = np.append(self.log_odds, self.top)
        size = 1.0 + np.abs(self.top).max() + np.where(np.isfinite(ends), np.abs(ends), 0.0)
        found: list[float] = (ends + _SLACK * size * [-1.0, 1.0, -1.0, 1.0]).tolist()
        return found

    def is_of(self, logits: Logits) -> bool:
        """Whether all rows together have exactly this support, as the calibration examples do."""
        log_odds = logits.to_host(label_log_odds(logits))
        return bool((support_minima(log_odds, logits.to_host(logits.top)) == self.minima).all())


def support_minima(log_odds: FloatArray, top: FloatArray) -> FloatArray:
    """`Support.minima` of rows with these log-odds and top logits, (n,) each; inf of none."""
    ranges = (log_odds, -log_odds, top, -top)
    return np.array([np.min(values, initial=np.inf) for values in ranges])


def is_within(logits: Logits, edges: Any) -> Array:
    """Which rows (n,) lie within the `edges` (4,) of a support; a row that holds NaN does not."""
    score, top = label_log_odds(logits), logits.top
    sure = (score >= edges[0]) & (score <= edges[1])
    return sure & (top >= edges[2]) & (top <= edges[3])
