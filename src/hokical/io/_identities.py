"""What distinguishes data from other data: files by size and time, all else by every byte."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.arrays import Array, to_host
from hokical.io._chunks import Chunk

#: Bytes at either end of a file that a sketch takes in.
_LOOKED_AT = 1 << 16


def file_identity(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What changes when a file does."""
    known = os.stat(path)
    return {"path": os.fspath(path), "bytes": known.st_size, "changed": known.st_mtime_ns}


def sketch_files(files: Iterable[Path], about: str = "") -> str:
    """A hash of the files' sizes, beginnings and ends, by which they are known again.

    The ends of .npz and Parquet files hold checksums or statistics of everything before.
    """

    def pieces() -> Iterator[bytes]:
        yield about.encode()
        for file in sorted(filter(Path.is_file, files)):
            with file.open("rb") as stream:
                yield stream.read(_LOOKED_AT)
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(size - _LOOKED_AT, 0))
                yield stream.read() + size.to_bytes(8)

    return hash_of(pieces())


def hash_of(parts: Iterable[bytes]) -> str:
    """A hash of bytes, however they are cut."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def hash_chunk(chunk: Chunk) -> str:
    """A hash of all numbers of a chunk, and of their types and shapes."""
    kinds = (f"{part.dtype} {part.shape} ".encode() for part in chunk.given)
    return hash_of([*kinds, *map(_bytes, chunk.given)])


def _bytes(array: Array) -> bytes:
    """The numbers, row by row."""
    return np.ascontiguousarray(to_host(array)).tobytes()
