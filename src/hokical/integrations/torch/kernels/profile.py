"""Log-chances of survival and of loss, precise at both ends: see `hokical.stability.profile`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.special import log_ndtr

from hokical.integrations.torch.kernels import rows, tables
from hokical.integrations.torch.kernels.gaussian import table_log_products
from hokical.stability.profile import (
    BUMP,
    BUMP_NODES,
    BUMP_STEP,
    CROWDED_UP_TO,
    CUT_FROM,
    FAR_FROM,
)

_BUMP = torch.tensor(BUMP_NODES)


def log_odds_and_profile(
    values: Tensor, temperature: float | Tensor, scales: Sequence[float] | Tensor
) -> tuple[Tensor, Tensor]:
    """log-odds (n,) under Gumbel noise; log gamma, log(1 - gamma) per Gaussian scale, (n, 2 W)."""

    def work(chunk: Tensor) -> Tensor:
        gaps = rows.runner_up_gaps(chunk)
        columns = [_gumbel_log_odds(chunk, gaps, temperature)]
        for scale in scales:
            columns += _gaussian_log_chances(chunk, gaps, scale)
        return torch.stack(columns, dim=1)

    both = rows.by_chunks(work, values, values.shape[1])
    return both[:, 0], both[:, 1:]


def _gumbel_log_odds(values: Tensor, gaps: Tensor, temperature: float | Tensor) -> Tensor:
    alone = torch.isinf(gaps)
    base = torch.where(alone, 0.0, gaps)
    beyond = torch.clamp(rows.margins(values) - base[:, None], min=0.0)
    rest = torch.exp(beyond / -temperature).sum(dim=1) - 1.0
    return torch.where(alone, math.inf, base / temperature - _log(rest))


def _gaussian_log_chances(
    values: Tensor, gaps: Tensor, scale: float | Tensor
) -> tuple[Tensor, Tensor]:
    gap = gaps / scale
    kept, lost = _chances(values, gap, scale)
    far = _overtaken_by_any(_overtaking_sums(values, gap, scale), gap)
    lost = torch.where(gap > FAR_FROM, far, lost)
    safe = lost.clamp(max=0.5)
    return torch.where(lost < 0.5, torch.log1p(-safe), _log(kept)), _log(lost)


def _chances(values: Tensor, gap: Tensor, scale: float | Tensor) -> tuple[Tensor, Tensor]:
    """integral of phi survival, and of phi (1 - survival) as far right as it can be known, (n,)."""
    table = tables.wide(values.device)
    logs = table_log_products(values, scale, table) - table.own
    survival = torch.exp(logs.clamp(max=0.0))
    last = torch.where(gap > CUT_FROM, BUMP - 0.5 * gap, math.inf)
    lost = torch.where(table.nodes > last[:, None], 0.0, (1.0 - survival) * table.weights)
    return (survival * table.weights).sum(dim=1), lost.sum(dim=1)


def _overtaking_sums(values: Tensor, gap: Tensor, scale: float | Tensor) -> Tensor:
    """sum of Phi(-d_i / sqrt 2) over all classes but the label, (n,); half the gap tells it."""
    margins = rows.margins(values) / scale
    return torch.where(margins > 0.5 * gap[:, None], _overtake(margins), 0.0).sum(dim=1)


def _overtaken_by_any(sums: Tensor, gap: Tensor) -> Tensor:
    """1 - gamma from the sum of the chances of the rivals, taken for equal ones."""
    one = _overtake(gap)
    crowded = (sums > 1.001 * one) & (gap < CROWDED_UP_TO)
    count = torch.where(crowded, sums / torch.where(crowded, one, 1.0), 1.0)[:, None]
    near = torch.where(crowded, gap, 0.0)[:, None]
    nodes = _BUMP.to(gap.device) - 0.5 * near
    mass = torch.exp(-0.5 * nodes * nodes) * (BUMP_STEP / math.sqrt(2.0 * math.pi))
    together = (mass * -torch.expm1(count * log_ndtr(nodes + near))).sum(dim=1)
    return torch.where(crowded, together, sums)


def _log(chance: Tensor) -> Tensor:
    """-inf at 0, where the gradient is 0: what does not happen moves nothing."""
    happens = chance > 0.0
    return torch.where(happens, torch.log(torch.where(happens, chance, 1.0)), -math.inf)


def _overtake(margins: Tensor) -> Tensor:
    """Phi(-d / sqrt 2), precise far down, which torch's own ndtr is not."""
    return 0.5 * torch.erfc(0.5 * margins)
