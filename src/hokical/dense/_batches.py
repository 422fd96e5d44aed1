"""Dense arrays and batches of them as a source of positions that count."""

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from hokical.calibrators._calibrator import Calibrator
from hokical.dense._positions import MASKS, DenseBatch, DenseOptions, check_options, make_batch
from hokical.io._chunks import Chunk, split_parts
from hokical.io._convention import LABELS, LOGITS, WEIGHTS
from hokical.io._sources import ChunkSource, from_chunks

_WANTED = (
    "a batch must be logits, a tuple (logits, labels) or (logits, labels, sample_weight), or a "
    "mapping with these names and `mask`"
)


class DenseSource(ChunkSource):
    """The positions of dense arrays that count, a slab at a time."""

    def __init__(self, batch: DenseBatch) -> None:
        self.batch = batch
        self.n_rows = batch.known_rows()
        self.independent = batch.options.per_item == 1

    @property
    def n_classes(self) -> int:
        return self.batch.layout.n_classes

    def chunks(self) -> Iterator[Chunk]:
        return _require_rows(self.batch.chunks())

    def count_rows(self) -> int:
        return self.batch.count_rows()


def from_dense(
    logits: Any,
    labels: Any = None,
    *,
    class_axis: int = -1,
    ignore_label: Any = None,
    mask: Any = None,
    sample_weight: Any = None,
    max_positions_per_item: int | None = None,
    random_state: int = 0,
) -> ChunkSource:
    """A source whose rows are the positions of dense outputs that count, in order.

    It goes where any source goes: `streams.fit`, `streams.predict`, `evaluate`. Nothing is
    flattened as a whole: slabs of the arrays are read one after the other. Arrays are those of
    `Dense.fit`, but labels may be missing; options are those of `Dense`. Only with
    `max_positions_per_item=1` are rows independent examples, which give bounds and guarantees.

    >>> import numpy as np
    >>> logits = np.zeros((2, 3, 4, 4))
    >>> labels = np.zeros((2, 4, 4), int)
    >>> labels[:, 0] = 255
    >>> source = from_dense(logits, labels, class_axis=1, ignore_label=255)
    >>> sum(chunk.n_rows for chunk in source)
    24
    """
    options = check_options(class_axis, ignore_label, max_positions_per_item, random_state)
    return make_source(logits, labels, mask, sample_weight, options)


def make_source(
    logits: Any, labels: Any, mask: Any, weights: Any, options: DenseOptions
) -> ChunkSource:
    """`from_dense`, with options that have been checked."""
    with_others = any(part is not None for part in (labels, mask, weights))
    if isinstance(logits, ChunkSource):
        if with_others or options.per_item is not None:
            raise TypeError(
                "a source has its rows already: labels, masks, weights and "
                "`max_positions_per_item` go to `from_dense`, which makes one."
            )
        return logits
    if not holds_batches(logits, labels):
        return DenseSource(make_batch(logits, labels, mask, weights, options))
    if with_others:
        raise TypeError(
            "labels, masks and weights come with the batches, as (logits, labels, sample_weight) "
            "or a mapping; they cannot be given beside them."
        )

    def chunks() -> Iterator[Chunk]:
        parts = (batch.chunks() for batch in dense_batches(logits, options))
        return _require_rows(chain.from_iterable(parts))

    source = from_chunks(chunks() if isinstance(logits, Iterator) else chunks)
    source.independent = options.per_item == 1
    return source


def item_batches(
    logits: Any, labels: Any, mask: Any, weights: Any, options: DenseOptions
) -> Iterable[DenseBatch]:
    """The batches of `make_source` once more; none if they come once, or are rows already."""
    if isinstance(logits, (ChunkSource, Iterator)):
        return []
    if not holds_batches(logits, labels):
        return [make_batch(logits, labels, mask, weights, options)]
    return dense_batches(logits, options)


def holds_batches(logits: Any, labels: Any = None) -> bool:
    """Whether it is batches, and not one array or lists of numbers that make one."""
    _check_kind(logits)
    if not isinstance(logits, (list, tuple)):
        return not hasattr(logits, "shape") and (callable(logits) or isinstance(logits, Iterable))
    first = logits[0] if logits and labels is None else None
    inner = first[0] if isinstance(first, (list, tuple)) and first else first
    return isinstance(first, Mapping) or hasattr(inner, "shape")


def _check_kind(logits: Any) -> None:
    """Raise for what looks like batches, and is something else that users have at hand."""
    wanted = "`logits` must be an array (n, ..., classes) or batches; got "
    if logits is None:
        raise TypeError(f"{wanted}None.")
    if isinstance(logits, (str, bytes, os.PathLike)):
        raise TypeError(f'{wanted}{logits!r}. For a file use `numpy.load(path, mmap_mode="r")`.')
    several = isinstance(logits, (list, tuple))
    arrays = several and len(logits) in (2, 3) and all(hasattr(item, "shape") for item in logits)
    # Two or three arrays are a batch if the labels have one axis less than the logits.
    is_batch = arrays and len(logits[1].shape) == len(logits[0].shape) - 1
    if isinstance(logits, Mapping) or is_batch:
        raise TypeError(
            f"{wanted}one batch in a {type(logits).__name__}. Give its arrays by name, "
            "`fit(logits=..., labels=...)`, or a list of such batches."
        )
    if several and not logits:
        raise ValueError(f"{wanted}an empty {type(logits).__name__}.")


def dense_batches(batches: Any, options: DenseOptions) -> Iterator[DenseBatch]:
    """Batches as users give them, or a function that does, with shapes that fit together."""
    first_item = 0
    for item in batches() if callable(batches) else batches:
        names = (LOGITS, LABELS, WEIGHTS, MASKS)
        logits, labels, weights, mask = split_parts(item, names, _WANTED)
        batch = make_batch(logits, labels, mask, weights, options, first_item)
        yield batch
        first_item += batch.n_items


def _require_rows(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks; an error at the end if there was no row in them."""
    rows = 0
    for chunk in chunks:
        rows += chunk.n_rows
        yield chunk
    if not rows:
        raise ValueError(
            "at least one position must count; got none. See `mask` (True where a position "
            "counts) and `ignore_label`."
        )


def check_labelled(source: ChunkSource) -> ChunkSource:
    """The source, if its positions have labels."""
    if isinstance(source, DenseSource):
        if source.batch.labels is None:
            raise ValueError(
                "`labels` must be given beside an array of logits: the true class of each "
                f"position, of shape {source.batch.layout.positions}."
            )
    elif source.first_chunk().labels is None:
        raise ValueError(
            "batches must have labels: give each as (logits, labels), (logits, labels, "
            "sample_weight), or a mapping with these names."
        )
    return source


def without_witnesses(calibrator: Calibrator) -> Calibrator:
    """A copy that does not take the positions of its fit for independent examples."""
    own = copy.deepcopy(calibrator)
    own.forget_examples()
    return own
