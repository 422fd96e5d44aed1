"""Fused kernels in Triton for CUDA devices: exact stability, and margins of each row.

They take logits (n, classes) of any float type and any strides, and their row maxima
`tops` (n,). `TorchBackend` calls them; everything else runs in plain torch. The last
part of each section is what runs on the host.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hokical._core.arrays import FloatArray
from hokical._core.logits import MAX_MARGIN
from hokical.stability.tables import (
    NODE_LIMIT,
    REACH,
    gaussian_quadrature,
    node_step,
)

# mypy: ignore-errors
# ruff: noqa: RUF005 (Triton cannot unpack a tuple)


class _Tile(NamedTuple):
    """What a program works on: rows, columns of them at a time, and its warps."""

    rows: int
    columns: int
    warps: int


def _run(
    kernel, shape, tile, values: Tensor, tops: Tensor, *tables: Tensor, **options
) -> Tensor:
    """What a kernel finds of every row, (*shape, n) float64: of each entry of the first
    table.
    """
    n_rows = values.shape[0]
    out = values.new_empty((*shape, n_rows), dtype=torch.float64)
    n_entries = tables[0].numel() if tables else 1
    kernel[(triton.cdiv(n_rows, tile.rows), n_entries)](
        values,
        tops.contiguous(),
        out,
        *tables,
        *values.shape,
        *values.stride(),
        ROWS=tile.rows,
        BLOCK=tile.columns,
        num_warps=tile.warps,
        **options,
    )
    return out


# --- Gaussian noise: the Chebyshev moments of each row, and the quadrature.
#
# What is summed is S_r = sum_i (T_r(t_i) - 1): a class out of reach adds exactly 0. T_1
# ... T_6 are made for every class; T_(a+b) = 2 T_a T_b - T_(a-b) gives the others for
# one operation each.
#
# Double precision is the limit, at half the rate of single. At the nodes where the
# product counts the series falls to 1e-4 by degree 12, so that the upper degrees are
# summed in float32 beside it: that changes gamma by 1e-10 on logits like those of
# classifiers, by 2e-8 if a thousand rivals tie. Logits in float64 are computed in
# float64 throughout.


def _powers_of_two(degree: int) -> tuple[float, ...]:
    """Coefficients of 2^x for |x| <= 1/2, the highest degree first."""
    series = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return tuple(series.convert(kind=np.polynomial.Polynomial).coef[::-1].tolist())


#: Off by 2e-15.
_POWERS = tl.constexpr(_powers_of_two(10))
#: Added to a number it leaves the nearest whole one in the last bits.
_ROUNDER = tl.constexpr(1.5 * 2.0**52)
#: Margin, in scales, up to which the series holds.
_REACH = tl.constexpr(REACH)


@triton.jit
def exp2(x):
    """2^x in float64 for x of at most a few hundred; 0 or nearly so below -1000."""
    x = tl.maximum(x, -1000.0)
    shifted = x + _ROUNDER
    remainder = x - (shifted - _ROUNDER)
    power = remainder * _POWERS[0] + _POWERS[1]
    for i in tl.static_range(2, 11):
        power = power * remainder + _POWERS[i]
    bits = power.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def _six_terms(t):
    """T_1 ... T_6 of t."""
    twice = t + t
    terms = (t, twice * t - 1.0)
    for r in tl.static_range(4):
        terms = terms + (twice * terms[r + 1] - terms[r],)
    return terms


@triton.jit
def _add_low(low, terms):
    """The sums of T_1 ... T_6 and of T_6 T_b, with the terms of more classes."""
    sums = ()
    for r in tl.static_range(6):
        sums = sums + (low[r] + terms[r],)
    for r in tl.static_range(6):
        sums = sums + (low[r + 6] + terms[5] * terms[r],)
    return sums


@triton.jit
def _add_high(high, terms):
    """The sums of T_12 T_b, T_18 T_b and T_12^2, with the terms of more classes."""
    sixth = terms[5]
    twelfth = 2.0 * sixth * sixth - 1.0
    eighteenth = 2.0 * sixth * twelfth - sixth
    sums = ()
    for r in tl.static_range(6):
        sums = sums + (high[r] + twelfth * terms[r],)
    for r in tl.static_range(5):
        sums = sums + (high[r + 6] + eighteenth * terms[r],)
    return sums + (high[11] + twelfth * twelfth,)


@triton.jit
def _from_products(low, high, count):
    """S_r from the sums of T_1 ... T_6, T_6 T_b, T_12 T_b, T_18 T_b and T_12^2."""
    sums = ()
    for r in tl.static_range(6):
        sums = sums + (tl.sum(low[r], axis=1),)
    for b in tl.static_range(5):
        sums = sums + (2.0 * tl.sum(low[b + 6], axis=1) - sums[4 - b],)
    sums = sums + (2.0 * tl.sum(low[11], axis=1) - count,)
    for b in tl.static_range(6):
        sums = sums + (2.0 * tl.sum(high[b], axis=1).to(tl.float64) - sums[10 - b],)
    for b in tl.static_range(5):
        sums = sums + (2.0 * tl.sum(high[b + 6], axis=1).to(tl.float64) - sums[16 - b],)
    sums = sums + (2.0 * tl.sum(high[11], axis=1).to(tl.float64) - count,)
    shifted = ()
    for r in tl.static_range(24):
        shifted = shifted + (sums[r] - count,)
    return shifted


@triton.jit
def _integrate(
    sums, table, ROWS: tl.constexpr, NODES: tl.constexpr, AT_ONCE: tl.constexpr
):
    """The integral over all nodes of the table, from the sums S_r of each row."""
    gamma = tl.zeros([ROWS], tl.float64)
    for start in range(0, NODES, AT_ONCE):
        node = table + start + tl.arange(0, AT_ONCE)
        logs = tl.zeros([ROWS, AT_ONCE], tl.float64) + tl.load(node + NODES)[None, :]
        for r in tl.static_range(24):
            logs += sums[r][:, None] * tl.load(node + (r + 2) * NODES)[None, :]
        gamma += tl.sum(exp2(logs) * tl.load(node)[None, :], axis=1)
    return gamma


@triton.jit(do_not_specialize=["n_rows"])
def _gaussian_kernel(
    values,
    tops,
    out,
    scale,
    table,
    n_rows,
    n_classes,
    row_stride,
    column_stride,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    NODES: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """gamma of each row of a tile. The sums S_r are taken in float64; from S_13 on
    in KIND.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    top = tl.load(tops + rows, mask=inside, other=0.0)[:, None]
    step = 2.0 / (_REACH * tl.load(scale + tl.program_id(1)))
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    low = ()
    high = ()
    for _ in tl.static_range(12):
        low = low + (tl.zeros([ROWS, BLOCK], tl.float64),)
        high = high + (tl.zeros([ROWS, BLOCK], KIND),)
    pointers = (values + rows * row_stride)[:, None] + columns[None, :] * stride
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=4):
        mask = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(pointers, mask=mask, other=float("-inf")).to(tl.float64)
        pointers += BLOCK * stride
        t = (top - z) * step - 1.0
        t = tl.where(t < 1.0, t, 1.0)
        low = _add_low(low, _six_terms(t))
        high = _add_high(high, _six_terms(t.to(KIND)))
    # Columns beyond the last were at t = 1, where every T_r is 1.
    count = (tl.cdiv(n_classes, BLOCK) * BLOCK).to(tl.float64)
    sums = _from_products(low, high, count)
    gamma = _integrate(sums, table, ROWS, NODES, AT_ONCE)
    tl.store(
        out + tl.program_id(1).to(tl.int64) * n_rows + rows,
        tl.minimum(tl.maximum(gamma, 0.0), 1.0),
        mask=inside,
    )


