"""Dense arrays, or batches of them, as a source of the positions that count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from hokical.dense.positions import DenseBatch, Rules, check_rules, make_batch
from hokical.files.names import LABELS, LOGITS, WEIGHTS, first_known
from hokical.streams.chunks import Chunk, reblocked, skipped
from hokical.streams.identities import array_identity
from hokical.streams.sources import Source, from_chunks

_MASKS = ("mask", "attention_mask")
_WANTED = (
    "logits, a tuple (logits, labels) or (logits, labels, sample_weight), or a mapping with these "
    "names and `mask`"
)


class DenseSource(Source):
    """The positions of dense arrays that count, a slab at a time."""

    identified = True

    def __init__(self, batch: DenseBatch) -> None:
        self.batch = batch

    @property
    def n_classes(self) -> int:
        return self.batch.layout.n_classes

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        return skipped(_counted(self.batch.chunks()), start)

    def identity(self) -> dict[str, Any]:
        batch = self.batch
        arrays = (batch.logits, batch.labels, batch.mask, batch.weights)
        about = [array_identity(array) for array in arrays]
        return super().identity() | {"arrays": about, "rules": repr(batch.rules)}


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
) -> Source:
    """A source whose rows are the positions of dense outputs that count, in order.

    It goes where any source goes: `fit` and `predict...` of a calibrator, `streams.fit` with a
    checkpoint, `streams.evaluate`. Nothing is flattened as a whole: slabs of the arrays are read
    one after the other.

    Parameters
    ----------
    logits : array of shape (n, ..., classes), or batches
        NumPy, memory-mapped, Zarr or HDF5 arrays, or tensors, in any order of memory. Or a list,
        iterator, loader or function of batches, each (logits, labels), (logits, labels,
        sample_weight) or a mapping with these names and `mask`.
    labels : array of shape (n, ...), optional
        The true class of each position. Left out where batches bring theirs.
    class_axis : int
        The axis of the classes: 1 for (n, classes, h, w).
    ignore_label : int or several, optional
        Positions of these labels do not count.
    mask : array of bool of shape (n, ...), optional
        True where a position counts.
    sample_weight : array of shape (n, ...) or (n,), optional
        How much each position counts, or each position of an item.
    max_positions_per_item : int, optional
        Take no more than this many of the positions of each item (entry of the first axis) that
        count, chosen at random.
    random_state : int
        Seed of that choice, which depends on nothing else but the item's number.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.zeros((2, 3, 4, 4))
    >>> labels = np.zeros((2, 4, 4), int)
    >>> labels[:, 0] = 255
    >>> source = from_dense(logits, labels, class_axis=1, ignore_label=255)
    >>> sum(chunk.n_rows for chunk in source)
    24
    """
    rules = check_rules(class_axis, ignore_label, max_positions_per_item, random_state)
    return dense_source(logits, labels, mask, sample_weight, rules)


def dense_source(logits: Any, labels: Any, mask: Any, weights: Any, rules: Rules) -> Source:
    """`from_dense`, with rules that have been checked."""
    if isinstance(logits, Source):
        return logits
    if not holds_batches(logits, labels):
        return DenseSource(make_batch(logits, labels, mask, weights, rules))
    if any(part is not None for part in (labels, mask, weights)):
        raise TypeError(
            "labels, masks and weights come with the batches, as (logits, labels, sample_weight) "
            "or a mapping; they cannot be given beside them."
        )
    return _from_batches(logits, rules)


def holds_batches(logits: Any, labels: Any = None) -> bool:
    """Whether it is batches, and not one array or lists of numbers that make one."""
    if not isinstance(logits, (list, tuple)):
        return not hasattr(logits, "shape") and (callable(logits) or isinstance(logits, Iterable))
    first = logits[0] if logits and labels is None else None
    inner = first[0] if isinstance(first, (list, tuple)) and first else first
    return isinstance(first, Mapping) or hasattr(inner, "shape")


def _from_batches(batches: Any, rules: Rules) -> Source:
    if isinstance(batches, Iterator):
        return from_chunks(_counted(_chunks_of(batches, rules)))
    make: Callable[[], Iterable[Any]] = batches if callable(batches) else lambda: batches
    return from_chunks(lambda: _counted(_chunks_of(make(), rules)))


def _chunks_of(batches: Iterable[Any], rules: Rules) -> Iterator[Chunk]:
    for batch in dense_batches(batches, rules):
        yield from batch.chunks()


def dense_batches(batches: Iterable[Any], rules: Rules) -> Iterator[DenseBatch]:
    """Batches as users give them, with shapes that fit together."""
    first_item = 0
    for item in batches:
        logits, labels, mask, weights = batch_parts(item)
        batch = make_batch(logits, labels, mask, weights, rules, first_item)
        yield batch
        first_item += batch.n_items


def batch_parts(item: Any) -> tuple[Any, Any, Any, Any]:
    """Logits, labels, mask and weights of a batch, None where it has none."""
    if isinstance(item, Mapping):
        spellings = (LOGITS, LABELS, _MASKS, WEIGHTS)
        names = [first_known(item, known) for known in spellings]
        logits, labels, mask, weights = (None if name is None else item[name] for name in names)
        if logits is not None:
            return logits, labels, mask, weights
    elif isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return item[0], item[1], None, item[2] if len(item) == 3 else None
    elif hasattr(item, "shape"):
        return item, None, None, None
    raise TypeError(f"a batch must be {_WANTED}; got {type(item).__name__}.")


def _counted(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
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


def gathered_rows(source: Source) -> tuple[Any, NDArray[Any], NDArray[Any] | None]:
    """Logits (rows, classes), labels (rows,) and weights of all rows; tensors on their device."""
    chunks = [chunk for chunk in source.chunks() if chunk.n_rows]
    if any(chunk.labels is None for chunk in chunks):
        raise ValueError("`labels` must be given: the true class of each position.")
    (whole,) = reblocked(chunks, sum(chunk.n_rows for chunk in chunks))
    assert whole.labels is not None
    return whole.logits, whole.labels, whole.weights
