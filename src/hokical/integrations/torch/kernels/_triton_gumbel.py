"""Exact Gumbel stability, 1 / sum exp(-d_i / scale), in one kernel.

Exponentials are taken in float32, of a difference and a product that are kept with their rounding
errors, and summed in float64: gamma is off by 6e-8 at most. Logits in float64 are computed so.
"""

# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Rows and columns of a program's tile, and warps: for short rows, and for others.
_SHORT, _OTHER = (32, 1, 1), (1, 256, 1)
_SHORT_UP_TO = 32
_LOG2E, _LOG2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)
#: 2 to the minus so many is 0 in float32.
_FAR = tl.constexpr(150.0)


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


def stability(values: Tensor, tops: Tensor, scale: Tensor) -> Tensor:
    """gamma of every row, (*scale.shape, n) float64."""
    n_rows, n_classes = values.shape
    rows, block, warps = _SHORT if n_classes <= _SHORT_UP_TO else _OTHER
    out = torch.empty(*scale.shape, n_rows, dtype=torch.float64, device=values.device)
    _kernel[(triton.cdiv(n_rows, rows), scale.numel())](
        values, tops.contiguous(), out, scale, *values.shape, *values.stride(), rows, block,
        num_warps=warps,
    )  # fmt: skip
    return out
