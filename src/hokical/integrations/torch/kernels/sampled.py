"""Sampled stability: the share of fixed noise draws that keep the label, counted as the core does.

Logits are taken relative to their row's top; the sum logit + noise in float64 for float64 logits,
else in float32. On a tie the first class wins.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hokical.integrations.torch.kernels import fused, rows
from hokical.stability.sampled import Draws

#: Draws taken at once while a graph is being captured.
_CAPTURED = 64


def survivals(values: Tensor, draws: Draws | Tensor, *, plain: bool = False) -> Tensor:
    """How many of the draws keep the label of each row, (n,) int64.

    `draws` may also be the noise itself, (draws, classes) on the device of the logits.
    """
    noise = _noise(draws, values)
    if not plain and (counts := fused.survivals(values, noise)) is not None:
        return counts
    return rows.by_chunks(lambda chunk: _count(chunk, noise), values, values.shape[1])


def _noise(draws: Draws | Tensor, values: Tensor) -> Tensor:
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    if isinstance(draws, Draws):
        draws = torch.from_numpy(draws.values)
    return draws.to(dtype).to(values.device)


def _count(values: Tensor, noise: Tensor) -> Tensor:
    below = (-rows.margins(values)).to(noise.dtype)
    labels = rows.labels(values)
    kept = torch.zeros_like(labels)
    step = rows.at_once(below, _CAPTURED)
    for start in range(0, noise.shape[0], step):
        winners = torch.argmax(below[:, None, :] + noise[start : start + step], dim=2)
        kept = kept + (winners == labels[:, None]).sum(dim=1)
    return kept
