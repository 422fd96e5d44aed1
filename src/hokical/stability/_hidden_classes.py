"""How stable can a label be when some classes are hidden?

A hidden logit lies anywhere below its row's ceiling. The label is most stable if all are far down,
and least stable if all are at the ceiling. Where the sum R of the exponentials of the hidden
margins, `rest`, is known as well, both ends draw closer: with x_i = exp(-d_i), each family asks for
the extremes of a sum of g(x_i) over 0 <= x_i <= e, sum of x_i = R, with e that of the ceiling.

- Gumbel: g(x) = x^(1/scale) is convex or concave, so the extremes are all equal, or as many as
  possible at the ceiling. At scale 1 both are R, and the softmax is exact.
- Gaussian: g(x) = log Phi at a node of the quadrature is concave near 0 and convex beyond. The
  least is on a chord from 0; the most is bounded by the lines that touch the concave part (weak
  duality: any line above g gives a bound, and the best of a few is taken).
- Uniform: at most R exp(width) hidden classes are within reach of the noise.
"""

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from hokical._core.blocks import by_blocks
from hokical._core.logits import MAX_MARGIN
from hokical._core.special import log_ndtr
from hokical._core.topk import TopK
from hokical._core.types import FloatArray
from hokical.stability import _gaussian as gaussian
from hokical.stability import _uniform as uniform
from hokical.stability._tables import gaussian_quadrature

Bounds = tuple[FloatArray, FloatArray]

#: One of the lines touches the concave part so far beyond its end, in units of the noise.
_TOUCH_BEYOND = 0.5
_LARGEST_LOG = 700.0  # exp of more overflows
#: Roots are sought between these: below, they no longer matter, and above, log Phi vanishes.
_FAR_DOWN, _FAR_UP = -1e4, 37.0
#: Each step of the search looks at so many parts of what is left.
_ROOT_STEPS, _ROOT_PARTS = 12, 64
_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
#: Under uniform noise: halvings of the way down from where hidden classes join, and nodes in each.
_HALVINGS, _ORDER = 26, 8


def gumbel_bounds(logits: TopK, scale: float) -> Bounds:
    """1 over the smallest and the largest possible sum of exponentials."""

    def work(block: TopK) -> Bounds:
        seen = np.exp(block.margins / -scale).sum(axis=1)
        least, most = _gumbel_sums(block, scale)
        return 1.0 / (seen + most), 1.0 / (seen + least)

    found: Bounds = by_blocks(work, logits)
    return found


def _gumbel_sums(logits: TopK, scale: float) -> Bounds:
    """Least and greatest sum of exp(-d_i/scale) over the hidden classes, (n,)."""
    gap, hidden = logits.ceiling_margin, logits.tail.count
    at_ceiling = hidden * np.exp(-_in_units(gap, scale))
    if logits.rest is None:
        return np.zeros_like(at_ceiling), at_ceiling
    equal = hidden * np.exp(-_in_units(logits.tail.margin, scale))
    some = hidden > 0.0
    room = np.subtract(logits.rest, logits.ceiling, out=np.zeros_like(gap), where=some)
    crowded = np.where(some, np.exp(room - _in_units(gap, scale)), 0.0)
    return np.minimum(equal, crowded), np.maximum(equal, crowded)


def gaussian_bounds(logits: TopK, scale: float) -> Bounds:
    """The quadrature with the smallest and the largest possible product at every node."""
    rule = gaussian_quadrature()

    def work(block: TopK) -> Bounds:
        seen = gaussian.log_products(block, scale, rule) - rule.own
        lower, upper = (
            np.clip((np.exp(seen + hidden) * rule.weights).sum(axis=1), 0.0, 1.0)
            for hidden in _gaussian_sums(block, scale)
        )
        return lower, upper

    found: Bounds = by_blocks(work, logits, 16 * rule.nodes.size)
    return found


def _gaussian_sums(logits: TopK, scale: float) -> Bounds:
    """Least and greatest sum of log Phi(u + d_i/scale) over the hidden classes, (n, K)."""
    u = gaussian_quadrature().nodes
    count = logits.tail.count[:, None]
    gap = np.where(count > 0.0, _in_units(logits.ceiling_margin[:, None], scale), 0.0)
    if logits.rest is None:
        least = count * log_ndtr(u + gap, np)
        return least, np.zeros_like(least)
    equal = np.where(count > 0.0, _in_units(logits.tail.margin[:, None], scale), 0.0)
    # As many classes where log Phi(v)/x is least as R allows, at most all, at least at the ceiling.
    place = np.clip(chord_end(scale) - u, gap, equal)
    least = count * np.exp((place - equal) * scale) * log_ndtr(u + place, np)
    return least, count * highest_mean(u + gap, u + equal, scale)


def _in_units(margin: FloatArray, width: float) -> FloatArray:
    """Margins in units of the noise, so large at most that their squares are finite."""
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(margin / width, MAX_MARGIN))


