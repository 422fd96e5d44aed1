"""`.csv`: text tables with commas, semicolons or tabs."""

import csv
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._columns import KEPT, ColumnLayout, find_columns, one_score_error, split_rows
from hokical.io._errors import DataFileError, report_damage
from hokical.io._names import LOGITS_AND_LABELS, NAMELESS, WEIGHT_ARRAY, Arrays, Wanted
from hokical.io._sniff import open_text

_KIND = "a table (.csv) of numbers, columns logit_0, logit_1, ... and label"


def open_csv(path: Path, wanted: Wanted = LOGITS_AND_LABELS) -> Arrays:
    """Columns by the header; without a header all of them, nameless."""
    with report_damage(path, _KIND):
        lines = _read_lines(path)
        delimiter = max(",;\t", key="".join(lines[:1]).count)
        read = partial(csv.reader, delimiter=delimiter)
        first, second = (next(read(lines[k : k + 1]), []) for k in (0, 1))
        first = [name.strip() for name in first]
        if all(map(_is_number, first)):
            start = int(_numbers_columns(first, second))
            return {NAMELESS: _read_numbers(path, lines[start:], delimiter)}
        layout, words = _find_columns(path, first, second, wanted)
        columns = _read_words(path, islice(read(lines), 1, None), words) if words else {}
        wanted_numbers = (*layout.logits, layout.labels, layout.weights)
        numbers = sorted(k for k in wanted_numbers if k is not None and k not in words)
        if numbers:
            values = _read_numbers(path, lines[1:], delimiter, first, numbers)
            columns |= dict(zip(numbers, values.T, strict=True))
        logits = [columns[k] for k in layout.logits]
        labels, weights, parts = (
            None if k is None else columns[k] for k in (layout.labels, layout.weights, layout.split)
        )
        scores = np.stack(logits, axis=1) if logits else np.empty((0, 0))
        kept = {KEPT + name: columns[k] for name, k in layout.kept.items()}
        rows = {wanted.array: scores, "labels": labels, WEIGHT_ARRAY: weights, **kept}
        return split_rows(path, rows, parts, layout.classes)


def _read_lines(path: Path) -> list[str]:
    try:
        with open_text(path) as stream:
            return [line for line in stream if line.strip()]
    except UnicodeDecodeError as error:
        raise DataFileError(
            path, f"expected {_KIND}; found text that is not UTF-8.", "Save it as UTF-8."
        ) from error


def _find_columns(
    path: Path, header: list[str], row: list[str], wanted: Wanted
) -> tuple[ColumnLayout, list[int]]:
    """The columns, and which of them hold text, by the first row."""
    if len(header) < 2 and not header[0].isidentifier():
        raise DataFileError(path, f"expected {_KIND}; found other text.", "Name another file.")
    layout = find_columns(path, header, wanted)
    if len(layout.logits) == 1 and wanted.binary_score is None:
        raise one_score_error(path, header[layout.logits[0]])
    if len(row) > len(header):
        raise DataFileError(
            path,
            f"expected {len(header)} cells in a row, as in the header; found {len(row)}.",
            "Name every column, and write numbers with a decimal point, not a comma.",
        )
    words = {*layout.kept.values(), *([] if layout.split is None else [layout.split])}
    words -= set(layout.logits)  # numbers, also if they are to be kept
    if layout.labels is not None:
        label = "".join(row[layout.labels : layout.labels + 1])  # a short row has none
        if wanted.unlabelled or (label.strip() and not _is_number(label)):
            words.add(layout.labels)
    return layout, sorted(words)


def _read_words(path: Path, rows: Iterable[list[str]], words: list[int]) -> dict[int, AnyArray]:
    """The columns that hold text, by index."""
    cells = []
    for number, row in enumerate(rows):
        if len(row) <= words[-1]:
            raise DataFileError(
                path,
                f"expected as many cells in every row as in the header; found {len(row)} in row "
                f"{number}.",
                "Complete or drop the row.",
            )
        cells.append([row[k] for k in words])
    return dict(zip(words, np.array(cells, np.str_).T, strict=True)) if cells else {}


def _read_numbers(
    path: Path,
    lines: list[str],
    delimiter: str,
    header: Sequence[str] = (),
    columns: Sequence[int] = (),
) -> AnyArray:
    if not lines:
        raise DataFileError(path, f"expected {_KIND}; found a header and 0 rows.", "Add rows.")
    # All columns at once where all are numbers: then a row that is too long is noticed as well.
    some = columns if len(columns) < len(header) else None
    try:
        return np.loadtxt(
            lines, delimiter=delimiter, usecols=some, quotechar='"', comments=None, ndmin=2
        )
    except ValueError as error:
        raise _bad_cell(path, str(error), header) from error


def _bad_cell(path: Path, reason: str, header: Sequence[str]) -> DataFileError:
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


def _numbers_columns(first: list[str], second: list[str]) -> bool:
    """Whether a line of numbers is a header: 0, 1, 2, ... or 1, 2, 3, ..., as pandas writes it.

    Two columns of whole numbers may as well begin with a row 0, 1; they are taken for a header
    only above numbers that are not whole.
    """
    counted = any(first == [str(k + start) for k in range(len(first))] for start in (0, 1))
    if len(first) < 2 or not counted:
        return False
    return len(first) > 2 or not all(re.fullmatch(r"\s*[-+]?\d+\s*", cell) for cell in second)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
