"""What every format gives: named columns or arrays of one file. Arrays of NumPy's own formats."""

import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._errors import DataFileError, report_damage

#: Arrays of a file by name. A file with one array and no name for it uses "".
Arrays = Mapping[str, AnyArray]
NAMELESS = ""


class Table(ABC):
    """A file with columns."""

    path: Path
    names: Sequence[str]
    #: What a user should know about how the file was read.
    notes: tuple[str, ...] = ()

    @abstractmethod
    def read(
        self, scores: Sequence[str], others: Sequence[str]
    ) -> tuple[AnyArray, dict[str, AnyArray]]:
        """Scores (n, k), or one array of scores of any shape; other columns (n,) by name."""

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {row}"


class ArrayTable(Table):
    """Arrays of an archive, or one without a name; parts are in the names (`val_logits`)."""

    def __init__(self, path: Path, arrays: Arrays) -> None:
        self.path, self._arrays, self.names = path, arrays, list(arrays)

    def read(
        self, scores: Sequence[str], others: Sequence[str]
    ) -> tuple[AnyArray, dict[str, AnyArray]]:
        found = self._load(dict.fromkeys((*scores, *others)))
        columns = [found[name] for name in scores] or [np.empty(0)]
        own = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        return own, {name: found[name] for name in others}

    def _load(self, names: Iterable[str]) -> Arrays:
        return self._arrays


class ArchiveTable(ArrayTable):
    """A `.npz`; arrays other than those asked for are not read."""

    def __init__(self, path: Path) -> None:
        with _report_arrays(path), zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
        if not names and any(name.endswith("/data.pkl") for name in members):
            raise DataFileError(
                path,
                "expected a NumPy archive (.npz); found a PyTorch file.",
                "Save with `numpy.savez(path, logits=logits.numpy(), labels=labels.numpy())`.",
            )
        self.path, self.names = path, names

    def _load(self, names: Iterable[str]) -> Arrays:
        with _report_arrays(self.path), np.load(self.path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}


def open_npy(path: Path) -> ArrayTable:
    """The file's one array, without a name, mapped into memory."""
    with _report_arrays(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.size and array.offset + array.nbytes != os.path.getsize(path):
            raise EOFError(f"more bytes than shape {array.shape} and type {array.dtype} announce")
        return ArrayTable(path, {NAMELESS: np.asarray(array)})


@contextmanager
def _report_arrays(path: Path) -> Iterator[None]:
    """Damage, or arrays of Python objects, whose bytes could be any program."""
    with report_damage(path, "NumPy arrays"):
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
