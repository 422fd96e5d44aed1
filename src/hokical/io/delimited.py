"""`.csv`: text tables with commas, semicolons or tabs."""

import csv
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io.columns import TableRows, find_columns, one_score_error, split_rows
from hokical.io.errors import DataFileError, report_damage
from hokical.io.names import LOGITS_AND_LABELS, NAMELESS, Arrays, Wanted
from hokical.io.sniff import open_text

_KIND = "a table (.csv) of numbers, columns logit_0, logit_1, ... and label"


def open_csv(path: Path, wanted: Wanted = LOGITS_AND_LABELS) -> Arrays:
    """Columns by the header; without a header all of them, nameless."""
    with report_damage(path, _KIND):
        delimiter, first = _read_first_line(path)
        if all(_is_number(cell) for cell in first):
            skip = int(_numbers_columns(first, _read_row(path, delimiter, 1)))
            return {NAMELESS: _read_numbers(path, delimiter, [], skip=skip)}
        return _open_named(path, delimiter, first, wanted)


def _open_named(path: Path, delimiter: str, header: list[str], wanted: Wanted) -> Arrays:
    if len(header) < 2 and not header[0].isidentifier():
        raise DataFileError(path, f"expected {_KIND}; found other text.", "Name another file.")
    layout = find_columns(path, header, wanted)
    if len(layout.logits) == 1 and wanted.binary_score is None:
        raise one_score_error(path, header[layout.logits[0]])
    first = _read_row(path, delimiter, 1)
    _check_width(path, header, first)
    words = {*layout.kept.values(), *([] if layout.split is None else [layout.split])}
    if layout.labels is not None:
        label = "".join(first[layout.labels : layout.labels + 1])  # a short row has none
        if wanted.unlabelled or (label.strip() and not _is_number(label)):
            words.add(layout.labels)
    text = _read_words(path, delimiter, sorted(words)) if words else {}
    numeric = [*layout.logits, layout.labels, layout.weights]
    numbers = [column for column in numeric if column is not None and column not in words]
    # All columns at once where all are numbers: then a row that is too long is noticed as well.
    columns = numbers if len(numbers) < len(header) else None
    values = np.empty((0, 0))
    if numbers:
        values = _read_numbers(path, delimiter, header, skip=1, columns=columns)
    position = {c: i for i, c in enumerate(numbers if columns else range(len(header)))}
    labels, weights = (
        None if column is None else text[column] if column in words else values[:, position[column]]
        for column in (layout.labels, layout.weights)
    )
    logits = values[:, [position[column] for column in layout.logits]]
    parts = None if layout.split is None else text[layout.split].tolist()
    kept = {name: text[column] for name, column in layout.kept.items()}
    rows = TableRows(logits, labels, weights, parts, kept, layout.classes)
    return split_rows(path, rows, wanted.array)


def _read_numbers(
    path: Path, delimiter: str, header: list[str], *, skip: int, columns: list[int] | None = None
) -> NDArray[Any]:
    with open_text(path) as stream:
        lines = [line for line in stream if line.strip()][skip:]
    if not lines:
        raise DataFileError(path, f"expected {_KIND}; found a header and 0 rows.", "Add rows.")
    try:
        return np.loadtxt(
            lines, delimiter=delimiter, usecols=columns, quotechar='"', comments=None, ndmin=2
        )
    except ValueError as error:
        raise _bad_cell(path, str(error), header) from error


def _bad_cell(path: Path, reason: str, header: list[str]) -> DataFileError:
    """What NumPy says of a cell or row, in words and with the remedy that fits it."""
    found = re.fullmatch(
        r"could not convert string (.*) to \w+ at row (\d+), column (\d+)\.", reason
    )
    if found is None:
        short = reason.split(";")[0].rstrip(".")
        remedy = "Give every row as many cells as the first."
        return DataFileError(path, f"expected {_KIND}; {short}.", remedy)
    cell, row, column = found[1], found[2], int(found[3]) - 1
    name = f"`{header[column]}`" if header else str(column)
    shown = "an empty cell" if cell == "''" else cell
    remedy = "Write a number there, or drop the row or column."
    if re.match(r"'[-+]?\d+,\d+", cell):
        remedy = "Write numbers with a decimal point, not a comma."
    return DataFileError(
        path, f"expected a number in row {row}, column {name}; found {shown}.", remedy
    )


def _check_width(path: Path, header: list[str], row: list[str]) -> None:
    if row and len(row) > len(header):
        raise DataFileError(
            path,
            f"expected {len(header)} cells in a row, as in the header; found {len(row)}.",
            "Name every column, and write numbers with a decimal point, not a comma.",
        )


def _numbers_columns(first: list[str], second: list[str]) -> bool:
    """Whether a line of numbers is a header: 0, 1, 2, ... or 1, 2, 3, ..., as pandas writes it.

    Two columns of whole numbers may as well begin with a row 0, 1; they are taken for a header
    only above numbers that are not whole.
    """
    counted = any(first == [str(k + start) for k in range(len(first))] for start in (0, 1))
    if len(first) < 2 or not counted:
        return False
    return len(first) > 2 or not all(re.fullmatch(r"\s*[-+]?\d+\s*", cell) for cell in second)


def _read_words(path: Path, delimiter: str, columns: list[int]) -> dict[int, NDArray[Any]]:
    """Columns of text (n,), by their place."""
    with open_text(path) as stream:
        rows = csv.reader((line for line in stream if line.strip()), delimiter=delimiter)
        cells = [[row[column] for column in columns] for row in islice(rows, 1, None)]
    return dict(zip(columns, np.array(cells, np.str_).T, strict=True)) if cells else {}


def _read_first_line(path: Path) -> tuple[str, list[str]]:
    """The delimiter, by which of them the first line has most of, and its cells."""
    line = _read_line(path, 0)
    delimiter = max(",;\t", key=line.count)
    return delimiter, next(csv.reader([line], delimiter=delimiter), [""])


def _read_row(path: Path, delimiter: str, number: int) -> list[str]:
    return next(csv.reader([_read_line(path, number)], delimiter=delimiter), [])


def _read_line(path: Path, number: int) -> str:
    with open_text(path) as stream:
        lines = (line for line in stream if line.strip())
        return next(islice(lines, number, None), "")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
