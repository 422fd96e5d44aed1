"""Exact stability under uniform noise, with a fixed number of operations per row.

gamma = integral over [0, 1] of prod_i min(u + d_i, 1) du, margins d_i in units of the width. The
NEAREST rivals are taken in rising order. Between u = 1 - d_{j+1} and 1 - d_j the first j are active
and the integrand is a polynomial, which falls by exp(-j x) at least over a way x: where that is
exp(-21) the piece is cut, and Gauss-Legendre does the rest. Below the last of the NEAREST all
classes are multiplied, at the nodes of a composite rule on the way over which the product falls
by exp(-21).

Exact to 1e-10 where no more than NEAREST rivals matter, where the core is exact to 2e-8. Where more
do, off by 3e-8 on real logits, and by up to 5e-7 if hundreds of classes all but tie: the rule sees
no bend of the product between two of its nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hokical.integrations.torch.kernels import fused, rows

NEAREST = 64
#: exp(-CUT_OFF) is negligible.
CUT_OFF = 21.0
NEGLIGIBLE = 1e-9
#: Newton's steps to the end of the last piece. Any end beyond the true one is right.
END_STEPS = 6
_ORDER, _PANELS = 16, 16
_TINY = 1e-300


class _Rule(NamedTuple):
    """Gauss-Legendre nodes and weights on [0, 1]."""

    x: Tensor
    w: Tensor


def _unit_rule(order: int, panels: int) -> _Rule:
    x, w = np.polynomial.legendre.leggauss(order)
    places = (np.arange(panels)[:, None] + 0.5 * (x + 1.0)) / panels
    return _Rule(torch.tensor(places.ravel()), torch.tensor(np.tile(0.5 * w / panels, panels)))


PIECE_RULE = _unit_rule(_ORDER, 1)
LAST_RULE = _unit_rule(_ORDER, _PANELS)


def stability(values: Tensor, width: float | Tensor, *, plain: bool = False) -> Tensor:
    """gamma of every row, (n,) float64."""
    if not plain and (gamma := fused.uniform_stability(values, width)) is not None:
        return gamma
    nearest = min(values.shape[1] - 1, NEAREST)

    def work(chunk: Tensor) -> Tensor:
        best = chunk.topk(nearest + 1, dim=1).values.double()
        near = torch.clamp((best[:, :1] - best[:, 1:]) / width, max=1.0)
        more = nearest < chunk.shape[1] - 1
        gamma = near[:, 0] + _pieces(near, more)
        if more:
            gamma = _add_crowded(gamma, chunk, near[:, -1], _crowding(near), width)
        return gamma.clamp(0.0, 1.0)

    return rows.by_chunks(work, values, max(values.shape[1], nearest * _ORDER))


def _pieces(near: Tensor, more: bool) -> Tensor:
    """The integral over the pieces between the rivals, (n,); and below the last, but for `more`."""
    high = 1.0 - near
    end = high[:, -1:] if more else torch.zeros_like(high[:, :1])
    active = torch.arange(1, near.shape[1] + 1, device=near.device, dtype=torch.float64)
    low = torch.maximum(torch.cat([high[:, 1:], end], dim=1), high - CUT_OFF / active)
    x, w = (part.to(near.device) for part in PIECE_RULE)
    u = low[:, :, None] + (high - low)[:, :, None] * x
    product = torch.ones_like(u)
    for i in range(near.shape[1]):
        product = product * torch.clamp(u + near[:, i, None, None], max=1.0)
    return ((high - low) * (product * w).sum(dim=2)).sum(dim=1)


def _crowding(near: Tensor) -> Tensor:
    """What is left of the product where the last of the nearest joins it, (n,); 0 if none does."""
    left = torch.prod(1.0 - near[:, -1:] + near, dim=1)
    return torch.where(near[:, -1] < 1.0, left, 0.0)


def _add_crowded(
    gamma: Tensor, values: Tensor, last: Tensor, crowding: Tensor, width: float | Tensor
) -> Tensor:
    """gamma and the integral below the last of the nearest, for the rows in which it counts."""
    if torch.compiler.is_compiling():
        return gamma + _last_piece(values, last, width)
    picked = torch.nonzero(crowding > NEGLIGIBLE)[:, 0]
    if not picked.numel():
        return gamma
    return gamma.index_add(0, picked, _last_piece(values[picked], last[picked], width))


def _last_piece(values: Tensor, last: Tensor, width: float | Tensor) -> Tensor:
    """The integral over [0, 1 - last] with all classes in the product, (n,)."""
    margins = torch.clamp(rows.margins(values) / width, max=1.0)
    high = 1.0 - last
    length = _fall(margins, last) - last
    x, w = (part.to(values.device) for part in LAST_RULE)
    total = torch.zeros_like(high)
    step = rows.at_once(margins, _ORDER)
    for start in range(0, x.shape[0], step):
        some = slice(start, start + step)
        u = high[:, None] - length[:, None] * (1.0 - x[some])
        product = torch.prod(torch.clamp(u[:, :, None] + margins[:, None, :], max=1.0), dim=2)
        # The label's own factor, u, is among them.
        total = total + (product / u.clamp(min=_TINY) * w[some]).sum(dim=1)
    return length * total


def _fall(margins: Tensor, last: Tensor) -> Tensor:
    """How far below u = 1 the product has surely fallen by exp(-CUT_OFF), (n,); at most 1.

    At 1 - x it is at most exp(-sum_i (x - d_i)+), whose exponent is convex in x: Newton's steps
    from the right stay on the right.
    """
    x = torch.clamp(last + CUT_OFF / NEAREST, max=1.0)
    for _ in range(END_STEPS):
        reach = torch.clamp(x[:, None] - margins, min=0.0)
        excess = reach.sum(dim=1) - x - CUT_OFF
        count = (reach > 0.0).sum(dim=1) - 1
        x = torch.where(excess > 0.0, x - excess / count.clamp(min=1), x)
    return torch.maximum(x, last)
