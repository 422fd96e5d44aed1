"""Label stability where some classes are hidden: as many equal classes stand in their place.

These are the `tail` of a `TopK`: their number, and their margin below the top. Under Gumbel noise
`gumbel.stability` adds them itself.
"""

from functools import cache

import numpy as np

from hokical._core.blocks import by_blocks
from hokical._core.logits import MAX_MARGIN
from hokical._core.special import log_ndtr
from hokical._core.topk import TopK
from hokical._core.types import FloatArray
from hokical.stability import _gaussian as gaussian
from hokical.stability import _uniform as uniform
from hokical.stability._tables import gaussian_quadrature

#: Under uniform noise: halvings of the way down from where the tail joins, and nodes in each.
_HALVINGS, _ORDER = 26, 8


def gaussian_stability(logits: TopK, scale: float) -> FloatArray:
    """gamma of every row, (n,): the product at every node of the quadrature includes the tail."""
    rule = gaussian_quadrature()

    def work(block: TopK) -> FloatArray:
        seen = gaussian.log_products(block, scale, rule) - rule.own
        hidden = log_ndtr(rule.nodes + _tail_margins(block, scale)[:, None], np)
        logs = seen + block.tail.count[:, None] * hidden
        return np.asarray(np.clip((np.exp(logs) * rule.weights).sum(axis=1), 0.0, 1.0))

    found: FloatArray = by_blocks(work, logits, 16 * rule.nodes.size)
    return found


def uniform_stability(logits: TopK, width: float) -> FloatArray:
    """gamma of every row, (n,): that of the seen classes, less what the tail takes."""
    gamma: FloatArray = uniform.stability(logits, width)
    rows = np.flatnonzero((_tail_margins(logits, width) < 1.0) & (logits.tail.count > 0.0))
    if rows.size:
        gamma[rows] -= by_blocks(
            lambda block: _taken_share(block, width), logits.take(rows), 3 * _HALVINGS * _ORDER
        )
    return np.clip(gamma, 0.0, 1.0)


def _tail_margins(logits: TopK, width: float) -> FloatArray:
    """Margin of the tail in units of the noise, (n,), at most as large as its square is finite."""
    some = logits.tail.count > 0.0
    margin = np.where(some, logits.tail.margin, 0.0)
    with np.errstate(over="ignore"):
        return np.asarray(np.where(some, np.minimum(margin / width, MAX_MARGIN), MAX_MARGIN))


def _taken_share(logits: TopK, width: float) -> FloatArray:
    """integral over u in [0, joined] of P(u) (1 - (1 - y)^count), y = joined - u, (n,).

    P is the product over the seen classes, and the tail joins at `joined`. The other factor changes
    on the scale of 1/count at the upper end, so the pieces get shorter towards it.
    """
    joined = 1.0 - _tail_margins(logits, width)[:, None]
    y, weights = _graded_rule()
    y, weights = y * joined, weights * joined
    product = -np.expm1(logits.tail.count[:, None] * np.log1p(-np.minimum(y, 1.0 - 1e-16)))
    for column in logits.margins.T[1:]:
        product *= np.minimum(joined - y + column[:, None] / width, 1.0)
    return np.asarray((product * weights).sum(axis=1))


@cache
def _graded_rule() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [0, 1], with pieces that halve towards 0."""
    x, w = np.polynomial.legendre.leggauss(_ORDER)
    ends = np.concatenate([[0.0], 0.5 ** np.arange(_HALVINGS, -1, -1)])
    length = np.diff(ends)[:, None]
    return (ends[:-1, None] + length * (0.5 * (x + 1.0))).ravel(), (length * (0.5 * w)).ravel()
