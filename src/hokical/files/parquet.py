"""`.parquet`: a table of columns (extra `parquet`)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.files.columns import Layout, TableRows, find_layout, split_rows
from hokical.files.errors import DataFileError, damage_reported
from hokical.files.lazy import Arrays

_KIND = "a Parquet table"


def open_parquet(path: Path) -> Arrays:
    """Logits from one column each or from one column of lists; labels from theirs."""
    parquet = parquet_library(path)
    with damage_reported(path, _KIND):
        stored = parquet.ParquetFile(path)
        layout = find_layout(path, stored.schema_arrow.names)
        names = stored.schema_arrow.names
        table = stored.read(columns=[names[index] for index in layout.all()])
        return _arrays(path, table, layout, names)


def parquet_library(path: Path) -> Any:
    """`pyarrow.parquet`, or an error that says how to get it."""
    try:
        return import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataFileError(
            path,
            "is a Parquet table, for which a library is missing.",
            "Install it: pip install 'hokical[parquet]'.",
        ) from error


def _arrays(path: Path, table: Any, layout: Layout, names: list[str]) -> Arrays:
    return split_rows(path, table_rows(path, table, layout, names))


def table_rows(path: Path, table: Any, layout: Layout, names: list[str]) -> TableRows:
    """The rows of a pyarrow table."""
    columns = [table.column(names[index]) for index in layout.logits]
    logits = (
        _from_lists(path, columns[0])
        if len(columns) == 1 and "list" in str(columns[0].type)
        else np.stack([np.asarray(column.to_numpy()) for column in columns], axis=1)
    )
    labels, weights = (
        None if index is None else table.column(names[index]).to_numpy()
        for index in (layout.labels, layout.weights)
    )
    parts = None if layout.split is None else table.column(names[layout.split]).to_pylist()
    return TableRows(logits, labels, weights, parts)


def _from_lists(path: Path, column: Any) -> NDArray[Any]:
    rows = column.combine_chunks()
    lengths = set(rows.value_lengths().to_pylist())
    if len(lengths) > 1 or None in lengths:
        raise DataFileError(
            path,
            f"expected as many logits in every row; found {sorted(map(str, lengths))}.",
            "Mend or drop the odd rows.",
        )
    width = lengths.pop() if lengths else 0
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), width)
