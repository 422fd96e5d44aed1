"""Examples from the columns of a table, or the arrays of an archive, whatever the format.

Which of them hold what is said by one convention, or by explicit names.

| What | Names |
|---|---|
| labels | `label`, `labels` or `y`; beside confidences first `right` or `correct` |
| logits | `logits`, an array or a column of lists; `logit_*`; `z0`, `z1`, ...; `0`, `1`, ... |
| probabilities | `probabilities`, `proba` or `probs`; `probability_*`, `proba_*` or `prob_*` |
| confidences | `confidence` |
| weights | `sample_weight` or `weight` |
| part | of an archive: `val_logits`, `test_logits`, ... |

Upper and lower case are the same. `*` is the name of a class, or its number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.conversion import Zeros, from_binary_scores, from_probabilities
from hokical._core.groups import look_up
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import (
    Rows,
    as_partial_labels,
    as_weights,
    describe_columns,
    first_true,
    match_columns,
    whole_numbers,
)
from hokical.io.tables import MISSING, NAMELESS, DataFileError, FileSplit, Table, report_file

Kind = Literal["logits", "probabilities", "confidence"]
#: Whether each row must have a label, may have one, or labels are not read.
Labelled = Literal["all", "some", "none"]

LABELS = ("label", "labels", "y")
RIGHT = ("right", "correct", *LABELS)
WEIGHTS = ("sample_weight", "weight")
LOGITS = ("logits",)
#: Of each kind: arrays and columns with all scores, and patterns of columns with that of one class.
_SCORES: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "logits": (LOGITS, (r"logit_(.+)", r"z_?(\d+)", r"(\d+)")),
    "probabilities": (
        ("probabilities", "probability", "proba", "probs"),
        (r"prob(?:a|ability)?_(.+)",),
    ),
    "confidence": (("confidence",), ()),
}
_ID = re.compile(r"(.*_)?id", re.IGNORECASE)
#: `keep` for every column that is not a score.
ALL = ("all",)
_TRUTH = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1}
#: Rows of probabilities that were rounded to two digits sum to 1 within this.
_SLACK = 0.05


@dataclass(frozen=True)
class Columns:
    """What to read; see `read_examples`."""

    split: FileSplit = "val"
    kind: Kind | None = None
    score_columns: tuple[str, ...] = ()
    label_column: str | None = None
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = ()
    zeros: Zeros = "unlikely"
    #: None: all rows must have labels where there are any.
    labelled: Labelled | None = None
    drop_missing: bool = False
    fitted_by: Any = None
    weight_column: str | None = None


@dataclass(frozen=True)
class Roles:
    """Names of the columns or arrays that are read; `kind` is None if names do not say it."""

    scores: tuple[str, ...]
    kind: Kind | None
    classes: tuple[str, ...] = ()
    labels: str | None = None
    weights: str | None = None
    groups: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    #: Names of the columns, if there is one for each class.
    columns: tuple[str, ...] = ()
    #: The part that is read, if the file has parts.
    part: FileSplit | None = None
    #: Columns that are used for nothing, though they might hold scores.
    unused: tuple[str, ...] = ()

    def others(self, *, with_labels: bool) -> tuple[str, ...]:
        """The columns that are no scores, each once."""
        labels = self.labels if with_labels else None
        found = (labels, self.weights, *self.groups, *self.kept)
        return tuple(dict.fromkeys(name for name in found if name is not None))


def is_id(name: str) -> bool:
    """Whether a column is one of ids, by its name."""
    return _ID.fullmatch(name.strip()) is not None


def options_from(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `read_examples` for files like the one of a fit, from what its calibrator stores.

    >>> options_from({"scores": "probabilities", "classes": ["a", "b"], "score_columns": ["P(*)"]})
    {'kind': 'probabilities', 'score_columns': ('P(*)',), 'classes': ('a', 'b')}
    """
    found = {"kind": metadata["scores"]} if "scores" in metadata else {}
    columns = metadata.get("score_columns", ())
    if isinstance(columns, str):  # as version 0.3 stored them
        columns = columns.replace("{class}", "*").split(",")
    for name, names in (("score_columns", columns), ("classes", metadata.get("classes"))):
        found |= {name: tuple(names)} if names else {}
    return found | {name: metadata[name] for name in ("label_column", "zeros") if name in metadata}