#: Off by 4e-11.
_SHORT_POWERS = tl.constexpr(_powers_of_two(7))
#: Degrees that are summed in float64 for few classes; the others are small.
_WIDE_DEGREES = tl.constexpr(6)


@triton.jit
def _short_exp2(x):
    """2^x in float64 for x of at least -1000 and at most a few hundred."""
    shifted = x + _ROUNDER
    remainder = x - (shifted - _ROUNDER)
    power = remainder * _SHORT_POWERS[0] + _SHORT_POWERS[1]
    for i in tl.static_range(2, 8):
        power = power * remainder + _SHORT_POWERS[i]
    bits = power.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def _add_products(sums, terms):
    """The sums of T_6 T_b, T_12 T_b, T_18 T_b and T_12^2, with the terms of a class."""
    sixth = terms[5]
    twelfth = 2.0 * sixth * sixth - 1.0
    eighteenth = 2.0 * sixth * twelfth - sixth
    more = ()
    for b in tl.static_range(6):
        more = more + (sums[b] + sixth * terms[b],)
    for b in tl.static_range(6):
        more = more + (sums[b + 6] + twelfth * terms[b],)
    for b in tl.static_range(5):
        more = more + (sums[b + 12] + eighteenth * terms[b],)
    return more + (sums[17] + twelfth * twelfth,)


