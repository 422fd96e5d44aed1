"""`.csv`: text tables with commas, semicolons or tabs."""

import csv
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from hokical.core.types import AnyArray
from hokical.io.columns import ColumnLayout, find_columns, one_score_error, split_rows, table_rows
from hokical.io.errors import DataFileError, report_damage
from hokical.io.names import LOGITS_AND_LABELS, NAMELESS, Arrays, Wanted
from hokical.io.sniff import open_text

_KIND = "a table (.csv) of numbers, columns logit_0, logit_1, ... and label"
#: What stands for no number where rows without one are dropped.
_MISSING = ("", "na", "n/a", "nan", "null", "none")
Row = list[str]


def open_csv(path: Path, wanted: Wanted = LOGITS_AND_LABELS) -> Arrays:
    """Columns by the header; without a header all of them, nameless."""
    try:
        with report_damage(path, _KIND), open_text(path, wanted.encoding) as stream:
            return _read_table(path, (line for line in stream if line.strip()), wanted)
    except DataFileError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        raise DataFileError(
            path,
            f"expected {_KIND}; found text that is not {wanted.encoding or 'UTF-8'}.",
            "Save it as UTF-8, or name what it is: --encoding latin-1.",
        ) from error


def _read_table(path: Path, lines: Iterator[str], wanted: Wanted) -> Arrays:
    head = next(lines, "")
    delimiter = max(",;\t".replace(wanted.decimal, ""), key=head.count)
    rows = csv.reader(chain([head], lines), delimiter=delimiter)
    first = [name.strip() for name in next(rows, [])]
    second = next(rows, None)
    rest = rows if second is None else chain([second], rows)
    convert = _converter(wanted)
    if all(_is_number(cell, convert) for cell in first):
        if not _numbers_columns(first, second or []):
            rest = chain([first], rest)
        every = list(range(len(first)))
        columns = _read_columns(path, rest, first, every, [], convert, named=False)
        return {NAMELESS: np.stack([columns[k] for k in every], axis=1)}
    layout = _find_columns(path, first, wanted)
    words = {*layout.kept.values(), *(k for k in (layout.split, layout.labels) if k is not None)}
    words -= set(layout.logits)  # numbers, also if they are to be kept
    numbers = [k for k in (*layout.logits, layout.weights) if k is not None]
    columns = _read_columns(path, rest, first, sorted({*numbers}), sorted(words), convert)
    if layout.labels in words and not wanted.unlabelled:
        label = next(filter(str.strip, columns[layout.labels].tolist()), "")
        if _is_number(label, convert):
            cells = ([str(cell)] for cell in columns[layout.labels])
            name = [first[layout.labels]]
            columns[layout.labels] = _read_columns(path, cells, name, [0], [], convert)[0]
    return split_rows(path, *table_rows(layout, columns.__getitem__, wanted.array), layout.classes)


def _find_columns(path: Path, header: Row, wanted: Wanted) -> ColumnLayout:
    if len(header) < 2 and not header[0].isidentifier():
        raise DataFileError(path, f"expected {_KIND}; found other text.", "Name another file.")
    layout = find_columns(path, header, wanted)
    if len(layout.logits) == 1 and wanted.binary_score is None:
        raise one_score_error(path, header[layout.logits[0]])
    return layout


def _read_columns(
    path: Path,
    rows: Iterator[Row],
    header: Sequence[str],
    numbers: list[int],
    words: list[int],
    convert: Callable[[str], float],
    *,
    named: bool = True,
) -> dict[int, AnyArray]:
    """The columns that hold numbers and those that hold text, by index."""
    values, cells, count = array("d"), list[Row](), 0
    last, width = max([*numbers, *words]), len(header)
    for count, row in enumerate(rows, 1):
        if not last < len(row) <= width:
            raise DataFileError(
                path,
                f"expected {width} cells in a row, as in the first; found {len(row)} in row "
                f"{count - 1}.",
                "Complete or drop the row; name every column, and write numbers with a decimal "
                "point, not a comma.",
            )
        try:
            values.extend([convert(row[k]) for k in numbers])
        except ValueError as error:
            bad = next(k for k in numbers if not _is_number(row[k], convert))
            name = f"`{header[bad]}`" if named else str(bad)
            raise _bad_cell(path, row[bad], count - 1, name) from error
        cells.append([row[k] for k in words])
    if not count:
        raise DataFileError(path, f"expected {_KIND}; found a header and 0 rows.", "Add rows.")
    columns = np.frombuffer(values).reshape(count, len(numbers)).T
    texts = np.array(cells, np.str_).T
    return dict(zip(numbers, columns, strict=True)) | dict(zip(words, texts, strict=True))


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


def _is_number(cell: str, convert: Callable[[str], float]) -> bool:
    try:
        convert(cell)
    except ValueError:
        return False
    return True
