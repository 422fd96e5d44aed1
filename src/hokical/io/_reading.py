"""From a file to examples: scores, labels, weights and groups, whatever the format and the kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hokical._core.conversion import Zeros
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import AnyArray, BoolArray, FloatArray, IntArray
from hokical.io._archives import Archive, open_npy
from hokical.io._arrow import ArrowTable, open_dataset
from hokical.io._convention import (
    LABELS,
    PARTS,
    TOP_K,
    Columns,
    FileSplit,
    Kind,
    Names,
    Roles,
    find_roles,
)
from hokical.io._errors import DataFileError, report_file
from hokical.io._formats import find_format
from hokical.io._kinds import refuse_missing, row_maxima, settle_kind, to_scores
from hokical.io._labels import as_right, encode_labels, has_label, tidy_labels
from hokical.io._tables import NAMELESS, Arrays, ArrayTable, Table, to_numbers
from hokical.io._text_table import TextTable

Location = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of a file, as `fit`, `certify`, `evaluate` and the `predict` methods take them.

    Attributes
    ----------
    scores : logits (n, classes), or confidences (n,) if `kind` is "confidence"
    labels : class indices (n,), -1 where there is none; of confidences, 1 if right and 0 if wrong
    weights, groups : weight of each row; columns of groups by name; None where there are none
    classes : names of the classes, where known
    part : "val" or "test" if the file has parts
    row_numbers : number of each row (n,) in the file, from 0
    used : whether a row of the file (all rows,) has a score, and so is one of the n rows
    kept : other columns (all rows,), by name
    notes : sentences about how the file was read
    about : what later files need to be read in the same way, see `options_from`
    """

    scores: Logits | FloatArray
    labels: IntArray | None
    kind: Literal["logits", "confidence"]
    row_numbers: IntArray
    used: BoolArray
    weights: FloatArray | None = None
    groups: dict[str, AnyArray] | None = None
    classes: tuple[str, ...] = ()
    part: FileSplit | None = None
    kept: dict[str, AnyArray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return len(self.row_numbers)

    @property
    def n_dropped(self) -> int:
        return len(self.used) - self.n_rows

    def fill(self, values: AnyArray) -> AnyArray:
        """Values (n, ...) in their places among all rows of the file; the others are empty."""
        if self.used.all():
            return values
        empty: Any = np.nan if values.dtype.kind == "f" else ""
        kind = values.dtype if values.dtype.kind in "fU" else object
        empty = None if kind is object else empty
        found = np.full((len(self.used), *values.shape[1:]), empty, kind)
        found[self.used] = values
        return found


def read_examples(
    path: Location,
    *,
    split: FileSplit = "val",
    labels: Location | None = None,
    labelled: Literal["all", "some", "none"] = "all",
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
        .npz, .npy, .csv, .parquet or .arrow; with hokical-paper also a pickle of NumPy arrays.
        Columns and arrays are found by their names: `label` or `y`; `logits`, `logit_*` or `z0`,
        `z1`, ...; `probabilities`, `proba` or `prob_*`; `confidence` beside `right`;
        `sample_weight`. Where only the largest logits of each row are known, `topk_values` (or
        `topk_log_probabilities`) and `topk_indices`, (n, k) each, with `n_classes` give a `TopK`.
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
    wanted = Columns(kind, score_columns, column, classes, groups, keep, zeros)
    file = OpenedFile(Path(path), split, wanted)
    where = None if labelled == "none" else file.find_labels(labels, label_column)
    if where is None and labelled == "all":
        raise DataFileError(
            file.path,
            f"expected labels in `label` or `y`; found {file.names.listed()}.",
            "Name the column, --label-column NAME, or the file that has them, --labels FILE.",
        )
    return _Reading(file, where, labelled, missing).examples(fitted_by)


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


class OpenedFile:
    """A file whose columns are known, but not read."""

    def __init__(self, path: Path, split: FileSplit, wanted: Columns) -> None:
        self.path, self.split, self.wanted = path, split, wanted
        self.table = open_table(path)
        named_parts = isinstance(self.table, ArrayTable)
        self.names = Names(path, self.table.names, split if named_parts else None)
        self.roles = find_roles(self.names, wanted)
        own = named_parts and self.roles.scores[0].lower().startswith(f"{split}_")
        self.part = split if own or self.roles.split is not None else None

    def find_labels(
        self, labels: Location | None, label_column: str | None = None
    ) -> tuple[Table, str] | None:
        """The table with the labels, and their name in it.

        It is the file that the user names; else, beside an array without a name, one of a matching
        name; else the same file.
        """
        beside = labels_beside(self.path)
        if labels is None and self.names.all == [NAMELESS] and beside != self.path:
            labels = beside if beside.exists() else None
        if labels is None:
            return None if self.roles.labels is None else (self.table, self.roles.labels)
        other = open_table(Path(labels))
        names = Names(other.path, other.names, self.split)
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
    if kind in ("parquet", "arrow"):
        return ArrowTable(path, open_dataset(path, kind))
    if kind == "pickle":
        return ArrayTable(path, _read_pickle(path))
    return ArrayTable(path, open_npy(path) if kind == "npy" else Archive(path))


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


class _Reading:
    """The columns of a file, and which of its rows are used."""

    def __init__(
        self, file: OpenedFile, where: tuple[Table, str] | None, labelled: str, missing: str
    ) -> None:
        self.file, self.table, self.roles, self.labelled = file, file.table, file.roles, labelled
        top_k = self.roles.scores[0] if _is_top_k(self.roles) else None
        self.scores: Any = (
            self.table.scores(self.roles.scores) if top_k is None else _read_top_k(file, top_k)
        )
        self.n_rows = self.scores.n_rows if isinstance(self.scores, Logits) else len(self.scores)
        unread = self.roles.labels if labelled == "none" else None
        names = [n for n in self.roles.others if n != unread or n in self.roles.kept]
        self.columns = self.table.columns(names)
        self.weights = None
        if self.roles.weights is not None and labelled != "none":
            self.weights = to_numbers(self.columns[self.roles.weights])
        self.labels_in, self.labels = self._read_labels(where)
        self.own_classes = _classes_in(file, self.scores)
        rows = self._rows_of_part()
        self.used = self._has_values()[rows] if missing == "drop" else np.ones(len(rows), np.bool_)
        self.rows, self.chosen = rows, rows[self.used]

    def _read_labels(self, where: tuple[Table, str] | None) -> tuple[Table, AnyArray | None]:
        if where is None:
            return self.table, None if self.labelled != "some" else np.full(self.n_rows, -1)
        table, name = where
        same = table is self.table
        found = self.columns[name] if same else table.column(name)
        return table, tidy_labels(found)

    def _rows_of_part(self) -> IntArray:
        if self.roles.split is None or isinstance(self.table, ArrayTable):
            return np.arange(self.n_rows)
        parts = [str(part).strip().lower() for part in self.columns[self.roles.split].tolist()]
        found = np.flatnonzero(np.isin(parts, PARTS[self.file.split]))
        if not found.size:
            raise DataFileError(
                self.file.path,
                f"expected `split` to be {self.file.split} in some rows; found "
                f"{sorted(set(parts))[:5]}.",
                "Choose the part, --split val or --split test, or rename the values or the column.",
            )
        return found

    def _has_values(self) -> BoolArray:
        """Which rows have all scores, a weight and a label, each where such are read."""
        found = ~np.isnan(row_maxima(self.scores))
        if self.weights is not None and len(self.weights) == self.n_rows:
            found &= ~np.isnan(self.weights)
        if self.labels is not None and self.labelled == "all" and len(self.labels) == self.n_rows:
            found &= has_label(self.labels, self.own_classes or self.file.wanted.classes)
        return found

    def _place(self, row: int) -> str:
        return self.table.place(int(self.chosen[row])) if row < len(self.chosen) else f"row {row}"

    def examples(self, fitted_by: Any) -> Examples:
        file, roles, wanted = self.file, self.roles, self.file.wanted
        with report_file(file.path, place=self._place):
            given = self._take(self.scores)
            refuse_missing(given, roles, self._place)
            kind = settle_kind(given, roles, wanted)
            scores = to_scores(given, kind, roles, wanted.zeros, fitted_by)
            classes, order = _order_classes(self.own_classes, wanted.classes, scores)
        names = classes if order is None else self.own_classes
        labels = self._check_labels(scores, names)
        with report_file(file.path, "Fix or drop the weights.", self._place):
            weights = as_weights(self._take(self.weights), len(self.chosen))
        if order is not None:
            assert isinstance(scores, Logits)
            scores = replace(scores, values=scores.values[:, order])
            labels = None if labels is None else np.append(np.argsort(order), -1)[labels]
        return Examples(
            scores=scores,
            labels=labels,
            kind="confidence" if kind == "confidence" else "logits",
            row_numbers=self.chosen,
            used=self.used,
            weights=weights,
            groups={n: to_numbers(self._take(self.columns[n])) for n in roles.groups} or None,
            classes=classes,
            part=file.part,
            kept={name: self.columns[name][self.rows] for name in roles.kept},
            notes=self._notes(),
            about=_about(wanted, kind),
        )

    def _take(self, array: Any) -> Any:
        if array is None or len(self.chosen) == self.n_rows or isinstance(array, Logits):
            return array
        return array[self.chosen] if len(array) == self.n_rows else array

    def _check_labels(self, scores: Any, classes: tuple[str, ...]) -> IntArray | None:
        """Labels (n,) as column indices, -1 for those that may be missing."""
        given = self._take(self.labels)
        if given is None or self.labelled == "none":
            return None
        confident = not isinstance(scores, Logits)
        found = np.full(len(self.chosen), -1)
        partly = self.labelled == "some" and given.shape == found.shape
        known = np.flatnonzero(has_label(given, classes)) if partly else np.arange(len(found))

        def place(row: int) -> str:
            return self.labels_in.place(int(self.chosen[known[row]])) if row < len(known) else ""

        with report_file(self.labels_in.path, place=place):
            own = given[known] if partly else given
            own = as_right(own) if confident else encode_labels(own, classes)
            found[known] = as_labels(own, len(known), 2 if confident else scores.n_classes)
        return found

    def _notes(self) -> tuple[str, ...]:
        name, dropped = self.file.path.name, int((~self.used).sum())
        notes = list(self.table.notes)
        if self.file.part is not None:
            notes.append(f"Using the {self.file.part} part of {name} ({len(self.rows):,} rows).")
        if dropped:
            notes.append(
                f"Dropped {dropped:,} of {len(self.rows):,} rows of {name} without a value."
            )
        return tuple(notes)


def _about(wanted: Columns, kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {"scores": kind}
    found |= {"score_columns": list(wanted.score_columns)} if wanted.score_columns else {}
    found |= {"label_column": wanted.label_column} if wanted.label_column else {}
    return found | ({"zeros": wanted.zeros} if kind == "probabilities" else {})


def _classes_in(file: OpenedFile, scores: Any) -> tuple[str, ...]:
    """Names of the classes by the names of columns, or in the array `classes` of an archive."""
    name = file.names.first(["classes"]) if isinstance(file.table, ArrayTable) else None
    if name is None or getattr(scores, "ndim", 2) != 2:
        return file.roles.classes
    found = file.table.column(name)
    n_classes = scores.n_classes if isinstance(scores, Logits) else scores.shape[1]
    names = tuple(found.tolist()) if found.dtype.kind in "UT" else ()
    return names if len(set(names)) == n_classes == len(names) else ()


def _order_classes(
    own: tuple[str, ...], asked: tuple[str, ...], scores: Any
) -> tuple[tuple[str, ...], IntArray | None]:
    """Names of the classes, and the column of each in the file unless they are in that order."""
    if not isinstance(scores, Logits):
        return (), None
    if asked and (len(asked) != scores.n_classes or len(set(asked)) < len(asked)):
        raise ValueError(
            f"`classes` must name each of the {scores.n_classes} columns of scores once; got "
            f"{len(asked)}: {', '.join(asked[:6])}. Check --classes."
        )
    if not own or not asked or own == asked:
        return asked or own, None
    if set(own) != set(asked) or isinstance(scores, TopK):
        shown = [", ".join(names[:6]) + ", ..." * (len(names) > 6) for names in (asked, own)]
        raise ValueError(
            f"`classes` must be those of the calibrator or of --classes, {shown[0]}; got "
            f"{shown[1]}. Rename them or put them in that order, or leave the array out."
        )
    places = {name: place for place, name in enumerate(own)}
    return asked, np.array([places[name] for name in asked])


def _is_top_k(roles: Roles) -> bool:
    return roles.scores[0].lower().endswith(TOP_K)


def _read_top_k(file: OpenedFile, name: str) -> TopK:
    """The largest values of each row, with their indices and the number of classes."""
    arrays = []
    for beside in ("topk_indices", "n_classes"):
        found = file.names.first([beside])
        if found is None:
            raise DataFileError(
                file.path,
                f"expected `{beside}` beside `{name}`; it is not there.",
                "Save `topk_values`, `topk_indices` and `n_classes`.",
            )
        arrays.append(file.table.column(found))
    indices, count = arrays
    if count.size != 1 or count.dtype.kind not in "iu":
        raise DataFileError(file.path, "expected one whole number in `n_classes`.")
    make = TopK if name.lower().endswith(TOP_K[0]) else TopK.from_log_probabilities
    with report_file(file.path):
        return make(file.table.scores([name]), indices, int(count.reshape(())))