@triton.jit
def _upper_degrees(low, products, count):
    """S_7 ... S_24 in float32, from the sums of T_1 ... T_6 and those of products."""
    sums = ()
    for r in tl.static_range(6):
        sums = sums + (low[r].to(tl.float32),)
    for b in tl.static_range(5):
        sums = sums + (2.0 * products[b] - sums[4 - b],)
    sums = sums + (2.0 * products[5] - count,)
    for b in tl.static_range(6):
        sums = sums + (2.0 * products[b + 6] - sums[10 - b],)
    for b in tl.static_range(5):
        sums = sums + (2.0 * products[b + 12] - sums[16 - b],)
    sums = sums + (2.0 * products[17] - count,)
    shifted = ()
    for r in tl.static_range(18):
        shifted = shifted + (sums[r + 6] - count,)
    return shifted


@triton.jit(do_not_specialize=["n_rows", "n_classes"])
def _few_classes_kernel(
    values,
    tops,
    out,
    scale,
    table,
    fine,
    n_rows,
    n_classes,
    row_stride,
    column_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    NODES: tl.constexpr,
):
    """gamma of each row, of logits of at most single precision.

    What limits it are operations in float64 and loads of the table. So S_7 ... S_24 are
    float32, and a thread takes several rows for each number of the table.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    top = tl.load(tops + rows, mask=inside, other=0.0).to(tl.float64)
    step = 2.0 / (_REACH * tl.load(scale + tl.program_id(1)))
    low = ()
    for _ in tl.static_range(_WIDE_DEGREES):
        low = low + (tl.zeros([ROWS], tl.float64),)
    products = ()
    for _ in tl.static_range(18):
        products = products + (tl.zeros([ROWS], tl.float32),)
    pointers = values + rows * row_stride
    for _ in tl.range(0, n_classes, loop_unroll_factor=2):
        z = tl.load(pointers, mask=inside, other=float("-inf")).to(tl.float64)
        pointers += column_stride
        t = (top - z) * step - 1.0
        t = tl.where(t < 1.0, t, 1.0)
        terms = _six_terms(t)
        more = ()
        for r in tl.static_range(_WIDE_DEGREES):
            more = more + (low[r] + terms[r],)
        low = more
        products = _add_products(products, _six_terms(t.to(tl.float32)))
    upper = _upper_degrees(low, products, n_classes.to(tl.float32))
    lower = ()
    for r in tl.static_range(_WIDE_DEGREES):
        lower = lower + (low[r] - n_classes.to(tl.float64),)
    gamma = tl.zeros([ROWS], tl.float64) + tl.load(table + 2 * NODES)
    for node in range(NODES):
        small = upper[0] * tl.load(fine + node)
        for r in tl.static_range(1, 18):
            small += upper[r] * tl.load(fine + r * NODES + node)
        logs = small.to(tl.float64) + tl.load(table + NODES + node)
        for r in tl.static_range(_WIDE_DEGREES):
            logs += lower[r] * tl.load(table + (r + 3) * NODES + node)
        gamma += _short_exp2(logs) * tl.load(table + node)
    tl.store(
        out + tl.program_id(1).to(tl.int64) * n_rows + rows,
        tl.minimum(tl.maximum(gamma, 0.0), 1.0),
        mask=inside,
    )


#: Classes of a row that a thread takes alone, at most.
_FEW_CLASSES = 20
#: Classes of a row that a program takes alone, at least.
_MANY_CLASSES = 8192
#: Two rows per thread, of few classes.
_FEW_COLUMNS = _Tile(rows=64, columns=1, warps=1)
#: A row per thread.
_SHORT_ROWS = _Tile(rows=32, columns=1, warps=1)
#: Few sums across lanes, and whole sectors of memory.
_MIDDLE_ROWS = _Tile(rows=2, columns=16, warps=1)
#: A program per long row.
_LONG_ROWS = _Tile(rows=1, columns=256, warps=4)


def gaussian_stability(values: Tensor, tops: Tensor, scale: Tensor) -> Tensor:
    """gamma of every row, (*scale.shape, n) float64."""
    n_classes = values.shape[1]
    is_double = values.dtype == torch.float64
    if n_classes <= _FEW_CLASSES and not is_double:
        return _stability_of_few_classes(values, tops, scale)
    if n_classes <= _FEW_CLASSES:
        tile = _SHORT_ROWS
        nodes_at_once = 1
    elif n_classes < _MANY_CLASSES:
        tile = _MIDDLE_ROWS
        nodes_at_once = 16
    else:
        tile = _LONG_ROWS
        nodes_at_once = 64
    table = _table(n_classes, nodes_at_once, values.device)
    return _run(
        _gaussian_kernel,
        scale.shape,
        tile,
        values,
        tops,
        scale,
        table,
        KIND=tl.float64 if is_double else tl.float32,
        NODES=table.shape[1],
        AT_ONCE=nodes_at_once,
    )


def _stability_of_few_classes(values: Tensor, tops: Tensor, scale: Tensor) -> Tensor:
    table, fine = _short_table(values.shape[1], values.device)
    return _run(
        _few_classes_kernel,
        scale.shape,
        _FEW_COLUMNS,
        values,
        tops,
        scale,
        table,
        fine,
        NODES=fine.shape[1],
    )


@lru_cache(64)
def _table(n_classes: int, at_once: int, device: torch.device) -> Tensor:
    """Weights, logarithms of the top class and the series from degree 1, (R + 2,
    nodes); to base 2.

    With nodes of weight 0 up to a multiple of `at_once`.
    """
    table = _weights_and_logarithms(n_classes)
    padded = np.pad(table, ((0, 0), (0, -table.shape[1] % at_once)))
    return _on_device(padded, device)


#: Scales above 0 from which the product over few classes is 1: off by 1e-8 at most.
_SURE = 4.0


@lru_cache(64)
def _short_table(n_classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """`_table` in two, up to degree 6 and the others in float32, over the nodes below
    `_SURE`. A row behind the logarithms has the weight of the other nodes.
    """
    table = _weights_and_logarithms(n_classes)
    is_sure = gaussian_quadrature(-NODE_LIMIT, node_step(n_classes)).nodes > _SURE
    rest = table[0, is_sure].sum()
    table = table[:, ~is_sure]
    n_low = 2 + _WIDE_DEGREES.value
    low = np.insert(table[:n_low], 2, rest, axis=0)
    return _on_device(low, device), _on_device(table[n_low:].astype(np.float32), device)


def _weights_and_logarithms(n_classes: int) -> FloatArray:
    rule = gaussian_quadrature(-NODE_LIMIT, node_step(n_classes))
    logarithms = np.vstack([-rule.log_of_top, rule.series[1:]]) / np.log(2.0)
    return np.vstack([rule.weights, logarithms])


def _on_device(table: FloatArray, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(np.ascontiguousarray(table)).to(device)


# --- Gumbel noise, 1 / sum exp(-d_i / scale); and margins of each row.
#
# Exponentials are taken in float32, of a difference and a product that are kept with
# their rounding errors, and summed in float64: gamma is off by 6e-8 at most. Logits in
# float64 are computed so.

_LOG2E = tl.constexpr(1.4426950408889634)
_LOG2 = tl.constexpr(0.6931471805599453)
#: 2 to the power of minus this is 0 in float32.
_FAR = tl.constexpr(150.0)
_MAX_MARGIN = tl.constexpr(MAX_MARGIN)


@triton.jit
def _powers(top, z, scale):
    """exp((z - top) / scale) as float64, for float32 top and z; 0 at -inf."""
    rate = _LOG2E / scale
    fast = rate.to(tl.float32)
    slow = (rate - fast.to(tl.float64)).to(tl.float32)
    below = z - top
    lost = z - (below + top)
    exponent = below * fast
    correction = tl.math.fma(below, fast, -exponent) + (below * slow + lost * fast)
    power = tl.math.exp2(exponent)
    power += power * (correction * _LOG2)
    return tl.where(exponent > -_FAR, power, 0.0).to(tl.float64)


@triton.jit(do_not_specialize=["n_rows"])
def _gumbel_kernel(
    values,
    tops,
    out,
    scale,
    n_rows,
    n_classes,
    row_stride,
    column_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    top = tl.load(tops + rows, mask=inside, other=0.0)[:, None]
    width = tl.load(scale + tl.program_id(1))
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    pointers = (values + rows * row_stride)[:, None] + columns[None, :] * stride
    total = tl.zeros([ROWS, BLOCK], tl.float64)
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=2):
        mask = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(pointers, mask=mask, other=float("-inf"))
        pointers += BLOCK * stride
        if values.dtype.element_ty == tl.float64:
            total += tl.exp((z - top) / width)
        else:
            total += _powers(top.to(tl.float32), z.to(tl.float32), width)
    tl.store(
        out + tl.program_id(1).to(tl.int64) * n_rows + rows,
        1.0 / tl.sum(total, axis=1),
        mask=inside,
    )


@triton.jit(do_not_specialize=["n_rows"])
def _distances_kernel(
    values,
    tops,
    out,
    n_rows,
    n_classes,
    row_stride,
    column_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    top = tl.load(tops + rows, mask=inside, other=0.0)[:, None]
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    pointers = (values + rows * row_stride)[:, None] + columns[None, :] * stride
    weights = tl.zeros([ROWS, BLOCK], tl.float64)
    tied = weights
    total = weights
    possible = weights
    near = weights + float("inf")
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=2):
        mask = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(pointers, mask=mask, other=float("-inf")).to(tl.float64)
        pointers += BLOCK * stride
        margin = top - z
        is_possible = z > float("-inf")
        weights += tl.where(margin > 0.0, tl.exp(-margin), 0.0)
        tied += (margin == 0.0).to(tl.float64)
        near = tl.where(is_possible & (margin > 0.0), tl.minimum(near, margin), near)
        total += tl.where(is_possible, tl.minimum(margin, _MAX_MARGIN), 0.0)
        possible += is_possible.to(tl.float64)
    n_tied = tl.sum(tied, axis=1) - 1.0
    gap = tl.min(near, axis=1)
    gap = tl.where((n_tied > 0.0) | (gap == float("inf")), 0.0, gap)
    tl.store(out + rows, tl.sum(weights, axis=1) + n_tied, mask=inside)
    tl.store(out + n_rows + rows, gap, mask=inside)
    mean = tl.sum(total, axis=1) / tl.sum(possible, axis=1)
    tl.store(out + 2 * n_rows.to(tl.int64) + rows, mean, mask=inside)


def label_distances(values: Tensor, tops: Tensor) -> Tensor:
    """The sum of exp(-d_i) but for the label's own; how far the second and the mean of
    the possible logits lie below the best, 0 where there is no second: (3, n) float64.
    """
    return _run(_distances_kernel, (3,), _tile(values), values, tops)


def gumbel_stability(values: Tensor, tops: Tensor, scale: Tensor) -> Tensor:
    """gamma of every row, (*scale.shape, n) float64."""
    return _run(_gumbel_kernel, scale.shape, _tile(values), values, tops, scale)


def _tile(values: Tensor) -> _Tile:
    """A row per thread for short rows, a program per row for others."""
    if values.shape[1] <= 32:
        return _Tile(rows=32, columns=1, warps=1)
    return _Tile(rows=1, columns=256, warps=1)


# --- Uniform noise; `hokical.stability.uniform` says what is integrated.
#
# Rows of up to 16 classes are sorted, and integrated piece by piece as there, exactly.
#
# Longer rows need no order. With x = 1 - u the integrand is F(x) = prod_i (1 - (x -
# d_i)+). Rivals within reach are written one after the other, those before the point
# where F has fallen by exp(-17) are kept, and F is found at 257 equally spaced places
# from the first of them on. The trapezoidal rule over these is corrected by Euler's and
# Maclaurin's terms and, where F has a bend within a cell, by what the rule is off for
# the jumps of F' = -F and F'' = -2 F' there. gamma is off by 1e-8 on logits like those
# of classifiers, by 5e-8 if many rivals tie.

#: Classes of a row that is sorted, at most.
_SORTED = 16
#: Logarithm of a product: exp(-17) is 4e-8, below what is claimed.
_CUT_OFF = tl.constexpr(17.0)
#: Newton's steps to the limit of a product, at most. Any limit beyond the true one is
#: right.
_LIMIT_STEPS = tl.constexpr(6)
#: A step, in limits, after which there is no other.
_SHORT_WAY = tl.constexpr(0.01)
#: Cells between the places at which a product is found.
_CELLS = tl.constexpr(256)
#: Rivals in a product between two looks at the loop's end; the list is filled up with
#: 1.
_AT_ONCE = tl.constexpr(4)


@triton.jit(do_not_specialize=["n_rows"])
def _short_kernel(
    values,
    out,
    width,
    nodes,
    weights,
    n_rows,
    row_stride,
    column_stride,
    CLASSES: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A row per thread."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    stride = tl.full([], 1, tl.int64) * column_stride
    ordered = ()
    for i in tl.static_range(CLASSES):
        z = tl.load(values + rows * row_stride + i * stride, mask=inside, other=0.0)
        falling = ()
        for k in tl.static_range(i):
            falling = falling + (tl.maximum(ordered[k], z),)
            z = tl.minimum(ordered[k], z)
        ordered = falling + (z,)
    top = ordered[0].to(tl.float64)
    inverse = 1.0 / tl.load(width + tl.program_id(1))
    near = ()
    for i in tl.static_range(CLASSES - 1):
        near = near + (
            tl.minimum((top - ordered[i + 1].to(tl.float64)) * inverse, 1.0),
        )
    near = near + (tl.full([ROWS], 1.0, tl.float64),)
    gamma = near[0]
    for j in tl.static_range(1, CLASSES):  # with j rivals active, by j // 2 + 1 nodes
        low = 1.0 - near[j]
        length = near[j] - near[j - 1]
        for q in tl.static_range(j // 2 + 1):
            u = low + length * tl.load(nodes + (j // 2) * (j // 2 + 1) // 2 + q)
            mass = length * tl.load(weights + (j // 2) * (j // 2 + 1) // 2 + q)
            for i in tl.static_range(j):
                mass *= u + near[i]
            gamma += mass
    tl.store(
        out + tl.program_id(1).to(tl.int64) * n_rows + rows,
        tl.minimum(gamma, 1.0),
        mask=inside,
    )


@triton.jit(do_not_specialize=["n_rows", "room"])
def _long_kernel(
    values,
    tops,
    out,
    width,
    scratch,
    n_rows,
    n_classes,
    row_stride,
    column_stride,
    room,
    late_room,
    STEPS: tl.constexpr,
    LANES: tl.constexpr,
    PART: tl.constexpr,
):
    """A row per program, then the next. `scratch` is of the type to compute in.

    Rivals that begin to count in the upper half of the cells alone, most of them, are
    listed apart: they need not be multiplied into the lower half.
    """
    kind: tl.constexpr = scratch.dtype.element_ty
    half: tl.constexpr = _CELLS // 2
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    near = scratch + program.to(tl.int64) * room
    heights = near + (room - _CELLS - 1)
    late = heights - (late_room + _AT_ONCE)
    inverse = (1.0 / tl.load(width + tl.program_id(1))).to(kind)
    unit = tl.full([], 1, tl.int64)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        start = values + row * (unit * row_stride)
        stride = unit * column_stride
        top = tl.load(tops + row).to(kind)
        count = _write_near(start, near, top, inverse, n_classes, stride, STEPS, LANES)
        tl.debug_barrier()
        n_tied, least = _nearest(near, count, PART)
        limit = _find_limit(near, count, kind, PART)
        cell = tl.maximum(limit - least, 0.0) / _CELLS
        middle = tl.where(count <= late_room, least + cell * half, limit)
        ends = (middle, limit)
        n_early, n_late = _split((near, late), count, n_tied, ends, PART)
        beyond = tl.arange(0, _AT_ONCE)
        tl.store(near + n_early + beyond, tl.full([_AT_ONCE], 1.0, kind))
        tl.store(late + n_late + beyond, tl.full([_AT_ONCE], 1.0, kind))
        tl.debug_barrier()
        cells = tl.arange(0, half)
        x_low = least + cell * (cells + 1).to(kind)
        x_high = least + cell * (cells + (half + 1)).to(kind)
        low = tl.full([half], 1.0, kind)
        high = low
        for first in range(0, n_early, _AT_ONCE):
            for i in tl.static_range(_AT_ONCE):
                d = tl.load(near + first + i)
                low -= low * tl.clamp(x_low - d, 0.0, 1.0)
                high -= high * tl.clamp(x_high - d, 0.0, 1.0)
        for first in range(0, n_late, _AT_ONCE):
            for i in tl.static_range(_AT_ONCE):
                high -= high * tl.clamp(x_high - tl.load(late + first + i), 0.0, 1.0)
        tl.store(heights, tl.full([], 1.0, kind))
        tl.store(heights + 1 + cells, low)
        tl.store(heights + (half + 1) + cells, high)
        tl.debug_barrier()
        last = tl.load(heights + _CELLS).to(tl.float64)
        slope = (
            3.0 * last
            - 4.0 * tl.load(heights + _CELLS - 1)
            + tl.load(heights + _CELLS - 2)
        )
        total = tl.sum(low.to(tl.float64) + high.to(tl.float64))
        total += 0.5 - 0.5 * last - slope / 24.0
        total += cell * _bends(near, heights, n_early, (least, cell), LANES)
        total += cell * _bends(late, heights, n_late, (least, cell), LANES)
        gamma = least + cell * total
        tl.store(
            out + tl.program_id(1).to(tl.int64) * n_rows + row,
            tl.minimum(tl.maximum(gamma, 0.0), 1.0),
        )
        tl.debug_barrier()


@triton.jit
def _write_near(
    start,
    near,
    top,
    inverse,
    n_classes,
    stride,
    STEPS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Margins below 1 one after the other, with that of the label; how many there
    are. Those of a lane follow each other, so that few sums go across lanes.
    """
    kind: tl.constexpr = near.dtype.element_ty
    count = 0
    lane = tl.arange(0, LANES)[:, None]
    for first in range(0, n_classes, STEPS * LANES):
        column = first + tl.arange(0, STEPS)[None, :] * LANES + lane
        z = tl.load(
            start + column * stride, mask=column < n_classes, other=float("-inf")
        )
        d = (top - z.to(kind)) * inverse
        is_near = d < 1.0
        marks = is_near.to(tl.int32)
        of_lane = tl.sum(marks, axis=1)
        before = tl.cumsum(of_lane) - of_lane
        place = tl.cumsum(marks, axis=1) + (before + (count - 1))[:, None]
        tl.store(near + place, d, mask=is_near)
        count += tl.sum(of_lane)
    return count


