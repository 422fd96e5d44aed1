"""Parquet files, and tables of pyarrow (extra `parquet`), as columns of NumPy."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.optional import import_optional
from hokical._core.types import AnyArray, IntArray
from hokical.io._errors import DataFileError, report_damage
from hokical.io._tables import Table

KIND = "a Parquet table"
#: How a table that is not a file is called in errors.
IN_MEMORY = Path("pyarrow table")


def arrow_library(path: Path, module: str = "pyarrow.dataset") -> Any:
    """A module of pyarrow, or an error that says how to install it."""
    try:
        return import_optional(module, "parquet")
    except ImportError as error:
        raise DataFileError(
            path, f"is {KIND}, for which a library is missing.", str(error)
        ) from error


def open_parquet(files: Sequence[Path], **options: Any) -> Any:
    """Files as one pyarrow Dataset."""
    arrow = arrow_library(files[0])
    with report_damage(files[0], KIND):
        return arrow.dataset([str(file) for file in files], format="parquet", **options)


def as_arrow(data: Any) -> Any:
    """A pyarrow Dataset as it is, and of anything that gives an Arrow stream."""
    arrow = arrow_library(IN_MEMORY)
    if isinstance(data, arrow.Dataset):
        return data
    return arrow.dataset(arrow_library(IN_MEMORY, "pyarrow").table(data))


class ArrowTable(Table):
    """Columns of a pyarrow Dataset or Table; a column of lists holds the scores of all classes.

    `numbers` (n,) are those of its rows in the file, if it is only a part.
    """

    def __init__(self, path: Path, data: Any, numbers: IntArray | None = None) -> None:
        self.path, self.data, self.names, self.numbers = path, data, data.schema.names, numbers

    def read(
        self, scores: Sequence[str], others: Sequence[str]
    ) -> tuple[AnyArray, dict[str, AnyArray]]:
        with report_damage(self.path, KIND):
            names, data = list(dict.fromkeys((*scores, *others))), self.data
            scan = hasattr(data, "to_table")
            table = data.to_table(names, **scan_options(data)) if scan else data.select(names)
        found = to_scores(self.path, table, scores) if scores else np.empty(0)
        return found, {name: to_column(table.column(name)) for name in others}

    def place(self, row: int) -> str:
        return f"row {row if self.numbers is None else self.numbers[row]}"


def scan_options(data: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead and compares checksums."""
    arrow = arrow_library(IN_MEMORY)
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(data, "format", None), arrow.ParquetFileFormat):
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, page_checksum_verification=True
        )
    return options


def scan_files(data: Any) -> Iterator[tuple[Path, int, Any]]:
    """The groups of rows of a Dataset's files: file, rows of the file before the group, group.

    Of a whole file pyarrow decodes up to 1 GB ahead if its batches are not used fast enough.
    """
    for fragment in data.get_fragments():
        first, path = 0, Path(fragment.path)
        with report_damage(path, KIND):
            groups = fragment.split_by_row_group()
        for group in groups:
            yield path, first, group
            first += group.count_rows()


def to_scores(path: Path, table: Any, names: Sequence[str]) -> AnyArray:
    """Scores (n, classes) from a column per class or a column of lists; nulls are NaN."""
    columns = [table.column(name) for name in names]
    if len(columns) > 1:
        return np.stack([to_column(column, numbers=True) for column in columns], axis=1)
    column = columns[0]
    return (
        _from_lists(path, column) if "list" in str(column.type) else to_column(column, numbers=True)
    )


def to_column(column: Any, *, numbers: bool = False) -> AnyArray:
    """A column (n,); with nulls it holds objects, so that whole numbers stay whole."""
    if column.null_count and not numbers:
        return np.array(column.to_pylist(), object)
    return np.asarray(column.to_numpy())


def _from_lists(path: Path, column: Any) -> AnyArray:
    rows = column.combine_chunks()
    lengths = set(rows.value_lengths().to_pylist())
    if len(lengths) > 1 or lengths & {None, 0}:
        raise DataFileError(
            path,
            f"expected as many scores in every row; found {sorted(map(str, lengths))}.",
            "Fix or drop these rows.",
        )
    width = lengths.pop() if lengths else 0
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), width)
