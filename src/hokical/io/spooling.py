"""Chunks of an iterator, kept in temporary files so that there can be several passes."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from hokical.core.types import AnyArray
from hokical.io.chunks import Chunk
from hokical.io.sources import ArraySource, ChunkSource

_NAMES = ("logits", "labels", "weights")


@contextmanager
def spool_chunks(source: ChunkSource) -> Iterator[ChunkSource]:
    """The same chunks in nameless files, of which nothing is left even after a kill."""
    with ExitStack() as open_files:
        streams = {name: open_files.enter_context(TemporaryFile()) for name in _NAMES}
        yield ArraySource(*_write_files(source, streams))


def _write_files(source: ChunkSource, streams: Mapping[str, IO[bytes]]) -> list[Any]:
    """Logits, labels and weights as memory maps of files of plain numbers."""
    first = source.first_chunk()
    n_rows = 0
    for chunk in source.chunks():
        _check_alike(first, chunk)
        n_rows += chunk.n_rows
        for name, stream in streams.items():
            if (part := getattr(chunk, name)) is not None:
                dtype = _stored_dtype(getattr(first, name))
                stream.write(np.ascontiguousarray(part, dtype).data)
    return [_map_file(stream, getattr(first, name), n_rows) for name, stream in streams.items()]


def _map_file(stream: IO[bytes], like: AnyArray | None, n_rows: int) -> AnyArray | None:
    if like is None:
        return None
    stream.flush()
    return np.memmap(stream, _stored_dtype(like), "r", shape=(n_rows, *like.shape[1:]))


def _stored_dtype(first: AnyArray) -> np.dtype[Any]:
    """Whole numbers as int64, since frameworks mix int32 with it; others as they come first."""
    return np.dtype(np.int64) if first.dtype.kind in "iub" else first.dtype


def _check_alike(first: Chunk, chunk: Chunk) -> None:
    """Numbers of one kind go into a file, and those that it holds exactly."""
    for name in _NAMES:
        one, other = getattr(first, name), getattr(chunk, name)
        kinds = [None if part is None else (part.dtype, part.shape[1:]) for part in (one, other)]
        if one is None or other is None:
            alike = one is other
        else:
            exact = np.can_cast(other.dtype, _stored_dtype(one), "safe")
            alike = exact and one.shape[1:] == other.shape[1:]
        if not alike:
            raise ValueError(
                f"`{name}` of all chunks must be of one kind to be spooled; got {kinds[1]} after "
                f"{kinds[0]} (dtype, columns)."
            )