def highest_mean(ceiling: FloatArray, equal: FloatArray, scale: float) -> FloatArray:
    """Upper bound on the mean of log Phi(v_i), given the mean of x_i = exp(-scale v_i).

    `ceiling` is the least v_i can be, and `equal` the one at which all x_i are the mean. A line
    that touches g at v_a with slope -hazard(v_a)/(scale x_a) by x bounds g from above, unless g
    rises above it again at the ceiling; then the line is lifted until it does not.
    """
    at_ceiling, best = log_ndtr(ceiling, np), np.zeros_like(equal)
    end = concave_from(scale)
    line = _line_through_ceiling(ceiling, at_ceiling, scale)
    for v in (np.maximum(equal, end), np.maximum(line, end), np.float64(end + _TOUCH_BEYOND)):
        touched = log_ndtr(v, np)
        log_slope = _log_density(v) - touched - math.log(scale)
        with np.errstate(over="ignore"):  # a line too steep to be of use
            lift = np.exp(log_slope + scale * (v - ceiling))
        fall = np.exp(np.minimum(log_slope + scale * (v - equal), _LARGEST_LOG))
        highest = np.maximum(touched + np.exp(log_slope), at_ceiling + lift)
        np.minimum(best, highest - fall, out=best)
    return best


def _line_through_ceiling(ceiling: FloatArray, at_ceiling: FloatArray, scale: float) -> FloatArray:
    """About where the line that meets g at the ceiling touches the far, all but flat part of it.

    There Phi is 1, and the line falls from 0 by -g: -v^2/2 + scale v = log(-g) + scale ceiling + c.
    """
    with np.errstate(divide="ignore"):
        level = np.log(-at_ceiling) + scale * ceiling + math.log(scale) + _LOG_ROOT_TWO_PI
    return scale + np.sqrt(np.clip(scale * scale - 2.0 * level, 0.0, _FAR_UP**2))


@lru_cache(maxsize=256)
def chord_end(scale: float) -> float:
    """The v with the least log Phi(v) exp(scale v): where hazard(v) = -scale log Phi(v)."""
    return _root(lambda v: _hazard(v) / -log_ndtr(v, np) - scale, _FAR_UP)


@lru_cache(maxsize=256)
def concave_from(scale: float) -> float:
    """A v above which log Phi(v) is concave in exp(-scale v): from v + hazard(v) = scale on."""
    return _root(lambda v: v + _hazard(v) - scale, max(_FAR_UP, scale))


def _root(rising: Callable[[FloatArray], FloatArray], high: float) -> float:
    """Where the function is 0, or the end of [_FAR_DOWN, high] that is nearer to that."""
    low = _FAR_DOWN
    for _ in range(_ROOT_STEPS):
        grid = np.linspace(low, high, _ROOT_PARTS + 1)
        below = int(np.count_nonzero(rising(grid) < 0.0))
        low, high = grid[max(below - 1, 0)], grid[min(below, _ROOT_PARTS)]
    return float(high)


def _hazard(v: FloatArray) -> FloatArray:
    """phi(v)/Phi(v)."""
    return np.asarray(np.exp(_log_density(v) - log_ndtr(v, np)))


def _log_density(v: Any) -> Any:
    """log phi(v)."""
    return -0.5 * v * v - _LOG_ROOT_TWO_PI


def uniform_bounds(logits: TopK, width: float) -> Bounds:
    """The seen classes alone, and less what hidden classes at the ceiling would take."""
    upper = uniform.stability(logits, width)
    hidden = _within_reach(logits, width)
    joined = 1.0 - _in_units(logits.ceiling_margin, width)
    crowd = np.flatnonzero((joined > 0.0) & (hidden > 0.0))
    taken = np.zeros_like(upper)
    if crowd.size:
        taken[crowd] = by_blocks(
            lambda block: _taken_share(block, width), logits.take(crowd), 3 * _HALVINGS * _ORDER
        )
    return np.clip(upper - taken, 0.0, 1.0), upper


def _within_reach(logits: TopK, width: float) -> FloatArray:
    """At most how many hidden classes lie less than `width` below the top, (n,)."""
    count = logits.tail.count
    if logits.rest is None:
        return count
    room = np.exp(np.minimum(logits.rest - logits.top + width, _LARGEST_LOG))
    return np.asarray(np.minimum(count, np.floor(room * (1.0 + 1e-9))))


def _taken_share(logits: TopK, width: float) -> FloatArray:
    """integral over u in [0, joined] of P(u) (1 - (1 - y)^hidden), y = joined - u, (n,).

    P is the product over the seen classes, and hidden classes join at `joined`. The other factor
    changes on the scale of 1/hidden at the upper end, so the pieces get shorter towards it.
    """
    joined = 1.0 - _in_units(logits.ceiling_margin, width)[:, None]
    hidden = _within_reach(logits, width)[:, None]
    y, weights = _graded_rule()
    y, weights = y * joined, weights * joined
    product = -np.expm1(hidden * np.log1p(-np.minimum(y, 1.0 - 1e-16)))
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
