"""Compiled inner loops. They trust their caller: inputs are checked, contiguous and float.

Whatever the numbers are, no index made of them leaves its array: a buffer that is written to while
it is read gives wrong numbers, and no more than that.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import FAR, exp_minus
from hokical._core.jit import kernel, max_kernel
from hokical._core.types import FloatArray, IntArray
from hokical.stability._uniform import unit_rule

Block = NDArray[Any]  # rows (n, classes) or one of them, float32 or float64


@kernel
def chebyshev_moments(row: Block, top: float, step: float, moments: FloatArray) -> None:
    """moments[r] = sum_i T_r(min(step (top - row_i), 2) - 1) for r = 0 .. 24.

    All in one walk: degrees above 4 come from products, T_a T_b = (T_(a+b) + T_(b-a)) / 2 with
    a = 1 .. 4 and b = 4, 8, ... 20, one multiply-add each.
    """
    a1 = a2 = a3 = a4 = b1 = b2 = b3 = b4 = c1 = c2 = c3 = c4 = 0.0
    d1 = d2 = d3 = d4 = e1 = e2 = e3 = e4 = f1 = f2 = f3 = f4 = 0.0
    for i in range(row.size):
        t1 = min((top - row[i]) * step, 2.0) - 1.0
        t2 = (t1 + t1) * t1 - 1.0
        t3 = (t1 + t1) * t2 - t1
        t4 = (t2 + t2) * t2 - 1.0
        twice = t4 + t4
        t8 = twice * t4 - 1.0
        t12 = twice * t8 - t4
        t16 = twice * t12 - t8
        t20 = twice * t16 - t12
        a1, a2, a3, a4 = a1 + t1, a2 + t2, a3 + t3, a4 + t4
        b1, b2, b3, b4 = b1 + t1 * t4, b2 + t2 * t4, b3 + t3 * t4, b4 + t4 * t4
        c1, c2, c3, c4 = c1 + t1 * t8, c2 + t2 * t8, c3 + t3 * t8, c4 + t4 * t8
        d1, d2, d3, d4 = d1 + t1 * t12, d2 + t2 * t12, d3 + t3 * t12, d4 + t4 * t12
        e1, e2, e3, e4 = e1 + t1 * t16, e2 + t2 * t16, e3 + t3 * t16, e4 + t4 * t16
        f1, f2, f3, f4 = f1 + t1 * t20, f2 + t2 * t20, f3 + t3 * t20, f4 + t4 * t20
    m, size = moments, float(row.size)
    m[0], m[1], m[2], m[3], m[4] = size, a1, a2, a3, a4
    m[5], m[6], m[7], m[8] = b1 + b1 - a3, b2 + b2 - a2, b3 + b3 - a1, b4 + b4 - size
    m[9], m[10], m[11], m[12] = c1 + c1 - m[7], c2 + c2 - m[6], c3 + c3 - m[5], c4 + c4 - a4
    m[13], m[14], m[15], m[16] = d1 + d1 - m[11], d2 + d2 - m[10], d3 + d3 - m[9], d4 + d4 - m[8]
    m[17], m[18], m[19], m[20] = e1 + e1 - m[15], e2 + e2 - m[14], e3 + e3 - m[13], e4 + e4 - m[12]
    m[21], m[22], m[23], m[24] = f1 + f1 - m[19], f2 + f2 - m[18], f3 + f3 - m[17], f4 + f4 - m[16]


@kernel
def sum_series(moments: FloatArray, series: FloatArray, out: FloatArray) -> None:
    """out[k] = sum_r moments_r series[r, k]: the log product at node k."""
    for k in range(out.size):
        out[k] = 0.0
    for r in range(0, moments.size, 5):  # five at once: every sum is read and written less
        a, b, c, d, e = moments[r], moments[r + 1], moments[r + 2], moments[r + 3], moments[r + 4]
        s0, s1, s2, s3, s4 = series[r], series[r + 1], series[r + 2], series[r + 3], series[r + 4]
        for k in range(out.size):
            out[k] += a * s0[k] + b * s1[k] + c * s2[k] + d * s3[k] + e * s4[k]


@kernel
def gaussian_log_products(
    block: Block, top: FloatArray, step: float, series: FloatArray, out: FloatArray
) -> None:
    """The log products of every row at every node."""
    moments = np.empty(series.shape[0])
    for n in range(block.shape[0]):
        chebyshev_moments(block[n], top[n], step, moments)
        sum_series(moments, series, out[n])


@kernel
def chances_of_powers(
    block: Block, top: FloatArray, scale: float, reach: float, powers: FloatArray, out: FloatArray
) -> None:
    """out[n, i] = exp(sum_j T_j(t) P_j(T_4(t))), divided by its sum over i.

    t carries margins in [0, reach] to [-1, 1], and `powers` (rows, 25) holds the coefficients of
    P_0 (7), P_1, P_2 and P_3 (6 each). Beyond `reach` (in scales) they fall like that of one far
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
            second = 2.0 * t * t - 1.0
            w = 2.0 * second * second - 1.0
            w2 = w * w  # short sums side by side: one long one would wait for its own results
            p0 = c[0] + w * c[1] + w2 * (c[2] + w * c[3] + w2 * (c[4] + w * c[5] + w2 * c[6]))
            p1 = c[7] + w * c[8] + w2 * (c[9] + w * c[10] + w2 * (c[11] + w * c[12]))
            p2 = c[13] + w * c[14] + w2 * (c[15] + w * c[16] + w2 * (c[17] + w * c[18]))
            p3 = c[19] + w * c[20] + w2 * (c[21] + w * c[22] + w2 * (c[23] + w * c[24]))
            log_pi = p0 + second * p2 + t * (p1 + (2.0 * second - 1.0) * p3)
            into[i] = min(max(-log_pi, -0.25), FAR)
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
            starts[int(max(d * _BUCKETS, 0.0)) + 1] += 1
    excess, last, crowd = 0.0, 0, 1
    while last < _BUCKETS and excess < _CUT_OFF:
        crowd = max(crowd, starts[last + 1])
        starts[last + 1] += starts[last]
        last += 1
        excess += starts[last - 1] / _BUCKETS
    for i in range(row.shape[0]):
        if margins[i] * _BUCKETS < last:
            bucket = int(max(margins[i] * _BUCKETS, 0.0))
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
    """The probability of every class to win under uniform noise, (rows, classes).

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
    block: Block, labels: IntArray, tiles: Block, n_draws: int, extremes: Block, out: IntArray
) -> None:
    """out[n] = number of draws m with argmax(block[n] + noise[m]) == labels[n].

    tiles (T, classes, TILE) holds the noise with draws innermost; extremes (2, classes) are its
    highest and lowest per class. A class that cannot overtake the label even with its highest draw
    against the label's lowest is dropped beforehand.
    """
    rows, n_classes = block.shape
    highest, lowest = extremes[0], extremes[1]
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
def _best_of_others(row: Block, candidates: Block, count: int, tile: Block, best: Block) -> None:
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
    row: Block, label: int, candidates: Block, count: int, tile: Block, best: Block, valid: int
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
