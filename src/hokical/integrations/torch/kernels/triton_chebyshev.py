"""Chebyshev moments of each row in one kernel, and exact Gaussian stability fused with them.

What is summed is S_r = sum_i (T_r(t_i) - 1): a class out of reach adds exactly 0. A first pass over
the row finds its top, a second, from the cache, sums T_r^2 and T_r T_(r+1) for r up to 12:
T_2r = 2 T_r^2 - 1 and T_(2r+1) = 2 T_r T_(r+1) - T_1 give the upper degrees for one operation each.
All in float64: in float32 gamma was off by 3e-5, for a fifth less time.
"""

# mypy: ignore-errors
# ruff: noqa: RUF005 (Triton cannot unpack a tuple)

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hokical.stability.tables import DEGREE, gaussian_quadrature


@triton.jit
def row_tops(start, inside, n_classes, column_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The largest value of each row of the tile, (ROWS,) float64."""
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    wide: tl.constexpr = start.dtype.element_ty == tl.float64
    kind: tl.constexpr = tl.float64 if wide else tl.float32
    best = tl.full([ROWS, BLOCK], float("-inf"), kind)
    place = start[:, None] + columns[None, :] * stride
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=4):
        here = inside[:, None] & (first + columns < n_classes)[None, :]
        best = tl.maximum(best, tl.load(place, mask=here, other=float("-inf")).to(kind))
        place += BLOCK * stride
    return tl.max(best.to(tl.float64), axis=1)


@triton.jit
def _row_sums(
    start, inside, n_classes, column_stride, step, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """S_1 ... S_24 of each row of the tile, a tuple of (ROWS,) float64."""
    top = row_tops(start, inside, n_classes, column_stride, ROWS, BLOCK)
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    totals = ()
    for _ in tl.static_range(24):
        totals = totals + (tl.zeros([ROWS, BLOCK], tl.float64),)
    place = start[:, None] + columns[None, :] * stride
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=4):
        here = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(place, mask=here, other=float("-inf")).to(tl.float64)
        place += BLOCK * stride
        t = tl.minimum((top[:, None] - z) * step, 2.0) - 1.0
        new = (totals[0] + t,)
        before = tl.full([ROWS, BLOCK], 1.0, tl.float64)
        current = t
        for r in tl.static_range(12):
            new = new + (totals[2 * r + 1] + current * current,)
            if r < 11:
                before, current = current, (t + t) * current - before
                new = new + (totals[2 * r + 2] + before * current,)
        totals = new
    # Columns beyond the last were at t = 1, where every T_r is 1.
    count = (tl.cdiv(n_classes, BLOCK) * BLOCK).to(tl.float64)
    first_sum = tl.sum(totals[0], axis=1)
    sums = (first_sum - count,)
    for r in tl.static_range(12):
        sums = sums + (2.0 * (tl.sum(totals[2 * r + 1], axis=1) - count),)
        if r < 11:
            sums = sums + (2.0 * tl.sum(totals[2 * r + 2], axis=1) - first_sum - count,)
    return sums


@triton.jit
def _moments_kernel(
    values, out, step, n_rows, n_classes, row_stride, column_stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    start = values + rows * row_stride
    sums = _row_sums(start, inside, n_classes, column_stride, tl.load(step), ROWS, BLOCK)
    count = tl.zeros([ROWS], tl.float64) + n_classes
    tl.store(out + rows * 25, count, mask=inside)
    for r in tl.static_range(24):
        tl.store(out + rows * 25 + r + 1, sums[r] + count, mask=inside)


@triton.jit
def _stability_kernel(
    values, out, step, series, weights, own, n_rows, n_classes, row_stride, column_stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    start = values + rows * row_stride
    sums = _row_sums(start, inside, n_classes, column_stride, tl.load(step), ROWS, BLOCK)
    gamma = tl.zeros([ROWS], tl.float64)
    for first in range(0, 64, AT_ONCE):
        node = first + tl.arange(0, AT_ONCE)
        logs = tl.zeros([ROWS, AT_ONCE], tl.float64) - tl.load(own + node)[None, :]
        for r in tl.static_range(24):
            logs += sums[r][:, None] * tl.load(series + r * 64 + node)[None, :]
        gamma += tl.sum(tl.exp(logs) * tl.load(weights + node)[None, :], axis=1)
    tl.store(out + rows, tl.minimum(tl.maximum(gamma, 0.0), 1.0), mask=inside)


class _Tile(NamedTuple):
    """Rows and columns of a program's tile, nodes at once, warps."""

    rows: int
    block: int
    nodes: int
    warps: int


#: Short rows get a thread each, others a warp, long ones four.
_SHORT, _MIDDLE, _LONG = _Tile(32, 1, 1, 1), _Tile(1, 32, 32, 1), _Tile(1, 256, 64, 4)
_SHORT_UP_TO, _LONG_FROM = 128, 8192


def moments(values: Tensor, step: Tensor) -> Tensor:
    """sum_i T_r(t_i) for r = 0 ... R of each row, (n, R + 1) float64."""
    out = torch.empty(values.shape[0], DEGREE + 1, dtype=torch.float64, device=values.device)
    tile = _tile(values.shape[1])
    grid = (triton.cdiv(values.shape[0], tile.rows),)
    _moments_kernel[grid](
        values, out, step, *values.shape, *values.stride(), tile.rows, tile.block,
        num_warps=tile.warps,
    )  # fmt: skip
    return out


def stability(values: Tensor, step: Tensor) -> Tensor:
    """gamma of every row, (n,) float64; step = 2 / (REACH * scale)."""
    out = torch.empty(values.shape[0], dtype=torch.float64, device=values.device)
    tile = _tile(values.shape[1])
    grid = (triton.cdiv(values.shape[0], tile.rows),)
    _stability_kernel[grid](
        values, out, step, *_padded_tables(values.device), *values.shape, *values.stride(),
        tile.rows, tile.block, tile.nodes, num_warps=tile.warps,
    )  # fmt: skip
    return out


def _tile(n_classes: int) -> _Tile:
    if n_classes <= _SHORT_UP_TO:
        return _SHORT
    return _MIDDLE if n_classes < _LONG_FROM else _LONG


@cache
def _padded_tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """series (R, 64) from degree 1, weights (64,), own (64,): nodes of weight 0 fill them up."""
    rule = gaussian_quadrature()
    missing = (0, 64 - rule.nodes.size)
    with torch.inference_mode(False):
        series, weights, own = (
            torch.nn.functional.pad(torch.tensor(part), missing).to(device)
            for part in (rule.series[1:], rule.weights, rule.own)
        )
    return series, weights, own
