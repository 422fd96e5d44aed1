"""Which positions count, and their logits, labels and weights as rows, a slab at a time."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.bins import check_count
from hokical._core.reading import to_numpy
from hokical._core.types import BoolArray
from hokical.dense._arrays import class_rows, first_bad_row, fit_rows
from hokical.dense._layout import DenseLayout, Index, choose_positions, slabs
from hokical.io._chunks import Chunk, as_sliceable, block_rows

#: What a mask is called in files and batches, the most usual first.
MASKS = ("mask", "attention_mask")


@dataclass(frozen=True)
class DenseOptions:
    """How dense arrays are read, checked.

    `ignored` are labels of positions that do not count; at most `per_item` positions of an item are
    taken (None for all), by `seed`.
    """

    class_axis: int
    ignored: tuple[int, ...]
    per_item: int | None
    seed: int


def check_options(class_axis: Any, ignore_label: Any, per_item: Any, seed: Any) -> DenseOptions:
    """The options of a user, as `DenseOptions`."""
    if isinstance(class_axis, bool) or not isinstance(class_axis, (int, np.integer)):
        raise TypeError(f"`class_axis` must be an integer; got {class_axis!r}.")
    if per_item is not None:
        per_item = check_count(per_item, name="max_positions_per_item")
    seed = check_count(seed, name="random_state", least=0)
    return DenseOptions(int(class_axis), _as_integers(ignore_label), per_item, seed)


def _as_integers(ignore_label: Any) -> tuple[int, ...]:
    if ignore_label is None:
        return ()
    labels = tuple(ignore_label if isinstance(ignore_label, Iterable) else [ignore_label])
    for label in labels:
        if isinstance(label, (bool, np.bool_)) or not isinstance(label, (int, np.integer)):
            raise TypeError(
                "`ignore_label` must be an integer, several of them, or None; got "
                f"{ignore_label!r}."
            )
    return tuple(int(label) for label in labels)


@dataclass(frozen=True, eq=False)
class DenseBatch:
    """Dense logits and what goes with them; nothing of it has been looked at but the shapes.

    `labels` and `mask` have the positions' shape, or are None; `weights` have it too, or are one
    per item; `first_item` is how many items there were before.
    """

    logits: Any
    labels: Any
    mask: Any
    weights: Any
    layout: DenseLayout
    options: DenseOptions
    first_item: int = 0

    @property
    def n_items(self) -> int:
        return self.layout.positions[0]

    def chunks(self) -> Iterator[Chunk]:
        """The positions that count, in order, as chunks of rows."""
        return (self.chunk(index, keep) for index, keep in self.slabs())

    def chunk(self, index: Index, keep: BoolArray | None) -> Chunk:
        """The positions of a slab that count."""
        rows = fit_rows(self.rows(index, keep))
        labels = None if self.labels is None else self._labels(index, keep)
        weights = None if self.weights is None else self._weights(index, keep)
        return Chunk(rows, labels, weights)

    def slabs(self) -> Iterator[tuple[Index, BoolArray | None]]:
        """Slabs, and which of their positions count (None: all)."""
        positions, limit = self.layout.positions, block_rows(self.layout.n_classes)
        if self.options.per_item is None:
            for index in slabs(positions, limit):
                yield index, self._find_counting(index)
            return
        step = max(1, limit // max(1, math.prod(positions[1:])))
        for first in range(0, self.n_items, step):  # whole items, as many as make a slab
            items = slice(first, min(first + step, self.n_items))
            chosen = self._choose(items, self.options.per_item)
            for index in slabs(chosen.shape, limit):
                place = slice(first + index[0].start, first + index[0].stop)
                yield (place, *index[1:]), chosen[index]

    def known_rows(self) -> int | None:
        """How many positions count, where the shapes say it."""
        options = self.options
        if self.mask is not None or (options.ignored and self.labels is not None):
            return None
        each = math.prod(self.layout.positions[1:])
        return self.n_items * (each if options.per_item is None else min(each, options.per_item))

    def count_rows(self) -> int:
        """How many positions count, from labels and masks alone."""
        known = self.known_rows()
        if known is not None:
            return known
        return sum(
            math.prod(part.stop - part.start for part in index) if keep is None else int(keep.sum())
            for index, keep in self.slabs()
        )

    def rows(self, index: Index, keep: BoolArray | None) -> Any:
        """The logits (rows, classes) of a slab's positions that count, checked."""
        rows = class_rows(self.logits, index, keep, self.layout)
        bad = first_bad_row(rows)
        if bad is None:
            return rows
        flat = bad[0] if keep is None else int(np.flatnonzero(keep)[bad[0]])
        inside = np.unravel_index(flat, [part.stop - part.start for part in index])
        raise ValueError(
            "`logits` must not hold NaN or +inf, nor -inf for every class; got "
            f"{bad[1]} at position {self.place(index, inside)}. If the position does not count, "
            "give `mask` with False there; -inf alone is allowed, for an impossible class."
        )

    def _find_counting(self, index: Index) -> BoolArray | None:
        """Which positions of a slab are neither masked nor ignored; None for all."""
        keep = None if self.mask is None else check_mask(self.mask[index])
        if self.options.ignored and self.labels is not None:
            known = ~np.isin(to_numpy(self.labels[index], "labels"), self.options.ignored)
            keep = known if keep is None else keep & known
        return None if keep is None or keep.all() else keep

    def _choose(self, items: slice, most: int) -> BoolArray:
        """Which positions (items, ...) are taken, at most `most` of each item."""
        lengths = self.layout.positions[1:]
        shape = (items.stop - items.start, *lengths)
        keep = self._find_counting((items, *(slice(0, length) for length in lengths)))
        counting = np.ones(shape, np.bool_) if keep is None else keep
        flat = counting.reshape(shape[0], math.prod(lengths))
        first_item = self.first_item + items.start
        return choose_positions(flat, most, self.options.seed, first_item).reshape(shape)

    def _labels(self, index: Index, keep: BoolArray | None) -> NDArray[Any]:
        labels = to_numpy(self.labels[index], "labels")
        if labels.dtype.kind not in "iub":
            raise TypeError(
                "`labels` must be integers, the index of each position's class; got dtype "
                f"{labels.dtype}. Convert with `.astype(int)`."
            )
        wrong = (labels < 0) | (labels >= self.layout.n_classes)
        if keep is not None:
            wrong &= keep
        if wrong.any():
            inside = np.argwhere(wrong)[0]
            value = labels[tuple(inside)]
            raise ValueError(
                f"`labels` must lie in [0, {self.layout.n_classes - 1}], one index per class on "
                f"axis {self.layout.axis} of the logits; got {value} at position "
                f"{self.place(index, inside)}. If it marks positions that do not count, give "
                f"`ignore_label={value}`."
            )
        return labels.reshape(-1) if keep is None else labels[keep]

    def _weights(self, index: Index, keep: BoolArray | None) -> NDArray[Any]:
        """Per position as they are; one per item for all of its positions."""
        per_item = len(self.weights.shape) == 1 < len(index)
        weights = to_numpy(self.weights[index[:1] if per_item else index], "sample_weight")
        if per_item:
            weights = weights.reshape(-1, *[1] * (len(index) - 1))
            weights = np.broadcast_to(weights, [part.stop - part.start for part in index])
        return weights.reshape(-1) if keep is None else weights[keep]

    def place(self, index: Index, inside: Any) -> tuple[int, ...]:
        """A place within a slab as one in the whole; items are counted over all batches."""
        found = [part.start + int(shift) for part, shift in zip(index, inside, strict=True)]
        return (found[0] + self.first_item, *found[1:])


