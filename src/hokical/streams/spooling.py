"""Chunks that come once, kept in a temporary file so that they can be gone through again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.streams.chunks import Chunk
from hokical.streams.sources import ArraySource, Source


@contextmanager
def spooled(source: Source, folder: str | os.PathLike[str] | None = None) -> Iterator[Source]:
    """A source that can be gone through again: the chunks in files that go away afterwards."""
    where = Path(tempfile.mkdtemp(prefix="hokical-spool-", dir=folder))
    try:
        yield ArraySource(*_written(source, where))
    finally:
        shutil.rmtree(where, ignore_errors=True)


def _written(source: Source, where: Path) -> list[NDArray[Any] | None]:
    """Logits, labels and weights as memory maps of files of plain numbers."""
    names = ("logits", "labels", "weights")
    first = source.first_chunk()
    n_rows = 0
    streams = [(where / name).open("wb") for name in names]
    try:
        for chunk in source.chunks():
            _check_alike(first, chunk)
            n_rows += chunk.n_rows
            for stream, name in zip(streams, names, strict=True):
                part = getattr(chunk, name)
                if part is not None:
                    stream.write(np.ascontiguousarray(part, _stored_as(getattr(first, name))).data)
    finally:
        for stream in streams:
            stream.close()
    return [_mapped(where / name, getattr(first, name), n_rows) for name in names]


def _mapped(path: Path, like: NDArray[Any] | None, n_rows: int) -> NDArray[Any] | None:
    if like is None:
        return None
    return np.memmap(path, _stored_as(like), "r", shape=(n_rows, *like.shape[1:]))


def _stored_as(first: NDArray[Any]) -> np.dtype[Any]:
    """Whole numbers as int64, since frameworks mix int32 with it; others as they come first."""
    return np.dtype(np.int64) if first.dtype.kind in "iub" else first.dtype


def _check_alike(first: Chunk, chunk: Chunk) -> None:
    """Numbers of one kind go into a file, and those that it holds exactly."""
    for name in ("logits", "labels", "weights"):
        one, other = getattr(first, name), getattr(chunk, name)
        kinds = [None if part is None else (part.dtype, part.shape[1:]) for part in (one, other)]
        if one is None or other is None:
            alike = one is other
        else:
            exact = np.can_cast(other.dtype, _stored_as(one), "safe")
            alike = exact and one.shape[1:] == other.shape[1:]
        if not alike:
            raise ValueError(
                f"`{name}` of all chunks must be of one kind to be spooled; got {kinds[1]} after "
                f"{kinds[0]} (dtype, columns)."
            )
