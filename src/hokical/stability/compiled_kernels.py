"""Compiled inner loops. They trust their caller: inputs are checked, contiguous and float.

Whatever the numbers are, no index made of them leaves its array: a buffer that is written to while
it is read gives wrong numbers, and no more than that.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.core.fast_exp import exp_minus
from hokical.core.jit import kernel, max_kernel
from hokical.core.types import FloatArray
from hokical.stability.uniform import unit_rule

Block = NDArray[Any]  # (rows, classes) float32 or float64
Twelve = tuple[
    float, float, float, float, float, float, float, float, float, float, float, float
]  # fmt: skip


@kernel
def _chebyshev(t: float) -> Twelve:
    """T_1(t) .. T_12(t)."""
    twice = t + t
    t2 = twice * t - 1.0
    t3 = twice * t2 - t
    t4 = twice * t3 - t2
    t5 = twice * t4 - t3
    t6 = twice * t5 - t4
    t7 = twice * t6 - t5
    t8 = twice * t7 - t6
    t9 = twice * t8 - t7
    t10 = twice * t9 - t8
    t11 = twice * t10 - t9
    t12 = twice * t11 - t10
    return t, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12


@kernel
def _chebyshev_moments(row: Block, top: float, step: float, moments: FloatArray) -> None:
    """moments[r] = sum_i T_r(min(step (top - row_i), 2) - 1) for r = 0 .. 24.

    Degrees above 12 come from the products T_r T_r = (T_2r + 1)/2 and T_r T_(r+1) =
    (T_(2r+1) + T_1)/2: one multiply-add each, where the recurrence would take two operations. The
    sums are written out so that each lives in a register, and the two halves of the row go side by
    side because one recurrence alone leaves the processor waiting for its own results.
    """
    n = row.shape[0]
    half = n // 2
    s1 = 0.0
    e1 = e2 = e3 = e4 = e5 = e6 = e7 = e8 = e9 = e10 = e11 = e12 = 0.0
    o1 = o2 = o3 = o4 = o5 = o6 = o7 = o8 = o9 = o10 = o11 = 0.0
    for i in range(half):
        a = _chebyshev(min((top - row[i]) * step, 2.0) - 1.0)
        b = _chebyshev(min((top - row[half + i]) * step, 2.0) - 1.0)
        s1 += a[0] + b[0]
        e1 += a[0] * a[0] + b[0] * b[0]
        o1 += a[0] * a[1] + b[0] * b[1]
        e2 += a[1] * a[1] + b[1] * b[1]
        o2 += a[1] * a[2] + b[1] * b[2]
        e3 += a[2] * a[2] + b[2] * b[2]
        o3 += a[2] * a[3] + b[2] * b[3]
        e4 += a[3] * a[3] + b[3] * b[3]
        o4 += a[3] * a[4] + b[3] * b[4]
        e5 += a[4] * a[4] + b[4] * b[4]
        o5 += a[4] * a[5] + b[4] * b[5]
        e6 += a[5] * a[5] + b[5] * b[5]
        o6 += a[5] * a[6] + b[5] * b[6]
        e7 += a[6] * a[6] + b[6] * b[6]
        o7 += a[6] * a[7] + b[6] * b[7]
        e8 += a[7] * a[7] + b[7] * b[7]
        o8 += a[7] * a[8] + b[7] * b[8]
        e9 += a[8] * a[8] + b[8] * b[8]
        o9 += a[8] * a[9] + b[8] * b[9]
        e10 += a[9] * a[9] + b[9] * b[9]
        o10 += a[9] * a[10] + b[9] * b[10]
        e11 += a[10] * a[10] + b[10] * b[10]
        o11 += a[10] * a[11] + b[10] * b[11]
        e12 += a[11] * a[11] + b[11] * b[11]
    even = (e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12)
    odd = (o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11)
    moments[0] = 2 * half
    moments[1] = s1
    for r in range(12):
        moments[2 * r + 2] = 2.0 * even[r] - 2 * half
    for r in range(11):
        moments[2 * r + 3] = 2.0 * odd[r] - s1
    if n > 2 * half:
        _add_one(min((top - row[n - 1]) * step, 2.0) - 1.0, moments)


@kernel
def _add_one(t: float, moments: FloatArray) -> None:
    """Add T_r(t) to every moment."""
    before, current = 1.0, t
    for r in range(moments.shape[0]):
        moments[r] += before
        before, current = current, 2.0 * t * current - before


@kernel
def gaussian_log_products(
    block: Block, top: FloatArray, step: float, series: FloatArray, out: FloatArray
) -> None:
    """out[n, k] = sum_r moments_r(row n) series[r, k]: the log product at node k."""
    moments = np.empty(series.shape[0])
    for n in range(block.shape[0]):
        _chebyshev_moments(block[n], top[n], step, moments)
        for k in range(out.shape[1]):
            out[n, k] = 0.0
        for r in range(series.shape[0]):
            for k in range(out.shape[1]):
                out[n, k] += moments[r] * series[r, k]


@kernel
def chances_of_powers(
    block: Block, top: FloatArray, scale: float, reach: float, powers: FloatArray, out: FloatArray
) -> None:
    """out[n, i] = exp(even(s) + t odd(s)) with s = 2 t^2 - 1, divided by its sum over i.

    t carries margins in [0, reach] to [-1, 1], and `powers` (rows, 25) holds the coefficients of
    `even` (13), then of `odd` (12). Beyond `reach` (in scales) chances fall like that of one far
    class to overtake one other.
    """
    step = 2.0 / (reach * scale)
    at_reach = 1.0 / math.erfc(0.5 * reach)
    for n in range(block.shape[0]):
        row, highest, c, into = block[n], top[n], powers[n], out[n]
        n_far = 0
        for i in range(row.size):
            t = (highest - row[i]) * step
            n_far += 1 if t > 2.0 else 0
            t = min(t, 2.0) - 1.0
            s = 2.0 * t * t - 1.0
            s2 = s * s
            s4 = s2 * s2  # short sums side by side: one long one would wait for its own results
            even = c[8] + s * c[9] + s2 * (c[10] + s * c[11]) + s4 * c[12]
            even = c[4] + s * c[5] + s2 * (c[6] + s * c[7]) + s4 * even
            even = c[0] + s * c[1] + s2 * (c[2] + s * c[3]) + s4 * even
            odd = c[21] + s * c[22] + s2 * (c[23] + s * c[24])
            odd = c[17] + s * c[18] + s2 * (c[19] + s * c[20]) + s4 * odd
            odd = c[13] + s * c[14] + s2 * (c[15] + s * c[16]) + s4 * odd
            into[i] = min(max(-even - t * odd, -0.25), 700.0)
        for i in range(row.size):
            into[i] = exp_minus(into[i])
        if n_far > 0:
            for i in range(row.size):
                d = (highest - row[i]) / scale
                if d > reach:
                    into[i] *= math.erfc(0.5 * d) * at_reach
        total = 0.0
        for i in range(row.size):
            total += into[i]
        for i in range(row.size):
            into[i] /= total


# Gauss-Legendre rules on [0, 1] for pieces on which the product changes little, some, or much.
_X2, _W2 = unit_rule(2, 1)
_X4, _W4 = unit_rule(4, 1)
_X10, _W10 = unit_rule(10, 1)
_NEGLIGIBLE = 1e-9
_CUT_OFF = 21.0  # exp(-21) < _NEGLIGIBLE
_BUCKETS = 256
_MERGE = 1e-6


@kernel
def _bucket(d: float) -> int:
    """Where a margin below 1 goes, one below 0 too."""
    return int(max(d * _BUCKETS, 0.0))


@kernel
def _near_sorted(
    row: Block, top: float, inverse_width: float, margins: FloatArray, near: FloatArray
) -> int:
    """Put the margins that matter into `near`, sorted, and return how many there are.

    Margins of 1 or more never matter. Nor do those beyond an x with sum_i (x - d_i)+ above the
    cut-off: the product is below exp of minus that sum. Buckets find x and sort in one go.
    """
    starts = np.zeros(_BUCKETS + 1, np.int64)
    for i in range(row.shape[0]):
        d = (top - row[i]) * inverse_width
        margins[i] = d
        if d < 1.0:
            starts[_bucket(d) + 1] += 1
    excess, last, crowd = 0.0, 0, 1
    while last < _BUCKETS and excess < _CUT_OFF:
        crowd = max(crowd, starts[last + 1])
        starts[last + 1] += starts[last]
        last += 1
        excess += starts[last - 1] / _BUCKETS
    for i in range(row.shape[0]):
        if margins[i] * _BUCKETS < last:
            bucket = _bucket(margins[i])
            near[starts[bucket]] = max(margins[i], 0.0)  # below 0 the walk would not end
            starts[bucket] += 1
    count = int(starts[last - 1])
    _finish_sort(near, count, crowd)
    return count


@kernel
def _finish_sort(values: FloatArray, count: int, crowd: int) -> None:
    """Sort values[:count] in which nothing is further than `crowd` from its place (Shell sort)."""
    gap = max(crowd // 2, 1)
    while gap > 0:
        for i in range(gap, count):
            moving = values[i]
            j = i
            while j >= gap and values[j - gap] > moving:
                values[j] = values[j - gap]
                j -= gap
            values[j] = moving
        gap //= 2


@kernel
def _product(near: FloatArray, active: int, u: float) -> float:
    """prod over the first `active` margins of (u + d)."""
    value = 1.0
    for i in range(active):
        value *= u + near[i]
    return value


@kernel
def _piece_rule(growth: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights for a piece over which the product grows by about exp(growth)."""
    if growth < 0.25:
        return _X2, _W2
    if growth < 1.0:
        return _X4, _W4
    return _X10, _W10