@triton.jit
def _nearest(near, count, PART: tl.constexpr):
    """How many margins are 0, the label's among them; the least of a rival, at
    most 1.
    """
    kind: tl.constexpr = near.dtype.element_ty
    tied = tl.zeros([PART], tl.int32)
    least = tl.full([PART], 1.0, kind)
    for first in range(0, count, PART):
        i = first + tl.arange(0, PART)
        d = tl.load(near + i, mask=i < count, other=1.0)
        tied += (d == 0.0).to(tl.int32)
        least = tl.minimum(least, tl.where(d == 0.0, 1.0, d))
    n_tied = tl.sum(tied)
    return n_tied, tl.where(n_tied > 1, 0.0, tl.min(least))


@triton.jit
def _find_limit(near, count, kind: tl.constexpr, PART: tl.constexpr):
    """Where the product has surely fallen by exp(-CUT_OFF); at most 1. See
    `uniform._last_piece`. The label is no rival.
    """
    limit = tl.full([], 1.0, kind)
    n_left = tl.full([], _LIMIT_STEPS, tl.int32)
    while n_left > 0:
        excess = tl.zeros([PART], kind)
        active = tl.zeros([PART], tl.int32)
        for first in range(0, count, PART):
            i = first + tl.arange(0, PART)
            reach = limit - tl.load(near + i, mask=i < count, other=1.0)
            excess += tl.maximum(reach, 0.0)
            active += (reach > 0.0).to(tl.int32)
        over = tl.sum(excess) - limit - _CUT_OFF
        way = tl.maximum(over, 0.0) / tl.maximum(tl.sum(active) - 1, 1).to(kind)
        limit -= way
        n_left = tl.where(way > _SHORT_WAY * limit, n_left - 1, 0)
    return limit


