"""Sums over classes behind ReCal, for every row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.calibrators._recal_steps import FAR, ScaledLogits, log_norms, margin_moments
from hokical.integrations.torch.fits.likelihood import margin_chunks
from hokical.integrations.torch.tensors import TensorLogits, to_device, to_host

FloatArray = NDArray[np.float64]


@log_norms.register
def _log_norms(logits: TensorLogits, scaled: ScaledLogits) -> FloatArray:
    parts = [torch.logsumexp(-margins, dim=1) for margins in _scaled_margins(logits, scaled)]
    return to_host(torch.cat(parts))


@margin_moments.register
def _margin_moments(logits: TensorLogits, scaled: ScaledLogits) -> FloatArray:
    parts = []
    for margins in _scaled_margins(logits, scaled):
        proba = torch.softmax(-margins, dim=1)
        mean = (proba * margins).sum(dim=1, keepdim=True)
        variance = (proba * (margins - mean).square_()).sum(dim=1, keepdim=True)
        parts.append(torch.cat([mean, variance], dim=1))
    return to_host(torch.cat(parts))


def _scaled_margins(logits: TensorLogits, scaled: ScaledLogits) -> Iterator[Tensor]:
    """min(scale * margin, cap) of each chunk (rows, classes), a masked class far away."""
    scale, cap = (to_device(part, logits.device)[:, None] for part in (scaled.scale, scaled.cap))
    start = 0
    for margins, _ in margin_chunks(logits):
        rows = slice(start, start + margins.shape[0])
        near = torch.minimum(margins * scale[rows], cap[rows])
        yield near.where(margins < torch.inf, FAR)
        start = rows.stop
