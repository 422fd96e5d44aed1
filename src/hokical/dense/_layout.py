"""Where the classes are in a dense array, its slabs of positions, and a choice among these.

A position is a place that has a prediction: a pixel, a token. An array of logits has the shape of
its positions with one more axis, that of the classes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.types import BoolArray
from hokical.guarantees._row_sketch import scatter

Index = tuple[slice, ...]

#: Weyl step of the SplitMix64 generator, and how far apart the numbers of two items begin.
_STEP, _ITEM = np.uint64(0x9E3779B97F4A7C15), np.uint64(1 << 32)


@dataclass(frozen=True)
class DenseLayout:
    """Shape of dense logits, and which of the axes is that of the classes (counted from 0)."""

    shape: tuple[int, ...]
    axis: int

    @classmethod
    def find(cls, shape: tuple[int, ...], class_axis: int) -> Self:
        """Check the axis of the classes against a shape."""
        if len(shape) < 2:
            raise ValueError(
                "`logits` must have an axis of classes and at least one of positions, such as (n, "
                f"h, w, classes) or (n, tokens, classes); got shape {shape}."
            )
        if not -len(shape) <= class_axis < len(shape):
            raise ValueError(
                f"`class_axis` must be an axis of the logits, from {-len(shape)} to "
                f"{len(shape) - 1} for shape {shape}; got {class_axis}."
            )
        layout = cls(tuple(int(length) for length in shape), class_axis % len(shape))
        if layout.n_classes < 2:
            raise ValueError(
                f"`logits` must have at least two classes; got {layout.n_classes} on axis "
                f"{layout.axis} of shape {shape}. Give `class_axis`, the axis of the classes."
            )
        return layout

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

    def check_positions(self, array: Any, name: str) -> None:
        """Raise unless an array has one entry per position; say which class axis would fit."""
        shape = tuple(array.shape)
        if shape == self.positions:
            return
        axes = range(len(self.shape))
        fitting = [k for k in axes if self.shape[:k] + self.shape[k + 1 :] == shape]
        remedy = f" It would fit `class_axis={fitting[0]}`." if fitting else ""
        raise ValueError(
            f"`{name}` must have the shape of the logits without the axis of the classes, "
            f"{self.positions}; got {shape} beside logits {self.shape} with the classes on axis "
            f"{self.axis}.{remedy}"
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


def choose_positions(counting: BoolArray, most: int, seed: int, first_item: int) -> BoolArray:
    """At most `most` of the positions of each item that count, drawn evenly.

    `counting` (items, positions) says which positions count; `first_item` is the first item's
    number. The choice depends on nothing but the seed, the item's number and its row.

    >>> everything = np.ones((3, 5), bool)
    >>> choose_positions(everything, 2, seed=0, first_item=0).sum(axis=1).tolist()
    [2, 2, 2]
    """
    if counting.shape[1] <= most:
        return counting
    items, positions = (np.arange(length, dtype=np.uint64) for length in counting.shape)
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    number = (items[:, None] + np.uint64(first_item)) * _ITEM + positions
    # Every position gets a random key; those of the smallest keys are taken.
    keys = np.where(counting, scatter(start + number * _STEP), 2.0)
    taken = np.zeros_like(counting)
    np.put_along_axis(taken, np.argpartition(keys, most - 1, axis=1)[:, :most], True, axis=1)
    return taken & counting
