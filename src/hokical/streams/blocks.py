"""The one thing that fits ask of data that is not in memory: reduce it, block by block.

`Blocks.reduce(work, combine)` calls `work` on every checked block and combines the results in the
order of the blocks. A fit is a sequence of such reductions, so the same fit runs over a file here
and over a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits
from hokical.progress import progress_bar
from hokical.streams.checking import Block, checked_block
from hokical.streams.chunks import block_rows, reblocked
from hokical.streams.gathering import check_room, gathered
from hokical.streams.sources import Source

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: What a reduction works with: arrays, which can be added, sent and stored.
State = tuple[NDArray[Any], ...]


class Blocks(ABC):
    """Examples that can be reduced block by block."""

    n_classes: int

    @abstractmethod
    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        """`work` of every block, combined in order. Both must be pure functions."""

    @abstractmethod
    def gather(self, who: str) -> tuple[Logits, IntArray, FloatArray | None]:
        """All examples in memory, for a method `who` that needs them there."""

    @abstractmethod
    def collect(self, work: Callable[[Block], State], row_bytes: int, who: str) -> State:
        """`work` of every block, (rows, ...) arrays, joined: a few numbers per row.

        `row_bytes` is what a row will take in the fit of `who`, to see whether memory is enough.
        """

    @abstractmethod
    def require_passes(self, who: str) -> None:
        """Raise if the examples cannot be gone through more than once."""

    def total(self, work: Callable[[Block], State]) -> State:
        """The sum of `work` over all blocks."""
        return self.reduce(work, add)


def joined(parts: Sequence[State]) -> State:
    """States one below the other, array by array."""
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def add(left: State, right: State) -> State:
    """Two states, array by array."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


class Journal(Protocol):
    """Remembers finished reductions, and how far the present one is."""

    def recall(self, index: int) -> tuple[State | None, int, bool]:
        """State, rows that are in it, and whether that is all of them."""

    def note(self, index: int, state: State, rows: int, *, finished: bool) -> None:
        """Keep the state of a reduction."""


class NoJournal:
    """Remembers nothing."""

    def recall(self, index: int) -> tuple[State | None, int, bool]:
        return None, 0, False

    def note(self, index: int, state: State, rows: int, *, finished: bool) -> None:
        pass


class StreamBlocks(Blocks):
    """Blocks of a source, one after the other on this machine, with threads inside a block."""

    def __init__(
        self, source: Source, *, journal: Journal | None = None, progress: bool | None = None
    ) -> None:
        self.source = source
        self.n_classes = source.n_classes
        self.progress = progress
        self._journal = NoJournal() if journal is None else journal
        self._index = 0
        self._n_rows: int | None = source.n_rows

    def require_passes(self, who: str) -> None:
        if not self.source.repeatable:
            raise ValueError(
                f"{who} goes through the examples several times, and an iterator can be gone "
                "through once. Give a function that returns a new iterator, a list of chunks, "
                "arrays or files; or use `hokical.streams.fit(..., spool=True)`, which keeps the "
                "chunks in a temporary file."
            )

    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        index, self._index = self._index, self._index + 1
        state, rows, finished = self._journal.recall(index)
        if state is not None and finished:
            self._check_count(rows)
            return state
        with self._bar(index) as advance:
            for block in self._blocks(rows):
                found = work(block)
                state = found if state is None else combine(state, found)
                rows += block.n_rows
                self._journal.note(index, state, rows, finished=False)
                advance()
        self._check_count(rows)
        if state is None:
            raise ValueError("a source must have at least one row; got none.")
        self._journal.note(index, state, rows, finished=True)
        return state

    def gather(self, who: str) -> tuple[Logits, IntArray, FloatArray | None]:
        count = self.source.count_rows() if self._n_rows is None else self._n_rows
        return gathered(self._blocks(0), count, who)

    def collect(self, work: Callable[[Block], State], row_bytes: int, who: str) -> State:
        parts: list[State] = []
        for block in self._blocks(0):
            needed = (self._n_rows or block.n_rows) * row_bytes if not parts else 0
            check_room(needed, who, f"{row_bytes} bytes of every row")
            parts.append(work(block))
        return joined(parts)

    def _blocks(self, start: int) -> Iterator[Block]:
        size = block_rows(self.n_classes)
        for chunk in reblocked(self.source.chunks(start), size):
            yield checked_block(chunk, start, self.n_classes)
            start += chunk.n_rows

    def _check_count(self, rows: int) -> None:
        if self._n_rows is not None and rows != self._n_rows:
            raise ValueError(
                f"a source must give the same rows in every pass; got {rows}, expected "
                f"{self._n_rows}. A function given as a source must return a new iterator."
            )
        self._n_rows = rows

    @contextmanager
    def _bar(self, index: int) -> Iterator[Callable[[], None]]:
        size = block_rows(self.n_classes)
        count = 1 if self._n_rows is None else -(-self._n_rows // size)
        with progress_bar(f"Pass {index + 1} over the data", count, self.progress) as advance:
            yield advance
