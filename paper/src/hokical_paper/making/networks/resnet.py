"""ResNet for small images (He et al., 2016), also with stochastic depth (Huang et
al., 2016).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResNet(nn.Module):
    """Three stages of (depth - 2) / 6 blocks, 16, 32 and 64 channels, shortcuts without
    weights.

    Depth 110 and 10 classes: 1,727,962 parameters.

    Parameters
    ----------
    last_survival : float
        Probability that the last block is used in a training step; it falls linearly
        from 1 before the first block. Below 1 this is stochastic depth: the trainer
        sets `gates` (blocks,), which blocks are used, before each step. At inference
        blocks are weighted by their probability.
    """

    gates: Tensor
    survival: Tensor

    def __init__(
        self,
        n_classes: int,
        *,
        depth: int = 110,
        channels: int = 3,
        last_survival: float = 1.0,
    ) -> None:
        super().__init__()
        per_stage = (depth - 2) // 6
        widths = [16 * 2**stage for stage in range(3) for _ in range(per_stage)]
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.ModuleList(
            _Block(before, width)
            for before, width in zip([16, *widths[:-1]], widths, strict=True)
        )
        self.head = nn.Linear(64, n_classes)
        self.is_stochastic = last_survival < 1.0
        survival = torch.linspace(1.0, last_survival, len(widths) + 1)[1:]
        self.register_buffer("survival", survival, persistent=False)
        self.register_buffer("gates", torch.ones(len(widths)), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(images)), inplace=True)
        factors = (self.gates if self.training else self.survival).to(x.dtype).unbind()
        for block, factor in zip(self.blocks, factors, strict=True):
            x = block(x, factor if self.is_stochastic else None)
        logits: Tensor = self.head(x.mean((2, 3), dtype=torch.float32))
        return logits


class _Block(nn.Module):
    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.stride = width // before
        self.added = width - before
        self.first = nn.Conv2d(
            before, width, 3, stride=self.stride, padding=1, bias=False
        )
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor, factor: Tensor | None) -> Tensor:
        branch = F.relu(self.first_norm(self.first(x)), inplace=True)
        branch = self.second_norm(self.second(branch))
        shortcut = x
        if self.added:
            half = self.added // 2
            shortcut = F.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, half)
            )
        whole = (
            shortcut + branch
            if factor is None
            else torch.addcmul(shortcut, branch, factor)
        )
        return F.relu(whole, inplace=True)
