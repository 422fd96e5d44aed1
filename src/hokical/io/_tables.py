"""What a file is, by its first bytes, and what every format gives: named columns or arrays.

Arrays of NumPy's own formats, and the text of a file, are read here.
"""

import gzip
import os
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._errors import DataFileError, report_damage

FileSplit = Literal["val", "test"]
#: Arrays of a file by name. A file with one array and no name for it uses "".
Arrays = Mapping[str, AnyArray]
Opener = Callable[[], AbstractContextManager[Arrays]]
#: Columns of scores as numbers, and other columns by name.
Loaded = tuple[list[AnyArray], dict[str, AnyArray]]
NAMELESS = ""
_KIND = "NumPy arrays of numbers"
_HEAD_BYTES = 4096
#: First bytes of the formats that are read; of pickles, those of protocols 2 to 5.
_MAGIC = {b"PK\x03\x04": "npz", b"\x93NUMPY": "npy", b"PAR1": "parquet"}
_PICKLED = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_PICKLES = (".p", ".pkl", ".pickle")
_SAVE = "Save the arrays with `numpy.savez`, or a table as .csv or .parquet."
_GZIP = b"\x1f\x8b"


def find_format(path: Path) -> str:
    """One of npz, npy, parquet, pickle, csv; or DataFileError."""
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "a pipe or device"
        raise DataFileError(path, f"expected a file; found {what}.", "Save the data in a file.")
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise DataFileError(
            path, f"cannot be read: {error.strerror}.", "Check its name, folder and permissions."
        ) from error
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    # A length in 8 bytes, then JSON, is of safetensors.
    pickled = head[:2] in _PICKLED and head[8:9] != b"{"
    if pickled or (head and path.suffix.lower() in _PICKLES):
        return "pickle"
    if head.startswith(_GZIP):
        with report_damage(path, "a compressed table (.csv.gz)"), gzip.open(path) as stream:
            head = stream.read(_HEAD_BYTES)
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in head):
        return "csv"
    found = "another kind" if head else "nothing"
    raise DataFileError(
        path, f"expected .npz, .npy, .csv (UTF-8) or .parquet; found {found}.", _SAVE
    )


def read_text(path: Path) -> str:
    """The text of a file, unpacked if needed: in UTF-8, else in the encoding of Windows."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(_GZIP) else data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        warnings.warn(f"{path.name} is not UTF-8 and is read as Windows-1252.", stacklevel=2)
        return data.decode("cp1252", errors="replace")


class Table(ABC):
    """A file with columns, which are found by name in any case.

    `part` is that of an archive which is read: `val_logits` may then be called `logits`.
    """

    def __init__(self, path: Path, names: Sequence[str], part: FileSplit | None = None) -> None:
        self.path, self.names, self.part = path, list(names), part
        known = [name.strip().lower() for name in names]
        if len(set(known)) < len(known):
            twice = Counter(known).most_common(1)[0][0]
            problem = f"expected every column once; found `{twice}` twice."
            raise self.error(problem, "Rename one of them.")
        self._places = dict(zip(known, names, strict=True))
        if part is not None:
            own = {k: name for k, name in self._places.items() if k.startswith(f"{part}_")}
            self._places |= {k.removeprefix(f"{part}_"): name for k, name in own.items()}

    def first(self, *spellings: str) -> str | None:
        """The first of the spellings that is there, as the file spells it."""
        found = (self._places.get(name.strip().lower()) for name in spellings)
        return next((name for name in found if name is not None), None)

    def require(self, name: str, option: str) -> str:
        """A column or array that the user named."""
        found = self.first(name)
        if found is None:
            raise self.error(
                f"expected a column or array `{name}`, named by {option}; found {self.listed()}.",
                "Check the name.",
            )
        return found

    def error(self, problem: str, remedy: str) -> DataFileError:
        """An error that names the file."""
        return DataFileError(self.path, problem, remedy)

    def listed(self) -> str:
        """At most eight of the names, for messages."""
        shown = [f"`{name}`" if name else "numbers without a name" for name in self.names]
        return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")

    def read(
        self, scores: Sequence[str], others: Sequence[str]
    ) -> tuple[AnyArray, dict[str, AnyArray]]:
        """Scores (n, k), or one array of scores of any shape; other columns (n,) by name."""
        found, rest = self._load(scores, others)
        return found[0] if len(found) == 1 else np.stack(found, axis=1), rest

    def read_column(self, name: str) -> AnyArray:
        """One column that holds no scores."""
        return self._load((), (name,))[1][name]

    @abstractmethod
    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        """The columns of the scores, as numbers, and the others."""

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {row}"

    def numeric(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the columns that may hold numbers; all where that is not known yet."""
        return tuple(names)


class ArrayTable(Table):
    """Arrays of a file that `opener` opens; those that are not asked for are not read."""

    def __init__(self, path: Path, names: Sequence[str], opener: Opener, part: FileSplit) -> None:
        super().__init__(path, names, part)
        self._open = opener

    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        with report_damage(self.path, _KIND), self._open() as arrays:
            found = {name: arrays[name] for name in (*scores, *others)}
            for name, array in found.items():
                if isinstance(array, bytes):  # what NumPy gives for an entry without its header
                    raise ValueError(f"`{name}` is no array")
        return [found[name] for name in scores], {name: found[name] for name in others}


def in_memory(path: Path, arrays: Arrays, part: FileSplit) -> ArrayTable:
    """Arrays that are read already, or mapped into memory."""
    return ArrayTable(path, list(arrays), lambda: nullcontext(arrays), part)


def open_npz(path: Path, part: FileSplit) -> ArrayTable:
    """The arrays of an archive."""
    with report_damage(path, _KIND), zipfile.ZipFile(path) as archive:
        names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
    if not names:
        raise DataFileError(path, "expected NumPy arrays; found another archive.", _SAVE)
    return ArrayTable(path, names, lambda: np.load(path, allow_pickle=False), part)


def open_npy(path: Path, part: FileSplit) -> ArrayTable:
    """The file's one array, without a name, mapped into memory."""
    with report_damage(path, _KIND):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.size and array.offset + array.nbytes != os.path.getsize(path):
            raise EOFError(f"more bytes than shape {array.shape} and type {array.dtype} announce")
    return in_memory(path, {NAMELESS: np.asarray(array)}, part)
