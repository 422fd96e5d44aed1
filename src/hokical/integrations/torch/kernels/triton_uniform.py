"""Exact uniform stability in one kernel; `hokical.stability.uniform` says what is integrated.

Rows of up to 16 classes are sorted, and integrated piece by piece as there, exactly.

Longer rows need no order. With x = 1 - u the integrand is F(x) = prod_i (1 - (x - d_i)+). Rivals
within reach are written one after the other, those before the point where F has fallen by exp(-17)
are kept, and F is found at 257 equally spaced places from the first of them on. The trapezoidal
rule over these is corrected by Euler's and Maclaurin's terms and, where F has a bend within a cell,
by what the rule is off for the jumps of F' = -F and F'' = -2 F' there. gamma is off by 1e-8 on
logits like those of classifiers, by 5e-8 if many rivals tie.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

# mypy: ignore-errors
# ruff: noqa: RUF005 (Triton cannot unpack a tuple)


_SHORT_UP_TO, _LONG_FROM = 16, 8192
#: exp(-CUT_OFF) is negligible. Any end beyond the true one is right.
_CUT_OFF, _END_STEPS = tl.constexpr(17.0), tl.constexpr(6)
_CELLS = tl.constexpr(256)
#: Rivals in a product between two looks at the loop's end; the list is filled up with 1.
_AT_ONCE = tl.constexpr(4)


@triton.jit(do_not_specialize=["n_rows"])
def _short_kernel(
    values, out, width, nodes, weights, n_rows, row_stride, column_stride, CLASSES: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
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
    top, inverse = ordered[0].to(tl.float64), 1.0 / tl.load(width + tl.program_id(1))
    near = ()
    for i in tl.static_range(CLASSES - 1):
        near = near + (tl.minimum((top - ordered[i + 1].to(tl.float64)) * inverse, 1.0),)
    near = near + (tl.full([ROWS], 1.0, tl.float64),)
    gamma = near[0]
    for j in tl.static_range(1, CLASSES):  # with j rivals active, by j // 2 + 1 nodes
        low, length = 1.0 - near[j], near[j] - near[j - 1]
        for q in tl.static_range(j // 2 + 1):
            u = low + length * tl.load(nodes + (j // 2) * (j // 2 + 1) // 2 + q)
            mass = length * tl.load(weights + (j // 2) * (j // 2 + 1) // 2 + q)
            for i in tl.static_range(j):
                mass *= u + near[i]
            gamma += mass
    tl.store(
        out + tl.program_id(1).to(tl.int64) * n_rows + rows, tl.minimum(gamma, 1.0), mask=inside
    )


@triton.jit(do_not_specialize=["n_rows", "room"])
def _long_kernel(
    values, tops, out, width, scratch, n_rows, n_classes, row_stride, column_stride, room,
    BLOCK: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """A row per program, then the next. `scratch` is of the type to compute in."""
    kind: tl.constexpr = scratch.dtype.element_ty
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    near = scratch + program.to(tl.int64) * room
    heights = near + (room - _CELLS - 1)
    inverse = (1.0 / tl.load(width + tl.program_id(1))).to(kind)
    one = tl.full([], 1, tl.int64)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        start, stride = values + row * (one * row_stride), one * column_stride
        top = tl.load(tops + row).to(kind)
        count, least = _write_near(start, near, top, inverse, n_classes, stride, BLOCK)
        tl.debug_barrier()
        end = _end(near, count, kind, PART)
        count = _keep_before(near, count, end, PART)
        tl.store(near + count + tl.arange(0, _AT_ONCE), tl.full([_AT_ONCE], 1.0, kind))
        tl.debug_barrier()
        cell = tl.maximum(end - least, 0.0) / _CELLS
        place = tl.arange(0, _CELLS)
        x = least + cell * (place + 1).to(kind)
        height = tl.full([_CELLS], 1.0, kind)
        for first in range(0, count, _AT_ONCE):
            for i in tl.static_range(_AT_ONCE):
                height -= height * tl.maximum(x - tl.load(near + first + i), 0.0)
        tl.store(heights + 1 + place, height)
        tl.store(heights, tl.full([], 1.0, kind))
        tl.debug_barrier()
        last = tl.load(heights + _CELLS).to(tl.float64)
        slope = 3.0 * last - 4.0 * tl.load(heights + _CELLS - 1) + tl.load(heights + _CELLS - 2)
        whole = tl.sum(height.to(tl.float64)) + 0.5 - 0.5 * last - slope / 24.0
        whole += cell * _bends(near, heights, count, least, cell, PART)
        gamma = least + cell * whole
        tl.store(
            out + tl.program_id(1).to(tl.int64) * n_rows + row,
            tl.minimum(tl.maximum(gamma, 0.0), 1.0),
        )
        tl.debug_barrier()


@triton.jit
def _write_near(start, near, top, inverse, n_classes, stride, BLOCK: tl.constexpr):
    """Margins below 1 but the label's own, one after the other; their number and the least."""
    kind: tl.constexpr = near.dtype.element_ty
    count, found, least = 0, 0, tl.full([], 1.0, kind)
    for first in range(0, n_classes, BLOCK):
        column = first + tl.arange(0, BLOCK)
        z = tl.load(start + column * stride, mask=column < n_classes, other=float("-inf"))
        d = tl.minimum((top - z.to(kind)) * inverse, 1.0)
        own = tl.min(tl.where(d == 0.0, column, n_classes))
        keep = (d < 1.0) & ((column != own) | (found > 0))
        found = tl.where(own < n_classes, 1, found)
        tl.store(near + count + tl.cumsum(keep.to(tl.int32)) - 1, d, mask=keep)
        count += tl.sum(keep.to(tl.int32))
        least = tl.minimum(least, tl.min(tl.where(keep, d, 1.0)))
    return count, least


