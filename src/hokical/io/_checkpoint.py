"""Work on a stream that survives being killed: a journal of what is done, in a folder.

A fit is a deterministic sequence of reductions over the source. The journal holds the result of
each finished one, and the state of the present one with the number of rows that are in it. A fit
that is started again gets the finished results at once, goes on in the middle of the present one,
and ends with the same numbers as if nothing had happened. Predictions into a file are one such
reduction, whose state is the file.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from hokical._core import files
from hokical._fitting.partitions import State
from hokical.io._chunks import Chunk, block_rows, reblock, skip_rows
from hokical.io._identities import hash_chunk
from hokical.io._sources import ChunkSource

_FORMAT = 4
_LOCK, _ABOUT, _RUNNING, _ROWS = ".lock", "about.json", "running.npz", "rows.txt"
#: Rows of the first chunk whose bytes are part of a source's identity.
_LOOKED_AT = 1000
#: The line after the last block.
_END = "end"


class CheckpointError(ValueError):
    """The checkpoint belongs to other work, or cannot be read."""


class Journal:
    """States of reductions over a source, one file each, all of them whole or not there.

    `identity` says what work this is: the folder of another one is refused. Writes are `every` so
    many seconds apart. Rows that no file identifies are compared with those that were read before a
    crash: a function or an iterator can give other rows after a restart, and only the rows tell. So
    a line with the hash of every block is kept.
    """

    def __init__(
        self, folder: Path, source: ChunkSource, identity: dict[str, Any], every: float
    ) -> None:
        self.folder, self.source, self.every = folder, source, every
        first = source.first_chunk()
        self._block_rows = block_rows(first.n_classes)
        self._last = time.monotonic()
        about_rows = {
            "source": source.identity(),
            "first rows": hash_chunk(first.rows(slice(_LOOKED_AT))),
            "rows in a block": self._block_rows,
        }
        self._claim(identity | about_rows)
        self._lines = self._read_lines()

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: str | os.PathLike[str],
        source: ChunkSource,
        identity: dict[str, Any],
        *,
        every: float = 0.0,
        about: str | None = None,
    ) -> Iterator[Self]:
        """Make the folder if it does not exist, and keep other processes away.

        Notes `about` a file in the folder that is not there are removed: they say nothing of a new
        one.
        """
        place = Path(folder)
        if place.exists() and not place.is_dir():
            raise CheckpointError(
                f"{place} is a file, not a checkpoint. Choose another name, or delete it."
            )
        place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            held.callback(_remove_if_empty, place)
            try:
                held.enter_context(files.lock_file(place / _LOCK))
            except BlockingIOError as error:
                raise CheckpointError(
                    f"{place} is in use by another process. Wait until that one ends, or choose "
                    "another name."
                ) from error
            if about is not None and not (place / about).exists():
                for name in (_ABOUT, _RUNNING, _ROWS):
                    (place / name).unlink(missing_ok=True)
            yield cls(place, source, identity, every)

    def recall(self, index: int) -> tuple[State | None, int, bool]:
        """The state of a reduction, rows that are in it, and whether that is all of them."""
        for path, finished in ((self._pass_file(index), True), (self.folder / _RUNNING, False)):
            if path.exists():
                number, rows, state = self._read(path)
                if number == index:
                    return state, rows, finished
        return None, 0, False

    def note(self, index: int, state: State, rows: int, *, finished: bool) -> None:
        """Keep the state of a reduction."""
        if not finished and time.monotonic() - self._last < self.every:
            return
        arrays = {f"state_{i}": array for i, array in enumerate(state)}
        path = self._pass_file(index) if finished else self.folder / _RUNNING
        with files.replace_file(path) as stream:
            np.savez(stream, allow_pickle=False, position=np.array([index, rows]), **arrays)
        self._last = time.monotonic()

    def blocks(self, start: int = 0) -> Iterator[Chunk]:
        """The source in blocks from a row on, compared with what was read before."""
        if self.source.identified:
            return reblock(self.source.chunks(start), self._block_rows)
        return skip_rows(self._compare(reblock(self.source.chunks(), self._block_rows)), start)

    def compare_rows(self) -> None:
        """Compare all rows now, if no later pass is going to."""
        if not self.source.identified and self._pass_file(0).exists():
            for _ in self.blocks():
                pass

    def _claim(self, identity: dict[str, Any]) -> None:
        """Write down whose folder this is, or compare with what is written."""
        ours = json.loads(json.dumps({"format": _FORMAT} | identity))
        about = self.folder / _ABOUT
        for name in (_ABOUT, _RUNNING, "pass-*.npz"):
            files.remove_leftovers(self.folder, name)
        if not about.exists():
            if any(path.name != _LOCK for path in self.folder.iterdir()):
                raise CheckpointError(
                    f"{self.folder} is not a checkpoint: it has something else in it. Choose "
                    "another name."
                )
            files.write_text_atomically(about, json.dumps(ours, indent=1) + "\n")
            return
        try:
            theirs = dict(json.loads(about.read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as error:
            raise CheckpointError(f"{about} cannot be read: {error}.") from error
        changed = sorted(key for key in ours | theirs if ours.get(key) != theirs.get(key))
        if changed:
            key = changed[0]
            raise CheckpointError(
                f"{self.folder} belongs to other work: its {key} was {theirs.get(key)}, and is "
                f"now {ours.get(key)}. Delete the folder to start over, or choose another."
            )

    def _read_lines(self) -> list[str]:
        """The hashes of blocks that were read; a kill may have cut the last line short."""
        file = self.folder / _ROWS
        text = file.read_text(encoding="ascii", errors="replace") if file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(file, len(whole))
        return whole.splitlines()

    def _compare(self, blocks: Iterable[Chunk]) -> Iterator[Chunk]:
        index = -1
        for index, chunk in enumerate(blocks):
            self._compare_line(index, hash_chunk(chunk))
            yield chunk
        self._compare_line(index + 1, _END)

    def _compare_line(self, index: int, line: str) -> None:
        if index == len(self._lines):
            self._lines.append(line)
            files.append_line(self.folder / _ROWS, line)  # before the block counts as done
        elif self._lines[index] != line:
            raise CheckpointError(
                f"{self.folder} was started with other data: rows from {index * self._block_rows} "
                "on are not the same. Give the same data, or delete the folder to start over."
            )

    def _pass_file(self, index: int) -> Path:
        return self.folder / f"pass-{index:04d}.npz"

    def _read(self, path: Path) -> tuple[int, int, State]:
        try:
            with np.load(path, allow_pickle=False) as stored:
                index, rows = stored["position"].tolist()
                state = tuple(stored[f"state_{i}"] for i in range(len(stored.files) - 1))
        except Exception as error:  # damaged archives raise all sorts of things
            raise CheckpointError(
                f"{path} cannot be read: {error} Delete the folder to start over."
            ) from error
        return index, rows, state


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
