"""Sampled stability in tiles of rows by draws: nothing of size rows x draws x classes exists.

Each program goes over the classes once for its tile and keeps, per row and draw, the best sum
before the label and the best after it. The label survives if it is above the first and not below
the second, which is the rule that the first maximum wins.
"""

# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _DRAWS, _WARPS = 4, 256, 2


@triton.jit
def _kernel(
    values, labels, noise, out, n_rows, n_classes, n_draws, row_stride, column_stride,
    ROWS: tl.constexpr, DRAWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    draws = tl.program_id(1) * DRAWS + tl.arange(0, DRAWS)
    inside, drawn = rows < n_rows, draws < n_draws
    label = tl.load(labels + rows, mask=inside, other=0)
    start = values + rows * row_stride
    top = tl.load(start + label * column_stride, mask=inside, other=0.0).to(tl.float64)
    kind: tl.constexpr = noise.dtype.element_ty
    before = tl.full([ROWS, DRAWS], float("-inf"), kind)
    after = tl.full([ROWS, DRAWS], float("-inf"), kind)
    vector = noise + draws
    for i in range(0, n_classes):
        z = tl.load(start, mask=inside, other=0.0).to(tl.float64)
        below = (z - top).to(kind)
        lift = tl.load(vector, mask=drawn, other=0.0)
        earlier = tl.where(label > i, below, float("-inf"))
        later = tl.where(label < i, below, float("-inf"))
        before = tl.maximum(before, earlier[:, None] + lift[None, :])
        after = tl.maximum(after, later[:, None] + lift[None, :])
        start += column_stride
        vector += n_draws
    place = noise + label[:, None] * n_draws + draws[None, :]
    own = tl.load(place, mask=drawn[None, :], other=float("-inf"))
    kept = (own > before) & (own >= after) & drawn[None, :]
    count = tl.sum(kept.to(tl.int32), axis=1)
    tl.store(out + tl.program_id(1).to(tl.int64) * n_rows + rows, count, mask=inside)


def survivals(values: Tensor, noise: Tensor) -> Tensor:
    """How many of the draws keep the label, (n,) int64; noise (draws, classes)."""
    n_rows, n_draws = values.shape[0], noise.shape[0]
    by_class = noise.T.contiguous()
    grid = (triton.cdiv(n_rows, _ROWS), triton.cdiv(n_draws, _DRAWS))
    counts = torch.empty(grid[1], n_rows, dtype=torch.int32, device=values.device)
    _kernel[grid](
        values, values.argmax(dim=1), by_class, counts, *values.shape, n_draws, *values.stride(),
        _ROWS, _DRAWS, num_warps=_WARPS,
    )  # fmt: skip
    return counts.sum(dim=0)
