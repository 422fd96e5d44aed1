"""`.parquet`: a table of columns (extra `parquet`)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io.columns import ColumnLayout, TableRows, find_columns, one_score_error, split_rows
from hokical.io.errors import DataFileError, import_reader, report_damage
from hokical.io.names import Arrays
from hokical.io.wanted import LOGITS_AND_LABELS, Wanted

KIND = "a Parquet table"


def parquet_library(path: Path) -> Any:
    """`pyarrow.parquet`, or an error that says how to install it."""
    return import_reader(path, "pyarrow.parquet", KIND, "parquet")


def open_parquet(path: Path, wanted: Wanted = LOGITS_AND_LABELS) -> Arrays:
    """Logits from one column each or from one column of lists; labels from theirs."""
    parquet = parquet_library(path)
    with report_damage(path, KIND):
        stored = parquet.ParquetFile(path, page_checksum_verification=True)
        names = stored.schema_arrow.names
        layout = find_columns(path, names, wanted)
        if len(layout.logits) == 1 and wanted.binary_score is None:
            only = stored.schema_arrow.field(layout.logits[0])
            if "list" not in str(only.type):
                raise one_score_error(path, only.name)
        table = stored.read(columns=[names[index] for index in layout.all()])
        return split_rows(path, table_rows(path, table, layout, names), wanted.array)


def table_rows(path: Path, table: Any, layout: ColumnLayout, names: list[str]) -> TableRows:
    """The rows of a pyarrow table."""
    columns = [table.column(names[index]) for index in layout.logits]
    logits = (
        _from_lists(path, columns[0])
        if len(columns) == 1 and "list" in str(columns[0].type)
        else np.stack([np.asarray(column.to_numpy()) for column in columns], axis=1)
        if columns
        else np.empty((table.num_rows, 0))
    )
    labels, weights = (
        None if index is None else table.column(names[index]).to_numpy()
        for index in (layout.labels, layout.weights)
    )
    parts = None if layout.split is None else table.column(names[layout.split]).to_pylist()
    kept = {name: _column_array(table.column(name)) for name in layout.kept}
    return TableRows(logits, labels, weights, parts, kept, layout.classes)


def _column_array(column: Any) -> NDArray[Any]:
    """Values (n,); with nulls as objects, so that whole numbers stay whole."""
    return np.array(column.to_pylist(), object) if column.null_count else column.to_numpy()


def _from_lists(path: Path, column: Any) -> NDArray[Any]:
    rows = column.combine_chunks()
    lengths = set(rows.value_lengths().to_pylist())
    if len(lengths) > 1 or None in lengths:
        raise DataFileError(
            path,
            f"expected as many logits in every row; found {sorted(map(str, lengths))}.",
            "Fix or drop the odd rows.",
        )
    width = lengths.pop() if lengths else 0
    if len(rows) and not width:
        raise DataFileError(path, "expected logits in every row; found empty lists.", "Fill them.")
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), width)