@triton.jit
def _split(lists, count, n_tied, ends, PART: tl.constexpr):
    """Move rivals' margins before the first end to the front of the first list, and
    those from there to the second end into the other; how many there are of each.
    """
    near = lists[0]
    late = lists[1]
    middle = ends[0]
    limit = ends[1]
    kind: tl.constexpr = near.dtype.element_ty
    n_early = 0
    n_late = 0
    for first in range(0, count, PART):
        i = first + tl.arange(0, PART)
        d = tl.load(near + i, mask=i < count, other=1.0)
        is_early = (d > 0.0) & (d < middle)
        is_late = (d >= middle) & (d < limit)
        tl.debug_barrier()
        # Two numbers in one: no part is as long as 2^16.
        both = is_early.to(tl.int32) + (is_late.to(tl.int32) << 16)
        place = tl.cumsum(both) - both
        tl.store(near + n_early + (place & 0xFFFF), d, mask=is_early)
        tl.store(late + n_late + (place >> 16), d, mask=is_late)
        total = tl.sum(both)
        n_early += total & 0xFFFF
        n_late += total >> 16
        tl.debug_barrier()
    for first in range(0, n_tied - 1, PART):
        i = first + tl.arange(0, PART)
        tl.store(near + n_early + i, tl.zeros([PART], kind), mask=i < n_tied - 1)
    return n_early + tl.maximum(n_tied - 1, 0), n_late


