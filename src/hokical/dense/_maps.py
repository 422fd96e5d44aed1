"""Arrays with a class axis as rows (positions, classes), a slab at a time.

A position is a place that has a prediction: a pixel, a token. Logits have the shape of their
positions with one more axis, that of the classes; an item is an entry of the first axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device, is_writeable_array

from hokical._core.arrays import NUMPY, Array, backend_of, to_host, to_input_library
from hokical._core.reading import to_numpy
from hokical._core.types import AnyArray, BoolArray, IntArray
from hokical.guarantees._row_sketch import scatter
from hokical.io._chunks import as_sliceable, block_rows

Index = tuple[slice, ...]

#: Weyl step of the SplitMix64 generator, and how far apart the numbers of two items begin.
_STEP, _ITEM = np.uint64(0x9E3779B97F4A7C15), np.uint64(1 << 32)


class Positions(NamedTuple):
    """Rows of logits (n, classes), their labels and weights (n,) or None, and their items (n,)."""

    logits: Array
    labels: IntArray | None
    weights: AnyArray | None
    items: IntArray


@dataclass(frozen=True, eq=False)
class Maps:
    """Logits and what goes with them, of which only the shapes have been looked at.

    `labels` and `mask` have the positions' shape, or are None; `weights` have it too, or are one
    per item. Positions with `ignored` labels do not count. `first_item` is how many items came
    before.
    """

    logits: Any
    labels: Any
    mask: Any
    weights: Any
    class_axis: int
    ignored: tuple[int, ...] = ()
    first_item: int = 0

    def __post_init__(self) -> None:
        shape = self.shape
        if len(shape) < 2 or not -len(shape) <= self.class_axis < len(shape):
            raise ValueError(
                "`logits` must have an axis of classes, `class_axis`, and at least one of "
                "positions, such as (n, h, w, classes) or (n, tokens, classes); got shape "
                f"{shape} and class_axis={self.class_axis}."
            )
        if self.n_classes < 2:
            raise ValueError(
                f"`logits` must have at least two classes; got {self.n_classes} on axis "
                f"{self.axis} of shape {shape}. Give `class_axis`, the axis of the classes."
            )
        per_item = self.weights is not None and tuple(self.weights.shape) == self.positions[:1]
        beside = {"labels": self.labels, "mask": self.mask}
        for name, array in (beside | ({} if per_item else {"sample_weight": self.weights})).items():
            if array is not None and tuple(array.shape) != self.positions:
                raise ValueError(
                    f"`{name}` must have the shape of the logits without the axis of the classes, "
                    f"{self.positions}; got {tuple(array.shape)} beside logits {shape}. Give "
                    "`class_axis`, the axis of the classes."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(length) for length in self.logits.shape)

    @property
    def axis(self) -> int:
        """The axis of the classes, counted from 0."""
        return self.class_axis % len(self.shape)

    @property
    def n_classes(self) -> int:
        return self.shape[self.axis]

    @property
    def positions(self) -> tuple[int, ...]:
        """The shape without the classes."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    def slabs(self, most: int | None = None, seed: int = 0) -> Iterator[tuple[Index, BoolArray]]:
        """Indices of positions in order, about 30 MB of logits each, and which positions count.

        At most `most` positions of an item do, chosen by the seed and the item's number.
        """
        limit, lengths = block_rows(self.n_classes), self.positions[1:]
        step = max(1, limit // max(1, math.prod(lengths)))
        for first in range(0, self.positions[0], step):  # whole items, as many as make a slab
            items = slice(first, min(first + step, self.positions[0]))
            counting = self._find_counting((items, *(slice(0, length) for length in lengths)))
            if most is not None:
                flat = counting.reshape(counting.shape[0], -1)
                chosen = choose_positions(flat, most, seed, self.first_item + first)
                counting = chosen.reshape(counting.shape)
            for index in _cut(counting.shape, limit):
                place = slice(first + index[0].start, first + index[0].stop)
                yield (place, *index[1:]), counting[index]

    def rows(self, index: Index, keep: BoolArray) -> Array:
        """The logits (rows, classes) of a slab's positions to keep, checked."""
        part = self.logits[_with_classes(index, self.axis)]
        here = part if stays_in_place(part) else to_numpy(part, "logits")
        xp = _namespace(here)
        rows = xp.reshape(xp.moveaxis(here, self.axis, -1), (-1, self.n_classes))
        if not keep.all():
            rows = rows[_as_index(keep.reshape(-1), rows)]
        if rows.shape[0] and here.dtype not in (xp.int64, xp.int32, xp.uint8):
            with np.errstate(all="ignore"):
                bad = ~np.isfinite(to_host(xp.max(rows, axis=1)))
            if bad.any():
                self._refuse(index, keep, bad)
        return rows

    def read(self, most: int | None = None, seed: int = 0) -> Iterator[Positions]:
        """The positions that count, slab after slab; at most `most` of an item, by the seed."""
        for index, keep in self.slabs(most, seed):
            if keep.any():
                rows, items = self.rows(index, keep), np.nonzero(keep)[0] + index[0].start
                backend = backend_of(rows)
                plain = rows if backend is None else backend.without_gradient(rows)
                labels = None if self.labels is None else self._labels(index, keep)
                weights = None if self.weights is None else self._weights(index, keep)
                yield Positions(plain, labels, weights, items + self.first_item)

    def predict(
        self, work: Callable[[Array], Sequence[Array]], fills: Sequence[Any], of_classes: bool
    ) -> list[Array]:
        """What `work` makes of rows (n, classes), in the shape of the positions or of the logits.

        Where no position counts there is the fill of each result.
        """
        here = stays_in_place(self.logits)
        xp = _namespace(self.logits) if here else np
        where = {"device": device(self.logits)} if here else {}
        kind = self.logits.dtype if here else np.float64
        none = xp.zeros((1, self.n_classes), dtype=kind, **where)
        shape = self.shape if of_classes else self.positions
        kinds = (found.dtype for found in work(none))
        answers = [
            xp.full(shape, fill, dtype=kind, **where)
            for fill, kind in zip(fills, kinds, strict=True)
        ]
        for index, keep in self.slabs():
            if not keep.any():
                continue
            for answer, found in zip(answers, work(self.rows(index, keep)), strict=True):
                part = answer[_with_classes(index, self.axis) if of_classes else index]
                part = xp.moveaxis(part, self.axis, -1) if of_classes else part
                part[_as_index(keep, part)] = xp.astype(found, part.dtype)
        return [to_input_library(answer, self.logits) for answer in answers]

    def _find_counting(self, index: Index) -> BoolArray:
        """Which positions of a slab are neither masked nor ignored."""
        keep = np.ones([part.stop - part.start for part in index], np.bool_)
        if self.mask is not None:
            keep &= _check_mask(self.mask[index])
        if self.ignored and self.labels is not None:
            keep &= ~np.isin(to_numpy(self.labels[index], "labels"), self.ignored)
        return keep

    def _labels(self, index: Index, keep: BoolArray) -> IntArray:
        labels = to_numpy(self.labels[index], "labels")
        if labels.dtype.kind not in "iub":
            raise TypeError(
                "`labels` must be integers, the index of each position's class; got dtype "
                f"{labels.dtype}. Convert with `.astype(int)`."
            )
        own = labels[keep]
        wrong = (own < 0) | (own >= self.n_classes)
        if wrong.any():
            value, place = own[np.argmax(wrong)], self._place(index, keep, wrong)
            raise ValueError(
                f"`labels` must lie in [0, {self.n_classes - 1}], one index per class on axis "
                f"{self.axis} of the logits; got {value} at position {place}. If it marks "
                f"positions that do not count, give `ignore_label={value}`."
            )
        return own.astype(np.int64)

    def _weights(self, index: Index, keep: BoolArray) -> AnyArray:
        """Per position as they are; one per item for all of its positions."""
        if len(self.weights.shape) == 1 < len(index):
            per_item = to_numpy(self.weights[index[0]], "sample_weight")
            return per_item[np.nonzero(keep)[0]]
        return to_numpy(self.weights[index], "sample_weight")[keep]

    def _refuse(self, index: Index, keep: BoolArray, bad: BoolArray) -> None:
        raise ValueError(
            "`logits` must not hold NaN or +inf, nor -inf for every class; got such at position "
            f"{self._place(index, keep, bad)}. If the position does not count, give `mask` with "
            "False there; -inf alone is allowed, for a masked class."
        )

    def _place(self, index: Index, keep: BoolArray, wrong: BoolArray) -> tuple[int, ...]:
        """The first wrong one of the positions to keep; items are counted over all batches."""
        inside = np.argwhere(keep)[np.argmax(wrong)]
        found = [part.start + int(shift) for part, shift in zip(index, inside, strict=True)]
        return (found[0] + self.first_item, *found[1:])


def open_maps(
    logits: Any, labels: Any, mask: Any, weights: Any, class_axis: int, ignored: tuple[int, ...]
) -> Iterator[Maps]:
    """The maps of an array, or of batches as users give them."""
    if not holds_batches(logits):
        yield _make_maps((logits, labels, mask, weights), class_axis, ignored)
        return
    if any(part is not None for part in (labels, mask, weights)):
        raise TypeError(
            "labels, masks and weights come with the batches, as (logits, labels, sample_weight) "
            "or a mapping; they cannot be given beside them."
        )
    first_item = 0
    for batch in logits() if callable(logits) else logits:
        found = _make_maps(_split_batch(batch), class_axis, ignored, first_item)
        yield found
        first_item += found.positions[0]


def _make_maps(
    parts: tuple[Any, Any, Any, Any], class_axis: int, ignored: tuple[int, ...], first_item: int = 0
) -> Maps:
    logits, labels, mask, weights = map(as_sliceable, parts)
    return Maps(logits, labels, mask, weights, class_axis, ignored, first_item)


def holds_batches(logits: Any) -> bool:
    """Whether it is batches, and not one array or lists of numbers that make one."""
    if logits is None or isinstance(logits, (str, bytes, Mapping)):
        raise TypeError(
            f"`logits` must be an array (n, ..., classes) or batches; got {type(logits).__name__}. "
            "Open files with `numpy.load(path, mmap_mode='r')`, give the arrays of a mapping by "
            "name, `fit(**arrays)`."
        )
    if not isinstance(logits, (list, tuple)):
        return not hasattr(logits, "shape") and (callable(logits) or isinstance(logits, Iterable))
    if logits and all(hasattr(part, "shape") for part in logits) and isinstance(logits, tuple):
        raise TypeError(
            "`logits` must be an array (n, ..., classes) or batches; got one batch in a tuple. "
            "Give its arrays by name, `fit(logits=..., labels=...)`, or a list of such batches."
        )
    first = logits[0] if logits else None
    inner = first[0] if isinstance(first, (list, tuple)) and first else first
    return isinstance(first, Mapping) or hasattr(inner, "shape")


def _split_batch(batch: Any) -> tuple[Any, Any, Any, Any]:
    """Logits, labels, mask and weights of a batch, None for those that it does not have."""
    if isinstance(batch, Mapping) and "logits" in batch:
        mask = batch.get("mask", batch.get("attention_mask"))
        return batch["logits"], batch.get("labels"), mask, batch.get("sample_weight")
    if hasattr(batch, "shape"):
        return batch, None, None, None
    if isinstance(batch, (list, tuple)) and 1 <= len(batch) <= 3:
        logits, labels, weights = (*batch, None, None)[:3]
        return logits, labels, None, weights
    raise TypeError(
        "a batch must be logits, a tuple (logits, labels) or (logits, labels, sample_weight), or "
        f"a mapping with these names and `mask`; got {type(batch).__name__}."
    )


def stays_in_place(logits: Any) -> bool:
    """Whether slabs of an array are worked on in its own library and on its device."""
    backend = backend_of(logits)
    if backend is None or backend is NUMPY or backend.is_lazy:
        return False
    return bool(is_writeable_array(logits))


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


def _cut(shape: tuple[int, ...], limit: int) -> Iterator[Index]:
    """Indices that cut an array into parts of at most `limit` entries, in order.

    >>> for index in _cut((2, 3, 4), limit=8):
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


def _with_classes(index: Index, axis: int) -> Index:
    """An index of positions as one of logits, with all classes."""
    return (*index[:axis], slice(None), *index[axis:])


def _namespace(array: Array) -> Any:
    return (backend_of(array) or NUMPY).namespace(array)


def _as_index(keep: BoolArray, array: Array) -> Any:
    """A mask that an array can be indexed with, on the array's device."""
    return (backend_of(array) or NUMPY).from_host(keep, array)


def _check_mask(mask: Any) -> BoolArray:
    """True or False, or the same as 1 and 0."""
    array = to_numpy(mask, "mask")
    if array.dtype.kind not in "biu" or not ((array == 0) | (array == 1)).all():
        raise TypeError(
            "`mask` must be True where a position counts and False elsewhere (or 1 and 0); got "
            f"dtype {array.dtype}."
        )
    return array.astype(np.bool_)