@kernel
def _integrate_piece(
    near: FloatArray, active: int, low: float, length: float
) -> tuple[float, float]:
    """Integral of the product over [low, low + length], and the product near its lower end."""
    x, w = _piece_rule(active * length)
    total = 0.0
    lowest = 0.0
    for q in range(x.size - 1, -1, -1):
        lowest = _product(near, active, low + length * x[q])
        total += w[q] * lowest
    return total * length, lowest


@kernel
def _uniform_row(near: FloatArray, count: int) -> float:
    """integral over [0, 1] of prod_i min(u + d_i, 1), for sorted margins d_i < 1.

    From u = 1 downwards: class j joins the product at u = 1 - d_j. Pieces are kept so short that
    `active * length` stays below 2.5, and the walk ends when the product is negligible.
    """
    if count == 0:
        return 1.0
    total = float(near[0])
    high = 1.0 - total
    active = 1
    while high > 0.0:
        active, length = _next_piece(near, count, active, high)
        part, lowest = _integrate_piece(near, active, high - length, length)
        total += part
        if lowest < _NEGLIGIBLE:
            break
        high -= length
    return total


@kernel
def _next_piece(near: FloatArray, count: int, active: int, high: float) -> tuple[int, float]:
    """The classes active just below `high`, and how far down they are the same.

    Classes that would join within _MERGE / active join at once: each is off by that little, over
    that short a way, and thousands of near ties do not become thousands of pieces.
    """
    while active < count and 1.0 - near[active] >= high - _MERGE / active:
        active += 1
    end = 1.0 - near[active] if active < count else 0.0
    return active, min(high - end, 2.5 / active)


