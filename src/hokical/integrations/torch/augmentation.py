"""Mild transformations of a batch of inputs, for test-time augmentation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hokical._core.checks import check_choice

#: A function of a batch of inputs, which returns a batch of the same shape.
Transform = Callable[[Tensor], Tensor]
Kind = Literal["image", "symbol", "texture"]
#: Shifts are this share of the side of an image: 2 pixels of 32.
_SHIFT = 1.0 / 16.0
#: Rotations, in degrees.
_ANGLE = 5.0
#: Zooms: 0.9 shows more than the image, with its border repeated.
_ZOOMS = (0.9, 1.1)
#: Brightness is moved by this share of an image's own standard deviation.
_BRIGHTNESS = 0.2


def views(kind: Kind = "image") -> dict[str, Transform]:
    """Mild transformations of images (n, channels, height, width), by name.

    The first is the identity. Each is a function of every image by itself, works on any
    device and type, needs PyTorch alone, and repeats the border where it looks beyond
    it. `hokical.calibrate(network, loader, transforms=views("image"))` calibrates what
    the network says of all of them; leave out those that change what your classes mean.

    Parameters
    ----------
    kind : {"image", "symbol", "texture"}
        What images show. "image": photographs, which may be mirrored, moved, turned by a
        few degrees, zoomed and brightened. "symbol": digits, text and signs, and whatever
        has a left and a right (radiographs, faces of clocks): the same without the
        mirror. "texture": microscopy, tissue and images from above, which have no top:
        mirrored, and turned by quarters.

    Returns
    -------
    transforms : dict of str to callable

    Examples
    --------
    >>> import torch
    >>> transforms = views("image")
    >>> list(transforms)[:3]
    ['identity', 'mirror', 'right']
    >>> transforms["mirror"](torch.tensor([[[[1.0, 2.0, 3.0]]]])).flatten().tolist()
    [3.0, 2.0, 1.0]
    """
    check_choice("kind", kind, Kind)
    if kind == "texture":
        return {
            "identity": identity,
            "mirror": _mirror,
            "upside down": _flip,
            "quarter turn": partial(_turn, quarters=1),
            "half turn": partial(_turn, quarters=2),
            "three quarters": partial(_turn, quarters=3),
            **_LIGHT,
        }
    mirrored = {"mirror": _mirror} if kind == "image" else {}
    return {"identity": identity, **mirrored, **_MOVES, **_LIGHT}


def identity(images: Tensor) -> Tensor:
    """The images as they are: the view whose labels `keep_labels=True` keeps."""
    return images


def _mirror(images: Tensor) -> Tensor:
    return images.flip(-1)


def _flip(images: Tensor) -> Tensor:
    return images.flip(-2)


def _turn(images: Tensor, *, quarters: int) -> Tensor:
    if images.shape[-1] != images.shape[-2]:
        raise ValueError(
            "`images` must be square to be turned by quarters; got "
            f"{images.shape[-2]} x {images.shape[-1]} pixels. Leave those views out."
        )
    return torch.rot90(images, quarters, dims=(-2, -1))


def _shift(images: Tensor, *, across: float, down: float) -> Tensor:
    """Moved by shares of the side, rounded to whole pixels, at least one."""
    height, width = images.shape[-2:]
    columns = _pixels(across, width)
    rows = _pixels(down, height)
    reach = (abs(columns), abs(columns), abs(rows), abs(rows))
    padded = F.pad(images, reach, mode="replicate")
    top = abs(rows) - rows
    left = abs(columns) - columns
    return padded[..., top : top + height, left : left + width]


def _pixels(share: float, side: int) -> int:
    if share == 0.0:
        return 0
    return int(math.copysign(max(1, round(abs(share) * side)), share))


def _resample(images: Tensor, *, degrees: float = 0.0, zoom: float = 1.0) -> Tensor:
    """Turned about the centre and enlarged, with bilinear interpolation."""
    angle = math.radians(degrees)
    height, width = images.shape[-2:]
    cosine = math.cos(angle) / zoom
    sine = math.sin(angle) / zoom
    # Of coordinates from -1 to 1, whatever the sides.
    matrix = [
        [cosine, -sine * height / width, 0.0],
        [sine * width / height, cosine, 0.0],
    ]
    theta = torch.tensor(matrix, device=images.device, dtype=images.dtype)
    size = [images.shape[0], images.shape[1], height, width]
    grid = F.affine_grid(theta.expand(images.shape[0], 2, 3), size, align_corners=False)
    return F.grid_sample(
        images, grid, mode="bilinear", padding_mode="border", align_corners=False
    )


def _brighten(images: Tensor, *, amount: float) -> Tensor:
    spread = images.flatten(1).std(dim=1).reshape(-1, 1, 1, 1)
    return images + amount * spread


_MOVES: MappingProxyType[str, Transform] = MappingProxyType(
    {
        "right": partial(_shift, across=_SHIFT, down=0.0),
        "left": partial(_shift, across=-_SHIFT, down=0.0),
        "down": partial(_shift, across=0.0, down=_SHIFT),
        "up": partial(_shift, across=0.0, down=-_SHIFT),
        "turn left": partial(_resample, degrees=_ANGLE),
        "turn right": partial(_resample, degrees=-_ANGLE),
        "zoom out": partial(_resample, zoom=_ZOOMS[0]),
        "zoom in": partial(_resample, zoom=_ZOOMS[1]),
    }
)
_LIGHT: MappingProxyType[str, Transform] = MappingProxyType(
    {
        "brighter": partial(_brighten, amount=_BRIGHTNESS),
        "darker": partial(_brighten, amount=-_BRIGHTNESS),
    }
)
