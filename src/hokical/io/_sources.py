"""Chunks of examples that can be iterated over again and again: of arrays, lists or functions."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical._core.parallel import cut_rows
from hokical.io._chunks import Chunk, as_chunk, block_rows

_NO_ROWS = "a source must have at least one row; got none."


class ChunkSource:
    """Chunks of (logits, labels, weights), the last two where there are any.

    Attributes
    ----------
    n_rows : rows in all, where that is known without reading
    repeatable : whether there can be more than one pass over the chunks
    path : the file or folder to name in errors, if there is one
    classes, about : names of the classes, and what later files need to be read in the same way
    column_names : names of all columns, where rows are those of a table
    """

    n_rows: int | None = None
    path: Path | None = None
    classes: tuple[str, ...] = ()
    about: Mapping[str, Any] = MappingProxyType({})
    column_names: Sequence[str] = ()

    def __init__(self, chunks: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._chunks: Any = chunks
        self.repeatable = not isinstance(chunks, Iterator)
        self._next_pass: Iterator[Chunk] | None = None

    def __iter__(self) -> Iterator[Chunk]:
        """The chunks, in order."""
        started, self._next_pass = self._next_pass, None
        return self._new_pass() if started is None else started

    @property
    def n_classes(self) -> int:
        """Columns of the logits, from the first chunk."""
        return self.first_chunk().n_classes

    def first_chunk(self) -> Chunk:
        """The first chunk with rows; it begins the next pass, so that none is read twice."""
        chunks = iter(self)
        for chunk in chunks:
            if chunk.n_rows:
                self._next_pass = itertools.chain([chunk], chunks)
                return chunk
        raise ValueError(_NO_ROWS)

    def read_groups(self, groups: Any) -> Any:
        """The groups of all rows as they are given; names of columns are for tables."""
        if isinstance(groups, str):
            raise ValueError(
                f"`groups` must be arrays or names of columns; got {groups!r}, which is none of "
                f"the columns {list(self.column_names)[:8]}. Pass the groups of all rows."
            )
        return groups

    def _new_pass(self) -> Iterator[Chunk]:
        if self._chunks is None:
            raise ValueError(
                "an iterator of chunks can be used once, and it has been. Give a function that "
                "returns a new iterator, a list of chunks, arrays or files."
            )
        items = self._chunks() if callable(self._chunks) else self._chunks
        self._chunks = self._chunks if self.repeatable else None
        yield from map(as_chunk, items)


def from_array(
    logits: Any, labels: Any = None, sample_weight: Any = None, chunk_rows: int | None = None
) -> ChunkSource:
    """Slices of arrays: in memory, memory-mapped, HDF5, anything with `shape` and slices."""
    shape = getattr(logits, "shape", None)
    if shape is None or len(shape) != 2:
        raise ValueError(
            f"`logits` must have a shape (n, classes); got {shape} from {type(logits).__name__}."
        )
    arrays, n_rows = (logits, labels, sample_weight), int(shape[0])
    for name, column in (("labels", labels), ("sample_weight", sample_weight)):
        if column is not None and np.shape(column)[:1] != (n_rows,):
            raise ValueError(
                f"`{name}` must have one entry per row of logits; got {np.shape(column)} for "
                f"{n_rows} rows."
            )
    step = block_rows(int(shape[1])) if chunk_rows is None else chunk_rows
    check_count(step, name="chunk_rows")

    def slices() -> Iterator[Any]:
        for rows in cut_rows(n_rows, step):
            yield tuple(None if part is None else part[rows] for part in arrays)

    source = ChunkSource(slices)
    source.n_rows = n_rows
    return source


def check_row_count(rows: int, known: int | None) -> None:
    """A pass over a source must give rows, and as many as are known of."""
    if known not in (None, rows):
        raise ValueError(
            f"a source must give the same rows in every pass; got {rows} after {known}. A function "
            "given as a source must return a new iterator whenever it is called."
        )
    if not rows:
        raise ValueError(_NO_ROWS)
