"""From paths, tables, arrays or chunks to a source that is read a chunk at a time."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hokical._core.arrays import library_of
from hokical.io._arrow import as_dataset, open_parquet
from hokical.io._convention import Columns, Kind, find_roles
from hokical.io._datasets import TableSource
from hokical.io._errors import DataFileError, report_file
from hokical.io._examples import make_examples
from hokical.io._formats import find_format
from hokical.io._labels import encode_labels
from hokical.io._reading import find_labels, open_table
from hokical.io._sources import ChunkSource, from_array
from hokical.io._tables import NAMELESS, FileSplit

_WILD = frozenset("*?[")


def open_source(
    data: Any,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    split: FileSplit = "val",
    kind: Kind | None = None,
    score_columns: tuple[str, ...] = (),
    label_column: str | None = None,
    classes: tuple[str, ...] = (),
    chunk_rows: int | None = None,
) -> ChunkSource:
    """A source of examples that need not fit into memory, read a chunk at a time.

    Parameters
    ----------
    data : path or paths, table, array or chunks
        `.npy` files, which are mapped into memory; `.parquet`: one file, a list of them, a folder,
        or a pattern such as "scores/*.parquet", where subfolders called `name=value` are columns;
        other formats are read at once. A pyarrow Dataset, or anything
        with `__arrow_c_stream__`. An array (n, classes) that can be sliced, such as HDF5, Zarr or
        a memory map. Chunks: (logits, labels), (logits, labels, sample_weight) or logits alone, in
        a sequence or an iterator, or given by a function, which returns a new iterator whenever it
        is called.
    labels : array-like of shape (n,), or path, optional
        Those of an array; of a `.npy` or `.npz` file, another file that has them.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows of an array.
    split, kind, score_columns, label_column, classes
        Which rows and columns of files and tables, as in `hokical.io.read_examples`.
    chunk_rows : int, optional
        Rows of an array that are read at a time, by default about 30 MB.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "val_logits.npy", np.zeros((10, 3)))
    >>> np.save(folder / "val_labels.npy", np.zeros(10, int))
    >>> open_source(folder / "val_logits.npy").n_rows
    10
    >>> source = open_source(np.zeros((10, 3)), np.zeros(10, int), chunk_rows=4)
    >>> [chunk.n_rows for chunk in source]
    [4, 4, 2]
    """
    wanted = Columns(split, kind, score_columns, label_column, classes)
    if isinstance(data, ChunkSource):
        return data
    if isinstance(data, (str, os.PathLike)):
        return _open_path(Path(data), labels, wanted)
    if library_of(data) == "pyarrow" or hasattr(data, "__arrow_c_stream__"):
        return TableSource(as_dataset(data), wanted)
    if hasattr(data, "shape"):
        return from_array(data, labels, sample_weight, chunk_rows)
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], (str, os.PathLike)):
        return _open_files([Path(file) for file in data], wanted)
    if callable(data) or isinstance(data, Iterable):
        return ChunkSource(data)
    raise TypeError(
        "a source must be files, a table, an array, a sequence of chunks, an iterator or a "
        f"function that returns one; got {type(data).__name__}. See `streams.open_source`."
    )


def _open_path(path: Path, labels: Any, wanted: Columns) -> ChunkSource:
    if path.is_dir() or is_pattern(path):
        return _open_files(list_files(path), wanted, path if path.is_dir() else None)
    if find_format(path) == "parquet":
        return _open_files([path], wanted)
    table = open_table(path, wanted.split)
    roles = find_roles(table, wanted)
    where = find_labels(table, roles, labels, wanted.label_column)
    if table.names == [NAMELESS] and roles.kind == "logits":  # a mapped array stays on disk
        truth = None if where is None else encode_labels(where[0].read_column(where[1]), ())
        with report_file(path):
            source = from_array(table.read_column(NAMELESS), truth)
    else:
        rows = make_examples(table, roles, wanted, where)
        source = from_array(rows.logit_values(path), rows.labels, rows.weights)
        source.classes, source.about = rows.classes, rows.about
    source.path = path
    return source


def _open_files(files: list[Path], wanted: Columns, folder: Path | None = None) -> ChunkSource:
    """Parquet files; of a folder, its subfolders called `name=value` are columns."""
    hive = {} if folder is None else {"partitioning": "hive", "partition_base_dir": str(folder)}
    return TableSource(open_parquet(files, **hive), wanted, folder or files[0])


def list_files(path: Path) -> list[Path]:
    """The Parquet files of a folder and its subfolders, or the files that match a pattern."""
    if is_pattern(path):
        base = Path(path.anchor) if path.is_absolute() else Path()
        files = sorted(base.glob(str(path.relative_to(base))))
    else:
        files = sorted(
            file
            for file in path.rglob("*.parquet")
            if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        )
    if not files:
        raise DataFileError(path, "expected .parquet files; found none.", "Check the name.")
    return files


def is_pattern(path: Path) -> bool:
    """Whether a path is meant to match several files."""
    return bool(_WILD & set(str(path))) and not path.exists()
