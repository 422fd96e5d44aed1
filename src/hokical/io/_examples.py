"""From the columns of a table to examples, whatever the format and the kind of scores."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hokical._core.conversion import from_binary_scores, from_probabilities
from hokical._core.groups import look_up
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import first_true
from hokical._core.types import AnyArray, BoolArray, FloatArray, IntArray
from hokical.io._convention import Columns, Kind, Roles, is_id
from hokical.io._errors import DataFileError, report_file
from hokical.io._labels import encode_labels, to_numbers
from hokical.io._tables import FileSplit, Table

#: Rows of probabilities that were rounded to two digits sum to 1 within this.
_SLACK = 0.05


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of a file, as `fit`, `certify`, `evaluate` and the `predict` methods take them.

    Attributes
    ----------
    scores : logits (n, classes), or confidences (n,) if `kind` is "confidence"
    labels : class indices (n,), -1 where there is none; of confidences, 1 if right and 0 if wrong
    used : whether a row of the file (all rows,) has a score, and so is one of the n rows
    weights, groups : weight of each row; columns of groups by name; None where there are none
    classes, columns : names of the classes, where known, and of their columns, if each has one
    part : "val" or "test" if the file has parts
    kept : other columns (all rows,), by name
    unused : columns that are used for nothing, though they might hold scores
    about : what later files need to be read in the same way, see `options_from`
    """

    scores: Logits | FloatArray
    labels: IntArray | None
    kind: Literal["logits", "confidence"]
    used: BoolArray
    weights: FloatArray | None = None
    groups: dict[str, AnyArray] | None = None
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    part: FileSplit | None = None
    kept: dict[str, AnyArray] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        return len(self.used) - self.n_dropped

    @property
    def n_dropped(self) -> int:
        return int((~self.used).sum())

    def logit_values(self, path: Path) -> AnyArray:
        """The logits (n, classes), of which a source of chunks consists."""
        if not isinstance(self.scores, Logits):
            raise DataFileError(
                path, "expected logits or probabilities; found confidences.", "Read the file whole."
            )
        return np.asarray(self.scores.values)

    def fill(self, values: AnyArray) -> AnyArray:
        """Values (n, ...) in their places among all rows of the file; the others are empty."""
        if self.used.all():
            return values
        numbers = values.dtype.kind == "f"
        shape, kind = (len(self.used), *values.shape[1:]), values.dtype if numbers else object
        found = np.full(shape, np.nan if numbers else None, kind)
        found[self.used] = values
        return found


def make_examples(
    table: Table, roles: Roles, wanted: Columns, labels_in: tuple[Table, str] | None
) -> Examples:
    """The examples of a table; their labels are in a column of it, or of another table."""
    labelled = wanted.labelled or ("none" if labels_in is None else "all")
    other, name = labels_in or (None, "")
    scores, columns = table.read(roles.scores, roles.others(with_labels=other is table))
    scores = scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores
    truth = np.full(len(scores), -1) if labelled == "some" else None
    if other is not None:
        column = columns[name] if other is table else other.read_column(name)
        with report_file(other.path, other.place):
            truth = encode_labels(column, roles.classes, right=roles.kind == "confidence")
        if other is not table:
            truth = join_labels(table, other, truth, all_known=labelled == "all")
    weights = None
    if roles.weights is not None and labelled != "none":
        weights = to_numbers(columns[roles.weights])
    used = np.ones(len(scores), np.bool_)
    if wanted.drop_missing:
        used = _has_values(scores, weights, truth if labelled == "all" else None)
    rows = np.flatnonzero(used)

    def take(array: Any) -> Any:
        return array if array is None or used.all() else array[rows]

    with report_file(table.path, lambda row: table.place(int(rows[row]))):
        scores = take(scores)
        _refuse_missing(scores, roles)
        kind = settle_kind(scores, roles, wanted)
        found = _as_scores(scores, kind, roles, wanted)
        classes = _check_classes(roles.classes, found)
        weights = take(weights)
        if weights is None or np.any(weights):  # of a batch, all may be 0
            weights = as_weights(weights, len(rows))
    if truth is not None:
        n_classes = found.n_classes if isinstance(found, Logits) else 2
        with report_file((other or table).path, (other or table).place):
            missing_ok = labelled == "some" or wanted.drop_missing
            truth = _check_labels(truth, len(used), n_classes, missing_ok=missing_ok)
    return Examples(
        found, take(truth), "confidence" if kind == "confidence" else "logits", used, weights,
        groups={name: to_numbers(take(columns[name])) for name in roles.groups} or None,
        classes=classes,
        columns=roles.columns,
        part=roles.part,
        kept={name: columns[name] for name in roles.kept},
        about=about(wanted, kind),
        unused=roles.unused,
    )  # fmt: skip


