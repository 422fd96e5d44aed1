"""Logits of a trained network, for images and their zoomed-out copies."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hokical_paper.making.augment import SIDE, Normalisation, pad
from hokical_paper.making.training import Piece
from hokical_paper.making.views import zoom_out

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
    """A job that returns the logits (n, classes) of images (n, height, width,
    channels).

    With `scale` the images are zoomed out first. The network stays in inference mode.
    """
    network.eval()
    device = next(network.parameters()).device
    batches = []
    for start in range(0, len(images), batch_size):
        network.eval()  # it may have been trained since the last step of this job
        pixels = torch.from_numpy(images[start : start + batch_size]).to(device)
        if scale is not None:
            pixels = zoom_out(pixels, scale)
        batches.append(network(normalisation.apply(pad(pixels, SIDE), dtype)))
        yield "launched"
    yield "drain"
    return np.asarray(torch.cat(batches).cpu().numpy().astype(np.float16))


def accuracy(logits: Half, labels: NDArray[np.int64]) -> float:
    """The share of rows of logits (n, classes) whose first maximum is the label
    (n,).
    """
    return float(np.mean(np.argmax(logits, axis=1) == labels))