@kernel
def uniform_stability(block: Block, top: FloatArray, inverse_width: float, out: FloatArray) -> None:
    """gamma of every row of the block under uniform noise."""
    margins = np.empty(block.shape[1])
    near = np.empty(block.shape[1])
    for n in range(block.shape[0]):
        count = _near_sorted(block[n], top[n], inverse_width, margins, near)
        # near[0] is the top itself, at margin 0
        out[n] = _uniform_row(near[1:], max(count - 1, 0))


@kernel
def uniform_shares(margins: FloatArray) -> FloatArray:
    """The chance of every class to win under uniform noise, (rows, classes).

    Margins in units of the width, in rising order, the top's 0 first, cut at 1.
    """
    out = np.zeros(margins.shape)
    for n in range(margins.shape[0]):
        count = 0
        while count < margins.shape[1] and margins[n, count] < 1.0:
            count += 1
        _share_row(margins[n, 1:count], out[n])
    return out


@kernel
def _share_row(near: FloatArray, out: FloatArray) -> None:
    """The walk of `_uniform_row`, with every class's part: out[0] the top's, then near's."""
    count = near.shape[0]
    out[0] = near[0] if count > 0 else 1.0
    high = 1.0 - out[0]
    active = 1
    while high > 0.0:
        active, length = _next_piece(near, count, active, high)
        x, w = _piece_rule(active * length)
        product = 0.0
        for q in range(x.size - 1, -1, -1):
            u = high - length + length * x[q]
            product = _product(near, active, u)
            weighted = w[q] * length * product
            out[0] += weighted
            for k in range(active):
                out[1 + k] += weighted * u / (u + near[k])
        if product < _NEGLIGIBLE:
            break
        high -= length


