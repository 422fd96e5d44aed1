"""`.csv`: text tables with commas, semicolons or tabs."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

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
            self._text, encoding = read_text(path)
            first_line = self._text.lstrip().partition("\n")[0]
            self._delimiter = max(",;\t", key=first_line.count)
            head = [row for _, row in islice(self._rows(), 2)] or [[""]]
        if encoding == "Windows-1252":
            self.notes = (f"{path.name} is not UTF-8 and is read as {encoding}.",)
        self.header = self.names = [name.strip() for name in head[0]]
        self._skipped = 1
        if all(map(self._is_number, self.header)):
            self.names = [NAMELESS]
            self._skipped = int(_is_range(self.header, head[-1]))
        elif len(self.header) < 2 and not self.header[0].isidentifier():
            raise DataFileError(path, f"expected {_KIND}; found other text.", "Name another file.")
        if len(head) <= self._skipped:
            raise DataFileError(path, f"expected {_KIND}; found 0 rows.", "Add rows.")

    def read(
        self, scores: Sequence[str], others: Sequence[str]
    ) -> tuple[AnyArray, dict[str, AnyArray]]:
        """Scores as numbers, NaN where there are none; other columns as text."""
        if self.names == [NAMELESS]:
            numbers, _ = self._read(list(range(len(self.header))), [])
            return numbers, dict.fromkeys(others, numbers)
        numbers, texts = self._read(
            [self.header.index(name) for name in scores],
            [self.header.index(name) for name in others],
        )
        return numbers, dict(zip(others, texts, strict=True))

    def _read(self, numbers: list[int], texts: list[int]) -> tuple[FloatArray, list[AnyArray]]:
        """Columns of numbers (n, k) and of text (n,), by NumPy where all cells are plain."""
        kinds = dict.fromkeys(range(len(self.header)), "U1")  # of what is not used
        kinds |= dict.fromkeys(texts, "O") | dict.fromkeys(numbers, "f8")
        try:
            table: AnyArray = np.loadtxt(
                io.StringIO(self._text.lstrip("\r\n")),
                np.dtype([(str(k), kind) for k, kind in kinds.items()]),
                delimiter=self._delimiter,
                comments=None,
                quotechar='"',
                skiprows=self._skipped,
                ndmin=1,
            )
        except ValueError:
            return self._read_cells(numbers, texts)
        found = np.array([table[str(k)] for k in numbers]).T
        return found, [table[str(k)].astype(np.str_) for k in texts]

    def _read_cells(
        self, numbers: list[int], texts: list[int]
    ) -> tuple[FloatArray, list[AnyArray]]:
        """The same, cell by cell: percentages, decimal commas, missing values, and errors."""
        rows = list(self._checked_rows())
        found = [[self._number(row[k], line, k) for k in numbers] for line, row in rows]
        return np.array(found), [np.array([row[k] for _, row in rows]) for k in texts]

    def place(self, row: int) -> str:
        """Where an editor shows a row."""
        return f"line {next(islice(self._checked_rows(), row, None))[0]}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row that is not blank, after the number of its first line in the file."""
        reader = csv.reader(io.StringIO(self._text, newline=""), delimiter=self._delimiter)
        line = 1
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield line, row
            line = reader.line_num + 1

    def _checked_rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows below the header."""
        for line, row in islice(self._rows(), self._skipped, None):
            if len(row) != len(self.header):
                raise DataFileError(
                    self.path,
                    f"expected {len(self.header)} cells in a row, as in the first; found "
                    f"{len(row)} in line {line}.",
                    "Complete or drop the row, and name every column. Between commas, numbers "
                    "have a decimal point.",
                )
            yield line, row

    def _number(self, cell: str, line: int = 0, column: int = 0) -> float:
        """A cell as a number; a percentage as a fraction, NaN if it says that none is known."""
        text = cell.strip()
        if text.lower() in MISSING:
            return np.nan
        unit = 100.0 if text.endswith("%") else 1.0
        text = text.removesuffix("%").rstrip()
        if self._delimiter != "," and "." not in text:
            text = text.replace(",", ".")
        try:
            return float(text) / unit
        except ValueError as error:
            remedy = "Write a number there, or drop the row or column."
            if re.match(r"\s*[-+]?\d+,\d+", cell):
                remedy = "Write a decimal point, or put semicolons between the columns."
            where = f"line {line}, column `{self.header[column]}`"
            raise DataFileError(
                self.path, f"expected a number in {where}; found {cell!r}.", remedy
            ) from error

    def _is_number(self, cell: str) -> bool:
        try:
            self._number(cell)
        except DataFileError:
            return False
        return True


def _is_range(first: list[str], second: list[str]) -> bool:
    """Whether a line of numbers is a header: 0, 1, 2, ..., as pandas writes it.

    Two columns of whole numbers may as well begin with a row 0, 1; they are taken for a header
    only above numbers that are not whole.
    """
    if len(first) < 2 or first != [str(k) for k in range(len(first))]:
        return False
    return len(first) > 2 or not all(re.fullmatch(r"\s*[-+]?\d+\s*", cell) for cell in second)
