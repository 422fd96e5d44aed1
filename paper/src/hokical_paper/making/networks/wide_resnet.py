"""Wide residual networks (Zagoruyko and Komodakis, 2016), without dropout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class WideResNet(nn.Module):
    """Three stages of (depth - 4) / 6 blocks, 16, 32 and 64 channels times `widen`.

    WRN-28-10 for 10 classes: 36,479,194 parameters.
    """

    def __init__(
        self, n_classes: int, *, depth: int = 28, widen: int = 10, channels: int = 3
    ) -> None:
        super().__init__()
        per_stage = (depth - 4) // 6
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        blocks = []
        before = 16
        for stage in range(3):
            width = 16 * 2**stage * widen
            for position in range(per_stage):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(_WideBlock(before, width, stride))
                before = width
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(before)
        self.head = nn.Linear(before, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.blocks(self.stem(images))), inplace=True)
        logits: Tensor = self.head(x.mean((2, 3), dtype=torch.float32))
        return logits


class _WideBlock(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(before)
        self.first = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = None
        if before != width:
            self.shortcut = nn.Conv2d(before, width, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        ready = F.relu(self.first_norm(x), inplace=True)
        branch = F.relu(self.second_norm(self.first(ready)), inplace=True)
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(ready)
        whole: Tensor = shortcut + self.second(branch)
        return whole
