"""Exact Gaussian stability in one kernel: the Chebyshev moments of each row, and the quadrature.

What is summed is S_r = sum_i (T_r(t_i) - 1): a class out of reach adds exactly 0. T_1 ... T_6 are
made for every class; T_(a+b) = 2 T_a T_b - T_(a-b) gives the others for one operation each.

Double precision is the limit, at half the rate of single. At the nodes where the product counts the
series falls to 1e-4 by degree 12, so that in `stability` the upper degrees are summed in float32
beside it: that changes gamma by 1e-10 on logits like those of classifiers, by 2e-8 if a thousand
rivals tie. Logits in float64 are computed in float64 throughout.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hokical._core.arrays import FloatArray
from hokical.stability.tables import NODE_LIMIT, gaussian_quadrature, node_step

# mypy: ignore-errors
# ruff: noqa: RUF005 (Triton cannot unpack a tuple)


_SHORT_UP_TO, _LONG_FROM = 20, 8192


def _rule(n_classes: int) -> FloatArray:
    """Weights, own logarithms and the series from degree 1, (R + 2, nodes); to base 2."""
    rule = gaussian_quadrature(-NODE_LIMIT, node_step(n_classes))
    logarithms = np.vstack([-rule.own, rule.series[1:]]) / np.log(2.0)
    return np.vstack([rule.weights, logarithms])


#: Of 2^x for |x| <= 1/2, highest degree first; off by 2e-15.
_POWERS = tl.constexpr(
    tuple(
        np.polynomial.Chebyshev.interpolate(np.exp2, 10, domain=[-0.5, 0.5])
        .convert(kind=np.polynomial.Polynomial)
        .coef[::-1]
        .tolist()
    )
)
#: Added to a number it leaves the nearest whole one in the last bits.
_ROUNDER = tl.constexpr(1.5 * 2.0**52)


@triton.jit
def exp2(x):
    """2^x in float64 for x of at most a few hundred; 0 or nearly so below -1000."""
    x = tl.maximum(x, -1000.0)
    shifted = x + _ROUNDER
    rest = x - (shifted - _ROUNDER)
    power = rest * _POWERS[0] + _POWERS[1]
    for i in tl.static_range(2, 11):
        power = power * rest + _POWERS[i]
    bits = power.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def _row_sums(
    values, tops, step, rows, inside, n_classes, row_stride, column_stride,
    KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """S_1 ... S_24 of each row of the tile, a tuple of (ROWS,) float64; from S_13 on in KIND."""
    top, width = tl.load(tops + rows, mask=inside, other=0.0), tl.load(step)
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    low, high = (), ()
    for _ in tl.static_range(12):
        low = low + (tl.zeros([ROWS, BLOCK], tl.float64),)
        high = high + (tl.zeros([ROWS, BLOCK], KIND),)
    place = (values + rows * row_stride)[:, None] + columns[None, :] * stride
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=4):
        here = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(place, mask=here, other=float("-inf")).to(tl.float64)
        place += BLOCK * stride
        t = (top[:, None] - z) * width - 1.0
        t = tl.where(t < 1.0, t, 1.0)
        terms = _six_terms(t)
        sums = ()
        for r in tl.static_range(6):
            sums = sums + (low[r] + terms[r],)
        for r in tl.static_range(6):
            sums = sums + (low[r + 6] + terms[5] * terms[r],)
        low = sums
        terms = _six_terms(t.to(KIND))
        sixth = terms[5]
        twelfth = 2.0 * sixth * sixth - 1.0
        next_one = 2.0 * sixth * twelfth - sixth
        sums = ()
        for r in tl.static_range(6):
            sums = sums + (high[r] + twelfth * terms[r],)
        for r in tl.static_range(5):
            sums = sums + (high[r + 6] + next_one * terms[r],)
        high = sums + (high[11] + twelfth * twelfth,)
    # Columns beyond the last were at t = 1, where every T_r is 1.
    count = (tl.cdiv(n_classes, BLOCK) * BLOCK).to(tl.float64)
    return _from_products(low, high, count)


@triton.jit
def _six_terms(t):
    """T_1 ... T_6 of t."""
    twice = t + t
    terms = (t, twice * t - 1.0)
    for r in tl.static_range(4):
        terms = terms + (twice * terms[r + 1] - terms[r],)
    return terms


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


@triton.jit(do_not_specialize=["n_rows"])
def _stability_kernel(
    values, tops, out, step, table, n_rows, n_classes, row_stride, column_stride,
    KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, NODES: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    sums = _row_sums(
        values, tops, step + tl.program_id(1), rows, inside, n_classes, row_stride, column_stride,
        KIND, ROWS, BLOCK,
    )  # fmt: skip
    gamma = tl.zeros([ROWS], tl.float64)
    for first in range(0, NODES, AT_ONCE):
        node = table + first + tl.arange(0, AT_ONCE)
        logs = tl.zeros([ROWS, AT_ONCE], tl.float64) + tl.load(node + NODES)[None, :]
        for r in tl.static_range(24):
            logs += sums[r][:, None] * tl.load(node + (r + 2) * NODES)[None, :]
        gamma += tl.sum(exp2(logs) * tl.load(node)[None, :], axis=1)
    tl.store(
        out + tl.program_id(1).to(tl.int64) * n_rows + rows,
        tl.minimum(tl.maximum(gamma, 0.0), 1.0),
        mask=inside,
    )


class _Tile(NamedTuple):
    """Rows and columns of a program's tile, warps, and nodes at once."""

    rows: int
    block: int
    warps: int
    nodes: int


#: A row per thread; few sums across lanes, and whole sectors of memory; a program per long row.
_SHORT, _MIDDLE, _LONG = _Tile(32, 1, 1, 1), _Tile(2, 16, 1, 16), _Tile(1, 256, 4, 64)


def stability(values: Tensor, tops: Tensor, step: Tensor) -> Tensor:
    """gamma of every row, (*step.shape, n) float64; step = 2 / (REACH * scale)."""
    out = torch.empty(*step.shape, values.shape[0], dtype=torch.float64, device=values.device)
    kind = tl.float64 if values.dtype == torch.float64 else tl.float32
    tile = _tile(values.shape[1])
    grid = triton.cdiv(values.shape[0], tile.rows), step.numel()
    table = _table(values.shape[1], tile.nodes, values.device)
    _stability_kernel[grid](
        values, tops.contiguous(), out, step, table, *values.shape, *values.stride(),
        kind, tile.rows, tile.block, table.shape[1], tile.nodes, num_warps=tile.warps,
    )  # fmt: skip
    return out


def _tile(n_classes: int) -> _Tile:
    if n_classes <= _SHORT_UP_TO:
        return _SHORT
    return _MIDDLE if n_classes < _LONG_FROM else _LONG


@lru_cache(64)
def _table(n_classes: int, at_once: int, device: torch.device) -> Tensor:
    """The rule with nodes of weight 0 up to a multiple of `at_once`."""
    rule = _rule(n_classes)
    with torch.inference_mode(False):
        table = torch.tensor(np.pad(rule, ((0, 0), (0, -rule.shape[1] % at_once))))
        return table.to(device)
