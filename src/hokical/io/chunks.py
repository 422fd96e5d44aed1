"""Chunks of examples as users give them, in blocks, and sources that give them again and again.

Nothing is checked here beyond shapes that do not match: blocks are checked when a fit sees them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hokical._core.arrays import library_of, to_host
from hokical._core.checks import check_count
from hokical._core.logits import Logits, rows_per_block
from hokical._core.parallel import cut_rows
from hokical._core.reading import (
    Rows,
    class_of_column,
    column_names,
    order_columns,
    pair_rows,
    to_column,
    to_numpy,
)
from hokical.io import examples, tables
from hokical.io.examples import about

_WANTED = (
    "a chunk must be logits (n, classes), or a tuple (logits, labels) or (logits, labels, "
    "sample_weight), or a mapping with these names"
)
#: How a table that is not a file is called in errors.
TABLE = Path("table")
#: Rows that are looked at before the others. Batches of one row would take seconds to cut.
_HEAD_ROWS = 1024
_NO_ROWS = "a source must have at least one row; got none."
#: A block of a stream is this many blocks of a kernel, so that every thread gets some of it.
_KERNEL_BLOCKS = 16
#: Numbers that a fit may keep per row beside the logits.
_FLOATS_BESIDE = 8


def as_chunk(item: Any, source: ChunkSource) -> Rows:
    """A chunk from an array, a tuple of two or three, or a mapping.

    The columns of a frame are put in the order of those of its source.
    """
    if isinstance(item, Rows):
        return item
    logits, labels, weights = split_parts(
        item, (examples.LOGITS, examples.LABELS, examples.WEIGHTS), _WANTED
    )
    if isinstance(logits, Logits):
        raise TypeError(
            f"`logits` of every chunk must be an array (n, classes); got {type(logits).__name__}, "
            "which can be used in memory only: `fit(top_k, labels)`, `predict(top_k)`."
        )
    source.columns = source.columns or column_names(logits)
    pair_rows(logits, labels, weights, None)
    values = to_numpy(order_columns(logits, "logits", source.columns), "logits")
    if values.ndim != 2:
        raise ValueError(
            f"`logits` of every chunk must be 2-D (n, classes); got shape {values.shape}."
        )
    beside = _columns_beside(len(values), labels, weights)
    truth, counts = (None if part is None else to_numpy(part, "labels") for part in beside)
    if truth is not None and truth.dtype.kind in "UTO" and not source.classes:
        source.classes = tuple(map(class_of_column, source.columns))  # of which labels are names
    return Rows(values, truth, counts)


def _columns_beside(n_rows: int, labels: Any, weights: Any) -> tuple[Any, Any]:
    """Labels and weights (n,) of so many rows, as arrays that can be sliced; or None."""
    found = list[Any]()
    for name, part in (("labels", labels), ("sample_weight", weights)):
        sliced = part is None or (hasattr(part, "shape") and library_of(part) != "pandas")
        found.append(part if sliced else to_numpy(part, name))
        if part is not None and tuple(found[-1].shape[:1]) != (n_rows,):
            raise ValueError(
                f"`{name}` must have one entry per row of its logits; got shape "
                f"{tuple(found[-1].shape)} for {n_rows} rows."
            )
    return found[0], found[1]


def split_parts(item: Any, names: Sequence[tuple[str, ...]], wanted: str) -> list[Any]:
    """The arrays of a chunk or batch, one for each of the names, None for those it has not.

    Names are spellings in a mapping; a tuple has logits, labels and weights in this order.
    """
    if isinstance(item, Mapping):
        keys = [next((name for name in words if name in item), None) for words in names]
        if keys[0] is not None:
            return [None if key is None else item[key] for key in keys]
    elif isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return [*item, None, None][: len(names)]
    elif isinstance(item, Logits) or hasattr(item, "shape") or hasattr(item, "__dlpack__"):
        return [item, *[None] * (len(names) - 1)]
    raise TypeError(f"{wanted}; got {type(item).__name__}.")


def rows_per_chunk(n_classes: int) -> int:
    """Rows of a stream's block: up to 8 MB in float64, however many chunks and threads."""
    return _KERNEL_BLOCKS * rows_per_block(n_classes + _FLOATS_BESIDE)