def find_roles(table: Table, wanted: Columns) -> Roles:
    """The roles of columns, by the names given or by the convention."""
    groups = tuple(table.require(name, "--groups") for name in wanted.groups)
    named = () if wanted.keep == ALL else wanted.keep or ()
    kept = tuple(table.require(name, "--keep, --cluster") for name in named)
    labels, weights = table.first(*LABELS), table.first(*WEIGHTS)
    if wanted.label_column is not None and wanted.labelled == "some":
        labels = table.first(wanted.label_column) or labels
    elif wanted.label_column is not None:
        labels = table.require(wanted.label_column, "--label-column")
    if wanted.weight_column is not None:
        weights = table.require(wanted.weight_column, "`sample_weight`")
    taken = {labels, weights, *groups, *kept}
    kind, found = _find_scores(table, wanted, taken)
    by_class = _as_in_fit(table, found, wanted)
    kind = wanted.kind or kind
    if kind == "confidence" and wanted.label_column is None:
        labels = table.first(*RIGHT)
    scores = tuple(by_class.values())
    _refuse_parts(table, {*taken, *scores})
    if wanted.keep is None:
        kept = tuple(n for n in table.names if is_id(n) and n not in scores)
    elif wanted.keep == ALL:
        kept = tuple(name for name in table.names if name not in scores)
    classes = () if len(scores) < 2 or all(map(str.isdecimal, by_class)) else tuple(by_class)
    if [*by_class] == [*found]:
        classes = wanted.classes or classes
    used = {*taken, *scores, *kept} if len(scores) > 1 else {*table.names}
    own_part = table.part is not None and scores[0].lower().startswith(f"{table.part}_")
    return Roles(
        scores, kind, classes, labels, weights, groups, kept, scores if len(scores) > 1 else (),
        part=wanted.split if own_part else None,
        unused=table.numeric(n for n in table.names if n not in used and not is_id(n)),
    )  # fmt: skip


def _as_in_fit(table: Table, found: Mapping[str, str], wanted: Columns) -> Mapping[str, str]:
    """Columns by class in the order of the fit, if they are its columns.

    Others are refused, unless the user has named the columns or the classes.
    """
    known, names = (getattr(wanted.fitted_by, own, ()) for own in ("_columns", "class_names"))
    if len(found) < 2 or not (known or names):
        return found
    pairs = (([*found], names), ([*found], known), ([*found.values()], known))
    places = next((places for pair in pairs if (places := match_columns(*pair))), None)
    if places is not None:
        return dict([*found.items()][k] for k in places)
    if known and not (wanted.score_columns or wanted.classes):
        raise table.error(
            f"expected {describe_columns([*found.values()], known)}.",
            "Rename them, or name the scores in the order of the fit: --score-columns NAMES.",
        )
    return found


def _refuse_parts(table: Table, taken: set[str | None]) -> None:
    """Version 0.3 chose rows by a column `split`; now they would all be used without a word."""
    if table.part is None and table.first("split") not in {None, *taken}:
        raise table.error(
            "expected a table of one part; found a column `split`.",
            "Save its parts as tables of their own, or rename the column to use all rows.",
        )


