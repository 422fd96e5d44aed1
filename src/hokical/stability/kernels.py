"""Compiled loops over rows of logits. They trust their caller: checked, contiguous,
float.

Whatever the numbers are, no index made of them leaves its array: a buffer that is
written to while it is read gives wrong numbers, and no more than that.
"""

from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import FloatArray, IntArray

Block = NDArray[Any]  # rows (n, classes) or one of them, float32 or float64
# Sums may be reordered and fused, so that loops vectorise; the order is fixed at
# compile time, so results are reproducible. Infinities stay legal (masked classes).
_FAST = ("reassoc", "contract", "nsz", "arcp")


def kernel(
    function: Callable[..., Any], *, fastmath: Collection[str] = _FAST
) -> Callable[..., Any]:
    """Compile at the first call, without the GIL, and keep on disk where that is
    possible.
    """
    njit: Any = import_module("numba").njit
    options = {"nogil": True, "fastmath": {*fastmath}, "error_model": "numpy"}
    try:
        compiled: Callable[..., Any] = njit(cache=True, **options)(function)
    except RuntimeError:  # no writable cache directory, as in a container
        compiled = njit(**options)(function)
    return compiled


#: For loops that take maxima, which vectorise only if NaN may be ignored; checked
#: logits have none.
max_kernel = partial(kernel, fastmath=("nnan", "nsz"))


@kernel
def _store_four(
    row: FloatArray, first: int, s1: float, s2: float, s3: float, s4: float
) -> None:
    """Put four numbers into a row, from column `first` on."""
    row[first] = s1
    row[first + 1] = s2
    row[first + 2] = s3
    row[first + 3] = s4


@kernel
def chebyshev_moments(
    block: Block, top: FloatArray, step: float, moments: FloatArray
) -> None:
    """moments[n, r] = sum_i T_r(t_i) for r = 0 .. 24, t_i = min(step (top_n - block_ni),
    2) - 1.

    Summed are T_a T_b = (T_(b+a) + T_(b-a)) / 2 for a = 1 .. 4 and b = 0, 4, ... 20: one
    multiply-add each.
    """
    for n in range(block.shape[0]):
        row = block[n]
        highest = top[n]
        m = moments[n]
        a1 = a2 = a3 = a4 = b1 = b2 = b3 = b4 = c1 = c2 = c3 = c4 = 0.0
        d1 = d2 = d3 = d4 = e1 = e2 = e3 = e4 = f1 = f2 = f3 = f4 = 0.0
        for i in range(row.shape[0]):
            t1 = min((highest - row[i]) * step, 2.0) - 1.0
            t2 = (t1 + t1) * t1 - 1.0
            t3 = (t1 + t1) * t2 - t1
            t4 = (t2 + t2) * t2 - 1.0
            twice = t4 + t4
            t8 = twice * t4 - 1.0
            t12 = twice * t8 - t4
            t16 = twice * t12 - t8
            t20 = twice * t16 - t12
            a1 = a1 + t1
            a2 = a2 + t2
            a3 = a3 + t3
            a4 = a4 + t4
            b1 = b1 + t1 * t4
            b2 = b2 + t2 * t4
            b3 = b3 + t3 * t4
            b4 = b4 + t4 * t4
            c1 = c1 + t1 * t8
            c2 = c2 + t2 * t8
            c3 = c3 + t3 * t8
            c4 = c4 + t4 * t8
            d1 = d1 + t1 * t12
            d2 = d2 + t2 * t12
            d3 = d3 + t3 * t12
            d4 = d4 + t4 * t12
            e1 = e1 + t1 * t16
            e2 = e2 + t2 * t16
            e3 = e3 + t3 * t16
            e4 = e4 + t4 * t16
            f1 = f1 + t1 * t20
            f2 = f2 + t2 * t20
            f3 = f3 + t3 * t20
            f4 = f4 + t4 * t20
        m[0] = row.shape[0]
        _store_four(m, 1, a1, a2, a3, a4)
        _store_four(m, 5, b1, b2, b3, b4)
        _store_four(m, 9, c1, c2, c3, c4)
        _store_four(m, 13, d1, d2, d3, d4)
        _store_four(m, 17, e1, e2, e3, e4)
        _store_four(m, 21, f1, f2, f3, f4)
        for b in range(4, 21, 4):
            for a in range(1, 5):
                m[b + a] = 2.0 * m[b + a] - m[b - a]


