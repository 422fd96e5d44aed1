"""`.npy` and `.npz`: arrays are mapped into memory; compressed ones are read when asked for.

Sizes and checksums are compared either way.
"""

import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._errors import DataFileError, objects_error, report_damage
from hokical.io._formats import find_format
from hokical.io._tables import NAMELESS, Arrays

_NPZ = "a NumPy archive (.npz)"
#: The fixed part of what precedes a member, and where the lengths of the rest are in it.
_HEADER_BYTES, _LENGTHS = 30, slice(26, 30)
_READ_AT_ONCE = 1 << 22

#: Shape, whether columns are contiguous, and type.
ArrayHeader = tuple[tuple[int, ...], bool, np.dtype[Any]]


def _open_npy(path: Path) -> Arrays:
    """The file's one array, without a name."""
    with report_damage(path, "a NumPy array (.npy)"):
        with path.open("rb") as stream:
            shape, _, dtype = _read_header(path, "an array of numbers", stream)
            _check_size(os.path.getsize(path) - stream.tell(), shape, dtype)
        mode: Any = None if 0 in shape else "r"  # an empty array cannot be mapped
        return {NAMELESS: np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))}


class _Archive(Mapping[str, AnyArray]):
    """The arrays of a `.npz`, of which only those that are asked for are read.

    It may hold other things (images, objects), which must neither cost time nor cause errors.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._names = path, _member_names(path)

    def __getitem__(self, name: str) -> AnyArray:
        if name not in self._names:
            raise KeyError(name)
        with report_damage(self._path, _NPZ):
            return _map_member(self._path, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def map_file(path: Path) -> Arrays:
    """The arrays of a `.npy` or `.npz` file by name. Objects are refused."""
    kind = find_format(path)
    if kind not in ("npy", "npz"):
        raise DataFileError(
            path,
            f"arrays are mapped from .npz and .npy files; found {kind}.",
            "Save them with `np.savez(path, logits=..., labels=...)`.",
        )
    return _open_npy(path) if kind == "npy" else _Archive(path)


def _member_names(path: Path) -> list[str]:
    with report_damage(path, _NPZ), zipfile.ZipFile(path) as archive:
        members = archive.namelist()
    names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
    if not names and any(name.endswith("/data.pkl") for name in members):
        raise DataFileError(
            path,
            f"expected {_NPZ}; found a PyTorch file.",
            "Save with `numpy.savez(path, logits=logits.numpy(), labels=labels.numpy())`.",
        )
    return names


def _map_member(path: Path, name: str) -> AnyArray:
    info, header, (shape, column_major, dtype) = _member_facts(path, name)
    if info.compress_type != zipfile.ZIP_STORED or 0 in shape:
        with np.load(path, allow_pickle=False) as stored:
            return np.asarray(stored[name])
    with zipfile.ZipFile(path) as archive, archive.open(info) as stream:
        while stream.read(_READ_AT_ONCE):  # for its checksum, which a map does not compare
            pass
    with path.open("rb") as file:  # its bytes begin after a header that names it once more
        file.seek(info.header_offset)
        lengths = struct.unpack("<HH", file.read(_HEADER_BYTES)[_LENGTHS])
    start = info.header_offset + _HEADER_BYTES + sum(lengths) + header
    return np.memmap(path, dtype, "r", start, shape, "F" if column_major else "C")


def _member_facts(path: Path, name: str) -> tuple[zipfile.ZipInfo, int, ArrayHeader]:
    """A member, its bytes before the data, and its header, which must fit the data's size."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as stream:
            about, header = _read_header(path, f"numbers in `{name}`", stream), stream.tell()
    _check_size(info.file_size - header, about[0], about[2])
    return info, header, about


def _check_size(found: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    expected = math.prod(shape) * dtype.itemsize
    if found != expected:
        raise EOFError(
            f"{expected} bytes announced by shape {shape} and type {dtype}, {found} found"
        )


def _read_header(path: Path, what: str, stream: IO[bytes]) -> ArrayHeader:
    first = np.lib.format.read_magic(stream) == (1, 0)
    forms = np.lib.format
    read = forms.read_array_header_1_0 if first else forms.read_array_header_2_0
    shape, column_major, dtype = read(stream)
    if dtype.hasobject:
        raise objects_error(path, what)
    return shape, column_major, dtype