def _find_scores(
    table: Table, wanted: Columns, taken: set[str | None]
) -> tuple[Kind | None, Mapping[str, str]]:
    """The kind of scores, if names say it, and the columns by class or by their own names."""
    if wanted.score_columns:
        return None, _named_scores(table, wanted)
    if wanted.classes and all(table.first(name) for name in wanted.classes):
        return None, {name: table.require(name, "--classes") for name in wanted.classes}
    by_kind = {kind: found for kind in _SCORES if (found := _by_convention(table, kind, taken))}
    for kind, found in by_kind.items():
        if wanted.kind in (None, kind):
            return kind, found if len(found) == 1 else _in_order(table, found, wanted)
    known = getattr(wanted.fitted_by, "_columns", ())
    of_other_kind = {name for found in by_kind.values() for name in found.values()}
    if known and all(table.first(name) not in {None, *of_other_kind} for name in known):
        return None, {name: table.require(name, "the fit") for name in known}
    if table.names == [NAMELESS]:
        return "logits", {NAMELESS: NAMELESS}
    if not by_kind and (by_label := _like_labels(table, wanted, taken)):
        return None, by_label
    for kind, found in by_kind.items():
        if not all(map(str.isdecimal, map(str.strip, found.values()))):
            raise table.error(
                f"expected {wanted.kind}, as the calibrator was fitted on or as asked for; found "
                f"{kind} in `{next(iter(found.values()))}`.",
                f"Pass {wanted.kind}, or use a calibrator that was fitted on {kind}.",
            )
    others = (n for n in table.names if n not in taken and not is_id(n))
    free = list(islice((name for name in others if _holds_numbers(table, name)), 5))
    named = f"--score-columns {','.join(free[:4]) or 'NAMES'}{',...' if len(free) > 4 else ''}"
    other = "test" if table.part == "val" else "val"
    there = table.part is not None and any(n.lower().startswith(f"{other}_") for n in table.names)
    raise table.error(
        "expected scores in `logits`, `logit_*`, `probabilities`, `prob_*` or `confidence`; found "
        f"{table.listed()}.",
        f"Name the scores: {named}{f', or the part: --split {other}' if there else ''}.",
    )


def _like_labels(table: Table, wanted: Columns, taken: set[str | None]) -> dict[str, str]:
    """Columns that are named like the values of the label, if each of these has one."""
    labels = table.first(*LABELS) if wanted.label_column is None else wanted.label_column
    if labels is None or wanted.kind == "confidence" or len(table.names) < 3:
        return {}
    values = {
        str(value).strip() for value in table.read_column(table.require(labels, "y")).tolist()
    }
    values -= {value for value in values if value.lower() in MISSING}
    free = {name.strip(): name for name in table.names if name not in taken}
    return {name: free[name] for name in free if name in values} if values <= {*free} else {}


def _by_convention(table: Table, kind: Kind, taken: set[str | None]) -> dict[str, str]:
    """Columns of one kind of scores, by class or by their own name; none if there are none."""
    whole, patterns = _SCORES[kind]
    name = table.first(*whole)
    if name is not None:
        return {name: name}
    matches = (_match(table, pattern, taken) for pattern in patterns)
    return next((found for found in matches if len(found) > 1), {})


def _holds_numbers(table: Table, name: str) -> bool:
    try:
        return table.read((name,), ())[0].dtype.kind in "fiu"
    except DataFileError:
        return False


def _named_scores(table: Table, wanted: Columns) -> Mapping[str, str]:
    pattern = wanted.score_columns[0]
    if "*" not in pattern:
        chosen = [table.require(name, "--score-columns") for name in wanted.score_columns]
        own = wanted.classes if len(chosen) == len(wanted.classes) > 1 else wanted.score_columns
        return dict(zip(own, chosen, strict=True))
    found = _match(table, re.escape(pattern).replace(r"\*", "(.+)", 1), set())
    if len(found) < 2:
        raise table.error(
            f"expected columns like {pattern}, one for every class; found {table.listed()}.",
            "Check --score-columns; `*` is the name of a class.",
        )
    return _in_order(table, found, wanted)


def _match(table: Table, pattern: str, taken: set[str | None]) -> dict[str, str]:
    """Columns that match, by the class in their name; numbered ones alone if there are such."""
    own = re.compile(pattern, re.IGNORECASE)
    matches = ((own.fullmatch(name.strip()), name) for name in table.names if name not in taken)
    found = {match[1]: name for match, name in matches if match}
    return {key: name for key, name in found.items() if key.isdecimal()} or found


def _in_order(table: Table, found: dict[str, str], wanted: Columns) -> Mapping[str, str]:
    """Columns in the order of the classes: by number, or as they are asked for."""
    if all(map(str.isdecimal, found)):
        numbers = sorted(map(int, found))
        if numbers[0] > 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise table.error(
                f"expected columns of scores numbered 0, 1, 2, ...; found {numbers}.",
                "Add the missing columns, or name the columns: --score-columns a,b,c.",
            )
        return dict(sorted(found.items(), key=lambda item: int(item[0])))
    missing = next((name for name in wanted.classes if name not in found), None)
    if missing is not None:
        raise table.error(
            f"expected a column for each class; found none for {missing} among {table.listed()}.",
            "Check --classes and --score-columns.",
        )
    return {name: found[name] for name in wanted.classes} or found


