"""A fit that survives being killed: a journal of its reductions, in a folder.

A fit is a deterministic sequence of reductions over the source. The journal holds the result of
each finished one, and the state of the present one with the number of rows that are in it. A fit
that is started again gets the finished results at once, goes on in the middle of the present one,
and ends with the same numbers as if nothing had happened.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core import files
from hokical._fitting.partitions import State
from hokical.io._chunks import Chunk, block_rows, reblock, skip_rows
from hokical.io._identities import hash_chunk
from hokical.io._sources import ChunkSource

_FORMAT = 4
_LOCK = ".lock"
#: Rows of the first chunk whose bytes are part of a source's identity.
_LOOKED_AT = 1000
#: The line after the last block.
_END = "end"


class CheckpointError(ValueError):
    """The checkpoint belongs to another fit, or cannot be read."""


@contextmanager
def hold_folder(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Make the folder of a checkpoint if it does not exist, and keep other processes away."""
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise CheckpointError(f"{place} is a file, not a checkpoint. Choose another `checkpoint`.")
    place.mkdir(parents=True, exist_ok=True)
    with hold(place, place / _LOCK):
        yield


@contextmanager
def hold(place: Path, lock: Path) -> Iterator[None]:
    """Lock a file, or say that another process works on the place."""
    with ExitStack() as held:
        try:
            held.enter_context(files.lock_file(lock))
        except BlockingIOError as error:
            raise CheckpointError(
                f"{place} is in use by another process. Wait until that one ends, or choose "
                "another name."
            ) from error
        yield


class FolderJournal:
    """States in a folder, one file each, all of them whole or not there.

    The folder exists, and `hold_folder` keeps other processes away. `identity` says what fit this
    is: the folder of another one is refused. Writes are `every` so many seconds apart.
    """

    def __init__(
        self, folder: str | os.PathLike[str], identity: dict[str, Any], *, every: float = 0.0
    ) -> None:
        self.folder, self.every = Path(folder), every
        self._running = self.folder / "running.npz"
        self._last = time.monotonic()
        self._claim(identity)

    def recall(self, index: int) -> tuple[State | None, int, bool]:
        """The state of a reduction, rows that are in it, and whether that is all of them."""
        for path, finished in ((self._pass_file(index), True), (self._running, False)):
            if path.exists():
                number, rows, state = self._read(path)
                if number == index:
                    return state, rows, finished
        return None, 0, False

    def note(self, index: int, state: State, rows: int, *, finished: bool) -> None:
        """Keep the state of a reduction."""
        if finished:
            self._write(self._pass_file(index), index, rows, state)
        elif time.monotonic() - self._last >= self.every:
            self._write(self._running, index, rows, state)
            self._last = time.monotonic()

    def _claim(self, identity: dict[str, Any]) -> None:
        """Write down whose folder this is, or compare with what is written."""
        ours = json.loads(json.dumps({"format": _FORMAT} | identity))
        about = self.folder / "about.json"
        for name in ("about.json", "running.npz", "pass-*.npz"):
            files.remove_leftovers(self.folder, name)
        if not about.exists():
            if any(path.name != _LOCK for path in self.folder.iterdir()):
                raise CheckpointError(
                    f"{self.folder} is not a checkpoint: it has something else in it. Choose "
                    "another `checkpoint`."
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
                f"{self.folder} belongs to another fit: its {key} was {theirs.get(key)}, and is "
                f"now {ours.get(key)}. Delete the folder to start over, or choose another."
            )

    def witness(self, source: ChunkSource) -> ChunkSource:
        """The source, compared with what is known of the rows that the checkpoint is made of."""
        if source.identified:
            return source
        rows = WitnessedSource(source, self.folder / "rows.txt")
        if self._pass_file(0).exists():  # it will not be repeated
            for _ in rows.chunks():
                pass
        return rows

    def _pass_file(self, index: int) -> Path:
        return self.folder / f"pass-{index:04d}.npz"

    def _write(self, path: Path, index: int, rows: int, state: State) -> None:
        arrays = {f"state_{i}": array for i, array in enumerate(state)}
        with files.replace_file(path) as stream:
            np.savez(stream, allow_pickle=False, position=np.array([index, rows]), **arrays)

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


def source_identity(source: ChunkSource) -> dict[str, Any]:
    """What the source says of itself, and a look at its first rows."""
    first = source.first_chunk()
    return {
        "source": source.identity(),
        "first rows": hash_chunk(first.rows(slice(_LOOKED_AT))),
        "rows in a block": block_rows(first.n_classes),
    }


class WitnessedSource(ChunkSource):
    """Rows that no file identifies, in blocks, compared with those that were read before a crash.

    A function or an iterator can give other rows after a restart, and only the rows tell. So a line
    with the hash of every block is kept in a file.
    """

    def __init__(self, source: ChunkSource, file: Path) -> None:
        self.source, self.file = source, file
        self.repeatable, self.n_rows = source.repeatable, source.n_rows
        self._n_classes = source.n_classes  # now, as an iterator may be used up when it is asked
        self._block_rows = block_rows(self._n_classes)
        text = file.read_text(encoding="ascii", errors="replace") if file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a kill cut the last line short
            os.truncate(file, len(whole))
        self._lines = whole.splitlines()

    @property
    def n_classes(self) -> int:
        return self._n_classes

    def first_chunk(self) -> Chunk:
        return self.source.first_chunk()

    def identity(self) -> dict[str, Any]:
        return self.source.identity()

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        return skip_rows(self._compare_all(), start)

    def _compare_all(self) -> Iterator[Chunk]:
        index = 0
        for chunk in reblock(self.source.chunks(), self._block_rows):
            self._compare(index, hash_chunk(chunk))
            yield chunk
            index += 1
        self._compare(index, _END)

    def _compare(self, index: int, line: str) -> None:
        if index == len(self._lines):
            self._lines.append(line)
            files.append_line(self.file, line)  # before the fit counts the block as done
        elif self._lines[index] != line:
            raise CheckpointError(
                f"{self.file} was started with other data: rows from {index * self._block_rows} on "
                "are not the same. Give the same data, or delete the file to start over."
            )
