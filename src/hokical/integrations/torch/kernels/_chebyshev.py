"""Chebyshev moments of the margins, with a gradient that is computed from the logits alone.

Recorded step by step, the portable form would keep as many arrays of the size of the logits as
there are degrees; so would a graph that holds it. The recurrence here keeps a few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hokical._core.blocks import by_blocks
from hokical._core.logits import MAX_MARGIN, Logits
from hokical.integrations.torch.kernels import _fused as fused
from hokical.integrations.torch.kernels._tracing import is_in_graph
from hokical.stability._tables import DEGREE


def chebyshev_moments(logits: Logits, step: float | Tensor) -> Tensor:
    """sum_i T_r(min(step d_i, 2) - 1) for r = 0 ... R, (n, R + 1)."""
    if is_in_graph(logits.values):
        return _recurrence(logits.values, logits.top, step)
    factor = fused.on_device(step, logits.values)
    tracked = logits.values.requires_grad or logits.top.requires_grad or factor.requires_grad
    work = _recorded if tracked and torch.is_grad_enabled() else _Moments.forward
    return by_blocks(lambda block: work(block.values, block.top, factor), logits)


def _recurrence(values: Tensor, top: Tensor, step: float | Tensor) -> Tensor:
    t = torch.clamp(_margins(values, top) * step, max=2.0) - 1.0
    before, current = torch.ones_like(t), t
    totals = [before.sum(dim=1), current.sum(dim=1)]
    twice = 2.0 * t
    for _ in range(2, DEGREE + 1):
        before, current = current, torch.addcmul(-before, twice, current)
        totals.append(current.sum(dim=1))
    return torch.stack(totals, dim=1)


class _Moments(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, top: Tensor, step: Tensor) -> Tensor:
        found = fused.launch("triton_chebyshev", "moments", values, top, step)
        return _recurrence(values, top, step) if found is None else found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """dm_r/dt_i = T_r'(t_i): a series in t_i with the row's gradients for coefficients."""
        values, top, step = ctx.saved_tensors
        margins = _margins(values, top)
        t = margins * step - 1.0
        slope = torch.where(t < 1.0, _derivative(gradients[0], t.clamp(max=1.0)), 0.0)
        by_margin = slope * step
        return -by_margin.to(values.dtype), by_margin.sum(dim=1), (slope * margins).sum()


_recorded: Callable[[Tensor, Tensor, Tensor], Tensor] = _Moments.apply


def _margins(values: Tensor, top: Tensor) -> Tensor:
    return torch.clamp(top[:, None] - values.double(), max=MAX_MARGIN)


def _derivative(coefficients: Tensor, t: Tensor) -> Tensor:
    """sum_r c_r T_r'(t), (n, classes), for c (n, R + 1) and t (n, classes).

    T_r' = r U_(r-1), summed by Clenshaw's recurrence for U.
    """
    degrees = torch.arange(coefficients.shape[1], device=t.device, dtype=t.dtype)
    weighted, twice = coefficients * degrees, 2.0 * t
    later = current = torch.zeros_like(t)
    for r in range(coefficients.shape[1] - 1, 0, -1):
        later, current = current, torch.addcmul(weighted[:, r, None] - later, twice, current)
    return current
