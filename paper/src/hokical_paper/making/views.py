"""Zoomed-out images: the transformed inputs that ReCal uses."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: The paper's 20 scales.
ZOOM_SCALES = np.linspace(0.1, 0.9, 20)


def zoom_matrix(side: int, scale: float) -> NDArray[np.float64]:
    """Matrix (side, side) that shrinks a line of pixels by `scale` and centres it on
    black.

    Each new pixel is a mean of the old ones, weighted with a triangle whose width is
    that of a new pixel (bilinear interpolation with antialiasing).

    >>> zoom_matrix(4, 0.5)[1].round(3).tolist()
    [0.429, 0.429, 0.143, 0.0]
    """
    if not 0.0 < scale <= 1.0:
        raise ValueError(f"`scale` must be in (0, 1]; got {scale}.")
    small = max(1, round(scale * side))
    factor = side / small
    centres = (np.arange(small) + 0.5) * factor
    distance = np.abs(np.arange(side) + 0.5 - centres[:, None]) / factor
    weights = np.maximum(0.0, 1.0 - distance)
    out = np.zeros((side, side))
    first = (side - small) // 2
    out[first : first + small] = weights / weights.sum(axis=1, keepdims=True)
    return out


def zoom_out(images: Tensor, scale: float) -> Tensor:
    """Shrink images (n, side, side, channels) and centre them on black, as float32."""
    matrix = torch.from_numpy(zoom_matrix(images.shape[1], scale))
    matrix = matrix.to(device=images.device, dtype=torch.float32)
    lines = torch.einsum("ip,npqc->niqc", matrix, images.to(torch.float32))
    return torch.einsum("jq,niqc->nijc", matrix, lines)