@triton.jit
def _bends(near, heights, count, grid, PART: tl.constexpr):
    """What the trapezoidal rule misses at the bends, in units of a cell squared, on
    the grid of a start and a cell.
    """
    least = grid[0]
    cell = grid[1]
    kind: tl.constexpr = near.dtype.element_ty
    total = tl.zeros([PART], kind)
    for first in range(0, count, PART):
        i = first + tl.arange(0, PART)
        position = (tl.load(near + i, mask=i < count, other=1.0) - least) / cell
        index = tl.minimum(tl.maximum(position, 0.0), _CELLS - 1.0).to(tl.int32)
        fraction = position - index.to(kind)
        left = tl.load(heights + index)
        right = tl.load(heights + index + 1)
        complement = 1.0 - fraction
        height = left * complement + right * fraction
        bend = height * (0.5 * fraction * complement - 1.0 / 12.0)
        bend -= (left - right) * fraction * complement * (complement - fraction) / 6.0
        total += tl.where(i < count, bend, 0.0)
    return tl.sum(total).to(tl.float64)


class _Launch(NamedTuple):
    """How long rows are read."""

    steps: int  # of a lane, at once
    rivals: int  # at once
    warps: int
    programs: int  # per multiprocessor

    @property
    def lanes(self) -> int:
        return 32 * self.warps


