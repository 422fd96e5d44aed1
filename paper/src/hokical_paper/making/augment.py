"""Images on the device, and batches of them: shifted, mirrored, normalised.

All random numbers of an epoch are drawn in advance, on the CPU, from the seed and the
epoch's number. So a step needs no random number generator, as CUDA graphs require, and
a resumed training draws the same numbers as an uninterrupted one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hokical_paper.making.datasets.images import LabelledImages

SIDE = 32
#: Largest shift in pixels; pixels from outside the image are black.
SHIFT = 4


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation (channels,) of the training pixels, from 0 to 255."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def from_images(cls, images: NDArray[np.uint8]) -> Normalisation:
        """Computed from exact counts of the pixel values (n, height, width,
        channels).
        """
        flat = images.reshape(-1, images.shape[-1])
        counts = [np.bincount(channel, minlength=256) for channel in flat.T]
        values = np.arange(256.0)
        means = [float(count @ values / count.sum()) for count in counts]
        spreads = [
            float(np.sqrt(count @ (values - mean) ** 2 / count.sum()))
            for count, mean in zip(counts, means, strict=True)
        ]
        return cls(tuple(means), tuple(max(spread, 1.0) for spread in spreads))

    def apply(self, pixels: Tensor, dtype: torch.dtype) -> Tensor:
        """Pixels (n, height, width, channels) to network input (n, channels, height,
        width).
        """
        mean = torch.tensor(self.mean, device=pixels.device)
        deviation = torch.tensor(self.deviation, device=pixels.device)
        return ((pixels - mean) / deviation).to(dtype).permute(0, 3, 1, 2)


def pad(images: Tensor, side: int) -> Tensor:
    """Add a black margin to images (n, h, w, channels): (n, side, side, channels)."""
    margin = (side - images.shape[1]) // 2
    return F.pad(images, (0, 0, margin, margin, margin, margin))


def draw_plan(n: int, *, augment: bool, seed: int, epoch: int) -> NDArray[np.int64]:
    """The examples of an epoch, (4, n): index, top and left in the padded image,
    mirrored or not.

    The same on every machine: only raw output of PCG64 is used.
    """
    words = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(2 * n)
    plan = np.zeros((4, n), np.int64)
    plan[0] = np.argsort(words[:n], kind="stable")
    plan[1:3] = SHIFT
    if augment:
        choices = words[n:]
        n_shifts = np.uint64(2 * SHIFT + 1)
        plan[1] = (choices >> np.uint64(16)) % n_shifts
        plan[2] = (choices >> np.uint64(32)) % n_shifts
        plan[3] = (choices >> np.uint64(63)) & np.uint64(1)
    return plan


def draw_gates(
    survival: NDArray[np.float64], n_steps: int, *, seed: int, epoch: int
) -> NDArray[np.float32]:
    """Which blocks each step of an epoch uses, (n_steps, blocks) of 0 and 1."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch, 1]))
    words = bits.random_raw(n_steps * survival.size).reshape(n_steps, survival.size)
    return (words / 2.0**64 < survival).astype(np.float32)


class Feed:
    """The training images on the device, and batches of them in the order of a plan."""

    def __init__(
        self,
        data: LabelledImages,
        normalisation: Normalisation,
        batch_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        images = torch.from_numpy(data.images).to(device)
        self.images = pad(images, SIDE + 2 * SHIFT)
        self.labels = torch.from_numpy(data.labels).to(device)
        self.plan = torch.zeros((4, len(data)), dtype=torch.int64, device=device)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self._within = torch.arange(batch_size, device=device)
        self._pixels = torch.arange(SIDE, device=device)
        self._mean = torch.tensor(normalisation.mean, device=device)
        self._factor = 1.0 / torch.tensor(normalisation.deviation, device=device)
        self._dtype = dtype

    def begin(self, plan: NDArray[np.int64]) -> None:
        """Start an epoch with its plan (4, n)."""
        self.plan.copy_(torch.from_numpy(plan))
        self.position.zero_()

    def batch(self) -> tuple[Tensor, Tensor]:
        """The next batch: input (batch, channels, 32, 32) and labels (batch,)."""
        index, top, left, mirrored = self.plan.index_select(
            1, self.position + self._within
        )
        across = torch.where(
            mirrored[:, None] == 1, SIDE - 1 - self._pixels, self._pixels
        )
        lines = top[:, None] + self._pixels
        columns = left[:, None] + across
        pixels = self.images[
            index[:, None, None], lines[:, :, None], columns[:, None, :]
        ]
        self.position.add_(self._within.numel())
        ready = (
            ((pixels - self._mean) * self._factor).to(self._dtype).permute(0, 3, 1, 2)
        )
        return ready, self.labels.index_select(0, index)
