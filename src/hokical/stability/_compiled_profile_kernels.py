"""Compiled inner loops of the stability profile. They trust their caller."""

import math
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from hokical._core.fast_exp import FAR, LEAST_ODDS, exp_minus
from hokical._core.jit import kernel
from hokical._core.logits import MAX_MARGIN
from hokical._core.special import erfcx
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.stability import _profile as profile
from hokical.stability._compiled_kernels import chebyshev_moments, sum_series

Block = NDArray[Any]  # (rows, classes) float32 or float64
#: Nodes (K,), weights (K,), series (R + 1, K), the label's own factor (K,), the mass left out.
Rule = tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]
#: Of the widths in rising order: steps (W,) from logits to the series' variable, and to scales;
#: which width that is (W,); and the series (W, R + 1, K) from moments at the width before, with
#: which those at one width serve two where they reach every class.
Steps = tuple[FloatArray, FloatArray, IntArray, FloatArray]

#: Rivals whose probability is exp(-40) of the runner-up's are not looked at: d^2 > gap^2 + 4 * 40.
_NEGLIGIBLE = 160.0
#: d Phi(-d / sqrt 2) exp(d^2 / 4) for d > FAR_FROM, in powers of 1 / d^2: its series at the
#: Chebyshev points.
_FAR_SERIES = tuple(
    Chebyshev.interpolate(
        lambda q: 0.5 * erfcx(0.5 / np.sqrt(q)) / np.sqrt(q), 9, [0.0, profile.FAR_FROM**-2.0]
    )
    .convert(kind=Polynomial)
    .coef.tolist()
)
_BUMP_NODES = tuple(profile.BUMP_NODES.tolist())
_BUMP_WEIGHT = profile.BUMP_STEP / math.sqrt(2.0 * math.pi)


@kernel
def top_two(row: Block) -> tuple[float, float]:
    """The largest of a row and the one after it, equal to it for a tie; four lanes at a time."""
    a = b = c = d = e = f = g = h = -np.inf
    whole = row.shape[0] - row.shape[0] % 4
    for i in range(0, whole, 4):
        e, a = max(e, min(a, row[i])), max(a, row[i])
        f, b = max(f, min(b, row[i + 1])), max(b, row[i + 1])
        g, c = max(g, min(c, row[i + 2])), max(c, row[i + 2])
        h, d = max(h, min(d, row[i + 3])), max(d, row[i + 3])
    for i in range(whole, row.shape[0]):
        e, a = max(e, min(a, row[i])), max(a, row[i])
    e, a = max(max(e, f), min(a, b)), max(a, b)
    g, c = max(max(g, h), min(c, d)), max(c, d)
    return max(a, c), max(max(e, g), min(a, c))


@kernel
def _rest_sum(row: Block, start: float, beta: float) -> float:
    """sum of exp(-beta (start - z_i)), each term at most 1, over all columns but the label's."""
    total = 0.0
    for i in range(row.shape[0]):
        total += exp_minus(min(max((start - row[i]) * beta, 0.0), FAR))
    return total - 1.0


@kernel
def softmax_of_top(block: Block, top: FloatArray, beta: float, out: FloatArray) -> None:
    """out[n] = the softmax of row n's largest, `top`, at temperature 1 / beta."""
    for n in range(block.shape[0]):
        out[n] = 1.0 / (1.0 + _rest_sum(block[n], top[n], beta))


@kernel
def softmax_of_rows(
    block: Block, top: FloatArray, beta: float, least: float, out: Block, tied: BoolArray
) -> None:
    """out[n] = the softmax of row n, whose largest is `top`, at temperature 1 / beta.

    No possible class gets less than `least`. `out` is written once, as new memory is dear;
    tied[n] says whether several classes share its largest number.
    """
    odds, most = np.empty(block.shape[1]), np.empty(1, out.dtype)
    for n in range(block.shape[0]):
        row, highest, into = block[n], top[n], out[n]
        for i in range(row.shape[0]):
            odds[i] = exp_minus(min(max((highest - row[i]) * beta, 0.0), FAR))
        total = 0.0
        for i in range(row.shape[0]):
            total += odds[i]
        share = 1.0 / total
        for i in range(row.shape[0]):  # what was cut at `FAR` is 0
            value = max(odds[i] * share if odds[i] > LEAST_ODDS else 0.0, least)
            into[i] = value if row[i] > -np.inf else 0.0
        most[0], count = share, 0
        for i in range(row.shape[0]):
            count += 1 if into[i] >= most[0] else 0
        tied[n] = count > 1


@kernel
def _keep_near(row: Block, top: float, step: float, near: Block) -> int:
    """Put what lies within the series' reach into `near`, and return how many there are.

    Classes beyond it would be clipped to its end, where the series is 0.
    """
    count = 0
    for i in range(row.shape[0]):
        near[count] = row[i]
        count += 1 if (top - row[i]) * step < 2.0 else 0
    return count


@kernel
def _near_moments(
    row: Block, top: float, step: float, whole: bool, near: Block, moments: FloatArray
) -> None:
    """Moments of the classes within the series' reach, which may be the `whole` row."""
    if whole:
        chebyshev_moments(row, top, step, moments)
    else:
        count = _keep_near(row, top, step, near)
        chebyshev_moments(near[:count], top, step, moments)


