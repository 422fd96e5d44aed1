"""Parquet files, and tables of pyarrow (extra `parquet`), as columns of NumPy."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.optional import import_optional
from hokical._core.tables import to_column
from hokical._core.types import AnyArray
from hokical.io._errors import DataFileError, report_damage
from hokical.io._tables import Loaded, Table

KIND = "a Parquet table"
#: How a table that is not a file is called in errors.
IN_MEMORY = Path("pyarrow table")
#: Imports a module of pyarrow.
import_arrow = partial(import_optional, extra="parquet")


def open_parquet(files: Sequence[Path], **options: Any) -> Any:
    """Files as one pyarrow Dataset."""
    arrow = import_arrow("pyarrow.dataset")
    with report_damage(files[0], KIND):
        data = arrow.dataset([str(file) for file in files], format="parquet", **options)
        _ = data.schema.names  # damaged ones cannot be decoded
    return data


def as_dataset(data: Any) -> Any:
    """A pyarrow Dataset as it is, and of anything that gives an Arrow stream."""
    arrow = import_arrow("pyarrow.dataset")
    if isinstance(data, arrow.Dataset):
        return data
    return arrow.dataset(import_arrow("pyarrow").table(data))


class ArrowTable(Table):
    """Columns of a pyarrow Dataset or Table, of which `first` rows of the file come before it."""

    def __init__(self, path: Path, data: Any, first: int = 0) -> None:
        super().__init__(path, data.schema.names)
        self.data, self.first_row = data, first

    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        with report_damage(self.path, KIND):
            names, data = list(dict.fromkeys((*scores, *others))), self.data
            scan = hasattr(data, "to_table")
            table = data.to_table(names, **scan_options(data)) if scan else data.select(names)
        found = [to_scores(self.path, table, [name]) for name in scores]
        return found, {name: to_column(table.column(name)) for name in others}

    def place(self, row: int) -> str:
        return f"row {self.first_row + row}"


def scan_options(data: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead and compares checksums."""
    arrow = import_arrow("pyarrow.dataset")
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(data, "format", None), arrow.ParquetFileFormat):
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, page_checksum_verification=True
        )
    return options


def to_scores(path: Path, table: Any, names: Sequence[str]) -> AnyArray:
    """Scores (n, classes) from a column per class or a column of lists; nulls are NaN."""
    columns = [table.column(name) for name in names]
    if len(columns) == 1 and "list" in str(columns[0].type):
        return _from_lists(path, columns[0])
    found = [np.asarray(column.to_numpy()) for column in columns]
    return found[0] if len(found) == 1 else np.stack(found, axis=1)


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
