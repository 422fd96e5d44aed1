"""What every format gives: named columns or arrays of one file, each read when it is asked for."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._labels import MISSING

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
    def scores(self, names: Sequence[str]) -> AnyArray:
        """Columns (n, k), or one array of scores of any shape."""

    @abstractmethod
    def columns(self, names: Sequence[str]) -> dict[str, AnyArray]:
        """Other columns (n,), by name."""

    def column(self, name: str) -> AnyArray:
        """One column (n,)."""
        return self.columns([name])[name]

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {row}"


class ArrayTable(Table):
    """Arrays of an archive, or one without a name; parts are in the names (`val_logits`)."""

    def __init__(self, path: Path, arrays: Arrays) -> None:
        self.path, self.arrays, self.names = path, arrays, list(arrays)

    def scores(self, names: Sequence[str]) -> AnyArray:
        found = [self.arrays[name] for name in names]
        return found[0] if len(found) == 1 else np.stack(found, axis=1)

    def columns(self, names: Sequence[str]) -> dict[str, AnyArray]:
        return {name: self.arrays[name] for name in names}


def to_numbers(column: AnyArray) -> AnyArray:
    """Text or objects (n,) as numbers, NaN where a cell is empty, if all of them are numbers."""
    if column.dtype.kind not in "UTO":
        return column
    cells = ["nan" if str(cell).strip().lower() in MISSING else cell for cell in column.tolist()]
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        return column