def reblock(chunks: Iterable[Rows], rows: int) -> Iterator[Rows]:
    """The same rows in chunks of `rows` each, the last one possibly shorter.

    Sums over them are then the same to the bit, however the rows were cut before.

    >>> parts = reblock([Rows(np.zeros((3, 2))), Rows(np.zeros((4, 2)))], rows=5)
    >>> [part.n_rows for part in parts]
    [5, 2]
    """
    held: list[Rows] = []
    count = 0
    for chunk in chunks:
        start = 0
        while chunk.n_rows - start >= rows - count:
            stop = start + rows - count
            yield join_chunks([*held, chunk.take(slice(start, stop))])
            held, count, start = [], 0, stop
        if start < chunk.n_rows:
            held.append(chunk.take(slice(start, None)))
            count += chunk.n_rows - start
    if held:
        yield join_chunks(held)


def join_chunks(parts: list[Rows]) -> Rows:
    """Chunks one below the other."""
    if len(parts) == 1:
        return parts[0]
    widths = {part.n_classes for part in parts}
    if len(widths) > 1:
        raise ValueError(f"all chunks must have the same classes; got {sorted(widths)} columns.")
    found = list[Any]()
    for name in Rows._fields[:5]:
        arrays = [getattr(part, name) for part in parts]
        given = [array for array in arrays if array is not None]
        if given and len(given) < len(arrays):
            raise ValueError(f"`{name}` must be in every chunk or in none; some chunks lack them.")
        found.append(np.concatenate([*map(to_host, given)]) if given else None)
    return Rows(*found)


