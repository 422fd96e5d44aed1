"""Compiled inner loops of the stability profile. They trust their caller."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import exp_minus
from hokical._core.jit import kernel, max_kernel
from hokical._core.logits import MAX_MARGIN
from hokical._core.types import BoolArray, FloatArray
from hokical.stability import _profile as profile
from hokical.stability._compiled_kernels import CHUNK, chebyshev_moments, sum_series

Block = NDArray[Any]  # (rows, classes) float32 or float64
#: Nodes (K,), weights (K,), series (R + 1, K), the label's own factor (K,), the mass left out.
Rule = tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]
Steps = tuple[FloatArray, FloatArray]
Room = tuple[Block, FloatArray, FloatArray, FloatArray]

#: exp(-FAR) is nothing beside 1, so larger numbers are cut here.
_FAR = 700.0
_LEAST_ODDS = 1e-304
#: Rivals whose probability is exp(-40) of the runner-up's are not looked at: d^2 > gap^2 + 4 * 40.
_NEGLIGIBLE = 160.0
_BUMP_NODES = tuple(profile.BUMP_NODES.tolist())
_BUMP_WEIGHT = profile.BUMP_STEP / math.sqrt(2.0 * math.pi)


@max_kernel
def runner_up(row: Block, top: float) -> float:
    """How far the second largest of a row lies below its largest, `top`; 0 for a tie."""
    highest = row.dtype.type(top)
    second = row.dtype.type(-np.inf)
    tied = 0
    for i in range(row.shape[0]):
        below = row[i] < highest
        second = max(second, row[i] if below else row.dtype.type(-np.inf))
        tied += 0 if below else 1
    return 0.0 if tied > 1 else top - second


@kernel
def _rest_sum(row: Block, start: float, beta: float) -> float:
    """sum of exp(-beta (start - z_i)), each term at most 1, over all columns but the label's."""
    total = 0.0
    for i in range(row.shape[0]):
        total += exp_minus(min(max((start - row[i]) * beta, 0.0), _FAR))
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
            odds[i] = exp_minus(min(max((highest - row[i]) * beta, 0.0), _FAR))
        total = 0.0
        for i in range(row.shape[0]):
            total += odds[i]
        share = 1.0 / total
        for i in range(row.shape[0]):  # what was cut at `_FAR` is 0
            value = max(odds[i] * share if odds[i] > _LEAST_ODDS else 0.0, least)
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
def _near_loss(moments: FloatArray, gap: float, rule: Rule, products: FloatArray) -> float:
    """integral of phi (1 - survival) as far right as it is known."""
    nodes, weights, series, own, _ = rule
    end = nodes.size
    while gap > profile.CUT_FROM and nodes[end - 1] > profile.BUMP - 0.5 * gap:
        end -= 1
    sum_series(moments, series, end, products)
    lost = 0.0
    for k in range(end):
        fall = min(max(own[k] - products[k], 0.0), _FAR)
        lost += weights[k] * (1.0 - exp_minus(fall))
    return lost


@kernel
def far_loss(row: Block, top: float, gap: float, inverse_scale: float) -> float:
    """The sum of the rivals' probabilities to overtake, less what they do at once; see `profile`.

    The label is told from the others by half the gap; classes too far to count are skipped.
    """
    low, high = 0.5 * gap, math.sqrt(gap * gap + _NEGLIGIBLE)
    total = 0.0
    for z in row:
        d = (top - z) * inverse_scale
        if low < d < high:
            total += 0.5 * math.erfc(0.5 * d)
    one = 0.5 * math.erfc(0.5 * gap)
    if total <= profile.CROWDED * one or gap >= profile.CROWDED_UP_TO:
        return total
    together = 0.0
    for place in _BUMP_NODES:
        node = place - 0.5 * gap
        survival = (total / one) * math.log1p(-0.5 * math.erfc((node + gap) * profile.ROOT_HALF))
        together -= math.exp(-0.5 * node * node) * math.expm1(survival)
    return together * _BUMP_WEIGHT


@kernel
def profile_row(
    row: Block, highest: float, gap: float, steps: Steps, rule: Rule, room: Room, out: FloatArray
) -> None:
    """out[w] = log gamma and log(1 - gamma) at every scale; `steps` as in `profile_rows`."""
    near, terms, moments, products = room
    most = 1.0 - 1.0 / row.shape[0]
    for w in range(out.shape[0]):
        units = min(gap * steps[1][w], profile.NO_CHANCE)
        if units > profile.FAR_FROM:
            lost = far_loss(row, highest, units, steps[1][w])
        else:
            count = _keep_near(row, highest, steps[0][w], near)
            chebyshev_moments(near[:count], highest, steps[0][w], moments, terms)
            lost = _near_loss(moments, units, rule, products)
        missing = lost + (rule[4] if lost >= 0.5 and units <= profile.CUT_FROM else 0.0)
        out[w, 0] = math.log1p(-min(missing, most))
        out[w, 1] = math.log(lost) if lost > 0.0 else -np.inf


@kernel
def room_for_profile(row: Block, rule: Rule) -> Room:
    """What `profile_row` writes to."""
    near, terms = np.empty(row.shape[0], row.dtype), np.empty((3, CHUNK))
    return near, terms, np.empty(rule[2].shape[0]), np.empty(rule[0].size)


@kernel
def profile_rows(
    block: Block,
    top: FloatArray,
    temperature: float,
    steps: Steps,
    rule: Rule,
    log_odds: FloatArray,
    out: FloatArray,
) -> None:
    """log_odds[n] of the softmax; out[n, w]: log gamma and log(1 - gamma) at every scale.

    `steps` (W,) are those from logits to the series' variable, and to scales.
    """
    room = room_for_profile(block[0], rule)
    for n in range(block.shape[0]):
        row, highest = block[n], top[n]
        gap = runner_up(row, highest)
        log_odds[n] = np.inf
        if gap < MAX_MARGIN:
            total = _rest_sum(row, highest - gap, 1.0 / temperature)
            log_odds[n] = gap / temperature - math.log(total)
        profile_row(row, highest, gap, steps, rule, room, out[n])
