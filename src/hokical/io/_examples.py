"""From the columns of a table to examples, whatever the format and the kind of scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits
from hokical._core.types import AnyArray, BoolArray, FloatArray, IntArray
from hokical.io._convention import PARTS, Columns, FileSplit, Kind, Roles
from hokical.io._errors import DataFileError, report_file
from hokical.io._kinds import refuse_missing, row_maxima, settle_kind, to_scores
from hokical.io._labels import as_right, encode_labels, has_label, tidy_labels, to_numbers
from hokical.io._tables import Table

#: Whether each row must have a label, may have one, or labels are not read.
Labelled = Literal["all", "some", "none"]


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
        numbers = values.dtype.kind == "f"
        shape, kind = (len(self.used), *values.shape[1:]), values.dtype if numbers else object
        found = np.full(shape, np.nan if numbers else None, kind)
        found[self.used] = values
        return found


@dataclass(frozen=True, eq=False)
class RowReader:
    """How the rows of a table become examples: which columns they have, and what may be missing."""

    roles: Roles
    wanted: Columns
    labelled: Labelled = "all"
    drop_missing: bool = False
    fitted_by: Any = None

    def read(self, table: Table, labels_in: tuple[Table, str] | None) -> Examples:
        """The examples of a table; their labels are in a column of it, or of another table."""
        roles = self.roles
        unread = roles.labels if self.labelled == "none" else None
        names = [name for name in roles.others if name != unread or name in roles.kept]
        scores, columns = table.read(roles.scores, names)
        labels = self._read_labels(table, columns, labels_in, len(scores))
        weights = None
        if roles.weights is not None and self.labelled != "none":
            weights = to_numbers(columns[roles.weights])
        given = _Given(table, scores, labels, weights, columns)
        classes = _find_classes(roles, self.wanted.classes, given)
        rows = rows_of_part(roles, columns, len(scores))
        if not rows.size and len(scores):
            raise _no_such_part(table, roles, columns)
        used = np.ones(len(rows), np.bool_)
        if self.drop_missing:
            used = self._has_values(given, classes)[rows]
        return self._make(given, labels_in, rows, used, classes)

    def _read_labels(
        self,
        table: Table,
        columns: dict[str, AnyArray],
        labels_in: tuple[Table, str] | None,
        n_rows: int,
    ) -> AnyArray | None:
        if labels_in is None:
            return np.full(n_rows, -1) if self.labelled == "some" else None
        other, name = labels_in
        return tidy_labels(columns[name] if other is table else other.read((), (name,))[1][name])

    def _has_values(self, given: _Given, classes: tuple[str, ...]) -> BoolArray:
        """Which rows have all scores, a weight and a label, each where such are read."""
        found, n_rows = ~np.isnan(row_maxima(given.scores)), given.n_rows
        if given.weights is not None and len(given.weights) == n_rows:
            found &= ~np.isnan(given.weights)
        if given.labels is not None and self.labelled == "all" and len(given.labels) == n_rows:
            found &= has_label(given.labels, classes)
        return found

    def _make(
        self,
        given: _Given,
        labels_in: tuple[Table, str] | None,
        rows: IntArray,
        used: BoolArray,
        classes: tuple[str, ...],
    ) -> Examples:
        roles, wanted, table, chosen = self.roles, self.wanted, given.table, rows[used]
        with report_file(table.path, place=_places(table, chosen)):
            values = given.take(given.scores, chosen)
            refuse_missing(values, roles)
            kind = settle_kind(values, roles, wanted)
            scores = to_scores(values, kind, roles, wanted.zeros, self.fitted_by)
            classes = _check_classes(classes, scores)
        truth = given.take(given.labels, chosen)
        labels = None
        if truth is not None:
            other = table if labels_in is None else labels_in[0]
            labels = self._check_labels(truth, chosen, scores, classes, other)
        with report_file(table.path, "Fix or drop the weights.", _places(table, chosen)):
            weights = given.take(given.weights, chosen)
            if weights is None or np.any(weights):  # of a batch, all may be 0
                weights = as_weights(weights, len(chosen))
        columns = given.columns
        return Examples(
            scores=scores,
            labels=labels,
            kind="confidence" if kind == "confidence" else "logits",
            row_numbers=chosen,
            used=used,
            weights=weights,
            groups={n: to_numbers(given.take(columns[n], chosen)) for n in roles.groups} or None,
            classes=classes,
            part=roles.part,
            kept={name: columns[name][rows] for name in roles.kept},
            notes=_notes(table, roles, used),
            about=_about(wanted, kind),
        )

    def _check_labels(
        self, given: AnyArray, chosen: IntArray, scores: Any, classes: tuple[str, ...], table: Table
    ) -> IntArray:
        """Labels (n,) as column indices, -1 for those that may be missing."""
        found = np.full(len(chosen), -1)
        known: Any = slice(None)
        if self.labelled == "some" and given.shape == found.shape:
            known = np.flatnonzero(has_label(given, classes))
        with report_file(table.path, place=_places(table, chosen[known])):
            if isinstance(scores, Logits):
                own, n_classes = encode_labels(given[known], classes), scores.n_classes
            else:
                own, n_classes = as_right(given[known]), 2
            found[known] = as_labels(own, len(found[known]), n_classes)
        return found


@dataclass(frozen=True, eq=False)
class _Given:
    """What a table holds: scores, labels, weights and all other columns, unchecked."""

    table: Table
    scores: Any
    labels: AnyArray | None
    weights: AnyArray | None
    columns: dict[str, AnyArray]

    @property
    def n_rows(self) -> int:
        return len(self.scores)

    def take(self, array: Any, rows: IntArray) -> Any:
        """Some of the rows, no copy if they are all; arrays of another length as they are."""
        same = array is None or len(rows) == self.n_rows or len(array) != self.n_rows
        return array if same else array[rows]


def rows_of_part(roles: Roles, columns: dict[str, AnyArray], n_rows: int) -> IntArray:
    """The rows of the part that is read, by the column `split` if there is one."""
    if roles.split is None or roles.part is None:
        return np.arange(n_rows)
    parts = [str(part).strip().lower() for part in columns[roles.split].tolist()]
    return np.flatnonzero(np.isin(parts, PARTS[roles.part]))


def _no_such_part(table: Table, roles: Roles, columns: dict[str, AnyArray]) -> DataFileError:
    found = sorted({str(part) for part in columns[roles.split or ""].tolist()})
    return DataFileError(
        table.path,
        f"expected `split` to be {roles.part} in some rows; found {found[:5]}.",
        "Choose the part, --split val or --split test, or rename the values or the column.",
    )


def _places(table: Table, rows: IntArray) -> Any:
    """A function that says where in the file one of the chosen rows is."""
    return lambda row: table.place(int(rows[row])) if row < len(rows) else f"row {row}"


def _notes(table: Table, roles: Roles, used: BoolArray) -> tuple[str, ...]:
    name, dropped, notes = table.path.name, int((~used).sum()), list(table.notes)
    if roles.part is not None:
        notes.append(f"Using the {roles.part} part of {name} ({len(used):,} rows).")
    if dropped:
        notes.append(f"Dropped {dropped:,} of {len(used):,} rows of {name} without a value.")
    return tuple(notes)


def _about(wanted: Columns, kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {"scores": kind}
    found |= {"score_columns": list(wanted.score_columns)} if wanted.score_columns else {}
    found |= {"label_column": wanted.label_column} if wanted.label_column else {}
    return found | ({"zeros": wanted.zeros} if kind == "probabilities" else {})


def _find_classes(roles: Roles, asked: tuple[str, ...], given: _Given) -> tuple[str, ...]:
    """Names of the classes: of columns, in the array `classes` of an archive, or as asked for."""
    own, n_classes = roles.classes, given.scores.shape[-1]
    if roles.class_names is not None:
        found = given.columns[roles.class_names]
        own = tuple(found.ravel().tolist()) if found.dtype.kind in "UT" else ()
        own = own if len(set(own)) == n_classes == len(own) else ()
    if own and asked and own != asked:
        shown = [", ".join(names[:6]) + ", ..." * (len(names) > 6) for names in (asked, own)]
        raise DataFileError(
            given.table.path,
            f"expected the classes of the calibrator or of --classes, {shown[0]}; found "
            f"{shown[1]}.",
            "Put the columns of scores and their names in that order.",
        )
    return asked or own


def _check_classes(classes: tuple[str, ...], scores: Logits | FloatArray) -> tuple[str, ...]:
    """Names of all classes of logits; confidences have none."""
    if not isinstance(scores, Logits):
        return ()
    if classes and (len(classes) != scores.n_classes or len(set(classes)) < len(classes)):
        raise ValueError(
            f"`classes` must name each of the {scores.n_classes} columns of scores once; got "
            f"{len(classes)}: {', '.join(classes[:6])}. Check --classes."
        )
    return classes
