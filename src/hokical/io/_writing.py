"""Results into files that are whole or not there at all."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.files import replace_file
from hokical._core.types import AnyArray
from hokical.io._arrow import import_arrow
from hokical.io._errors import DataFileError

#: What the name of a table of results may end in.
TABLES = (".csv", ".csv.gz", ".parquet")
#: What a spreadsheet runs: begins with a sign of formulas and is no number.
_FORMULA = re.compile(r"[=@\t\r]|[-+](?![\d.]+(e[-+]?\d+)?$|inf$|nan$)", re.IGNORECASE)


def write_table(path: str | os.PathLike[str], columns: dict[str, AnyArray]) -> int:
    """Write columns (n,) as .csv, .csv.gz, .parquet or .npz, by the name of the file.

    In a .csv, text that a spreadsheet would take for a formula, as it begins with one of `=+-@` and
    is no number, gets a `'` before it; the number of such cells is returned.
    """
    name = os.fspath(path)
    if name.endswith(".npz"):
        arrays = {key: _for_numpy(np.asarray(column)) for key, column in columns.items()}
        with replace_file(path) as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        return 0
    if name.endswith(".parquet"):
        parquet = import_arrow("pyarrow.parquet")
        lists = {key: c.tolist() if c.dtype.kind in "UTO" else c for key, c in columns.items()}
        table = import_arrow("pyarrow").table(lists)
        with replace_file(path) as stream:
            parquet.write_table(table, stream)
        return 0
    marked = 0

    def cells(values: Iterable[Any]) -> Iterator[Any]:
        nonlocal marked
        for value in values:
            runs = isinstance(value, str) and _FORMULA.match(value) is not None
            marked += runs
            yield f"'{value}" if runs else "" if value != value else value  # NaN

    with replace_file(path) as stream:
        packed = gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) if name.endswith(".gz") else None
        text = io.TextIOWrapper(packed or stream, encoding="utf-8", newline="", write_through=True)
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(cells(columns))
        rows.writerows(zip(*(cells(c.tolist()) for c in columns.values()), strict=True))
        text.detach()
        if packed is not None:
            packed.close()
    return marked


def _for_numpy(column: AnyArray) -> AnyArray:
    """Numbers as they are, whole ones with -1 where there is none; everything else as text."""
    if column.dtype.kind not in "OT":
        return column
    values = column.tolist()
    empty = "" if any(isinstance(value, str) for value in values) else -1
    found = np.array([empty if value is None else value for value in values])
    return found if found.dtype.kind in "ibU" else column.astype(np.str_)


def check_output(path: str | os.PathLike[str], *, suffix: str | tuple[str, ...] = "") -> None:
    """Refuse a place that cannot be written to, before the work is done and lost."""
    path = Path(path)
    folder = path.parent
    if not path.name.endswith(suffix):
        ends = suffix if isinstance(suffix, str) else " or ".join(suffix)
        raise DataFileError(path, f"expected an output name that ends in {ends}.", "Rename it.")
    if not folder.is_dir():
        raise DataFileError(path, f"cannot be written: no folder {folder}.", "Make it first.")
    if path.exists() and not path.is_file():
        raise DataFileError(path, "cannot be written: it is not a file.", "Choose another name.")
    if not os.access(folder, os.W_OK):
        raise DataFileError(path, f"cannot be written: no right to write in {folder}.")