class ChunkSource:
    """Chunks of (logits, labels, weights), the last two where there are any.

    Attributes
    ----------
    n_rows : rows in all, where that is known without reading
    repeatable : whether there can be more than one pass over the chunks
    path : the file or folder to name in errors, if there is one
    classes, about : names of the classes, and what later files need to be read in the same way
    columns : names of the columns of the logits, where each class has one
    column_names : names of all columns, where rows are those of a table
    """

    n_rows: int | None = None
    path: Path | None = None
    classes: tuple[str, ...] = ()
    about: Mapping[str, Any] = MappingProxyType({})
    columns: tuple[str, ...] = ()
    column_names: Sequence[str] = ()

    def __init__(self, chunks: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._chunks: Any = chunks
        self.repeatable = not isinstance(chunks, Iterator)
        self._next_pass: Iterator[Rows] | None = None

    def __iter__(self) -> Iterator[Rows]:
        """The chunks, in order."""
        started, self._next_pass = self._next_pass, None
        return self._new_pass() if started is None else started

    @property
    def n_classes(self) -> int:
        """Columns of the logits, from the first chunk."""
        return self.first_chunk().n_classes

    def first_chunk(self) -> Rows:
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

    def _new_pass(self) -> Iterator[Rows]:
        if self._chunks is None:
            raise ValueError(
                "an iterator of chunks can be used once, and it has been. Give a function that "
                "returns a new iterator, a list of chunks, arrays or files."
            )
        items = self._chunks() if callable(self._chunks) else self._chunks
        self._chunks = self._chunks if self.repeatable else None
        for item in items:
            yield as_chunk(item, self)


def from_array(
    logits: Any, labels: Any = None, sample_weight: Any = None, chunk_rows: int | None = None
) -> ChunkSource:
    """Slices of arrays: in memory, memory-mapped, HDF5, anything with `shape` and slices."""
    shape = getattr(logits, "shape", None)
    if shape is None or len(shape) != 2:
        raise ValueError(
            f"`logits` must have a shape (n, classes); got {shape} from {type(logits).__name__}."
        )
    n_rows = int(shape[0])
    arrays = (logits, *_columns_beside(n_rows, labels, sample_weight))
    step = rows_per_chunk(int(shape[1])) if chunk_rows is None else chunk_rows
    check_count(step, name="chunk_rows")

    def slices() -> Iterator[Any]:
        for rows in cut_rows(n_rows, step):
            yield tuple(None if part is None else part[rows] for part in arrays)

    source = ChunkSource(slices)
    source.n_rows = n_rows
    return source


class TableSource(ChunkSource):
    """The rows of a pyarrow Dataset, in order; with a `path` those of its files."""

    def __init__(self, data: Any, wanted: examples.Columns, path: Path | None = None) -> None:
        super().__init__(self._read_chunks)
        self.path, self._data, name = path, data, path or TABLE
        self.column_names = data.schema.names
        self._roles = examples.find_roles(tables.ArrowTable(name, data), wanted)
        with tables.report_damage(name, tables.PARQUET):
            options = {"batch_size": _HEAD_ROWS, **tables.scan_options(data)}
            head = data.head(_HEAD_ROWS, columns=list(self._roles.scores), **options)
            self.n_rows = int(data.count_rows())
        scores, _ = tables.ArrowTable(name, head).read(self._roles.scores, ())
        with tables.report_file(name):
            kind = examples.settle_kind(scores, self._roles, wanted)
        self._rows = rows_per_chunk(scores.shape[1] if scores.ndim == 2 else 1)
        self.classes, self.about = self._roles.classes, about(wanted, kind)
        self.columns = self._roles.columns
        self._wanted = replace(wanted, kind=kind)

    def _read_chunks(self) -> Iterator[Rows]:
        roles, labels = self._roles, self._roles.labels
        columns = [*dict.fromkeys((*roles.scores, *roles.others(with_labels=True)))]
        for path, first, table in self._batches(columns):
            rows = tables.ArrowTable(path, table, first)
            where = None if labels is None else (rows, labels)
            found = examples.make_examples(rows, roles, self._wanted, where)
            yield Rows(examples.logit_values(found, path), found.labels, found.weights)

    def _batches(self, columns: list[str]) -> Iterator[tuple[Path, int, Any]]:
        """Tables of the columns, each after its file and the number of rows before it there."""
        make = tables.import_arrow("pyarrow").Table.from_batches
        for path, first, part in self._parts():
            own = {} if part is self._data else {"schema": self._data.schema}
            with tables.report_damage(path, tables.PARQUET):
                options = {"batch_size": self._rows, **tables.scan_options(self._data), **own}
                for batch in part.to_batches(columns=columns, **options):
                    if batch.num_rows:
                        yield path, first, make([batch])
                    first += batch.num_rows

    def _parts(self) -> Iterator[tuple[Path, int, Any]]:
        """Groups of rows: their file, the rows before them there, and the group.

        Of a whole file pyarrow decodes up to 1 GB ahead if its batches are not used fast enough.
        """
        if self.path is None:  # it may have a filter
            yield TABLE, 0, self._data
            return
        for fragment in self._data.get_fragments():
            first, path = 0, Path(fragment.path)
            with tables.report_damage(path, tables.PARQUET):
                groups = fragment.split_by_row_group()
            missing = sorted({*self._roles.scores} - {*fragment.physical_schema.names})
            if missing:
                expected = Path(self._data.files[0]).name
                raise tables.DataFileError(
                    path, f"expected the columns of {expected}; `{missing[0]}` is missing."
                )
            for group in groups:
                yield path, first, group
                first += group.count_rows()

    def read_groups(self, groups: Any) -> Any:
        """The groups, or the columns that are named, alone, in a tuple or in a list."""
        names = [groups] if isinstance(groups, str) else groups
        if not isinstance(names, (tuple, list)) or not set(map(str, names)) <= {*self.column_names}:
            return super().read_groups(groups)
        scores = [name for name in names if name in self._roles.scores]
        if scores:
            raise ValueError(f"`groups` must be columns that are no scores; got `{scores[0]}`.")
        found = [table for _, _, table in self._batches([*dict.fromkeys(names)])]
        return {n: np.concatenate([to_column(table.column(n)) for table in found]) for n in names}


def check_row_count(rows: int, known: int | None) -> None:
    """A pass over a source must give rows, and as many as are known of."""
    if known not in (None, rows):
        raise ValueError(
            f"a source must give the same rows in every pass; got {rows} after {known}. A function "
            "given as a source must return a new iterator whenever it is called."
        )
    if not rows:
        raise ValueError(_NO_ROWS)
