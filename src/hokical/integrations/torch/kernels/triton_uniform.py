"""Exact uniform stability after one `topk`: see `hokical.stability.uniform` for the method."""

# mypy: ignore-errors

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hokical.stability.uniform import CUT_OFF, NEAREST, NEGLIGIBLE

#: Newton's steps to the end of the last piece. Any end beyond the true one is right.
_END_STEPS = 6
_PIECES, _ORDER, _PANELS = 16, 16, 16
_BLOCK = 2


@triton.jit
def _times(a, b):
    return a * b


@triton.jit
def _near_kernel(
    best, out, crowding, width, nodes, weights, n_rivals, cut_off, MORE: tl.constexpr,
    NEAREST: tl.constexpr, PIECES: tl.constexpr, ORDER: tl.constexpr,
):  # fmt: skip
    """gamma over the pieces between the nearest rivals; and what is left of the product there."""
    row = tl.program_id(0).to(tl.int64)
    start = best + row * (n_rivals + 1)
    top = tl.load(start).to(tl.float64)
    inverse = 1.0 / tl.load(width)
    rival = tl.arange(0, NEAREST)
    z = tl.load(start + 1 + rival, mask=rival < n_rivals, other=float("-inf")).to(tl.float64)
    near = tl.minimum((top - z) * inverse, 1.0)
    count = tl.sum((near < 1.0).to(tl.int32))
    last = tl.minimum((top - tl.load(start + n_rivals).to(tl.float64)) * inverse, 1.0)
    gamma = tl.minimum((top - tl.load(start + 1).to(tl.float64)) * inverse, 1.0)
    x = tl.load(nodes + tl.arange(0, ORDER))[None, :]
    w = tl.load(weights + tl.arange(0, ORDER))[None, :]
    for first in range(0, count, PIECES):
        j = first + tl.arange(0, PIECES)
        upper = tl.load(start + 1 + j, mask=j < n_rivals, other=float("-inf")).to(tl.float64)
        lower = tl.load(start + 2 + j, mask=j + 1 < n_rivals, other=float("-inf")).to(tl.float64)
        high = 1.0 - tl.minimum((top - upper) * inverse, 1.0)
        low = 1.0 - tl.minimum((top - lower) * inverse, 1.0)
        if MORE:  # the piece below the last of them belongs to the other kernel
            low = tl.where(j == n_rivals - 1, high, low)
        low = tl.maximum(low, high - cut_off / (j + 1).to(tl.float64))
        u = low[:, None] + (high - low)[:, None] * x
        product = tl.full([PIECES, ORDER], 1.0, tl.float64)
        for i in range(0, tl.minimum(first + PIECES, count)):
            d = (top - tl.load(start + 1 + i).to(tl.float64)) * inverse
            product *= tl.minimum(u + d, 1.0)
        gamma += tl.sum(tl.sum(product * w, axis=1) * (high - low))
    tl.store(out + row, tl.minimum(tl.maximum(gamma, 0.0), 1.0))
    if MORE:
        left = tl.reduce(1.0 - last + near, 0, _times)
        tl.store(crowding + row, tl.where(last < 1.0, left, 0.0))


@triton.jit
def _crowd_kernel(
    values, best, out, crowding, width, nodes, weights, n_classes, n_rivals, row_stride,
    column_stride, cut_off, negligible, STEPS: tl.constexpr, NODES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the integral below the last of the nearest, all classes in the product."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(crowding + row) <= negligible:
        return
    top = tl.load(best + row * (n_rivals + 1)).to(tl.float64)
    inverse = 1.0 / tl.load(width)
    last = (top - tl.load(best + row * (n_rivals + 1) + n_rivals).to(tl.float64)) * inverse
    start = values + row * row_stride
    columns = tl.arange(0, NODES * BLOCK // 4)
    end = tl.minimum(last + cut_off / n_rivals, 1.0)
    for _ in range(STEPS):
        excess = tl.zeros([NODES * BLOCK // 4], tl.float64)
        count = tl.zeros([NODES * BLOCK // 4], tl.int32)
        for first in range(0, n_classes, NODES * BLOCK // 4):
            column = first + columns
            z = tl.load(
                start + column.to(tl.int64) * column_stride,
                mask=column < n_classes,
                other=float("-inf"),
            ).to(tl.float64)
            reach = tl.maximum(end - tl.minimum((top - z) * inverse, 1.0), 0.0)
            excess += reach
            count += (reach > 0.0).to(tl.int32)
        over = tl.sum(excess) - end - cut_off
        rivals = tl.maximum(tl.sum(count) - 1, 1).to(tl.float64)
        end = tl.where(over > 0.0, end - over / rivals, end)
    length = tl.maximum(end, last) - last
    node = tl.arange(0, NODES)
    u = 1.0 - last - length * (1.0 - tl.load(nodes + node))
    product = tl.full([NODES, BLOCK], 1.0, tl.float64)
    for first in range(0, n_classes, BLOCK):
        column = first + tl.arange(0, BLOCK)
        z = tl.load(
            start + column.to(tl.int64) * column_stride,
            mask=column < n_classes,
            other=float("-inf"),
        ).to(tl.float64)
        d = tl.minimum((top - z) * inverse, 1.0)
        if tl.min(d) < last + length:  # the others are 1 at every node
            product *= tl.minimum(u[:, None] + d[None, :], 1.0)
    survival = tl.reduce(product, 1, _times) / tl.maximum(u, 1e-300)
    part = length * tl.sum(survival * tl.load(weights + node))
    tl.store(out + row, tl.minimum(tl.load(out + row) + part, 1.0))


def stability(values: Tensor, width: Tensor) -> Tensor:
    """gamma of every row, (n,) float64."""
    n_rows, n_classes = values.shape
    out = torch.empty(n_rows, dtype=torch.float64, device=values.device)
    rivals = min(n_classes - 1, NEAREST)
    more = rivals < n_classes - 1
    best = values.topk(rivals + 1, dim=1).values
    crowding = torch.empty_like(out) if more else out
    _near_kernel[(n_rows,)](
        best, out, crowding, width, *_unit_rule(1, values.device), rivals, CUT_OFF, more,
        NEAREST, _PIECES, _ORDER, num_warps=1,
    )  # fmt: skip
    if more:
        _crowd_kernel[(n_rows,)](
            values, best, out, crowding, width, *_unit_rule(_PANELS, values.device), n_classes,
            rivals, *values.stride(), CUT_OFF, NEGLIGIBLE, _END_STEPS, _ORDER * _PANELS, _BLOCK,
            num_warps=1,
        )  # fmt: skip
    return out


@cache
def _unit_rule(panels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1], cut into equal panels."""
    x, w = np.polynomial.legendre.leggauss(_ORDER)
    places = (np.arange(panels)[:, None] + 0.5 * (x + 1.0)) / panels
    with torch.inference_mode(False):
        nodes = torch.tensor(places.ravel(), device=device)
        return nodes, torch.tensor(np.tile(0.5 * w / panels, panels), device=device)
