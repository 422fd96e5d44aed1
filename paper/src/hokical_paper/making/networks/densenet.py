"""DenseNet without bottlenecks (Huang et al., 2017): every layer uses all earlier
outputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DenseNet(nn.Module):
    """Three dense blocks of (depth - 4) / 3 layers that add `growth` channels each.

    Depth 40 and growth 12 for 10 classes: 1,019,722 parameters.
    """

    def __init__(
        self, n_classes: int, *, depth: int = 40, growth: int = 12, channels: int = 3
    ) -> None:
        super().__init__()
        width = 16
        n_layers = (depth - 4) // 3
        blocks: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for stage in range(3):
            for _ in range(n_layers):
                blocks.append(_DenseLayer(width, growth))
                width += growth
            if stage < 2:
                blocks.append(_Transition(width))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.blocks(images)), inplace=True)
        logits: Tensor = self.head(x.mean((2, 3), dtype=torch.float32))
        return logits


class _DenseLayer(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x), inplace=True))], dim=1)


class _Transition(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(x), inplace=True)), 2)
