"""Sums over classes of Chebyshev polynomials of the margins.

With t_i the margins carried to [-1, 1] and cut at 1, S_r = sum_i (T_r(t_i) - 1) for r = 1 ... R. A
class out of reach adds exactly 0, however many there are. D_r = T_r - 1 follows
D_{r+1} = 2 t D_r - D_{r-1} + 2 (t - 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hokical.integrations.torch.kernels import fused
from hokical.integrations.torch.kernels.rows import finite_margins
from hokical.stability.gaussian import DEGREE


def sums(values: Tensor, step: float | Tensor, *, plain: bool = False) -> Tensor:
    """S_1 ... S_R of each row, (n, R) float64, t = step * margin - 1.

    The gradient is computed from the logits alone: recorded step by step, it would keep R arrays of
    the size of the logits.
    """
    if torch.compiler.is_compiling():
        return _sums(values, step)
    factor = fused.on_device(step, values)
    return _differentiable_sums(values, factor, plain)


def _sums(values: Tensor, step: float | Tensor) -> Tensor:
    less = torch.clamp(finite_margins(values) * step, max=2.0) - 2.0
    twice, double_less = 2.0 * less + 2.0, 2.0 * less
    before, current = torch.zeros_like(less), less
    totals = [current.sum(dim=1)]
    for _ in range(2, DEGREE + 1):
        before, current = current, torch.addcmul(double_less - before, twice, current)
        totals.append(current.sum(dim=1))
    return torch.stack(totals, dim=1)


class _Sums(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, step: Tensor, plain: bool) -> Tensor:
        if not plain and (totals := fused.chebyshev_sums(values, step)) is not None:
            return totals
        return _sums(values, step)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """dS_r/dt_i = T_r'(t_i): a series in t_i with the row's gradients for coefficients."""
        values, step = ctx.saved_tensors
        margin = finite_margins(values)
        t = margin * step - 1.0
        slope = torch.where(t < 1.0, derivative(gradients[0], t.clamp(max=1.0)), 0.0)
        by_values = by_step = None
        if ctx.needs_input_grad[0]:
            by_values = _from_margins(slope * step, values)
        if ctx.needs_input_grad[1]:
            by_step = (slope * margin).sum()
        return by_values, by_step, None


_differentiable_sums: Callable[[Tensor, Tensor, bool], Tensor] = _Sums.apply


def _from_margins(slope: Tensor, values: Tensor) -> Tensor:
    """The gradient by the logits, from that by the margins: top - value, the top the label's."""
    label = values.argmax(dim=1, keepdim=True)
    return (-slope).scatter_add(1, label, slope.sum(dim=1, keepdim=True)).to(values.dtype)


def derivative(coefficients: Tensor, t: Tensor) -> Tensor:
    """sum_r c_r T_r'(t), (n, classes), for c (n, R) and t (n, classes), r from 1.

    T_r' = r U_{r-1}, summed by Clenshaw's recurrence for U.
    """
    degree = coefficients.shape[1]
    weighted = coefficients * torch.arange(1, degree + 1, device=t.device, dtype=t.dtype)
    twice = 2.0 * t
    later = current = torch.zeros_like(t)
    for r in range(degree - 1, -1, -1):
        later, current = current, torch.addcmul(weighted[:, r, None] - later, twice, current)
    return current


def evaluate(coefficients: Tensor, t: Tensor) -> Tensor:
    """sum_r c_r T_r(t), (n, classes), for c (n, R + 1), r from 0."""
    twice = 2.0 * t
    later = current = torch.zeros_like(t)
    for r in range(coefficients.shape[1] - 1, 0, -1):
        later, current = current, torch.addcmul(coefficients[:, r, None] - later, twice, current)
    return torch.addcmul(coefficients[:, 0, None] - later, t, current)
