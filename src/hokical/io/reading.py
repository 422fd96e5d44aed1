"""Files of any format: examples that are read whole, or sources that are read a chunk at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from hokical._core.arrays import AnyArray, library_of
from hokical._core.conversion import Zeros
from hokical._core.messages import FitDataWarning, warn_user
from hokical._core.reading import Rows, match_columns, order_columns, pair_rows, to_numpy
from hokical.io import tables
from hokical.io.chunks import TABLE, ChunkSource, TableSource, from_array
from hokical.io.examples import (
    LABELS,
    Columns,
    Kind,
    Labelled,
    Roles,
    encode_labels,
    find_roles,
    is_id,
    logit_values,
    make_examples,
    options_from,
)

Location = str | os.PathLike[str]
_WILD = frozenset("*?[")


def read_examples(
    path: Location,
    *,
    split: tables.FileSplit = "val",
    labels: Location | None = None,
    labelled: Labelled = "all",
    kind: Kind | None = None,
    score_columns: tuple[str, ...] = (),
    label_column: str | None = None,
    classes: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    keep: tuple[str, ...] | None = (),
    missing: Literal["error", "drop"] = "error",
    zeros: Zeros = "unlikely",
    fitted_by: Any = None,
) -> Rows:
    """Read scores and labels from a file; DataFileError says what is wrong with a bad one.

    Parameters
    ----------
    path : path
        `.npz`, `.npy`, `.csv` or `.parquet`; with hokical-paper also a pickle of NumPy arrays.
        Columns and arrays are found by their names: `label` or `y`; `logits`, `logit_*` or `z0`,
        `z1`, ...; `probabilities`, `proba` or `prob_*`; `confidence` beside `right`;
        `sample_weight`.
    split : {"val", "test"}
        Which part, if the file has parts.
    labels : path, optional
        Another file with the labels. `NAME_labels.npy` is found beside `NAME_logits.npy`.
    labelled : {"all", "some", "none"}
        Whether each row must have a label, may have one (-1 otherwise), or labels are not read.
    kind : {"logits", "probabilities", "confidence"}, optional
        What the scores are; by default what their names say, or their values if they were named
        by `score_columns` or `classes`. Probabilities become logits.
    score_columns : tuple of str
        Names of the scores' columns, or one pattern in which `*` is the class, such as "P(*)". One
        name alone is the score of class 1 of two, or the confidence.
    label_column : str, optional
        Name of the labels; of confidences, of the column that says whether they were right.
    classes : tuple of str
        Names of the classes; columns of these names, in this order, are the scores.
    groups, keep : tuple of str
        Columns with groups, and others to keep; `keep=None` keeps those called `id` or `*_id`,
        ("all",) all that are no scores.
    missing : {"error", "drop"}
        "drop" leaves out rows without a score, weight or label.
    zeros : {"unlikely", "impossible"}
        What a probability of 0 means, as in `hokical.from_probabilities`.
    fitted_by : Calibrator, optional
        The logits must have as many classes as this calibrator; columns are put in the order of
        its fit.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/val.npz", logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 1])
    ...     rows = read_examples(f"{folder}/val.npz")
    >>> rows.n_rows, rows.n_classes, rows.labels.tolist()
    (2, 2, [0, 1])
    """
    column = None if labelled == "none" or labels is not None else label_column
    wanted = Columns(
        split, kind, score_columns, column, classes, groups, keep, zeros, labelled,
        missing == "drop", fitted_by,
    )  # fmt: skip
    table = _open_table(Path(path), split)
    roles = find_roles(table, wanted)
    where = None if labelled == "none" else _find_labels(table, roles, labels, label_column)
    if where is None and labelled == "all":
        raise table.error(
            f"expected labels in `label` or `y`; found {table.listed()}.",
            "Name the column, --label-column NAME, or the file that has them, --labels FILE.",
        )
    return make_examples(table, roles, wanted, where)


def open_source(
    data: Any,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    split: tables.FileSplit = "val",
    kind: Kind | None = None,
    score_columns: tuple[str, ...] = (),
    label_column: str | None = None,
    classes: tuple[str, ...] = (),
    chunk_rows: int | None = None,
    fitted_by: Any = None,
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
    labels : array-like of shape (n,), path or str, optional
        Those of an array or frame; of a file, another file that has them; of a table, the name of
        their column.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows of an array or frame.
    split, kind, score_columns, label_column, classes
        Which rows and columns of files and tables, as in `hokical.io.read_examples`.
    chunk_rows : int, optional
        Rows of an array that are read at a time, by default 4 to 8 MB in float64.
    fitted_by : Calibrator, optional
        Columns of files and tables are put in the order of its fit.

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
    known = getattr(fitted_by, "_columns", ())
    wanted = Columns(split, kind, score_columns, label_column, classes, fitted_by=fitted_by)
    path = isinstance(data, (str, os.PathLike))
    table = library_of(data) == "pyarrow" or hasattr(data, "__arrow_c_stream__")
    if not table and hasattr(data, "shape"):
        return from_array(data, labels, sample_weight, chunk_rows)
    if table and not (labels is None or isinstance(labels, str)):  # a frame of scores alone
        rows = pair_rows(data, labels, sample_weight, None)
        values = to_numpy(order_columns(data, "logits", known), "logits")
        source = from_array(values, labels, sample_weight, chunk_rows)
        source.columns = known or rows.columns
        return source
    if sample_weight is not None or (labels is not None and not (path or table)):
        raise TypeError(
            "labels and weights come with files, tables and chunks: in columns, or as (logits, "
            "labels, sample_weight). They cannot be given beside them, but for a file of labels."
        )
    if table:
        return TableSource(
            tables.as_dataset(data), replace(wanted, label_column=labels or label_column)
        )
    if path:
        return _open_path(Path(data), labels, wanted)
    if isinstance(data, ChunkSource):
        _refuse_other_order(data, known)
        return data
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], (str, os.PathLike)):
        return _open_files([Path(file) for file in data], wanted)
    if callable(data) or isinstance(data, Iterable):
        source = ChunkSource(data)
        source.columns = known
        return source
    raise TypeError(
        "a source must be files, a table, an array, a sequence of chunks, an iterator or a "
        f"function that returns one; got {type(data).__name__}. See `streams.open_source`."
    )


def _refuse_other_order(source: ChunkSource, known: tuple[str, ...]) -> None:
    """Refuse a source with the columns of a fit in another order."""
    places = match_columns(source.columns, known)
    if places is not None and places != sorted(places):
        raise ValueError(
            f"a source must have its columns in the order of the fit, {', '.join(known[:6])}; got "
            f"{', '.join(source.columns[:6])}. Open it by `open_source(..., fitted_by=calibrator)`."
        )


def _open_path(path: Path, labels: Any, wanted: Columns) -> ChunkSource:
    if path.is_dir() or is_pattern(path):
        return _open_files(list_files(path), wanted, path if path.is_dir() else None)
    if tables.find_format(path) == "parquet":
        return _open_files([path], wanted)
    table = _open_table(path, wanted.split)
    roles = find_roles(table, wanted)
    where = _find_labels(table, roles, labels, wanted.label_column)
    if table.names == [tables.NAMELESS] and roles.kind == "logits":  # a mapped array stays on disk
        truth = None if where is None else encode_labels(where[0].read_column(where[1]), ())
        with tables.report_file(path):
            source = from_array(table.read_column(tables.NAMELESS), truth)
    else:
        rows = make_examples(table, roles, wanted, where)
        source = from_array(logit_values(rows, path), rows.labels, rows.weights)
        source.classes, source.about, source.columns = rows.classes, rows.about, rows.columns
    source.path = path
    return source


def _open_files(files: list[Path], wanted: Columns, folder: Path | None = None) -> ChunkSource:
    """Parquet files; of a folder, its subfolders called `name=value` are columns."""
    hive = {} if folder is None else {"partitioning": "hive", "partition_base_dir": str(folder)}
    return TableSource(tables.open_parquet(files, **hive), wanted, folder or files[0])


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
        raise tables.DataFileError(path, "expected .parquet files; found none.", "Check the name.")
    return files


def is_pattern(path: Path) -> bool:
    """Whether a path is meant to match several files."""
    return bool(_WILD & set(str(path))) and not path.exists()


def _find_labels(
    table: tables.Table, roles: Roles, labels: Location | None, label_column: str | None
) -> tuple[tables.Table, str] | None:
    """The table with the labels, and their name in it.

    It is the file that the user names; else, beside an array without a name, one of a matching
    name; else the same file.
    """
    beside = labels_beside(table.path)
    if (
        labels is None
        and table.names == [tables.NAMELESS]
        and beside != table.path
        and beside.exists()
    ):
        labels = beside
    if labels is None:
        return None if roles.labels is None else (table, roles.labels)
    other = _open_table(Path(labels), table.part or "val")
    found = other.first(*(LABELS if label_column is None else [label_column]))
    rest = [name for name in other.names if not is_id(name)]
    if found is None and len(rest) == 1:
        found = rest[0]
    if found is None:
        raise other.error(
            f"expected labels in `label` or `y`; found {other.listed()}.",
            "Name them: --label-column NAME.",
        )
    return other, found


def read_late_labels(
    path: Location,
    id_column: str,
    *,
    label_column: str | None = None,
    classes: tuple[str, ...] = (),
    right: bool = False,
) -> tuple[AnyArray, AnyArray] | None:
    """Ids and labels (n,) of a file that holds nothing else; None if it is another one.

    Labels are class indices, or of confidences 1 if `right`; -1 where there is none.
    """
    table = _open_table(Path(path), "test")
    ids = table.first(id_column)
    rest = [name for name in table.names if name != ids]
    labels = table.first(*filter(None, (label_column, *LABELS))) or (len(rest) == 1 and rest[0])
    if ids is None or not labels or _has_scores(table, labels):
        return None
    with tables.report_file(table.path, table.place):
        found = encode_labels(table.read_column(labels), classes, right=right)
    return table.read_column(ids), found


def _has_scores(table: tables.Table, labels: str) -> bool:
    try:
        find_roles(table, Columns(label_column=labels))
    except tables.DataFileError:
        return False
    return True


def _open_table(path: Path, split: tables.FileSplit) -> tables.Table:
    """A file of any format; of an archive, the arrays of this part come first."""
    kind = tables.find_format(path)
    if kind == "csv":
        return tables.TextTable(path)
    if kind == "parquet":
        return tables.ArrowTable(path, tables.open_parquet([path]))
    if kind != "pickle":
        return tables.open_npy(path, split) if kind == "npy" else tables.open_npz(path, split)
    for entry in entry_points(group="hokical.readers", name="pickle"):
        return tables.in_memory(path, entry.load()(path), split)
    raise tables.DataFileError(
        path,
        "is a pickle, which another package reads.",
        "Install it: pip install ./paper (in a clone). Or save the arrays with `numpy.savez`.",
    )


def labels_beside(path: Path) -> Path:
    """The file in which the labels of an array without a name are looked for."""
    return path.with_name(path.name.replace("logits", "labels"))


def read_table(
    table: Any,
    labels: str,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    kind: Kind | None = None,
    classes: Sequence[str] = (),
    score_columns: Sequence[str] = (),
    fitted_by: Any = None,
) -> Rows:
    """Checked rows of a table in memory, with the columns that a file of it would have.

    A table is anything with `__arrow_c_stream__`, or a lazy frame of Polars. `labels` is the name
    of a column; weights and groups may be such, or arrays.
    """
    lazy = hasattr(table, "collect") and not hasattr(table, "__arrow_c_stream__")
    data = tables.ArrowTable(
        TABLE, tables.import_arrow("pyarrow").table(table.collect() if lazy else table)
    )
    named = [groups] if isinstance(groups, str) else groups
    by_name = isinstance(named, (list, tuple)) and {*map(str, named)} <= {*data.names}
    known = {} if fitted_by is None else options_from(fitted_by.metadata_)
    wanted = Columns(
        kind=kind or known.get("kind"), score_columns=tuple(score_columns), label_column=labels,
        weight_column=sample_weight if isinstance(sample_weight, str) else None,
        groups=tuple(named) if by_name else (), classes=tuple(classes), labelled="all",
        fitted_by=None if kind == "confidence" else fitted_by,
    )  # fmt: skip
    try:
        roles = find_roles(data, wanted)
        found = make_examples(data, roles, wanted, (data, data.require(labels, "`labels`")))
    except tables.DataFileError as error:  # in the words of Python
        text = str(error).removeprefix(f"{TABLE}: ").replace("--label-column", "`labels`")
        raise ValueError(re.sub("--([a-z]+)-columns", r"`\1_columns`", text)) from error
    if fitted_by is None:
        _tell_of_columns(roles, sample_weight)
    weights = found.weights if wanted.weight_column or sample_weight is None else sample_weight
    beside = found.groups if by_name else groups
    about = {k: v for k, v in found.about.items() if k != "scores" or v != "logits"}
    return found._replace(weights=weights, groups=beside, about=about)


def _tell_of_columns(roles: Roles, sample_weight: Any) -> None:
    """Warn of numbers that are used for nothing, and of weights that nobody asked for."""
    if roles.unused:
        warn_user(
            f"columns of the table that are not used: {', '.join(roles.unused[:6])}. Scores are in "
            f"{', '.join(roles.scores[:6])}; name others in `score_columns`.",
            FitDataWarning,
        )
    if roles.weights is not None and sample_weight is None:
        warn_user(
            f"rows count by the column `{roles.weights}` of the table. Name it as `sample_weight`, "
            "or rename it if it holds no weights.",
            FitDataWarning,
        )
