"""`.npy`, mapped into memory, and `.npz`, whose arrays are read when they are asked for.

Sizes and checksums are compared either way.
"""

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._errors import DataFileError, report_damage
from hokical.io._tables import NAMELESS, Arrays

_NPZ = "a NumPy archive (.npz)"


@contextmanager
def _report(path: Path, kind: str) -> Iterator[None]:
    """Damage, or arrays of Python objects, whose bytes could be any program."""
    with report_damage(path, kind):
        try:
            yield
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise DataFileError(
                path,
                "expected numbers; found Python objects, which are not read.",
                "Convert with `.astype(float)`, rows of equal length, and save again.",
            ) from error


def open_npy(path: Path) -> Arrays:
    """The file's one array, without a name."""
    with _report(path, "a NumPy array (.npy)"):
        if not np.load(path, mmap_mode="r", allow_pickle=False).size:
            return {NAMELESS: np.load(path, allow_pickle=False)}
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if mapped.offset + mapped.nbytes != os.path.getsize(path):
            raise EOFError(f"more bytes than shape {mapped.shape} and type {mapped.dtype} announce")
        return {NAMELESS: np.asarray(mapped)}


class Archive(Mapping[str, AnyArray]):
    """The arrays of a `.npz`; others than those asked for neither cost time nor cause errors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with report_damage(path, _NPZ), zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        self._names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
        if not self._names and any(name.endswith("/data.pkl") for name in members):
            raise DataFileError(
                path,
                f"expected {_NPZ}; found a PyTorch file.",
                "Save with `numpy.savez(path, logits=logits.numpy(), labels=labels.numpy())`.",
            )

    def __getitem__(self, name: str) -> AnyArray:
        if name not in self._names:
            raise KeyError(name)
        with (
            _report(self._path, _NPZ),
            zipfile.ZipFile(self._path) as archive,
            archive.open(f"{name}.npy") as stream,
        ):
            found = np.lib.format.read_array(stream, allow_pickle=False)
            if stream.read(1):  # at the end the checksum is compared
                raise EOFError(f"more bytes than shape {found.shape} announces")
            return np.asarray(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
