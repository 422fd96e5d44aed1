"""Exact stability under Gaussian noise, by the core's series: see `hokical.stability.gaussian`."""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.integrations.torch.kernels import chebyshev, fused, rows, tables
from hokical.integrations.torch.kernels.tables import Tables
from hokical.stability.gaussian import REACH, Rule

#: Margins, in scales, from which the chance to win is 0 in float64.
_NO_CHANCE = 1e3


def stability(values: Tensor, scale: float | Tensor, *, plain: bool = False) -> Tensor:
    """gamma of every row, (n,) float64."""
    step = 2.0 / (REACH * scale)
    if not plain and (gamma := fused.gaussian_stability(values, step)) is not None:
        return gamma
    table = tables.standard(values.device)

    def work(chunk: Tensor) -> Tensor:
        logs = table_log_products(chunk, scale, table, plain=plain) - table.own
        return (torch.exp(logs) * table.weights).sum(dim=1).clamp(0.0, 1.0)

    return rows.by_chunks(work, values, values.shape[1])


def distribution(values: Tensor, scale: float | Tensor) -> Tensor:
    """pi of every row and class, (n, classes) float64."""
    table, switch = tables.wide(values.device), tables.switch(values.device)

    def work(chunk: Tensor) -> Tensor:
        products = torch.exp(table_log_products(chunk, scale, table))
        series = torch.log(products @ switch.hazard) @ switch.to_series
        margins = torch.clamp(rows.finite_margins(chunk) / scale, max=_NO_CHANCE)
        near = margins.clamp(max=REACH)
        log_pi = chebyshev.evaluate(series, (2.0 / REACH) * near - 1.0)
        beyond = _log_overtake(margins.clamp(min=REACH)) - _log_overtake(near.new_tensor(REACH))
        pi = torch.exp(log_pi + beyond)
        return pi / pi.sum(dim=1, keepdim=True)

    return rows.by_chunks(work, values, values.shape[1])


def log_products(values: Tensor, scale: float | Tensor, rule: Rule) -> Tensor:
    """sum_i log Phi(u + d_i) over all classes at every node of the rule, (n, K) float64."""
    table = Tables(*(tensor.to(values.device) for tensor in tables.from_rule(rule)))
    return rows.by_chunks(
        lambda chunk: table_log_products(chunk, scale, table), values, values.shape[1]
    )


def table_log_products(
    values: Tensor, scale: float | Tensor, table: Tables, *, plain: bool = False
) -> Tensor:
    """The same for tables that are there already, and rows enough for one chunk."""
    sums = chebyshev.sums(values, 2.0 / (REACH * scale), plain=plain)
    # Not a matrix product, whose order of summation depends on the number of rows.
    total = sums[:, :1] * table.series[0]
    for r in range(1, table.series.shape[0]):
        total = torch.addcmul(total, sums[:, r : r + 1], table.series[r])
    return total


def _log_overtake(margins: Tensor) -> Tensor:
    return torch.special.log_ndtr(margins * -(0.5**0.5))