@triton.jit
def _end(near, count, kind: tl.constexpr, PART: tl.constexpr):
    """Where the product has surely fallen by exp(-CUT_OFF); at most 1. See `uniform._fall`."""
    end = tl.full([], 1.0, kind)
    for _ in range(_END_STEPS):
        excess = tl.zeros([PART], kind)
        active = tl.zeros([PART], tl.int32)
        for first in range(0, count, PART):
            i = first + tl.arange(0, PART)
            reach = end - tl.load(near + i, mask=i < count, other=1.0)
            excess += tl.maximum(reach, 0.0)
            active += (reach > 0.0).to(tl.int32)
        over = tl.sum(excess) - _CUT_OFF
        end -= tl.maximum(over, 0.0) / tl.maximum(tl.sum(active), 1).to(kind)
    return end


@triton.jit
def _keep_before(near, count, end, PART: tl.constexpr):
    """Move the margins before `end` to the front; how many there are."""
    kept = 0
    for first in range(0, count, PART):
        i = first + tl.arange(0, PART)
        d = tl.load(near + i, mask=i < count, other=1.0)
        keep = d < end
        tl.debug_barrier()
        tl.store(near + kept + tl.cumsum(keep.to(tl.int32)) - 1, d, mask=keep)
        kept += tl.sum(keep.to(tl.int32))
        tl.debug_barrier()
    return kept


@triton.jit
def _bends(near, heights, count, least, cell, PART: tl.constexpr):
    """What the trapezoidal rule misses at the bends, in units of a cell squared."""
    kind: tl.constexpr = near.dtype.element_ty
    total = tl.zeros([PART], kind)
    for first in range(0, count, PART):
        i = first + tl.arange(0, PART)
        where = (tl.load(near + i, mask=i < count, other=1.0) - least) / cell
        index = tl.minimum(tl.maximum(where, 0.0), _CELLS - 1.0).to(tl.int32)
        part = where - index.to(kind)
        left, right = tl.load(heights + index), tl.load(heights + index + 1)
        rest = 1.0 - part
        bend = (left * rest + right * part) * (0.5 * part * rest - 1.0 / 12.0)
        bend -= (left - right) * part * rest * (rest - part) / 6.0
        total += tl.where(i < count, bend, 0.0)
    return tl.sum(total).to(tl.float64)


def stability(values: Tensor, tops: Tensor, width: Tensor) -> Tensor:
    """gamma of every row, (*width.shape, n) float64."""
    (n_rows, n_classes), n_widths = values.shape, width.numel()
    out = torch.empty(*width.shape, n_rows, dtype=torch.float64, device=values.device)
    if n_classes <= _SHORT_UP_TO:
        _short_kernel[(triton.cdiv(n_rows, 32), n_widths)](
            values, out, width, *_unit_rules(values.device), n_rows, *values.stride(), n_classes,
            32, num_warps=1,
        )  # fmt: skip
        return out
    block, part, warps, programs = _SIZES[n_classes >= _LONG_FROM]
    kind = torch.float64 if values.dtype == torch.float64 else torch.float32
    room = n_classes + _AT_ONCE.value + _CELLS.value + 1
    programs = min(n_rows, triton.cdiv(programs * _processors(values.device), n_widths))
    scratch = torch.empty(programs * n_widths, room, dtype=kind, device=values.device)
    _long_kernel[(programs, n_widths)](
        values, tops.contiguous(), out, width, scratch, *values.shape, *values.stride(), room,
        min(block, triton.next_power_of_2(n_classes)), part, num_warps=warps,
    )  # fmt: skip
    return out


#: Columns read at once, rivals at once, warps and programs per multiprocessor.
_SIZES = (1024, 128, 1, 32), (4096, 1024, 8, 4)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def _unit_rules(device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1] for 1, 2, ... nodes, one after the other."""
    rules = [np.polynomial.legendre.leggauss(q + 1) for q in range(_SHORT_UP_TO // 2)]
    with torch.inference_mode(False):
        nodes = torch.tensor(np.concatenate([0.5 * (x + 1.0) for x, _ in rules]), device=device)
        return nodes, torch.tensor(np.concatenate([0.5 * w for _, w in rules]), device=device)
