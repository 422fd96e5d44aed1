"""Exact stability under Gumbel noise: the softmax at temperature `scale`."""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.integrations.torch.kernels import fused, rows


def stability(values: Tensor, scale: float | Tensor, *, plain: bool = False) -> Tensor:
    """gamma of every row, (n,) float64."""
    if not plain and (gamma := fused.gumbel_stability(values, scale)) is not None:
        return gamma

    def work(chunk: Tensor) -> Tensor:
        return 1.0 / torch.exp(rows.finite_margins(chunk) / -scale).sum(dim=1)

    return rows.by_chunks(work, values, values.shape[1])


def distribution(values: Tensor, scale: float | Tensor) -> Tensor:
    """pi of every row and class, (n, classes) float64."""

    def work(chunk: Tensor) -> Tensor:
        weights = torch.exp(rows.finite_margins(chunk) / -scale)
        return weights / weights.sum(dim=1, keepdim=True)

    return rows.by_chunks(work, values, values.shape[1])
