"""Where chunks come from: arrays that are sliced, chunks in a list, functions that make iterators.

A `ChunkSource` can be iterated over again and again, unless it says otherwise.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical._core.types import AnyArray
from hokical.io._chunks import Chunk, as_chunk, as_sliceable, block_rows, read_ahead
from hokical.io._errors import report_damage

_NO_ROWS = "a source must have at least one row; got none."


class ChunkSource(ABC):
    """Chunks of (logits, labels, weights), the last two where there are any."""

    #: Whether there can be more than one pass over the chunks.
    repeatable: bool = True
    #: Rows in all, where that is known without reading.
    n_rows: int | None = None
    #: Whether rows are independent examples, and not positions of the same items.
    independent: bool = True
    #: The file or folder to name in errors, if there is one.
    path: Path | None = None
    #: Names of the classes, where the source has them.
    classes: tuple[str, ...] = ()
    #: Names of all columns, where rows are those of a table.
    column_names: Sequence[str] = ()

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """The chunks, in order."""

    @property
    def n_classes(self) -> int:
        """Columns of the logits, from the first chunk."""
        return self.first_chunk().n_classes

    def first_chunk(self) -> Chunk:
        """The first chunk that has rows, as `chunks` will give it too."""
        return _peek(self.chunks())[0]

    def count_rows(self) -> int | None:
        """Rows in all, where counting them is much less work than reading them."""
        return self.n_rows

    def by_file(self) -> Iterator[tuple[Path, "ChunkSource"]]:
        """The files of the source, each as a source of its own; none if it has no files."""
        return iter(() if self.path is None else ((self.path, self),))

    def read_columns(self, names: str | Sequence[str]) -> dict[str, AnyArray]:
        """Other columns (n,) of all rows, by name, where the source has some."""
        raise ValueError(
            f"`groups` must be arrays for this source, which has no columns of names; got {names!r}"
            ". Pass the groups of all rows, in order."
        )

    def read_groups(self, groups: Any) -> Any:
        """The columns of groups that are named, alone, in a tuple or in a list; else the groups.

        A list of words is one of names if the source has columns of these names.
        """
        several = isinstance(groups, (tuple, list)) and len(groups) > 0
        words = several and all(isinstance(name, str) for name in groups)
        if isinstance(groups, list):
            words = words and set(groups) <= {*self.column_names}
        return self.read_columns(groups) if words or isinstance(groups, str) else groups

    def __iter__(self) -> Iterator[Chunk]:
        return self.chunks()


class ArraySource(ChunkSource):
    """Slices of arrays: in memory, memory-mapped, Zarr, HDF5, anything with `shape` and slices."""

    def __init__(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        chunk_rows: int | None = None,
        path: Path | None = None,
    ) -> None:
        self.path = path
        shape = getattr(logits, "shape", None)
        if shape is None or len(shape) != 2:
            raise ValueError(
                f"`logits` must have a shape (n, classes); got {shape} from "
                f"{type(logits).__name__}."
            )
        self.logits = logits
        self.labels, self.weights = as_sliceable(labels), as_sliceable(sample_weight)
        self.n_rows = int(shape[0])
        for name, column in (("labels", self.labels), ("sample_weight", self.weights)):
            if column is not None and tuple(column.shape[:1]) != (self.n_rows,):
                found = column.shape[0] if column.shape else "one value"
                raise ValueError(
                    f"`{name}` must have one entry per row of logits; got {found} for "
                    f"{self.n_rows} rows."
                )
        rows = block_rows(int(shape[1]))
        stored = getattr(logits, "chunks", None)  # of Zarr and HDF5: cutting one reads it twice
        rows = max(rows // stored[0], 1) * stored[0] if stored else rows
        self.chunk_rows = rows if chunk_rows is None else check_count(chunk_rows, name="chunk_rows")

    @property
    def n_classes(self) -> int:
        return int(self.logits.shape[1])

    def chunks(self) -> Iterator[Chunk]:
        parts = self._slices()
        return parts if isinstance(self.logits, np.ndarray) else read_ahead(parts)

    def _slices(self) -> Iterator[Chunk]:
        assert self.n_rows is not None
        arrays = (self.logits, self.labels, self.weights)
        for first in range(0, self.n_rows, self.chunk_rows):
            rows = slice(first, min(first + self.chunk_rows, self.n_rows))
            with nullcontext() if self.path is None else report_damage(self.path, "numbers"):
                parts = [None if part is None else part[rows] for part in arrays]
            yield as_chunk(tuple(parts))


class IterableSource(ChunkSource):
    """Chunks in a sequence, in an iterator, which can be read once, or from a function."""

    def __init__(self, chunks: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._chunks: Any = chunks
        self.repeatable = not isinstance(chunks, Iterator)
        self._next_pass: Iterator[Chunk] | None = None
        self._most_rows = 0

    def chunks(self) -> Iterator[Chunk]:
        started, self._next_pass = self._next_pass, None
        return self._new_pass() if started is None else started

    def first_chunk(self) -> Chunk:
        """The first chunk; it begins the next pass, so that a function is called once for both."""
        first, self._next_pass = _peek(self.chunks())
        return first

    def _new_pass(self) -> Iterator[Chunk]:
        if self._chunks is None:
            raise ValueError(
                "an iterator of chunks can be used once, and it has been. Give a function that "
                "returns a new iterator, a list of chunks, arrays or files."
            )
        items = self._chunks() if callable(self._chunks) else self._chunks
        self._chunks = self._chunks if self.repeatable else None
        rows = 0
        for chunk in map(as_chunk, items):
            rows += chunk.n_rows
            self._most_rows = max(rows, self._most_rows)
            yield chunk
        if rows < self._most_rows:
            check_row_count(rows, self._most_rows)


def from_chunks(chunks: Any) -> ChunkSource:
    """A source of chunks in a sequence or an iterator, or given by a function."""
    if callable(chunks) or isinstance(chunks, (Sequence, Iterator)):
        return IterableSource(chunks)
    if isinstance(chunks, Iterable):
        return IterableSource(lambda: iter(chunks))
    raise TypeError(
        "a source must be files, a table, an array, a sequence of chunks, an iterator or a "
        f"function that returns one; got {type(chunks).__name__}. See `streams.open_source`."
    )


def check_row_count(rows: int, known: int | None) -> None:
    """A pass over a source must give rows, and as many as are known of."""
    if known not in (None, rows):
        raise ValueError(
            f"a source must give the same rows in every pass; got {rows} after {known}. A function "
            "given as a source must return a new iterator whenever it is called."
        )
    if not rows:
        raise ValueError(_NO_ROWS)


def _peek(chunks: Iterator[Chunk]) -> tuple[Chunk, Iterator[Chunk]]:
    """The first chunk that has rows, and all chunks from it on."""
    for chunk in chunks:
        if chunk.n_rows:
            return chunk, itertools.chain([chunk], chunks)
    raise ValueError(_NO_ROWS)
