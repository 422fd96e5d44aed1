"""Exact Gumbel stability, 1 / sum exp(-d_i / scale), in one kernel; and margins of each row.

Exponentials are taken in float32, of a difference and a product that are kept with their rounding
errors, and summed in float64: gamma is off by 6e-8 at most. Logits in float64 are computed so.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hokical._core.logits import MAX_MARGIN

# mypy: ignore-errors


#: Rows and columns of a program's tile, and warps: for short rows, and for others.
_SHORT, _OTHER = (32, 1, 1), (1, 256, 1)
_SHORT_UP_TO = 32
_LOG2E, _LOG2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)
#: 2 to the minus so many is 0 in float32.
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
    rest = tl.math.fma(below, fast, -exponent) + (below * slow + lost * fast)
    power = tl.math.exp2(exponent)
    power += power * (rest * _LOG2)
    return tl.where(exponent > -_FAR, power, 0.0).to(tl.float64)


@triton.jit(do_not_specialize=["n_rows"])
def _kernel(
    values, tops, out, scale, n_rows, n_classes, row_stride, column_stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    top = tl.load(tops + rows, mask=inside, other=0.0)[:, None]
    width = tl.load(scale + tl.program_id(1))
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    place = (values + rows * row_stride)[:, None] + columns[None, :] * stride
    total = tl.zeros([ROWS, BLOCK], tl.float64)
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=2):
        here = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(place, mask=here, other=float("-inf"))
        place += BLOCK * stride
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
    values, tops, out, n_rows, n_classes, row_stride, column_stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    top = tl.load(tops + rows, mask=inside, other=0.0)[:, None]
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    place = (values + rows * row_stride)[:, None] + columns[None, :] * stride
    rest = tl.zeros([ROWS, BLOCK], tl.float64)
    tied, total, possible = rest, rest, rest
    near = rest + float("inf")
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=2):
        here = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(place, mask=here, other=float("-inf")).to(tl.float64)
        place += BLOCK * stride
        margin, seen = top - z, z > float("-inf")
        rest += tl.where(margin > 0.0, tl.exp(-margin), 0.0)
        tied += (margin == 0.0).to(tl.float64)
        near = tl.where(seen & (margin > 0.0), tl.minimum(near, margin), near)
        total += tl.where(seen, tl.minimum(margin, _MAX_MARGIN), 0.0)
        possible += seen.to(tl.float64)
    others, gap = tl.sum(tied, axis=1) - 1.0, tl.min(near, axis=1)
    gap = tl.where((others > 0.0) | (gap == float("inf")), 0.0, gap)
    tl.store(out + rows, tl.sum(rest, axis=1) + others, mask=inside)
    tl.store(out + n_rows + rows, gap, mask=inside)
    mean = tl.sum(total, axis=1) / tl.sum(possible, axis=1)
    tl.store(out + 2 * n_rows.to(tl.int64) + rows, mean, mask=inside)


def label_distances(values: Tensor, tops: Tensor) -> Tensor:
    """The sum of exp(-d_i) but for the label's own; how far the second and the mean of the possible
    logits lie below the best, 0 where there is no second: (3, n) float64.
    """
    out = torch.empty(3, values.shape[0], dtype=torch.float64, device=values.device)
    _launch(_distances_kernel, values, tops, (out,))
    return out


def stability(values: Tensor, tops: Tensor, scale: Tensor) -> Tensor:
    """gamma of every row, (*scale.shape, n) float64."""
    shape = (*scale.shape, values.shape[0])
    out = torch.empty(shape, dtype=torch.float64, device=values.device)
    _launch(_kernel, values, tops, (out, scale), scale.numel())
    return out


def _launch(kernel, values: Tensor, tops: Tensor, given: tuple[Tensor, ...], n: int = 1) -> None:
    """Run a kernel on tiles of the rows, `n` times each."""
    rows, block, warps = _SHORT if values.shape[1] <= _SHORT_UP_TO else _OTHER
    kernel[(triton.cdiv(values.shape[0], rows), n)](
        values, tops.contiguous(), *given, *values.shape, *values.stride(), rows, block,
        num_warps=warps,
    )  # fmt: skip