def encode_labels(labels: AnyArray, classes: Sequence[str], *, right: bool = False) -> AnyArray:
    """Labels (n,) as column indices, -1 where there is none; `right` of confidences: 1 or 0.

    Names of classes become their places. Numbers stay, unless the names are numbers; those that
    are not whole are left for the check that follows.

    >>> encode_labels(np.array(["dog", "NA", "cat"]), ["cat", "dog"])
    array([ 1, -1,  0])
    >>> encode_labels(np.array([2.0, np.nan]), [])
    array([ 2, -1])
    >>> encode_labels(np.array(["True", "0"]), [], right=True)
    array([1, 0])
    """
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    labels = whole_numbers(labels.astype(int) if labels.dtype.kind == "b" else labels)
    by_number = bool(classes) and all(name.isdecimal() for name in classes)
    if labels.ndim != 1 or (labels.dtype.kind in "fiubc" and not by_number):
        return labels
    words = [str(label).strip() for label in labels.tolist()]
    known = {name: place for place, name in enumerate(classes)}
    if known.keys().isdisjoint(words):
        numbers = to_numbers(np.array(words))
        if numbers.dtype.kind == "f":
            return whole_numbers(numbers)
        known = _TRUTH if right or set(map(str.lower, words)) <= {"true", "false"} else known
    found = [known.get(word, known.get(word.lower())) for word in words]
    for row, word in enumerate(words):
        if found[row] is None and word.lower() not in (*MISSING, "-1"):
            raise ValueError(_bad_label(word, row, classes, right))
    return np.array([-1 if place is None else place for place in found], np.int64)


def _bad_label(word: str, row: int, classes: Sequence[str], right: bool) -> str:
    if right:
        rule, remedy = "labels of confidences must be 0 or 1, true or false", "Correct or drop it."
    elif classes:
        known = ", ".join(classes[:6]) + ", ..." * (len(classes) > 6)
        rule, remedy = f"labels must be names of classes ({known})", "Correct or drop the row."
    else:
        rule = "labels must be column indices if the classes have no names"
        remedy = "Name the classes, class 0 first: --classes cat,dog,..."
    return f"{rule}; got {word!r} in row {row}. {remedy}"


def to_numbers(column: AnyArray) -> AnyArray:
    """Text or objects (n,) as numbers, NaN where a cell is empty, if all of them are numbers."""
    if column.dtype.kind not in "UTO":
        return column
    cells = ["nan" if str(cell).strip().lower() in MISSING else cell for cell in column.tolist()]
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        return column


def logit_values(rows: Rows, path: Path) -> AnyArray:
    """The logits (n, classes), of which a source of chunks consists."""
    if rows.kind == "confidence":
        raise DataFileError(
            path, "expected logits or probabilities; found confidences.", "Read the file whole."
        )
    return np.asarray(rows.scores.values)


def make_examples(
    table: Table, roles: Roles, wanted: Columns, labels_in: tuple[Table, str] | None
) -> Rows:
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
        weights = as_weights(take(weights), len(rows), of_block=True)
    if truth is not None:
        n_classes = found.n_classes if isinstance(found, Logits) else 2
        with report_file((other or table).path, (other or table).place):
            missing_ok = labelled == "some" or wanted.drop_missing
            truth = _check_labels(truth, len(used), n_classes, missing_ok=missing_ok)
    return Rows(
        found,
        take(truth),
        weights,
        groups={name: to_numbers(take(columns[name])) for name in roles.groups} or None,
        columns=roles.columns,
        classes=classes,
        about=about(wanted, kind),
        kind="confidence" if kind == "confidence" else "logits",
        used=used,
        part=roles.part,
        kept={name: columns[name] for name in roles.kept},
        unused=roles.unused,
    )


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
    found = as_partial_labels(truth, n_rows, n_classes)
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
            f"scores must be logits or probabilities; got {values[0].max():g} in row 0, and all "
            "rows sum to 100: percentages. Divide by 100, or write them with the sign %."
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
