"""`.csv`: text tables with commas, semicolons or tabs."""

import csv
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._columns import ColumnLayout, find_columns, one_score_error, split_rows, table_rows
from hokical.io._errors import DataFileError, report_damage
from hokical.io._names import LOGITS_AND_LABELS, NAMELESS, Arrays, Wanted
from hokical.io._sniff import open_text

_KIND = "a table (.csv) of numbers, columns logit_0, logit_1, ... and label"
#: What stands for no number where rows without one are dropped.
_MISSING = ("", "na", "n/a", "nan", "null", "none")
Row = list[str]


def open_csv(path: Path, wanted: Wanted = LOGITS_AND_LABELS) -> Arrays:
    """Columns by the header; without a header all of them, nameless."""
    with report_damage(path, _KIND):
        try:
            with open_text(path, wanted.encoding) as stream:
                lines = [line for line in stream if line.strip()]
        except UnicodeDecodeError as error:
            raise DataFileError(
                path,
                f"expected {_KIND}; found text that is not {wanted.encoding or 'UTF-8'}.",
                "Save it as UTF-8, or name what it is: --encoding latin-1.",
            ) from error
        return _read_table(_Text(path, lines, wanted), wanted)


class _Text:
    """The lines of a table and how to take them apart."""

    def __init__(self, path: Path, lines: list[str], wanted: Wanted) -> None:
        self.path, self.lines = path, lines
        self.delimiter = max(",;\t".replace(wanted.decimal, ""), key="".join(lines[:1]).count)
        self.convert = _converter(wanted)

    def rows(self) -> Iterator[Row]:
        return csv.reader(self.lines, delimiter=self.delimiter)

    def is_number(self, cell: str) -> bool:
        try:
            self.convert(cell)
        except ValueError:
            return False
        return True


def _read_table(text: _Text, wanted: Wanted) -> Arrays:
    rows = text.rows()
    header, second = [name.strip() for name in next(rows, [])], next(rows, [])
    if all(map(text.is_number, header)):
        text.lines = text.lines[int(_numbers_columns(header, second)) :]
        names = [str(k) for k in range(len(header))]
        columns = _read_columns(text, names, list(range(len(header))), [])
        return {NAMELESS: np.stack(list(columns.values()), axis=1)}
    layout = _find_columns(text.path, header, wanted)
    words = {*layout.kept.values(), *(() if layout.split is None else (layout.split,))}
    words -= set(layout.logits)  # numbers, also if they are to be kept
    text.lines = text.lines[1:]
    label = layout.labels
    if isinstance(label, list):
        words |= {*label}
    elif label is not None:
        cells = (row[label] for row in text.rows() if label < len(row) and row[label].strip())
        if wanted.unlabelled or not text.is_number(next(cells, "0")):
            words.add(label)
    given = {*layout.logits, layout.weights, *(() if isinstance(label, list) else (label,))} - words
    numbers = sorted(k for k in given if k is not None)
    columns = _read_columns(text, [f"`{name}`" for name in header], numbers, sorted(words))
    rows_and_parts = table_rows(text.path, layout, columns.__getitem__, wanted.array)
    return split_rows(text.path, *rows_and_parts, layout.classes)


def _find_columns(path: Path, header: Row, wanted: Wanted) -> ColumnLayout:
    if len(header) < 2 and not header[0].isidentifier():
        raise DataFileError(path, f"expected {_KIND}; found other text.", "Name another file.")
    layout = find_columns(path, header, wanted)
    if len(layout.logits) == 1 and wanted.binary_score is None:
        raise one_score_error(path, header[layout.logits[0]])
    return layout


def _read_columns(
    text: _Text, header: Sequence[str], numbers: list[int], words: list[int]
) -> dict[int, AnyArray]:
    """The columns that hold numbers and those that hold text, by index."""
    if not text.lines:
        raise DataFileError(text.path, f"expected {_KIND}; found a header and 0 rows.", "Add rows.")
    found = _read_numbers(text, numbers, whole=len(numbers) == len(header))
    slowly = numbers if found is None else []
    values, cells, last = array("d"), list[Row](), max([*numbers, *words])
    for number, row in enumerate(text.rows() if slowly or words else ()):
        if not last < len(row) <= len(header):
            raise DataFileError(
                text.path,
                f"expected {len(header)} cells in a row, as in the first; found {len(row)} in row "
                f"{number}.",
                "Complete or drop the row; name every column, and write numbers with a decimal "
                "point, not a comma.",
            )
        try:
            values.extend([text.convert(row[k]) for k in slowly])
        except ValueError as error:
            bad = next(k for k in slowly if not text.is_number(row[k]))
            raise _bad_cell(text.path, row[bad], number, header[bad]) from error
        cells.append([row[k] for k in words])
    found = np.frombuffer(values).reshape(len(cells), len(numbers)) if found is None else found
    texts = np.array(cells, np.str_).T
    return dict(zip(numbers, found.T, strict=True)) | dict(zip(words, texts, strict=True))


def _read_numbers(text: _Text, columns: list[int], *, whole: bool) -> AnyArray | None:
    """Columns as NumPy reads them, which is fast; None if it cannot, and rows will tell why."""
    if text.convert is not float or not columns:
        return None
    some = None if whole else columns  # of all together, NumPy notices a row that is too long
    options: Any = {"quotechar": '"', "comments": None, "ndmin": 2}
    with suppress(ValueError):
        found = np.loadtxt(text.lines, delimiter=text.delimiter, usecols=some, **options)
        return found if found.shape[1] == len(columns) else None
    return None


def _bad_cell(path: Path, cell: str, row: int, column: str) -> DataFileError:
    shown = repr(cell) if cell.strip() else "an empty cell"
    remedy = "Write a number there, or drop the row (--missing drop) or column."
    if re.match(r"[-+]?\d+,\d+", cell):
        remedy = "Write numbers with a decimal point, not a comma, or say --decimal ,"
    return DataFileError(
        path, f"expected a number in row {row}, column {column}; found {shown}.", remedy
    )


def _converter(wanted: Wanted) -> Callable[[str], float]:
    """From a cell to a number, ValueError if it is none."""
    if wanted.decimal == "." and wanted.missing == "error":
        return float
    absent = _MISSING if wanted.missing == "drop" else ()

    def convert(cell: str) -> float:
        missing = cell.strip().lower() in absent
        return np.nan if missing else float(cell.replace(wanted.decimal, "."))

    return convert


def _numbers_columns(first: Row, second: Row) -> bool:
    """Whether a line of numbers is a header: 0, 1, 2, ... or 1, 2, 3, ..., as pandas writes it.

    Two columns of whole numbers may as well begin with a row 0, 1; they are taken for a header
    only above numbers that are not whole.
    """
    counted = any(first == [str(k + start) for k in range(len(first))] for start in (0, 1))
    if len(first) < 2 or not counted:
        return False
    return len(first) > 2 or not all(re.fullmatch(r"\s*[-+]?\d+\s*", cell) for cell in second)