#: Draws per tile of the sampled kernel: 16 SIMD registers of float32.
TILE = 64


@max_kernel
def count_survivals(
    block: Block,
    labels: NDArray[np.int64],
    tiles: NDArray[Any],
    n_draws: int,
    highest: NDArray[Any],
    lowest: NDArray[Any],
    out: NDArray[np.int64],
) -> None:
    """out[n] = number of draws m with argmax(block[n] + noise[m]) == labels[n].

    tiles (T, classes, TILE) holds the noise with draws innermost; highest and lowest (classes,) are
    its extremes per class. A class that cannot overtake the label even with its highest draw
    against the label's lowest is dropped beforehand.
    """
    rows, n_classes = block.shape
    candidates = np.empty((rows, n_classes), np.int32)
    counts = np.zeros(rows, np.int64)
    for n in range(rows):
        label = labels[n]
        floor = block[n, label] + lowest[label]
        for i in range(n_classes):
            if i != label and block[n, i] + highest[i] >= floor:
                candidates[n, counts[n]] = i
                counts[n] += 1
        out[n] = 0
    best = np.empty(TILE, block.dtype)
    for t in range(tiles.shape[0]):
        valid = min(TILE, n_draws - t * TILE)
        for n in range(rows):
            _best_of_others(block[n], candidates[n], counts[n], tiles[t], best)
            args = (block[n], labels[n], candidates[n], counts[n], tiles[t], best, valid)
            out[n] += _count_tile(*args)


@max_kernel
def _best_of_others(
    row: NDArray[Any], candidates: NDArray[np.int32], count: int, tile: Block, best: NDArray[Any]
) -> None:
    """best[k] = max over the candidates of row[i] + tile[i, k], four classes at a time."""
    for k in range(TILE):
        best[k] = -np.inf
    quads = count - count % 4
    for j in range(0, quads, 4):
        a, b, c, d = candidates[j], candidates[j + 1], candidates[j + 2], candidates[j + 3]
        za, zb, zc, zd = row[a], row[b], row[c], row[d]
        for k in range(TILE):
            left = max(za + tile[a, k], zb + tile[b, k])
            right = max(zc + tile[c, k], zd + tile[d, k])
            best[k] = max(best[k], max(left, right))
    for j in range(quads, count):
        i = candidates[j]
        for k in range(TILE):
            best[k] = max(best[k], row[i] + tile[i, k])


@max_kernel
def _count_tile(
    row: NDArray[Any],
    label: int,
    candidates: NDArray[np.int32],
    count: int,
    tile: Block,
    best: NDArray[Any],
    valid: int,
) -> int:
    """Draws in which the label wins; on an exact tie the first of the equals does."""
    kept = 0
    for k in range(valid):
        own = row[label] + tile[label, k]
        if own > best[k]:
            kept += 1
        elif own == best[k]:
            j = 0
            while j < count and row[candidates[j]] + tile[candidates[j], k] != own:
                j += 1
            kept += j < count and candidates[j] > label
    return kept