@kernel
def _lowest_of(row: Block) -> float:
    """The least of a row, four lanes at a time."""
    a = b = c = d = row[0]
    whole = row.shape[0] - row.shape[0] % 4
    for i in range(0, whole, 4):
        a, b, c, d = min(a, row[i]), min(b, row[i + 1]), min(c, row[i + 2]), min(d, row[i + 3])
    for i in range(whole, row.shape[0]):
        a = min(a, row[i])
    return min(min(a, b), min(c, d))  # type: ignore[no-any-return]


@kernel
def _near_loss(
    products: FloatArray, gap: float, nodes: FloatArray, weights: FloatArray, own: FloatArray
) -> float:
    """integral of phi (1 - survival) as far right as it is known, from the log products."""
    end = nodes.size
    while gap > profile.CUT_FROM and nodes[end - 1] > profile.BUMP - 0.5 * gap:
        end -= 1
    lost = 0.0
    for k in range(end):
        fall = min(max(own[k] - products[k], 0.0), FAR)
        lost += weights[k] * (1.0 - exp_minus(fall))
    return lost


@kernel
def _overtakes(d: float) -> float:
    """Phi(-d / sqrt 2) for d > FAR_FROM, to about 1e-13; unlike the C library's, it vectorises."""
    a, b, c, e, f, g, h, i, j, k = _FAR_SERIES
    inverse = 1.0 / d
    q = inverse * inverse
    square = q * q
    low = a + q * b + square * (c + q * e)
    high = f + q * g + square * (h + q * i + square * (j + q * k))
    return (low + square * square * high) * inverse * exp_minus(min(0.25 * d * d, FAR))  # type: ignore[no-any-return]


@kernel
def far_loss(row: Block, top: float, gap: float, inverse_scale: float) -> float:
    """The sum of the rivals' probabilities to overtake, less what they do at once; see `profile`.

    The label is told from the others by half the gap; classes too far to count are skipped.
    """
    low, high = 0.5 * gap, math.sqrt(gap * gap + _NEGLIGIBLE)
    total = 0.0
    if 0.25 * gap * gap > FAR:  # the last numbers above 0, and then none
        for i in range(row.shape[0]):
            d = (top - row[i]) * inverse_scale
            total += 0.5 * math.erfc(0.5 * d) if low < d < high else 0.0
        return total
    for i in range(row.shape[0]):
        d = (top - row[i]) * inverse_scale
        chance = _overtakes(min(max(d, gap), high))
        total += chance if low < d < high else 0.0
    one = _overtakes(gap)
    if total <= profile.CROWDED * one or gap >= profile.CROWDED_UP_TO:
        return total
    together = 0.0
    for place in _BUMP_NODES:
        node = place - 0.5 * gap
        survival = (total / one) * math.log1p(-0.5 * math.erfc((node + gap) * profile.ROOT_HALF))
        together -= math.exp(-0.5 * node * node) * math.expm1(survival)
    return together * _BUMP_WEIGHT


@kernel
def log_odds_rows(
    block: Block, top: FloatArray, temperature: float, gaps: FloatArray, log_odds: FloatArray
) -> None:
    """gaps[n] from a row's largest, `top`, to the next; log_odds[n] of the softmax's largest."""
    for n in range(block.shape[0]):
        gap = gaps[n] = top[n] - top_two(block[n])[1]
        log_odds[n] = np.inf
        if gap < MAX_MARGIN:
            total = _rest_sum(block[n], top[n] - gap, 1.0 / temperature)
            log_odds[n] = gap / temperature - math.log(total)


@kernel
def profile_rows(
    block: Block, top: FloatArray, gaps: FloatArray, steps: Steps, rule: Rule, out: FloatArray
) -> None:
    """out[n, w] = log gamma and log(1 - gamma) at every scale."""
    # Taken out here and not in a row: numba counts who refers to an array.
    to_series, to_scales, order, carried = steps
    nodes, weights, series, own, outside = rule
    near, moments = np.empty_like(block[0]), np.empty(series.shape[0])
    products, most = np.empty(nodes.size), 1.0 - 1.0 / block.shape[1]
    for n in range(block.shape[0]):
        row, highest, into, known = block[n], top[n], out[n], False
        spread = highest - _lowest_of(row)
        for w in range(into.shape[0]):
            units, whole = (
                min(gaps[n] * to_scales[w], profile.NO_CHANCE),
                spread * to_series[w] < 2.0,
            )
            if units > profile.FAR_FROM:
                lost, known = far_loss(row, highest, units, to_scales[w]), False
            else:
                if known:
                    sum_series(moments, carried[w], products)
                else:
                    _near_moments(row, highest, to_series[w], whole, near, moments)
                    sum_series(moments, series, products)
                known = not known and whole
                lost = _near_loss(products, units, nodes, weights, own)
            missing = lost + (outside if lost >= 0.5 and units <= profile.CUT_FROM else 0.0)
            into[order[w], 0] = math.log1p(-min(missing, most))
            into[order[w], 1] = math.log(lost) if lost > 0.0 else -np.inf
