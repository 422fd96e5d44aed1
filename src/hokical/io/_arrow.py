"""Parquet and Arrow (extra `parquet`): files and tables of pyarrow as columns of NumPy."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._errors import DataFileError, import_reader, report_damage
from hokical.io._tables import Table

KIND = "a Parquet or Arrow table"


def arrow_library(path: Path, module: str = "pyarrow.dataset") -> Any:
    """A module of pyarrow, or an error that says how to install it."""
    return import_reader(path, module, KIND, "parquet")


def open_dataset(path: Path, kind: str = "parquet", **options: Any) -> Any:
    """A file as a pyarrow Dataset."""
    arrow = arrow_library(path)
    with report_damage(path, KIND):
        return arrow.dataset([str(path)], format="ipc" if kind == "arrow" else kind, **options)


def scan_options(dataset: Any) -> dict[str, Any]:
    """Options of a scan that reads little ahead, where pyarrow would hold many groups of rows."""
    arrow = import_module("pyarrow.dataset")
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(dataset, "format", None), arrow.ParquetFileFormat):
        options["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, page_checksum_verification=True
        )
    return options


class ArrowTable(Table):
    """Columns of a pyarrow Dataset or Table; a column of lists holds the scores of all classes."""

    def __init__(self, path: Path, dataset: Any) -> None:
        self.path, self.dataset, self.names = path, dataset, dataset.schema.names

    def scores(self, names: Sequence[str]) -> AnyArray:
        return to_scores(self.path, self._read(names), names)

    def columns(self, names: Sequence[str]) -> dict[str, AnyArray]:
        table = self._read(names)
        return {name: to_column(table.column(name)) for name in names}

    def _read(self, names: Sequence[str]) -> Any:
        with report_damage(self.path, KIND):
            return self.dataset.to_table(columns=list(names), **scan_options(self.dataset))


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
    if len(lengths) > 1 or None in lengths:
        raise DataFileError(
            path,
            f"expected as many scores in every row; found {sorted(map(str, lengths))}.",
            "Fix or drop these rows.",
        )
    width = lengths.pop() if lengths else 0
    if len(rows) and not width:
        raise DataFileError(path, "expected scores in every row; found empty lists.", "Fill them.")
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), width)
