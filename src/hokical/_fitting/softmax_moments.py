"""Sums over classes that log-loss fits are made of, in float64 and a block of rows at a time.

They are written once, for arrays of any library, and stay on the device of the logits; sums over
rows are made on the host, block after block, so that the number of threads changes no result.
"""

from __future__ import annotations

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row, sum_over_blocks
from hokical._core.logits import Logits
from hokical._core.special import FAR, row_dots, row_sums
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples

#: A median is where this share is reached: the same one, whatever the rounding.
_BARELY_HALF = 0.5 - 1e-9

Moments = tuple[Array, Array, Array]


def typical_spread(examples: Examples) -> float:
    """Weighted median over examples of the mean margin of the possible classes, or 1 if all are 0.

    A median, so that a few examples with extreme logits do not set the units for all.
    """

    def mean_margins(block: Logits) -> Array:
        xp, possible = block.xp, block.possible
        total = xp.sum(xp.where(possible, block.margins, xp.zeros_like(block.margins)), axis=1)
        return total / xp.sum(xp.astype(possible, xp.float64), axis=1)

    found = per_row(mean_margins, examples.logits)
    rows = np.flatnonzero((found > 0.0) & examples.counting)
    if rows.size == 0:
        return 1.0
    rows = rows[np.argsort(found[rows])]
    reached = np.cumsum(examples.share[rows])
    middle = int(np.searchsorted(reached, _BARELY_HALF * reached[-1]))
    return float(found[rows[middle]])


def softmax_moments(examples: Examples, beta: float) -> tuple[float, float, float]:
    """Weighted means of three numbers per row, for the softmax of beta z.

    With scaled margins x_i = beta (top - z_i): the log of sum_i exp(-x_i), and the mean and the
    variance of x under the softmax.
    """

    def work(rows: slice, block: Logits) -> FloatArray:
        zeroth, first, second = _moments_on_host(block, beta)
        mean = first / zeroth
        three = np.stack([np.log(zeroth), mean, second / zeroth - mean * mean])
        return np.asarray(np.sum(three * examples.share[rows], axis=1))

    log_sum, mean, variance = sum_over_blocks(examples.logits, work).tolist()
    return log_sum, mean, variance


def _moments_on_host(block: Logits, beta: float) -> FloatArray:
    found = moment_sums(block, beta)
    return np.asarray(found if block.is_numpy else block.to_host(block.xp.stack(list(found))))


def moment_sums(logits: Logits, beta: Array | float) -> Moments:
    """sum_i x_i^r exp(-x_i) for r = 0, 1, 2 of each row, three arrays (n,), columns and tail.

    x_i are the margins times `beta`, a number or one for each row (n,).
    """
    zeroth, first, second = _column_moments(logits, beta)
    tail = logits.tail
    if tail is None:
        return zeroth, first, second
    x = logits.xp.clip(tail.margin * beta, None, FAR)
    term = tail.count * logits.xp.exp(-x)
    return zeroth + term, first + x * term, second + x * x * term


def _column_moments(logits: Logits, beta: Array | float) -> Moments:
    """The same over the columns alone."""
    xp = logits.xp
    minus_x = logits.margins * -(
        beta if isinstance(beta, float) else beta[:, None]
    )  # finite, and so is its product with exp(-x) = 0
    term = xp.exp(minus_x)
    zeroth = row_sums(term, xp)
    term *= minus_x
    return zeroth, -row_sums(term, xp), row_dots(term, minus_x, xp)
