"""From a file of any format to examples."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, Self

from hokical._core.conversion import Zeros
from hokical.io._arrow import ArrowTable, open_parquet
from hokical.io._convention import LABELS, Columns, FileSplit, Kind, Names, Roles, find_roles
from hokical.io._errors import DataFileError
from hokical.io._examples import Examples, Labelled, RowReader
from hokical.io._formats import find_format
from hokical.io._tables import NAMELESS, ArchiveTable, Arrays, ArrayTable, Table, open_npy
from hokical.io._text_table import TextTable

Location = str | os.PathLike[str]


def read_examples(
    path: Location,
    *,
    split: FileSplit = "val",
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
) -> Examples:
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
        The logits must have as many classes as this calibrator.
    """
    column = None if labelled == "none" or labels is not None else label_column
    wanted = Columns(split, kind, score_columns, column, classes, groups, keep, zeros)
    file = OpenedFile.open(Path(path), wanted)
    where = None if labelled == "none" else file.find_labels(labels, label_column)
    if where is None and labelled == "all":
        raise DataFileError(
            file.table.path,
            f"expected labels in `label` or `y`; found {file.names.listed()}.",
            "Name the column, --label-column NAME, or the file that has them, --labels FILE.",
        )
    reader = RowReader(file.roles, wanted, labelled, missing == "drop", fitted_by)
    return reader.read(file.table, where)


def options_from(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `read_examples` for files like the one of a fit, from what its calibrator stores.

    >>> options_from({"scores": "probabilities", "classes": ["a", "b"], "score_columns": ["P(*)"]})
    {'kind': 'probabilities', 'score_columns': ('P(*)',), 'classes': ('a', 'b')}
    """
    found: dict[str, Any] = {}
    columns = metadata.get("score_columns", metadata.get("binary_score"))
    if "confidence" in metadata:  # as version 0.3 stored it
        found |= {"kind": "confidence", "label_column": metadata.get("right", "right")}
        columns = metadata["confidence"]
    elif "scores" in metadata:
        found["kind"] = metadata["scores"]
    if columns:
        found["score_columns"] = tuple(columns.split(",") if isinstance(columns, str) else columns)
    for name in ("label_column", "zeros"):
        found |= {name: metadata[name]} if name in metadata else {}
    return found | ({"classes": tuple(metadata["classes"])} if metadata.get("classes") else {})


@dataclass(frozen=True)
class OpenedFile:
    """A file whose columns are known, but not read."""

    table: Table
    names: Names
    roles: Roles

    @classmethod
    def open(cls, path: Path, wanted: Columns) -> Self:
        return cls.of(open_table(path), wanted)

    @classmethod
    def of(cls, table: Table, wanted: Columns) -> Self:
        part = wanted.split if isinstance(table, ArrayTable) else None
        names = Names(table.path, table.names, part)
        return cls(table, names, find_roles(names, wanted))

    def find_labels(
        self, labels: Location | None = None, label_column: str | None = None
    ) -> tuple[Table, str] | None:
        """The table with the labels, and their name in it.

        It is the file that the user names; else, beside an array without a name, one of a matching
        name; else the same file.
        """
        path = self.table.path
        beside = labels_beside(path)
        if labels is None and self.names.all == [NAMELESS] and beside != path and beside.exists():
            labels = beside
        if labels is None:
            return None if self.roles.labels is None else (self.table, self.roles.labels)
        other = open_table(Path(labels))
        names = Names(other.path, other.names, self.names.part)
        found = names.first(LABELS if label_column is None else [label_column])
        found = names.all[0] if found is None and len(names.all) == 1 else found
        if found is None:
            raise DataFileError(
                other.path,
                f"expected labels in `label` or `y`; found {names.listed()}.",
                "Name them: --label-column NAME.",
            )
        return other, found


def open_table(path: Path) -> Table:
    """A file of any format."""
    kind = find_format(path)
    if kind == "csv":
        return TextTable(path)
    if kind == "parquet":
        return ArrowTable(path, open_parquet([path]))
    if kind == "pickle":
        return ArrayTable(path, _read_pickle(path))
    return open_npy(path) if kind == "npy" else ArchiveTable(path)


def _read_pickle(path: Path) -> Arrays:
    """Arrays of a pickle, by a reader that hokical-paper has, without running it."""
    for entry in entry_points(group="hokical.readers", name="pickle"):
        arrays: Arrays = entry.load()(path)
        return arrays
    raise DataFileError(
        path,
        "is a pickle, which another package reads.",
        "Install it: pip install hokical-paper. Or save the arrays with `numpy.savez`.",
    )


def labels_beside(path: Path) -> Path:
    """The file in which the labels of an array without a name are looked for."""
    return path.with_name(path.name.replace("logits", "labels"))
