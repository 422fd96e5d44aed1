"""Exact Gumbel stability, 1 / sum exp(-d_i / scale), in one kernel."""

# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hokical.integrations.torch.kernels.triton_chebyshev import row_tops

#: Rows and columns of a program's tile, and warps: for short rows, and for others.
_SHORT, _OTHER = (32, 1, 1), (1, 256, 2)
_SHORT_UP_TO = 128


@triton.jit
def _kernel(
    values, out, scale, n_rows, n_classes, row_stride, column_stride,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    start = values + rows * row_stride
    top = row_tops(start, inside, n_classes, column_stride, ROWS, BLOCK)
    inverse = -1.0 / tl.load(scale)
    columns = tl.arange(0, BLOCK)
    stride = tl.full([], 1, tl.int64) * column_stride
    place = start[:, None] + columns[None, :] * stride
    total = tl.zeros([ROWS, BLOCK], tl.float64)
    for first in tl.range(0, n_classes, BLOCK, loop_unroll_factor=4):
        here = inside[:, None] & (first + columns < n_classes)[None, :]
        z = tl.load(place, mask=here, other=float("-inf")).to(tl.float64)
        place += BLOCK * stride
        total += tl.exp((top[:, None] - z) * inverse)
    tl.store(out + rows, 1.0 / tl.sum(total, axis=1), mask=inside)


def stability(values: Tensor, scale: Tensor) -> Tensor:
    """gamma of every row, (n,) float64."""
    n_rows, n_classes = values.shape
    rows, block, warps = _SHORT if n_classes <= _SHORT_UP_TO else _OTHER
    out = torch.empty(n_rows, dtype=torch.float64, device=values.device)
    _kernel[(triton.cdiv(n_rows, rows),)](
        values, out, scale, *values.shape, *values.stride(), rows, block, num_warps=warps
    )
    return out
