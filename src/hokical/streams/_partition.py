"""A source as a partition: its chunks as checked blocks, one after the other, or all in memory."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import device, is_writeable_array

from hokical._core.arrays import Array
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits
from hokical._core.memory import check_memory
from hokical._core.progress import progress_bar
from hokical._core.types import AnyArray, FloatArray
from hokical._fitting.partitions import Block, Partition, State, join_states
from hokical.io._checkpoint import Journal
from hokical.io._chunks import Chunk, block_rows, join_columns, join_rows, reblock
from hokical.io._errors import DataFileError, report_file
from hokical.io._sources import ChunkSource, check_row_count

_ABOUT_ROWS = "The rows of the source cannot be used."
#: Maximum, label and weight of a row.
_BYTES_BESIDE = 24


def check_block(chunk: Chunk, first_row: int, n_classes: int) -> Block:
    """Check a chunk's rows; errors say where in the stream they are."""
    with report_rows(first_row):
        if chunk.labels is None:
            raise ValueError("labels are needed: give chunks of (logits, labels).")
        logits = as_logits(chunk.logits)
        if logits.n_classes != n_classes:
            raise ValueError(
                f"all chunks must have the same classes; got {logits.n_classes} columns after "
                f"{n_classes}."
            )
        labels = as_labels(chunk.labels, logits.n_rows, n_classes)
        return Block(logits, labels, _check_weights(chunk.weights, logits.n_rows), first_row)


def _check_weights(weights: AnyArray | None, n_rows: int) -> FloatArray | None:
    """Weights of a block, which may all be 0 as long as those of other blocks are not."""
    if weights is None:
        return None
    if weights.dtype.kind in "fiub" and weights.shape == (n_rows,) and not weights.any():
        return np.zeros(n_rows)
    return as_weights(weights, n_rows)


@contextmanager
def report_rows(first_row: int) -> Iterator[None]:
    """Errors count rows within a block; say where it begins."""
    try:
        yield
    except (TypeError, ValueError) as error:
        where = f" (Rows are counted from row {first_row} of the source.)" if first_row else ""
        about_rows = type(error)(f"{error}{where}")
        about_rows.add_note(_ABOUT_ROWS)
        raise about_rows from error


@contextmanager
def report_files(source: ChunkSource) -> Iterator[None]:
    """Errors about rows name the file of a source that has them, which is looked for again."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if _ABOUT_ROWS in getattr(error, "__notes__", ()):
            files = list(source.by_file())
            for path, part in files:
                with report_file(path):
                    _check_rows(part, source.n_classes)
            if files:  # no labels in any of them
                raise DataFileError(files[0][0], str(error)) from error
        raise


def _check_rows(source: ChunkSource, n_classes: int) -> None:
    first = 0
    for chunk in source.chunks():
        if chunk.n_rows:
            labels = np.zeros(chunk.n_rows, np.int64) if chunk.labels is None else chunk.labels
            check_block(replace(chunk, labels=labels), first, n_classes)
        first += chunk.n_rows


def gather_blocks(blocks: Iterable[Block], n_rows: int | None, caller: str) -> Block:
    """All blocks as one, if memory allows.

    Where the number of rows is known, logits are there once; else twice while they are joined.
    """
    whole: Array = None
    parts: list[Array] = []
    held: list[tuple[Array, Any, Any]] = []  # without the logits, which are there once
    rows = 0
    for block in blocks:
        logits, start, rows = block.logits, rows, rows + block.n_rows
        if logits.is_numpy and (n_rows is None or not held):
            row_bytes = logits.n_classes * logits.values.dtype.itemsize + _BYTES_BESIDE
            joined = rows if held else 2 * rows  # what is held takes its room once more
            check_memory((n_rows or joined) * row_bytes, caller)
        if n_rows is None or not is_writeable_array(logits.values):
            parts.append(logits.values)
        elif rows <= n_rows:
            whole = _make_room(whole, logits, n_rows)
            whole[start:rows, ...] = logits.values
        held.append((logits.top, block.labels, block.weights))
    check_row_count(rows, n_rows)
    tops, labels, weights = map(list, zip(*held, strict=True))
    values = join_rows(parts) if parts else whole
    gathered = Logits(values, join_rows(tops), logits.backend)
    return Block(gathered, np.concatenate(labels), join_columns(weights, "weights"))


def _make_room(whole: Array, logits: Logits, n_rows: int) -> Array:
    """An array for all rows, of a type that holds all parts; files of a folder may differ."""
    xp, part = logits.xp, logits.values
    if whole is None:
        return xp.empty((n_rows, logits.n_columns), dtype=part.dtype, device=device(part))
    return whole if whole.dtype == part.dtype else xp.astype(whole, xp.result_type(whole, part))


class StreamedPartition(Partition):
    """Blocks of a source, one after the other on this machine, with threads inside a block."""

    def __init__(
        self,
        source: ChunkSource,
        *,
        journal: Journal | None = None,
        progress: bool | None = None,
    ) -> None:
        self.source, self.n_classes, self.progress = source, source.n_classes, progress
        self._journal, self._index = journal, 0
        self._n_rows: int | None = source.n_rows
        self.repeatable = source.repeatable

    def count_rows(self) -> int:
        if self._n_rows is None:
            self._n_rows = self.source.count_rows()
        return super().count_rows() if self._n_rows is None else self._n_rows

    def require_passes(self, caller: str) -> None:
        if not self.repeatable:
            raise ValueError(
                f"{caller} needs several passes over the examples; an iterator can be used once. "
                "Give a function that returns a new iterator, a list of chunks, arrays or files; "
                "or use `hokical.streams.fit(..., spool=True)`, which keeps the chunks in a "
                "temporary file."
            )

    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        index, self._index = self._index, self._index + 1
        journal = self._journal
        state, rows, finished = (None, 0, False) if journal is None else journal.recall(index)
        if state is not None and finished:
            self._check_count(rows)
            return state
        count = 1 if self._n_rows is None else -(-self._n_rows // block_rows(self.n_classes))
        with progress_bar(f"Pass {index + 1} over the data", count, self.progress) as advance:
            for block in self._blocks(rows):
                found = work(block)
                state = found if state is None else combine(state, found)
                rows += block.n_rows
                if journal is not None:
                    journal.note(index, state, rows, finished=False)
                advance()
        self._check_count(rows)
        assert state is not None  # as there are rows
        if journal is not None:
            journal.note(index, state, rows, finished=True)
        return state

    def gather(self, caller: str) -> Block:
        count = self.source.count_rows() if self._n_rows is None else self._n_rows
        return gather_blocks(self._blocks(), count, caller)

    def collect(self, work: Callable[[Block], State], row_bytes: int, caller: str) -> State:
        parts: list[State] = []
        for block in self._blocks():
            needed = (self._n_rows or block.n_rows) * row_bytes if not parts else 0
            check_memory(needed, caller, f"{row_bytes} bytes of every row")
            parts.append(work(block))
        return join_states(parts)

    def _blocks(self, start: int = 0) -> Iterator[Block]:
        if self._journal is None:
            chunks = reblock(self.source.chunks(start), block_rows(self.n_classes))
        else:
            chunks = self._journal.blocks(start)
        for chunk in chunks:
            yield check_block(chunk, start, self.n_classes)
            start += chunk.n_rows

    def _check_count(self, rows: int) -> None:
        check_row_count(rows, self._n_rows)
        self._n_rows = rows
