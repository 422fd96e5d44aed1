"""Sums over classes behind ensemble temperature scaling, for every row."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.calibrators._ensemble import MixturePart, plain_sums, product_sums, uniform_part
from hokical.integrations.torch.fits.likelihood import part_of, per_row, power_sums
from hokical.integrations.torch.tensors import TensorLogits, to_host
from hokical.likelihood import FAR

FloatArray = NDArray[np.float64]


@plain_sums.register
def _plain_sums(logits: TensorLogits, part: MixturePart) -> FloatArray:
    def work(margins: Tensor) -> Tensor:
        terms = torch.exp(-margins)
        return torch.stack([terms.sum(dim=1), (terms * terms).sum(dim=1)])

    return to_host(per_row(logits, work))


@product_sums.register
def _product_sums(logits: TensorLogits, part: MixturePart, rows: slice, beta: float) -> FloatArray:
    def work(margins: Tensor) -> Tensor:
        x = (margins * beta).clamp_(max=FAR)
        terms = torch.exp(-x)
        return power_sums(terms, x, [terms, torch.exp(-margins)])

    return to_host(per_row(part_of(logits, rows), work))


@uniform_part.register
def _uniform_part(logits: TensorLogits) -> FloatArray:
    return np.asarray(1.0 / logits.all_possible_counts)
