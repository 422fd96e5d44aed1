"""Rows that no file vouches for, compared with those that passed before a crash.

A function or an iterator can give other rows after a restart, and nothing but the rows tells. So a
hash of every block of them is kept, and what goes on compares.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hokical.streams.checkpoint import CheckpointError
from hokical.streams.chunks import Chunk, block_rows, reblocked, skipped
from hokical.streams.identities import array_bytes, hash_of
from hokical.streams.sources import Source

#: The line after the last block.
_END = "end"


class WitnessedSource(Source):
    """The same rows in blocks, each of them hashed and compared with a line of a file.

    Parameters
    ----------
    source : Source
    path : path
        The file; a line is added for every block that passes for the first time.
    """

    def __init__(self, source: Source, path: Path) -> None:
        self.source, self.path = source, path
        self.repeatable, self.n_rows = source.repeatable, source.n_rows
        self._n_classes = (
            source.n_classes
        )  # now: an iterator may be gone through before it is asked
        self._block_rows = block_rows(self._n_classes)
        self._lines = _whole_lines(path)

    @property
    def n_classes(self) -> int:
        return self._n_classes

    def first_chunk(self) -> Chunk:
        return self.source.first_chunk()

    def identity(self) -> dict[str, Any]:
        return self.source.identity()

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        return skipped(self._compared(), start)

    def check(self) -> None:
        """Go through all rows, to compare them."""
        for _ in self.chunks():
            pass

    def _compared(self) -> Iterator[Chunk]:
        index = 0
        for chunk in reblocked(self.source.chunks(), self._block_rows):
            self._compare(index, _block_hash(chunk))
            yield chunk
            index += 1
        self._compare(index, _END)

    def _compare(self, index: int, line: str) -> None:
        if index == len(self._lines):
            self._add(line)
        elif self._lines[index] != line:
            raise CheckpointError(
                f"{self.path} was begun with other data: rows from {index * self._block_rows} on "
                "are not the same. Give the same data, or delete what was begun to start afresh."
            )

    def _add(self, line: str) -> None:
        """On the disk before the fit counts the block as done."""
        self._lines.append(line)
        with self.path.open("a", encoding="ascii") as stream:
            stream.write(f"{line}\n")
            stream.flush()
            os.fsync(stream.fileno())


def _whole_lines(path: Path) -> list[str]:
    """The lines of the file, less one that a kill cut short."""
    if not path.exists():
        return []
    text = path.read_text(encoding="ascii", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        os.truncate(path, len(whole))
    return whole.splitlines()


def _block_hash(chunk: Chunk) -> str:
    given = [part for part in (chunk.logits, chunk.labels, chunk.weights) if part is not None]
    kinds = (f"{part.dtype} {part.shape} ".encode() for part in given)
    return hash_of([*kinds, *map(array_bytes, given)])
