"""Rows that no file identifies, compared with those that were read before a crash.

A function or an iterator can give other rows after a restart, and only the rows tell. So a hash of
every block is kept, and compared when a fit goes on.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hokical.core.files import append_line
from hokical.io.checkpoint import CheckpointError
from hokical.io.chunks import Chunk, block_rows, reblock, skip_rows
from hokical.io.identities import hash_chunk
from hokical.io.sources import ChunkSource

#: The line after the last block.
_END = "end"


class WitnessedSource(ChunkSource):
    """The same rows in blocks, each of them hashed and compared with a line of a file.

    Parameters
    ----------
    source : ChunkSource
    file : path
        A line is added for every block that passes for the first time.
    """

    def __init__(self, source: ChunkSource, file: Path) -> None:
        self.source, self.file = source, file
        self.repeatable, self.n_rows = source.repeatable, source.n_rows
        self._n_classes = source.n_classes  # now, as an iterator may be used up when it is asked
        self._block_rows = block_rows(self._n_classes)
        self._lines = _read_lines(file)

    @property
    def n_classes(self) -> int:
        return self._n_classes

    def first_chunk(self) -> Chunk:
        return self.source.first_chunk()

    def identity(self) -> dict[str, Any]:
        return self.source.identity()

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        return skip_rows(self._compare_all(), start)

    def check(self) -> None:
        """Read all rows, to compare them."""
        for _ in self.chunks():
            pass

    def _compare_all(self) -> Iterator[Chunk]:
        index = 0
        for chunk in reblock(self.source.chunks(), self._block_rows):
            self._compare(index, hash_chunk(chunk))
            yield chunk
            index += 1
        self._compare(index, _END)

    def _compare(self, index: int, line: str) -> None:
        if index == len(self._lines):
            self._add(line)
        elif self._lines[index] != line:
            raise CheckpointError(
                f"{self.file} was started with other data: rows from {index * self._block_rows} on "
                "are not the same. Give the same data, or delete the file to start over."
            )

    def _add(self, line: str) -> None:
        """On the disk before the fit counts the block as done."""
        self._lines.append(line)
        append_line(self.file, line)


def _read_lines(path: Path) -> list[str]:
    """The lines of the file, less one that a kill cut short."""
    if not path.exists():
        return []
    text = path.read_text(encoding="ascii", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        os.truncate(path, len(whole))
    return whole.splitlines()
