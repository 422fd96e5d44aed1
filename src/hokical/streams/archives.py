"""Members of `.npz` archives: mapped into memory where they are stored as they are, else unpacked
a slice at a time.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hokical.files.errors import DataFileError, damage_reported
from hokical.files.lazy import Arrays, LazyArrays
from hokical.files.npz import open_npz

_KIND = "a NumPy archive (.npz)"
#: The fixed part of what precedes a member, and where the lengths of the rest are in it.
_HEADER_BYTES, _LENGTHS = 30, slice(26, 30)
_SKIPPED_AT_ONCE = 1 << 22


def open_members(path: Path) -> Arrays:
    """The archive's arrays by name, none of them read as a whole."""
    return LazyArrays(list(open_npz(path)), lambda name: _open_member(path, name))


def _open_member(path: Path, name: str) -> Any:
    with damage_reported(path, _KIND), zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as stream:
            shape, column_major, dtype = _read_header(path, name, stream)
            header = stream.tell()
    if 0 in shape:  # cannot be mapped
        return _whole(path, name)
    if info.compress_type == zipfile.ZIP_STORED:
        order: Any = "F" if column_major else "C"
        return np.memmap(path, dtype, "r", _data_offset(path, info) + header, shape, order)
    return _whole(path, name) if column_major else PackedArray(path, name, shape, dtype)


def _read_header(path: Path, name: str, stream: IO[bytes]) -> tuple[Any, bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, column_major, dtype = read.get(version, np.lib.format.read_array_header_2_0)(stream)
    if dtype.hasobject:
        raise DataFileError(
            path, f"expected numbers in `{name}`; found Python objects, which are not read."
        )
    return shape, column_major, dtype


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: after a header that names it once more."""
    with path.open("rb") as stream:
        stream.seek(info.header_offset)
        name, extra = struct.unpack("<HH", stream.read(_HEADER_BYTES)[_LENGTHS])
    return int(info.header_offset + _HEADER_BYTES + name + extra)


def _whole(path: Path, name: str) -> NDArray[Any]:
    return open_npz(path)[name]


class PackedArray:
    """An array in a compressed member, from which slices of rows are unpacked in order.

    A slice that begins before the end of the last one starts again from the member's beginning.
    Every reader needs a `reopened` one, because its place in the file is its own.
    """

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.filename = str(path)
        self.shape, self.dtype = shape, dtype
        self._path, self._name = path, name
        self._row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._stream: IO[bytes] | None = None
        self._row = 0

    def __len__(self) -> int:
        return self.shape[0]

    def reopened(self) -> PackedArray:
        """The same array for another reader, at its beginning."""
        return PackedArray(self._path, self._name, self.shape, self.dtype)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        with damage_reported(self._path, _KIND):
            stream = self._at(start)
            packed = stream.read((stop - start) * self._row_bytes)
            if len(packed) < (stop - start) * self._row_bytes:
                raise EOFError("the data end too early")
        self._row = stop
        return np.frombuffer(packed, self.dtype).reshape(stop - start, *self.shape[1:])

    def _at(self, row: int) -> IO[bytes]:
        """The member's bytes from a row on."""
        if self._stream is None or row < self._row:
            archive = zipfile.ZipFile(self._path)
            self._stream = archive.open(f"{self._name}.npy")
            _read_header(self._path, self._name, self._stream)
            self._row = 0
        left = (row - self._row) * self._row_bytes
        while left > 0:
            left -= len(self._stream.read(min(left, _SKIPPED_AT_ONCE))) or left
        return self._stream
