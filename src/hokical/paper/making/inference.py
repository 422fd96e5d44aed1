"""Logits of a trained network, for images as they are and zoomed out."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hokical.paper.making.augment import SIDE, Normalisation, padded
from hokical.paper.making.training import Piece
from hokical.paper.making.views import zoom_out

Half = NDArray[np.float16]


@torch.no_grad()
def logits_of(
    network: nn.Module,
    images: NDArray[np.uint8],
    normalisation: Normalisation,
    *,
    dtype: torch.dtype = torch.float32,
    scale: float | None = None,
    batch_size: int = 1000,
) -> Generator[Piece, None, Half]:
    """Work that returns the logits (n, classes) of images (n, height, width, channels) as float16.

    With `scale` the images are zoomed out first. The network is left in inference mode.
    """
    network.eval()
    device = next(network.parameters()).device
    parts = []
    for start in range(0, len(images), batch_size):
        network.eval()  # between pieces others may have trained it
        pixels = torch.from_numpy(images[start : start + batch_size]).to(device)
        if scale is not None:
            pixels = zoom_out(pixels, scale)
        parts.append(network(normalisation.apply(padded(pixels, SIDE), dtype)))
        yield "launched"
    yield "drain"
    return np.asarray(torch.cat(parts).cpu().numpy().astype(np.float16))


def accuracy(logits: Half, labels: NDArray[np.int64]) -> float:
    """The share of rows whose first maximum is the label."""
    return float(np.mean(np.argmax(logits, axis=1) == labels))
