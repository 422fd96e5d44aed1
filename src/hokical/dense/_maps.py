"""Arrays with a class axis as rows (positions, classes), some items at a time.

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

from hokical._core.arrays import NUMPY, Array, Backend, backend_of, to_host, to_input_library
from hokical._core.reading import to_numpy
from hokical._core.types import AnyArray, BoolArray, IntArray
from hokical.io._chunks import rows_per_chunk, split_parts
from hokical.io._examples import LABELS, LOGITS, WEIGHTS

_WANTED = (
    "a batch must be logits (n, ..., classes), a tuple (logits, labels) or (logits, labels, "
    "sample_weight), or a mapping with these names and `mask`"
)
_PARTS = (LOGITS, LABELS, WEIGHTS, ("mask", "attention_mask"))


class Positions(NamedTuple):
    """Rows of logits (n, classes), their labels and weights (n,) or None, and their items (n,)."""

    logits: Array
    labels: IntArray | None
    weights: AnyArray | None
    items: IntArray


@dataclass(frozen=True, eq=False)
class Maps:
    """Logits with their labels, weights and mask, read a slab of items at a time.

    `labels` and `mask` have the positions' shape, or are None; `weights` have it too, or are one
    per item. Positions with `ignored` labels do not count. `first_item` is how many items came
    before.
    """

    logits: Any
    labels: Any
    weights: Any
    mask: Any
    class_axis: int
    ignored: tuple[int, ...] = ()
    first_item: int = 0

    def __post_init__(self) -> None:
        shape, rank = self.shape, len(self.shape)
        if rank < 2 or not -rank <= self.class_axis < rank or self.axis == 0:
            raise ValueError(
                "`logits` must have an axis of classes, `class_axis`, after at least one of items, "
                f"such as (n, h, w, classes) or (n, classes, h, w); got shape {shape} and "
                f"class_axis={self.class_axis}. Give a single item as `logits[None]`."
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

    def slabs(self) -> Iterator[tuple[slice, BoolArray]]:
        """Items of about 30 MB of logits, at least one, and which of their positions count."""
        n_items, *lengths = self.positions
        step = max(1, rows_per_chunk(self.n_classes) // max(1, math.prod(lengths)))
        for first in range(0, n_items, step):
            items = slice(first, min(first + step, n_items))
            keep = np.ones((items.stop - first, *lengths), np.bool_)
            if self.mask is not None:
                keep &= _check_mask(self.mask[items, ...])
            if self.ignored and self.labels is not None:
                keep &= ~np.isin(to_numpy(self.labels[items, ...], "labels"), self.ignored)
            yield items, keep

    def rows(self, items: slice, keep: BoolArray) -> Array:
        """The logits (rows, classes) of a slab, checked; 0 where positions do not count."""
        part = self.logits[items, ...]
        here = part if stays_in_place(part) else to_numpy(part, "logits")
        xp = _backend(here).namespace(here)
        rows = xp.reshape(xp.moveaxis(here, self.axis, -1), (-1, self.n_classes))
        if not keep.all():
            counts = _backend(rows).from_host(keep.reshape(-1, 1), rows)
            rows = xp.where(counts, rows, xp.zeros_like(rows))
        if _backend(rows).kind(rows) == "float":
            with np.errstate(all="ignore"):
                bad = ~np.isfinite(to_host(xp.max(rows, axis=1)))
            if bad.any():
                raise ValueError(
                    "`logits` must not hold NaN or +inf, nor -inf for every class; got such at "
                    f"position {self._place(items, bad)}. If the position does not count, give "
                    "`mask` with False there; -inf alone is allowed, for a masked class."
                )
        return rows

    def read(self, most: int | None = None, seed: int = 0) -> Iterator[Positions]:
        """The positions that count, slab after slab; at most `most` of an item, by the seed."""
        for items, keep in self.slabs():
            if most is not None:
                keep = _draw_positions(keep, most, seed, self.first_item + items.start)
            if keep.any():
                rows = self.rows(items, keep)
                backend = _backend(rows)
                chosen = rows[backend.from_host(keep.reshape(-1), rows)]
                labels = None if self.labels is None else self._labels(items, keep)
                weights = None if self.weights is None else self._weights(items, keep)
                numbers = np.nonzero(keep)[0] + items.start + self.first_item
                yield Positions(backend.without_gradient(chosen), labels, weights, numbers)

    def predict(
        self, work: Callable[[Array], Sequence[Array]], fills: Sequence[Any], of_classes: bool
    ) -> list[Array]:
        """What `work` makes of rows (n, classes), in the shape of the positions or of the logits.

        Where no position counts there is the fill of each result.
        """
        here = stays_in_place(self.logits)
        xp = _backend(self.logits).namespace(self.logits) if here else np
        where = {"device": device(self.logits)} if here else {}
        results: list[Array] = []
        for items, keep in self.slabs():
            found = work(self.rows(items, keep))
            if not results:
                shape = self.shape if of_classes else self.positions
                results = [xp.empty(shape, dtype=part.dtype, **where) for part in found]
            counts = keep[..., None] if of_classes else keep
            counts = _backend(found[0]).from_host(counts, found[0])
            for result, part, fill in zip(results, found, fills, strict=True):
                shaped = xp.reshape(part, (*keep.shape, *part.shape[1:]))
                if not keep.all():
                    shaped = xp.where(counts, shaped, xp.full_like(shaped, fill))
                result[items, ...] = xp.moveaxis(shaped, -1, self.axis) if of_classes else shaped
        return [to_input_library(result, self.logits) for result in results]

    def _labels(self, items: slice, keep: BoolArray) -> IntArray:
        labels = to_numpy(self.labels[items, ...], "labels")
        if labels.dtype.kind not in ("iub" if self.n_classes == 2 else "iu"):
            raise TypeError(
                "`labels` must be integers, the index of each position's class; got dtype "
                f"{labels.dtype}. Convert with `.astype(int)`."
            )
        wrong = ((labels < 0) | (labels >= self.n_classes)) & keep
        if wrong.any():
            value, place = labels[wrong][0], self._place(items, wrong)
            raise ValueError(
                f"`labels` must lie in [0, {self.n_classes - 1}], one index per class on axis "
                f"{self.axis} of the logits; got {value} at position {place}. If it marks "
                f"positions that do not count, give `ignore_label={value}`."
            )
        return labels[keep].astype(np.int64)

    def _weights(self, items: slice, keep: BoolArray) -> AnyArray:
        """Per position as they are; one per item for all of its positions."""
        weights = to_numpy(self.weights[items, ...], "sample_weight")
        return weights[keep] if weights.ndim == keep.ndim else weights[np.nonzero(keep)[0]]

    def _place(self, items: slice, wrong: BoolArray) -> tuple[int, ...]:
        """The first wrong position of a slab; items are counted over all batches."""
        item, *inside = np.argwhere(wrong.reshape(-1, *self.positions[1:]))[0].tolist()
        return (item + items.start + self.first_item, *inside)


def open_maps(
    logits: Any, labels: Any, mask: Any, weights: Any, class_axis: int, ignored: tuple[int, ...]
) -> Iterator[Maps]:
    """The maps of an array, or of batches."""
    batches: Iterable[Any] = [(logits, labels, weights, mask)]
    if holds_batches(logits):
        if any(part is not None for part in (labels, mask, weights)):
            raise TypeError(
                "labels, masks and weights come with the batches, as (logits, labels, "
                "sample_weight) or a mapping; they cannot be given beside them."
            )
        given = logits() if callable(logits) else logits
        batches = (split_parts(batch, _PARTS, _WANTED) for batch in given)
    first_item = 0
    for batch in batches:
        given, *beside = map(_as_array, batch)
        labels, weights, mask = beside
        found = Maps(given, labels, weights, mask, class_axis, ignored, first_item)
        yield found
        first_item += found.positions[0]


def holds_batches(logits: Any) -> bool:
    """Whether it is batches, and not one array."""
    if hasattr(logits, "shape"):
        return False
    unfit = isinstance(logits, (str, bytes, Mapping, tuple))
    if unfit or not (callable(logits) or isinstance(logits, Iterable)):
        raise TypeError(
            "`logits` must be an array (n, ..., classes), or a list or iterable of batches; got "
            f"{type(logits).__name__}. Open files with `numpy.load(path, mmap_mode='r')`, and give "
            "arrays by name, `fit(logits=..., labels=...)`."
        )
    return True


def _as_array(data: Any) -> Any:
    """Anything with a shape as it is, so that a file stays on disk; lists as arrays."""
    return data if data is None or hasattr(data, "shape") else np.asarray(data)


def stays_in_place(logits: Any) -> bool:
    """Whether slabs of an array are worked on in its own library and on its device."""
    backend = _backend(logits)
    return backend is not NUMPY and not backend.is_lazy and bool(is_writeable_array(logits))


def _draw_positions(counting: BoolArray, most: int, seed: int, first_item: int) -> BoolArray:
    """At most `most` of the positions of each item that count, by the seed and its number."""
    flat = counting.reshape(counting.shape[0], -1)
    chosen = np.zeros_like(flat)
    for row, (counts, taken) in enumerate(zip(flat, chosen, strict=True)):
        places = np.flatnonzero(counts)
        if places.size > most:
            rng = np.random.default_rng([seed, first_item + row])
            places = rng.choice(places, most, replace=False)
        taken[places] = True
    return chosen.reshape(counting.shape)


def _backend(array: Array) -> Backend:
    """What knows the array's library; NumPy of all others."""
    return backend_of(array) or NUMPY


def _check_mask(mask: Any) -> BoolArray:
    """True or False, or the same as 1 and 0."""
    array = to_numpy(mask, "mask")
    if array.dtype.kind not in "biu" or not ((array == 0) | (array == 1)).all():
        raise TypeError(
            "`mask` must be True where a position counts and False elsewhere (or 1 and 0); got "
            f"dtype {array.dtype}."
        )
    return array.astype(np.bool_)
