"""LeNet-5 with rectified units and max pooling, for 32 x 32 images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    """Two convolutions of 5 x 5 (6 and 16 channels), each with 2 x 2 pooling, 120 and
    84 units.

    61,706 parameters for one channel and ten classes.
    """

    def __init__(self, n_classes: int, *, channels: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 6, 5)
        self.second = nn.Conv2d(6, 16, 5)
        self.hidden = nn.Linear(16 * 5 * 5, 120)
        self.features = nn.Linear(120, 84)
        self.head = nn.Linear(84, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.first(images)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        x = F.relu(self.hidden(x.flatten(1).to(torch.float32)))
        logits: Tensor = self.head(F.relu(self.features(x)))
        return logits