@kernel
def sums_of_powers(table: FloatArray, powers: FloatArray) -> None:
    """table[n, i] = sum_j T_j(t) P_j(T_4(t)) of the t that stood there, in [-1, 1].

    `powers` (rows, 25) hold the coefficients of P_0 (7), P_1, P_2 and P_3 (6 each).
    """
    for n in range(table.shape[0]):
        row = table[n]
        c = powers[n]
        for i in range(row.shape[0]):
            t = row[i]
            second = 2.0 * t * t - 1.0
            w = 2.0 * second * second - 1.0
            # Short sums side by side: one long one would wait for its own results.
            w2 = w * w
            p0 = (
                c[0]
                + w * c[1]
                + w2 * (c[2] + w * c[3] + w2 * (c[4] + w * c[5] + w2 * c[6]))
            )
            p1 = c[7] + w * c[8] + w2 * (c[9] + w * c[10] + w2 * (c[11] + w * c[12]))
            p2 = c[13] + w * c[14] + w2 * (c[15] + w * c[16] + w2 * (c[17] + w * c[18]))
            p3 = c[19] + w * c[20] + w2 * (c[21] + w * c[22] + w2 * (c[23] + w * c[24]))
            row[i] = p0 + second * p2 + t * (p1 + (2.0 * second - 1.0) * p3)


#: Product of all factors: the integral ends at one of this size.
_NEGLIGIBLE = 1e-9
#: Distance, in widths: classes that would join the product within it, divided by their
#: number, join at once.
_MERGE = 1e-6


@kernel
def uniform_rows(
    margins: FloatArray, nodes: FloatArray, weights: FloatArray, out: FloatArray
) -> None:
    """out[n, 0] += integral over u in [0, 1] of prod_i min(u + d_i, 1), the label's
    stability.

    `margins` (rows, m) are those of a row in rising order, the label's 0 first, cut to
    [0, 1]. If `out` has as many columns, out[n, k] += the probability that class k
    wins. `nodes` and `weights` (3, 10) are those of Gauss-Legendre rules of 2, 4 and 10
    nodes on [0, 1].

    From u = 1 downwards: class j joins the product at u = 1 - d_j. Pieces are so short
    that the product grows by exp(2.5) at most, and the loop ends when it is negligible.
    Classes that join within _MERGE / active join at once: each is off by that little
    over that short a distance, and thousands of near ties do not become thousands of
    pieces.
    """
    all_classes = out.shape[1] > 1
    for n in range(margins.shape[0]):
        near = margins[n]
        into = out[n]
        count = 1
        while count < near.shape[0] and near[count] < 1.0:
            count += 1
        first = near[1] if count > 1 else 1.0
        into[0] += first
        high = 1.0 - first
        active = 2
        product = 1.0
        while high > 0.0 and product >= _NEGLIGIBLE:
            while active < count and 1.0 - near[active] >= high - _MERGE / (active - 1):
                active += 1
            low = 1.0 - near[active] if active < count else 0.0
            length = min(high - low, 2.5 / (active - 1))
            growth = (active - 1) * length
            rule = 2
            order = 10
            if growth < 0.25:
                rule = 0
                order = 2
            elif growth < 1.0:
                rule = 1
                order = 4
            for q in range(order - 1, -1, -1):
                u = high - length + length * nodes[rule, q]
                product = 1.0
                for i in range(1, active):
                    product *= u + near[i]
                mass = weights[rule, q] * length * product
                into[0] += mass
                if all_classes:
                    for k in range(1, active):
                        into[k] += mass * u / (u + near[k])
            high -= length


#: Draws per tile of the sampled kernel: 16 SIMD registers of float32.
TILE = 64


@max_kernel
def _best_of_others(
    row: Block, candidates: Block, count: int, tile: Block, best: Block
) -> None:
    """best[k] = max over the candidates of row[i] + tile[i, k], four classes at a
    time.
    """
    for k in range(TILE):
        best[k] = -np.inf
    quads = count - count % 4
    for j in range(0, quads, 4):
        a = candidates[j]
        b = candidates[j + 1]
        c = candidates[j + 2]
        d = candidates[j + 3]
        za = row[a]
        zb = row[b]
        zc = row[c]
        zd = row[d]
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
    row: Block,
    label: int,
    candidates: Block,
    count: int,
    tile: Block,
    best: Block,
    valid: int,
) -> int:
    """Draws in which the label wins; on an exact tie the first of the equals does."""
    n_wins = 0
    for k in range(valid):
        noisy = row[label] + tile[label, k]
        if noisy > best[k]:
            n_wins += 1
        elif noisy == best[k]:
            j = 0
            while j < count and row[candidates[j]] + tile[candidates[j], k] != noisy:
                j += 1
            n_wins += j < count and candidates[j] > label
    return n_wins


@max_kernel
def count_survivals(
    block: Block,
    labels: IntArray,
    tiles: Block,
    n_draws: int,
    extremes: Block,
    out: IntArray,
) -> None:
    """out[n] = number of draws m with argmax(block[n] + noise[m]) == labels[n].

    tiles (T, classes, TILE) holds the noise with draws innermost; extremes (2, classes)
    are its highest and lowest per class. A class that cannot overtake the label even
    with its highest draw against the label's lowest is dropped beforehand.
    """
    rows, n_classes = block.shape
    highest = extremes[0]
    lowest = extremes[1]
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
            out[n] += _count_tile(
                block[n], labels[n], candidates[n], counts[n], tiles[t], best, valid
            )