def make_batch(
    logits: Any, labels: Any, mask: Any, weights: Any, options: DenseOptions, first_item: int = 0
) -> DenseBatch:
    """Arrays as they came, with shapes that fit together."""
    logits, labels, mask, weights = map(as_sliceable, (logits, labels, mask, weights))
    layout = DenseLayout.find(tuple(logits.shape), options.class_axis)
    if options.per_item is not None and layout.axis == 0:
        raise ValueError(
            "`max_positions_per_item` needs items on the first axis of the logits, and that is "
            "the axis of the classes. Give a single item as `logits[None]`, with `class_axis=1`."
        )
    for name, array in (("labels", labels), ("mask", mask)):
        if array is not None:
            layout.check_positions(array, name)
    if weights is not None and tuple(weights.shape) != layout.positions[:1]:
        layout.check_positions(weights, "sample_weight")
    return DenseBatch(logits, labels, mask, weights, layout, options, first_item)


def check_mask(mask: Any) -> BoolArray:
    """True or False, or the same as 1 and 0."""
    array = to_numpy(mask, "mask")
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu" and bool(((array == 0) | (array == 1)).all()):
        return array.astype(np.bool_)
    raise TypeError(
        "`mask` must be True where a position counts and False elsewhere (or 1 and 0); got dtype "
        f"{array.dtype}" + (" with other numbers." if array.dtype.kind in "iu" else ".")
    )