def join_labels(table: Table, other: Table, labels: AnyArray, *, all_known: bool) -> AnyArray:
    """Labels (n,) of another file in the order of a table: by id where both have such a column."""
    shared = [name for name in table.names if is_id(name) and other.first(name) is not None]
    own = min(shared, key=len, default=None)
    if own is None:
        return labels
    ids = [str(each).strip() for each in table.read_column(own).tolist()]
    known = [str(each).strip() for each in other.read_column(other.require(own, "id")).tolist()]
    if len(set(known)) < len(known):
        twice = Counter(known).most_common(1)[0][0]
        raise other.error(f"expected each `{own}` once; found {twice!r} twice.", "Drop one.")
    place = np.array(look_up(ids, known))
    lost = np.flatnonzero(place == len(known))
    if lost.size and all_known:
        raise other.error(
            f"expected a label for each `{own}` of {table.path.name}; found none for "
            f"{ids[lost[0]]!r}, and {lost.size - 1:,} others.",
            "Add them, or drop these rows.",
        )
    return np.asarray(np.append(labels, -1)[place])


def about(wanted: Columns, kind: Kind) -> dict[str, Any]:
    """What a calibrator has to remember, so that later files are read in the same way."""
    zeros = wanted.zeros if kind == "probabilities" else None
    named = {"score_columns": [*wanted.score_columns], "label_column": wanted.label_column}
    return {
        "scores": kind,
        **{name: own for name, own in (named | {"zeros": zeros}).items() if own},
    }


def _has_values(scores: AnyArray, weights: AnyArray | None, truth: AnyArray | None) -> BoolArray:
    """Which rows have all scores, a weight and a label, each where there are such."""
    used = _has_scores(scores)
    if weights is not None and weights.dtype.kind == "f" and weights.shape == used.shape:
        used &= ~np.isnan(weights)
    return used & (truth != -1) if truth is not None and truth.shape == used.shape else used


def _check_labels(truth: AnyArray, n_rows: int, n_classes: int, *, missing_ok: bool) -> IntArray:
    """Labels (n,) as column indices, -1 for those that are missing."""
    known = np.where(truth == -1, 0, truth) if truth.dtype.kind == "i" else truth
    found = np.where(truth == -1, -1, as_labels(known, n_rows, n_classes))
    if not missing_ok and (found == -1).any():
        raise ValueError(
            f"each row must have a label; got no label in row {int(np.argmin(found))}. Fill it in, "
            "or leave out such rows: --missing drop."
        )
    return found


def _check_classes(classes: tuple[str, ...], scores: Logits | FloatArray) -> tuple[str, ...]:
    """Names of all classes of logits; confidences have none."""
    if not isinstance(scores, Logits):
        return ()
    if classes and not len(classes) == len(set(classes)) == scores.n_classes:
        raise ValueError(
            f"`classes` must name each of the {scores.n_classes} columns of scores once; got "
            f"{len(classes)}: {', '.join(classes[:6])}. Check --classes."
        )
    return classes


def _has_scores(scores: AnyArray) -> BoolArray:
    """Whether a row (n,) has all scores."""
    if scores.dtype.kind != "f" or 0 in scores.shape:
        return np.ones(len(scores), np.bool_)
    return ~np.isnan(scores if scores.ndim == 1 else scores.reshape(len(scores), -1).max(axis=1))


def _refuse_missing(scores: AnyArray, roles: Roles) -> None:
    """Raise for the first row without a score."""
    if place := first_true(~_has_scores(scores)):
        column = int(np.argmax(np.isnan(np.atleast_1d(scores[place]).ravel())))
        name = roles.scores[column] if len(roles.scores) > 1 else roles.scores[0] or column
        raise ValueError(
            f"expected a number in row {place[0]}, column `{name}`; found none (empty, NA or NaN). "
            "Fill it in, or leave out rows without a value: --missing drop."
        )


def settle_kind(values: AnyArray, roles: Roles, wanted: Columns) -> Kind:
    """What scores (n,) or (n, classes) are: as asked for, by their names, or by their values."""
    if wanted.kind is not None:
        return wanted.kind
    if values.dtype.kind not in "fiu" or not values.size or roles.kind == "confidence":
        return roles.kind or "logits"
    inside = bool(values.min() >= 0.0)
    if values.ndim == 1 and roles.kind != "probabilities" and inside and values.max() <= 1.0:
        raise ValueError(
            f"`{roles.scores[0] or 'logits'}` must be log-odds or probabilities of class 1; got "
            "one column in [0, 1], which can be either. Say what they are: --probabilities or "
            "--logits."
        )
    sums = values.sum(axis=1) if inside and values.ndim == 2 else np.zeros(1)
    if np.all(np.abs(sums - 100.0) <= 100.0 * _SLACK):
        raise ValueError(
            "scores must be logits or probabilities; got rows that sum to 100, percentages. Divide "
            "them by 100, or write them with the sign %."
        )
    sums_to_one = bool(np.all(np.abs(sums - 1.0) <= _SLACK))
    return roles.kind or ("probabilities" if sums_to_one else "logits")


def _as_scores(given: Any, kind: Kind, roles: Roles, wanted: Columns) -> Logits | FloatArray:
    """Logits (n, classes) from logits or probabilities; confidences (n,) as they are."""
    name = roles.scores[0] if len(roles.scores) == 1 and roles.scores[0] else kind
    if kind == "confidence":
        if given.ndim != 1:
            raise ValueError(f"`{name}` must be one confidence per row; got shape {given.shape}.")
        return np.asarray(given, np.float64)
    if kind == "probabilities":
        given = from_probabilities(given, zeros=wanted.zeros, name=name)
    elif given.ndim == 1:
        given = from_binary_scores(given, name=name)
    return as_logits(given, name=name, fitted_by=wanted.fitted_by)
