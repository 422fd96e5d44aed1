"""`.csv`: text tables with commas, semicolons or tabs."""

import csv
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.types import AnyArray, FloatArray
from hokical.io._errors import DataFileError, report_damage
from hokical.io._formats import read_text
from hokical.io._labels import MISSING
from hokical.io._tables import NAMELESS, Table

_KIND = "a table (.csv) with columns logit_0, logit_1, ... and label"


class TextTable(Table):
    """Columns by the header; without a header all of them together, nameless."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with report_damage(path, _KIND):
            text, encoding = read_text(path)
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            numbered = [(k, line) for k, line in enumerate(lines, 1) if line.strip()]
            self._lines = [line for _, line in numbered]
            self._line_numbers = [number for number, _ in numbered]
            self._delimiter = max(",;\t", key="".join(self._lines[:1]).count)
            self._quoted = '"' in text
            head = [row for _, row in zip(range(2), self._rows(), strict=False)]
        if encoding == "Windows-1252":
            self.notes = (f"{path.name} is not UTF-8 and is read as {encoding}.",)
        self._read_header([row for _, row in head])

    def _read_header(self, head: list[list[str]]) -> None:
        first = [name.strip() for name in head[0]] if head else [""]
        self.header = self.names = first
        if all(map(self._is_number, first)):
            self.names = [NAMELESS]
            if not _is_range(first, head[-1]):
                return
        elif len(first) < 2 and not first[0].isidentifier():
            raise DataFileError(self.path, f"expected {_KIND}; found other text.", "Name another.")
        self._lines, self._line_numbers = self._lines[1:], self._line_numbers[1:]
        if not self._lines:
            raise DataFileError(self.path, f"expected {_KIND}; found 0 rows.", "Add rows.")

    def scores(self, names: Sequence[str]) -> FloatArray:
        """The columns (n, k) as numbers, NaN where there are none."""
        chosen = [self.header.index(name) for name in names if self.names != [NAMELESS]]
        chosen = chosen or list(range(len(self.header)))
        found = self._read_fast(chosen)
        return self._read_slowly(chosen) if found is None else found

    def columns(self, names: Sequence[str]) -> dict[str, AnyArray]:
        """Columns (n,) as text; numbers (n, columns) where there is no header."""
        if NAMELESS in names and self.names == [NAMELESS]:
            return {NAMELESS: self.scores(names)}
        places = [self.header.index(name) for name in names]
        cells = [[row[k] for k in places] for _, row in self._checked_rows()] if names else []
        return dict(zip(names, np.array(cells, np.str_).T, strict=True)) if names else {}

    def place(self, row: int) -> str:
        """Where an editor shows a row."""
        if not self._quoted:
            return f"line {self._line_numbers[row]}"
        return f"line {next(number for k, (number, _) in enumerate(self._rows()) if k == row)}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row after the number of its first line in the file."""
        reader = csv.reader((f"{line}\n" for line in self._lines), delimiter=self._delimiter)
        start = 0
        for row in reader:
            yield self._line_numbers[start], row
            start = reader.line_num

    def _checked_rows(self) -> Iterator[tuple[int, list[str]]]:
        for number, row in self._rows():
            if len(row) != len(self.header):
                raise DataFileError(
                    self.path,
                    f"expected {len(self.header)} cells in a row, as in the first; found "
                    f"{len(row)} in line {number}.",
                    "Complete or drop the row, and name every column. Between commas, numbers "
                    "have a decimal point.",
                )
            yield number, row

    def _read_fast(self, columns: list[int]) -> FloatArray | None:
        """Columns as NumPy reads them; None if it cannot, and reading row by row tells why."""
        width = len(self.header) - 1
        if self._quoted or any(line.count(self._delimiter) != width for line in self._lines):
            return None
        options: Any = {"comments": None, "ndmin": 2, "usecols": columns}
        with suppress(ValueError):
            return np.loadtxt(self._lines, delimiter=self._delimiter, **options)
        return None

    def _read_slowly(self, columns: list[int]) -> FloatArray:
        values = array("d")
        for number, row in self._checked_rows():
            try:
                values.extend([self._number(row[k]) for k in columns])
            except ValueError as error:
                bad = next(k for k in columns if not self._is_number(row[k]))
                raise self._bad_cell(row[bad], number, self.header[bad]) from error
        return np.frombuffer(values).reshape(-1, len(columns))

    def _number(self, cell: str) -> float:
        """A cell as a number; a percentage as a fraction, NaN if it says that none is known."""
        text = cell.strip()
        if text.lower() in MISSING:
            return np.nan
        share = text.endswith("%")
        text = text.removesuffix("%").rstrip()
        if self._delimiter != "," and "." not in text:
            text = text.replace(",", ".")
        return float(text) / 100.0 if share else float(text)

    def _is_number(self, cell: str) -> bool:
        try:
            self._number(cell)
        except ValueError:
            return False
        return True

    def _bad_cell(self, cell: str, line: int, column: str) -> DataFileError:
        remedy = "Write a number there, or drop the row or column."
        if re.match(r"[-+]?\d+,\d+", cell.strip()):
            remedy = "Write numbers with a decimal point, or put semicolons between the columns."
        return DataFileError(
            self.path,
            f"expected a number in line {line}, column `{column}`; found {cell!r}.",
            remedy,
        )


def _is_range(first: list[str], second: list[str]) -> bool:
    """Whether a line of numbers is a header: 0, 1, 2, ..., as pandas writes it.

    Two columns of whole numbers may as well begin with a row 0, 1; they are taken for a header
    only above numbers that are not whole.
    """
    if len(first) < 2 or first != [str(k) for k in range(len(first))]:
        return False
    return len(first) > 2 or not all(re.fullmatch(r"\s*[-+]?\d+\s*", cell) for cell in second)