#: Many programs of one warp: a row fits into the registers of a few.
_MANY_PROGRAMS = _Launch(steps=16, rivals=128, warps=1, programs=64)
#: Few programs of many warps, from _MANY_CLASSES on.
_WIDE_PROGRAMS = _Launch(steps=16, rivals=1024, warps=8, programs=4)


def uniform_stability(values: Tensor, tops: Tensor, width: Tensor) -> Tensor:
    """gamma of every row, (*width.shape, n) float64."""
    if values.shape[1] <= _SORTED:
        return _stability_of_short_rows(values, width)
    return _stability_of_long_rows(values, tops, width)


def _stability_of_short_rows(values: Tensor, width: Tensor) -> Tensor:
    n_rows, n_classes = values.shape
    out = values.new_empty((*width.shape, n_rows), dtype=torch.float64)
    _short_kernel[(triton.cdiv(n_rows, 32), width.numel())](
        values,
        out,
        width,
        *_unit_rules(values.device),
        n_rows,
        *values.stride(),
        n_classes,
        32,
        num_warps=1,
    )
    return out


def _stability_of_long_rows(values: Tensor, tops: Tensor, width: Tensor) -> Tensor:
    n_rows, n_classes = values.shape
    n_widths = width.numel()
    out = values.new_empty((*width.shape, n_rows), dtype=torch.float64)
    launch = _MANY_PROGRAMS if n_classes < _MANY_CLASSES else _WIDE_PROGRAMS
    kind = torch.float64 if values.dtype == torch.float64 else torch.float32
    late_room = min(n_classes, _MANY_CLASSES)
    room = n_classes + late_room + 2 * _AT_ONCE.value + _CELLS.value + 1
    device = torch.cuda.get_device_properties(values.device)
    n_programs = triton.cdiv(launch.programs * device.multi_processor_count, n_widths)
    n_programs = min(n_rows, n_programs)
    scratch = values.new_empty((n_programs * n_widths, room), dtype=kind)
    _long_kernel[(n_programs, n_widths)](
        values,
        tops.contiguous(),
        out,
        width,
        scratch,
        *values.shape,
        *values.stride(),
        room,
        late_room,
        min(launch.steps, triton.next_power_of_2(triton.cdiv(n_classes, launch.lanes))),
        launch.lanes,
        launch.rivals,
        num_warps=launch.warps,
    )
    return out


@cache
def _unit_rules(device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1] for 1, 2, ... nodes, one after the
    other.
    """
    rules = [np.polynomial.legendre.leggauss(q + 1) for q in range(_SORTED // 2)]
    with torch.inference_mode(False):
        nodes = torch.tensor(
            np.concatenate([0.5 * (x + 1.0) for x, _ in rules]), device=device
        )
        return nodes, torch.tensor(
            np.concatenate([0.5 * w for _, w in rules]), device=device
        )
