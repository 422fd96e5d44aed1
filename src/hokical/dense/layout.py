"""Where the classes are in a dense array, and how it is cut into slabs of positions.

A position is a place that has a prediction: a pixel, a token. An array of logits has the shape of
its positions with one more axis, that of the classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Index = tuple[slice, ...]


@dataclass(frozen=True)
class DenseLayout:
    """Shape of dense logits, and which of the axes is that of the classes (counted from 0)."""

    shape: tuple[int, ...]
    axis: int

    @property
    def n_classes(self) -> int:
        return self.shape[self.axis]

    @property
    def positions(self) -> tuple[int, ...]:
        """The shape without the classes."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    def with_classes(self, index: Index) -> Index:
        """An index of positions as one of logits, with all classes."""
        return (*index[: self.axis], slice(None), *index[self.axis :])


def find_layout(shape: tuple[int, ...], class_axis: int) -> DenseLayout:
    """Check the axis of the classes against a shape."""
    if len(shape) < 2:
        raise ValueError(
            "`logits` must have an axis of classes and at least one of positions, such as (n, h, "
            f"w, classes) or (n, tokens, classes); got shape {shape}."
        )
    if not -len(shape) <= class_axis < len(shape):
        raise ValueError(
            f"`class_axis` must be an axis of the logits, from {-len(shape)} to {len(shape) - 1} "
            f"for shape {shape}; got {class_axis}."
        )
    layout = DenseLayout(tuple(int(length) for length in shape), class_axis % len(shape))
    if layout.n_classes < 2:
        raise ValueError(
            f"`logits` must have at least two classes; got {layout.n_classes} on axis "
            f"{layout.axis} of shape {shape}. Give `class_axis`, the axis of the classes."
        )
    return layout


def check_like_positions(shape: tuple[int, ...], layout: DenseLayout, name: str) -> None:
    """Raise unless an array has one entry per position; say which class axis would fit."""
    if tuple(shape) == layout.positions:
        return
    fitting = [
        axis
        for axis in range(len(layout.shape))
        if layout.shape[:axis] + layout.shape[axis + 1 :] == tuple(shape)
    ]
    remedy = f" It would fit `class_axis={fitting[0]}`." if fitting else ""
    raise ValueError(
        f"`{name}` must have the shape of the logits without the axis of the classes, "
        f"{layout.positions}; got {tuple(shape)} beside logits {layout.shape} with the classes on "
        f"axis {layout.axis}.{remedy}"
    )


def slabs(shape: tuple[int, ...], limit: int) -> Iterator[Index]:
    """Indices that cut an array into parts of at most `limit` entries, in order.

    Every part is contiguous in the order of the entries, so that one after the other they are the
    array, flattened. Most hold at least half of `limit`.

    >>> for index in slabs((2, 3, 4), limit=8):
    ...     print([(part.start, part.stop) for part in index])
    [(0, 1), (0, 2), (0, 4)]
    [(0, 1), (2, 3), (0, 4)]
    [(1, 2), (0, 2), (0, 4)]
    [(1, 2), (2, 3), (0, 4)]
    """
    if math.prod(shape) == 0:
        return
    cut = 0
    while cut < len(shape) - 1 and math.prod(shape[cut + 1 :]) > limit:
        cut += 1
    step = max(1, limit // math.prod(shape[cut + 1 :]))
    whole = tuple(slice(0, length) for length in shape[cut + 1 :])
    for before in np.ndindex(shape[:cut]):
        for start in range(0, shape[cut], step):
            part = slice(start, min(start + step, shape[cut]))
            yield (*(slice(place, place + 1) for place in before), part, *whole)
