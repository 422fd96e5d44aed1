"""`.npy` and `.npz`, read at once or left on disk.

`open_npz` reads a member as a whole when it is asked for. `map_npz` maps members into memory where
they are stored as they are; compressed ones are read. Sizes and checksums are compared either way.
"""

import math
import os
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._errors import DataFileError, objects_error, report_damage
from hokical.io._names import NAMELESS, Arrays, LazyArrays

_NPZ = "a NumPy archive (.npz)"
#: The fixed part of what precedes a member, and where the lengths of the rest are in it.
_HEADER_BYTES, _LENGTHS = 30, slice(26, 30)
_READ_AT_ONCE = 1 << 22

#: Shape, whether columns are contiguous, and type.
ArrayHeader = tuple[tuple[int, ...], bool, np.dtype[Any]]


def open_npy(path: Path) -> Arrays:
    """The file's one array, nameless and mapped into memory. Objects are refused."""
    with report_damage(path, "a NumPy array (.npy)"):
        with path.open("rb") as stream:
            shape, _, dtype = _read_header(path, "an array of numbers", stream)
            _check_size(os.path.getsize(path) - stream.tell(), shape, dtype)
        mode: Any = None if 0 in shape else "r"  # an empty array cannot be mapped
        return {NAMELESS: np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))}


def open_npz(path: Path) -> Arrays:
    """The archive's arrays by name, each read when asked for. Objects are refused."""
    return LazyArrays(path, _NPZ, _member_names(path), _read_member)


def map_npz(path: Path) -> Arrays:
    """The archive's arrays by name, left on disk where they are not compressed."""
    return LazyArrays(path, _NPZ, _member_names(path), _map_member)


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


def _read_member(path: Path, name: str) -> AnyArray:
    _member_facts(path, name)
    with np.load(path, allow_pickle=False) as stored:
        return np.asarray(stored[name])


def _map_member(path: Path, name: str) -> AnyArray:
    info, header, (shape, column_major, dtype) = _member_facts(path, name)
    if info.compress_type != zipfile.ZIP_STORED or 0 in shape:
        return _read_member(path, name)
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
