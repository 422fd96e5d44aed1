"""Examples from the columns of a table, or the arrays of an archive, whatever the
format.

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

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hokical._core import reading
from hokical._core.arrays import AnyArray, BoolArray
from hokical._core.conversion import (
    SUM_SLACK,
    Zeros,
    from_binary_scores,
    from_probabilities,
)
from hokical._core.groups import look_up
from hokical._core.logits import as_logits
from hokical._core.reading import Rows
from hokical._core.runtime import FitDataWarning, warn_user
from hokical.io import tables
from hokical.io.tables import MISSING, NO_NAME, TABLE, DataFileError, FileSplit, Table

Location = str | os.PathLike[str]
ScoreKind = Literal["logits", "probabilities", "confidence"]
#: Whether each row must have a label, may have one, or labels are not read.
Labelled = Literal["all", "some", "none"]

LABELS = ("label", "labels", "y")
RIGHT = ("right", "correct", *LABELS)
WEIGHTS = ("sample_weight", "weight")
LOGITS = ("logits",)
#: Of each kind: arrays and columns with all scores, and patterns of columns with that
#: of one class.
_SCORES: dict[ScoreKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
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


@dataclass(frozen=True)
class Columns:
    """What to read; see `read_examples`."""

    kind: ScoreKind | None = None
    score_columns: tuple[str, ...] = ()
    label_column: str | None = None
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = ()
    zeros: Zeros = "unlikely"
    labelled: Labelled = "all"
    drop_missing: bool = False
    fitted_by: Any = None

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns of the fit, if there is one."""
        return () if self.fitted_by is None else self.fitted_by.schema_.columns

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The names of the classes of the fit, if there is one."""
        return () if self.fitted_by is None else self.fitted_by.class_names

    weight_column: str | None = None


def is_id(name: str) -> bool:
    """Whether a column is one of ids, by its name."""
    return _ID.fullmatch(name.strip()) is not None


def read_examples(
    path: Location,
    *,
    split: FileSplit = "val",
    labels: Location | None = None,
    labelled: Labelled = "all",
    kind: ScoreKind | None = None,
    score_columns: tuple[str, ...] = (),
    label_column: str | None = None,
    classes: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    keep: tuple[str, ...] | None = (),
    missing: Literal["error", "drop"] = "error",
    zeros: Zeros = "unlikely",
    fitted_by: Any = None,
) -> Rows:
    """Read scores and labels from a file; DataFileError says what is wrong with a bad
    one.

    Parameters
    ----------
    path : path
        `.npz`, `.npy`, `.csv` or `.parquet`; with hokical-paper also a pickle of NumPy
        arrays. Columns and arrays are found by their names: `label` or `y`; `logits`,
        `logit_*` or `z0`, `z1`, ...; `probabilities`, `proba` or `prob_*`; `confidence`
        beside `right`; `sample_weight`.
    split : {"val", "test"}
        Which part, if the file has parts.
    labels : path, optional
        Another file with the labels. `NAME_labels.npy` is found beside
        `NAME_logits.npy`.
    labelled : {"all", "some", "none"}
        Whether each row must have a label, may have one (-1 otherwise), or labels are
        not read.
    kind : {"logits", "probabilities", "confidence"}, optional
        What the scores are; by default what their names say, or their values if they
        were named by `score_columns` or `classes`. Probabilities become logits.
    score_columns : tuple of str
        Names of the scores' columns, or one pattern in which `*` is the class, such as
        "P(*)". One name alone is the score of class 1 of two, or the confidence.
    label_column : str, optional
        Name of the labels; of confidences, of the column that says whether they were
        right.
    classes : tuple of str
        Names of the classes; columns of these names, in this order, are the scores.
    groups, keep : tuple of str
        Columns with groups, and others to keep; `keep=None` keeps those called `id` or
        `*_id`, ("all",) all that are no scores.
    missing : {"error", "drop"}
        "drop" leaves out rows without a score, weight or label.
    zeros : {"unlikely", "impossible"}
        What a probability of 0 means, as in `hokical.from_probabilities`.
    fitted_by : Calibrator, optional
        The logits must have as many classes as this calibrator; columns are put in the
        order of its fit.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(
    ...         f"{folder}/val.npz", logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 1]
    ...     )
    ...     rows = read_examples(f"{folder}/val.npz")
    >>> rows.n_rows, rows.n_classes, rows.labels.tolist()
    (2, 2, [0, 1])
    """
    column = None if labelled == "none" or labels is not None else label_column
    named = (kind, score_columns, column, classes, groups, keep)
    wanted = Columns(*named, zeros, labelled, missing == "drop", fitted_by)
    table = tables.open_table(Path(path), split)
    layout = Layout(table, wanted)
    beside = None if labelled == "none" else layout.find_labels(labels, label_column)
    if labelled == "all" and beside is None and layout.labels is None:
        remedy = (
            "Name the column, --label-column NAME, or the file that has them, --labels "
            "FILE."
        )
        raise table.error(
            f"expected labels in `label` or `y`; found {table.listed()}.", remedy
        )
    return layout.read(table, beside)


def read_late_labels(
    path: Location,
    id_column: str,
    right: bool,
    label_column: str = "",
    classes: Sequence[str] = (),
) -> tuple[AnyArray, AnyArray] | None:
    """Ids and labels (n,) of a file that holds nothing else; None if it is another one.

    Labels are class indices, or of confidences 1 if `right`; -1 where there is none.
    """
    table = tables.open_table(Path(path), "test")
    ids = table.first(id_column)
    labels = table.first(*filter(None, (label_column, *LABELS)))
    rest = [name for name in table.names if name != ids]
    labels = rest[0] if labels is None and len(rest) == 1 else labels
    if ids is None or labels is None:
        return None
    with suppress(DataFileError):
        Layout(table, Columns(label_column=labels))
        return None  # as it has scores
    with tables.report_file(table.path, table.place):
        found = encode_labels(table.read_column(labels), classes, right=right)
    return table.read_column(ids), found


def named_columns(groups: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that groups name, alone or in a list; none if they are given in
    another way.
    """
    names = [groups] if isinstance(groups, str) else groups
    named = isinstance(names, (list, tuple)) and {*map(str, names)} <= {*columns}
    return tuple(names) if named else ()


def labels_beside(path: Path) -> Path:
    """The file in which the labels of an array without a name are looked for."""
    return path.with_name(path.name.replace("logits", "labels"))


def read_table(
    table: Any,
    labels: str,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    kind: ScoreKind | None = None,
    classes: Sequence[str] = (),
    score_columns: Sequence[str] = (),
    fitted_by: Any = None,
) -> Rows:
    """Checked rows of a table in memory, with the columns that a file of it would have.

    A table is anything with `__arrow_c_stream__`, or a lazy frame of Polars. `labels`
    is the name of a column; weights and groups may be such, or arrays. Numbers that are
    used for nothing, and weights that nobody asked for, are warned of.
    """
    lazy = hasattr(table, "collect") and not hasattr(table, "__arrow_c_stream__")
    rows = tables.import_arrow("pyarrow").table(table.collect() if lazy else table)
    data = tables.arrow_table(TABLE, rows)
    named = named_columns(groups, data.names)
    known = {} if fitted_by is None else options_from(fitted_by.metadata_)
    wanted = Columns(
        kind=kind or known.get("kind"),
        score_columns=tuple(score_columns),
        label_column=labels,
        weight_column=sample_weight if isinstance(sample_weight, str) else None,
        groups=named,
        classes=tuple(classes),
        fitted_by=None if kind == "confidence" else fitted_by,
    )
    try:
        layout = Layout(data, wanted)
        found = layout.read(data)
    except DataFileError as error:  # in the words of Python
        text = (
            str(error).removeprefix(f"{TABLE}: ").replace("--label-column", "`labels`")
        )
        raise ValueError(re.sub("--([a-z]+)-columns", r"`\1_columns`", text)) from error
    if layout.unused and fitted_by is None:
        unused, scores = (
            ", ".join(names[:6]) for names in (layout.unused, layout.scores)
        )
        remedy = f"Scores are in {scores}; name others in `score_columns`."
        warn_user(
            f"columns of the table that are not used: {unused}. {remedy}",
            FitDataWarning,
        )
    if layout.weights is not None and sample_weight is None and fitted_by is None:
        remedy = "Name it as `sample_weight`, or rename it if it holds no weights."
        told = f"rows count by the column `{layout.weights}` of the table"
        warn_user(f"{told}. {remedy}", FitDataWarning)
    weights = (
        found.weights
        if wanted.weight_column or sample_weight is None
        else sample_weight
    )
    about = {k: v for k, v in found.about.items() if k != "scores" or v != "logits"}
    return found._replace(
        weights=weights, groups=found.groups if named else groups, about=about
    )


def options_from(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `read_examples` for files like the one of a fit, from what its
    calibrator stores.

    >>> options_from(
    ...     {
    ...         "scores": "probabilities",
    ...         "classes": ["a", "b"],
    ...         "score_columns": ["P(*)"],
    ...     }
    ... )
    {'kind': 'probabilities', 'score_columns': ('P(*)',), 'classes': ('a', 'b')}
    """
    found = {"kind": metadata["scores"]} if "scores" in metadata else {}
    columns = metadata.get("score_columns", ())
    if isinstance(columns, str):  # as version 0.3 stored them
        columns = columns.replace("{class}", "*").split(",")
    for name, names in (
        ("score_columns", columns),
        ("classes", metadata.get("classes")),
    ):
        found |= {name: tuple(names)} if names else {}
    return found | {
        name: metadata[name] for name in ("label_column", "zeros") if name in metadata
    }


class Layout:
    """Which columns or arrays of a table hold what, by the names given or by the
    convention.

    Attributes
    ----------
    scores, labels, weights, groups, kept : names; of labels and weights None if there
        are none, or if labels are not to be read
    kind : that of the scores, None if names do not say it
    columns, classes : names of the scores' columns, if there is one for each class, and
        of these
    part : the part that is read, if the file has parts
    unused : columns that are used for nothing, though they might hold scores
    """

    def __init__(self, table: Table, wanted: Columns) -> None:
        self.table = table
        self.wanted = wanted
        self.groups = tuple(table.require(name, "--groups") for name in wanted.groups)
        named = () if wanted.keep == ALL else wanted.keep or ()
        self.kept = tuple(
            table.require(name, "--keep, --cluster or --id-column") for name in named
        )
        self.labels = table.first(*LABELS)
        self.weights = table.first(*WEIGHTS)
        if wanted.label_column is not None and wanted.labelled == "some":
            self.labels = table.first(wanted.label_column) or self.labels
        elif wanted.label_column is not None:
            self.labels = table.require(wanted.label_column, "--label-column")
        if wanted.weight_column is not None:
            self.weights = table.require(wanted.weight_column, "`sample_weight`")
        self._taken = {self.labels, self.weights, *self.groups, *self.kept}
        kind, found = self._find_scores()
        by_class = self._as_in_fit(found)
        self.scores = tuple(by_class.values())
        self.kind = wanted.kind or kind
        if self.kind == "confidence" and wanted.label_column is None:
            self.labels = table.first(*RIGHT)
        # By such a column version 0.3 chose rows.
        if table.part is None and table.first("split") not in {
            None,
            *self._taken,
            *self.scores,
        }:
            remedy = (
                "Save its parts as tables of their own, or rename the column to use "
                "all rows."
            )
            raise table.error(
                "expected a table of one part; found a column `split`.", remedy
            )
        if wanted.keep is None or wanted.keep == ALL:
            rest = (name for name in table.names if name not in self.scores)
            self.kept = tuple(
                name for name in rest if wanted.keep == ALL or is_id(name)
            )
        self.columns = self.scores if len(self.scores) > 1 else ()
        named_by_class = self.columns and not all(map(str.isdecimal, by_class))
        self.classes = tuple(by_class) if named_by_class else ()
        if [*by_class] == [*found]:
            self.classes = wanted.classes or self.classes
        used: set[str | None] = {*table.names}
        if self.columns:
            used = {*self._taken, self.labels, *self.scores, *self.kept}
        own_part = table.part is not None and self.scores[0].lower().startswith(
            f"{table.part}_"
        )
        self.part = table.part if own_part else None
        self.unused = tuple(n for n in table.numbers if n not in used and not is_id(n))
        if wanted.labelled == "none":
            self.labels = None

    def _as_in_fit(self, found: Mapping[str, str]) -> Mapping[str, str]:
        """Columns by class in the order of the fit, if they are its columns.

        Others are refused, unless the user has named the columns or the classes.
        """
        wanted = self.wanted
        classes = [*found]
        columns = [*found.values()]
        known = wanted.known_columns
        names = wanted.known_classes
        if len(found) < 2:
            return found
        for own, theirs in ((classes, names), (classes, known), (columns, known)):
            if places := reading.match_columns(own, theirs):
                return {classes[k]: columns[k] for k in places}
        if known and not (wanted.score_columns or wanted.classes):
            remedy = "Rename them, or name the scores in the order of the fit: "
            remedy += "--score-columns NAMES."
            raise self.table.error(
                f"expected {reading.describe_columns(columns, known)}.", remedy
            )
        return found

    def _find_scores(self) -> tuple[ScoreKind | None, Mapping[str, str]]:
        """The kind of scores, if names say it, and the columns by class or by their
        own names.
        """
        table = self.table
        wanted = self.wanted
        by_kind = dict[ScoreKind, dict[str, str]]()
        if (names := wanted.score_columns) and "*" not in names[0]:
            option = (
                "--confidence" if wanted.kind == "confidence" else "--score-columns"
            )
            chosen = [table.require(name, option) for name in names]
            by_class = len(chosen) == len(wanted.classes) > 1
            return None, dict(
                zip(wanted.classes if by_class else names, chosen, strict=True)
            )
        if names:
            found = self._match(re.escape(names[0]).replace(r"\*", "(.+)", 1))
            if len(found) < 2:
                rule = f"expected columns like {names[0]}, one for every class"
                remedy = "Check --score-columns; `*` is the name of a class."
                raise table.error(f"{rule}; found {table.listed()}.", remedy)
            return None, self._in_order(found)
        if wanted.classes and all(map(table.first, wanted.classes)):
            return None, {
                name: table.require(name, "--classes") for name in wanted.classes
            }
        for kind, (whole, patterns) in _SCORES.items():
            if (name := table.first(*whole)) is not None:
                by_kind[kind] = {name: name}
            elif found := next(
                (own for each in patterns if len(own := self._match(each)) > 1), {}
            ):
                by_kind[kind] = found
        for kind, found in by_kind.items():
            if wanted.kind in (None, kind):
                return kind, found if len(found) == 1 else self._in_order(found)
        known = wanted.known_columns
        of_other_kind = {name for found in by_kind.values() for name in found.values()}
        if known and all(
            table.first(name) not in {None, *of_other_kind} for name in known
        ):
            return None, {name: table.require(name, "the fit") for name in known}
        if table.names == [NO_NAME]:
            return "logits", {NO_NAME: NO_NAME}
        if (
            not by_kind
            and self.labels
            and wanted.kind != "confidence"
            and len(table.names) > 2
        ):
            values = {
                str(value).strip() for value in table.read_column(self.labels).tolist()
            }
            values = {value for value in values if value.lower() not in MISSING}
            free = {
                name.strip(): name for name in table.names if name not in self._taken
            }
            if values and values <= {
                *free
            }:  # columns named like the values of the label
                return None, {name: free[name] for name in free if name in values}
        for kind, found in by_kind.items():
            if not all(name.strip().isdecimal() for name in found.values()):
                rule = f"expected {wanted.kind}, as asked for or as in the fit"
                problem = f"{rule}; found {kind} in `{next(iter(found.values()))}`."
                remedy = (
                    f"Pass {wanted.kind}, or use a calibrator that was fitted on "
                    f"{kind}."
                )
                raise table.error(problem, remedy)
        other = "test" if table.part == "val" else "val"
        there = table.part and any(
            name.lower().startswith(f"{other}_") for name in table.names
        )
        rule = (
            "expected scores in `logits`, `logit_*`, `probabilities`, `prob_*` or "
            "`confidence`"
        )
        remedy = f"Name the scores: --score-columns {self._possible_scores()}"
        remedy += f", or the part: --split {other}." if there else "."
        raise table.error(f"{rule}; found {table.listed()}.", remedy)

    def _possible_scores(self) -> str:
        """Up to four columns that hold numbers, and no label: whole numbers below
        their count.
        """
        most = dict[str, float]()
        for name in (
            n for n in self.table.names if n not in self._taken and not is_id(n)
        ):
            with suppress(DataFileError):
                values = self.table.read((name,), ())[0]
                if values.dtype.kind in "fiu" and values.size:
                    whole = values.min() >= 0 and np.array_equal(
                        values, np.floor(values)
                    )
                    most[name] = values.max() if whole and values.ndim == 1 else np.inf
            if len(most) > 5:
                break
        free = [name for name in most if most[name] >= len(most) - 1]
        return f"{','.join(free[:4]) or 'NAMES'}{',...' if len(free) > 4 else ''}"

    def _match(self, pattern: str) -> dict[str, str]:
        """Columns that match, by the class in their name; numbered ones alone if
        there are such.
        """
        own = re.compile(pattern, re.IGNORECASE)
        free = {*self.table.names} - self._taken
        matches = ((own.fullmatch(name.strip()), name) for name in self.table.names)
        found = {match[1]: name for match, name in matches if match and name in free}
        return {key: name for key, name in found.items() if key.isdecimal()} or found

    def _in_order(self, found: dict[str, str]) -> Mapping[str, str]:
        """Columns in the order of the classes: by number, or as they are asked for."""
        if all(map(str.isdecimal, found)):
            numbers = sorted(map(int, found))
            if numbers[0] > 1 or numbers != list(
                range(numbers[0], numbers[0] + len(numbers))
            ):
                problem = (
                    "expected columns of scores numbered 0, 1, 2, ...; found "
                    f"{numbers}."
                )
                remedy = (
                    "Add the missing columns, or name the columns: --score-columns "
                    "a,b,c."
                )
                raise self.table.error(problem, remedy)
            return dict(sorted(found.items(), key=lambda item: int(item[0])))
        classes = self.wanted.classes
        if missing := [name for name in classes if name not in found]:
            lost = ", ".join(f"`{name}`" for name in missing[:6])
            found_in = f"found none for {lost} among {self.table.listed()}"
            problem = f"expected a column for each class; {found_in}."
            raise self.table.error(problem, "Check --classes and --score-columns.")
        return {name: found[name] for name in classes} or found

    def find_labels(
        self, labels: Location | None, column: str | None
    ) -> tuple[Table, str] | None:
        """Another table that has the labels, and their name in it.

        It is the file that the user names; else, beside an array without a name, one of
        a matching name.
        """
        beside = labels_beside(self.table.path)
        if (
            self.table.names == [NO_NAME]
            and beside != self.table.path
            and beside.exists()
        ):
            labels = labels or beside
        if labels is None:
            return None
        other = tables.open_table(Path(labels), self.table.part or "val")
        found = other.first(*(LABELS if column is None else [column]))
        rest = [name for name in other.names if not is_id(name)]
        if found is None and len(rest) != 1:
            problem = f"expected labels in `label` or `y`; found {other.listed()}."
            raise other.error(problem, "Name them: --label-column NAME.")
        return other, found or rest[0]

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are no scores."""
        return tuple(
            filter(None, (self.labels, self.weights, *self.groups, *self.kept))
        )

    def read(self, table: Table, beside: tuple[Table, str] | None = None) -> Rows:
        """The examples of a table; their labels are in a column of it, or `beside`
        it.
        """
        wanted = self.wanted
        other, name = beside or (table, self.labels)
        scores, columns = table.read(self.scores, self.others)
        scores = scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores
        truth = np.full(len(scores), -1) if wanted.labelled == "some" else None
        if name is not None:
            column = columns[name] if other is table else other.read_column(name)
            with tables.report_file(other.path, other.place):
                truth = encode_labels(
                    column, self.classes, right=self.kind == "confidence"
                )
            if other is not table:
                truth = join_labels(
                    table, other, truth, all_known=wanted.labelled == "all"
                )
        weighted = self.weights is not None and truth is not None
        weights = to_numbers(columns[self.weights or ""]) if weighted else None
        all_labelled = wanted.labelled == "all" and truth is not None
        used = np.ones(len(scores), np.bool_)
        if wanted.drop_missing:
            known = np.where(truth == -1, np.nan, 0.0) if all_labelled else None
            for given in (scores, weights, known):
                used &= _has_values(given, len(used))
        rows = np.flatnonzero(used)

        def take(array: Any) -> Any:
            return array if array is None or used.all() else array[rows]

        with tables.report_file(table.path, lambda row: table.place(int(rows[row]))):
            scores = take(scores)
            kind = self.settle_kind(scores)
            found, n_classes = self._as_scores(scores, kind)
            weights = reading.as_weights(take(weights), len(rows), of_block=True)
        if truth is not None:
            with tables.report_file(other.path, other.place):
                truth = reading.as_partial_labels(truth, len(used), n_classes)
                if all_labelled and not wanted.drop_missing and -1 in truth:
                    raise ValueError(
                        "each row must have a label; got no label in row "
                        f"{np.argmin(truth)}. Fill it in, or leave out such rows: "
                        "--missing drop."
                    )
        return Rows(
            found,
            take(truth),
            weights,
            groups={name: to_numbers(take(columns[name])) for name in self.groups}
            or None,
            columns=self.columns,
            classes=() if kind == "confidence" else self.classes,
            about=self.about(kind),
            kind="confidence" if kind == "confidence" else "logits",
            used=used,
            part=self.part,
            kept={name: columns[name] for name in self.kept},
            unused=self.unused,
        )

    def read_logits(
        self, table: Table, beside: tuple[Table, str] | None = None
    ) -> Rows:
        """The same with logits (n, classes) as an array, of which a source of chunks
        consists.
        """
        rows = self.read(table, beside)
        if rows.kind == "confidence":
            problem = "expected logits or probabilities; found confidences."
            raise table.error(problem, "Read the file whole.")
        return rows._replace(scores=np.asarray(rows.scores.values))

    def about(self, kind: ScoreKind) -> dict[str, Any]:
        """What a calibrator has to remember, so that later files are read in the
        same way.
        """
        wanted = self.wanted
        zeros = self.wanted.zeros if kind == "probabilities" else None
        named = {
            "score_columns": [*wanted.score_columns],
            "label_column": wanted.label_column,
        }
        return {k: v for k, v in {"scores": kind, **named, "zeros": zeros}.items() if v}

    def settle_kind(self, values: AnyArray) -> ScoreKind:
        """What scores (n,) or (n, classes) are: as asked for, by their names or
        their values.
        """
        if self.wanted.kind is not None:
            return self.wanted.kind
        if (
            values.dtype.kind not in "fiu"
            or not values.size
            or self.kind == "confidence"
        ):
            return self.kind or "logits"
        inside = bool(values.min() >= 0.0)
        if (
            values.ndim == 1
            and self.kind != "probabilities"
            and inside
            and values.max() <= 1.0
        ):
            raise ValueError(
                f"`{self.scores[0] or 'logits'}` must be log-odds or probabilities of "
                "class 1; got one column in [0, 1], which can be either. Say what "
                "they are: --probabilities or --logits."
            )
        sums = values.sum(axis=1) if inside and values.ndim == 2 else np.zeros(1)
        if np.all(np.abs(sums - 100.0) <= 100.0 * SUM_SLACK):
            raise ValueError(
                "scores must be logits or probabilities, not percentages; got "
                f"{values[0].max():g} in row 0, and all rows sum to 100. Divide by "
                "100, or write them with the sign %."
            )
        sums_to_one = bool(np.all(np.abs(sums - 1.0) <= SUM_SLACK))
        return self.kind or ("probabilities" if sums_to_one else "logits")

    def _as_scores(self, given: Any, kind: ScoreKind) -> tuple[Any, int]:
        """Logits (n, classes), or confidences (n,); and how many classes."""
        if place := reading.first_true(~_has_values(given, len(given))):
            column = int(np.argmax(np.isnan(np.atleast_1d(given[place]).ravel())))
            name = (
                self.scores[column]
                if len(self.scores) > 1
                else self.scores[0] or column
            )
            raise ValueError(
                f"expected a number in row {place[0]}, column `{name}`; found none "
                "(empty, NA or NaN). Fill it in, or leave out such rows: --missing "
                "drop."
            )
        name = self.scores[0] if len(self.scores) == 1 and self.scores[0] else kind
        if kind == "confidence":
            if len(self.scores) == 1:
                reading.check_length(given, len(given), name)
            return np.asarray(given, np.float64), 2
        if kind == "probabilities":
            given = from_probabilities(given, zeros=self.wanted.zeros, name=name)
        elif given.ndim == 1:
            given = from_binary_scores(given, name=name)
        fitted = self.wanted.fitted_by
        if fitted is None:
            logits = as_logits(given, name=name)
        else:
            logits = as_logits(
                given,
                name=name,
                n_classes=fitted.n_classes_,
                owner=type(fitted).__name__,
            )
        classes = self.classes
        if classes and not len(classes) == len(set(classes)) == logits.n_classes:
            rule = (
                f"`classes` must name each of the {logits.n_classes} columns of scores "
                "once"
            )
            got = f"{len(classes)}: {', '.join(classes[:6])}"
            raise ValueError(f"{rule}; got {got}. Check --classes.")
        return logits, logits.n_classes


def encode_labels(
    labels: AnyArray, classes: Sequence[str], *, right: bool = False
) -> AnyArray:
    """Labels (n,) as column indices, -1 where there is none; `right` of confidences: 1
    or 0.

    Names of classes become their places. Numbers stay, unless the names are numbers;
    those that are not whole are left for the check that follows.

    >>> encode_labels(np.array(["dog", "NA", "cat"]), ["cat", "dog"])
    array([ 1, -1,  0])
    >>> encode_labels(np.array([2.0, np.nan]), [])
    array([ 2, -1])
    >>> encode_labels(np.array(["True", "0"]), [], right=True)
    array([1, 0])
    """
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    labels = reading.whole_numbers(
        labels.astype(int) if labels.dtype.kind == "b" else labels
    )
    by_number = bool(classes) and all(name.isdecimal() for name in classes)
    if labels.ndim != 1 or (labels.dtype.kind in "fiubc" and not by_number):
        return labels
    words = [str(label).strip() for label in labels.tolist()]
    known = {name: place for place, name in enumerate(classes)}
    if known.keys().isdisjoint(words):
        numbers = to_numbers(np.array(words))
        if numbers.dtype.kind == "f":
            return reading.whole_numbers(numbers)
        said = {*map(str.lower, words)} - {*MISSING, "-1"}
        known = _TRUTH if right or said <= {"true", "false"} else known
    known = dict.fromkeys((*MISSING, "-1"), -1) | known
    found = [known.get(word, known.get(word.lower())) for word in words]
    if None in found:
        rule = "labels must be column indices if the classes have no names"
        remedy = "Name the classes, class 0 first: --classes cat,dog,..."
        if right:
            rule = "labels of confidences must be 0 or 1, true or false"
            remedy = "Correct or drop it, or name another column: --label-column NAME."
        elif classes:
            listed = ", ".join(classes[:6]) + ", ..." * (len(classes) > 6)
            rule = f"labels must be names of classes ({listed})"
            remedy = "Correct or drop the row."
        unknown = [row for row, code in enumerate(found) if code is None]
        no_number = (row for row in unknown if tables.parse_number(words[row]) is None)
        row = next(no_number, unknown[0])
        raise ValueError(f"{rule}; got {words[row]!r} in row {row}. {remedy}")
    return np.array(found, np.int64)


def to_numbers(column: AnyArray) -> AnyArray:
    """Text or objects (n,) as numbers, NaN where a cell is empty, if all of them are
    numbers.
    """
    if column.dtype.kind not in "UTO":
        return column
    numbers = np.empty(len(column))
    for row, cell in enumerate(map(str, column.tolist())):
        number = tables.parse_number(cell)
        if number is None and cell.strip().lower() not in MISSING:
            return column
        numbers[row] = np.nan if number is None else number
    return numbers


def join_labels(
    table: Table, other: Table, labels: AnyArray, *, all_known: bool
) -> AnyArray:
    """Labels (n,) of another file in the order of a table: by id where both have
    such a column.
    """
    shared = [
        name for name in table.names if is_id(name) and other.first(name) is not None
    ]
    own = min(shared, key=len, default=None)
    if own is None:
        return labels
    ids = [str(each).strip() for each in table.read_column(own).tolist()]
    known = [
        str(each).strip()
        for each in other.read_column(other.require(own, "id")).tolist()
    ]
    for file, names in ((other, known), (table, ids)):
        twice, times = Counter(names).most_common(1)[0]
        if times > 1:
            raise file.error(
                f"expected each `{own}` once; found {twice!r} twice.", "Drop one."
            )
    place = np.array(look_up(ids, known))
    lost = np.flatnonzero(place == len(known))
    if lost.size and all_known:
        found = f"none for {ids[lost[0]]!r}, and {lost.size - 1:,} others"
        problem = (
            f"expected a label for each `{own}` of {table.path.name}; found {found}."
        )
        raise other.error(problem, "Add them, or drop these rows.")
    return np.asarray(np.append(labels, -1)[place])


def _has_values(column: AnyArray | None, n_rows: int) -> BoolArray:
    """Which rows (n,) have a value, or all; so of a column of another length,
    refused later.
    """
    if (
        column is None
        or column.dtype.kind != "f"
        or not column.size
        or len(column) != n_rows
    ):
        return np.ones(n_rows, np.bool_)
    return np.asarray(~np.isnan(column.reshape(n_rows, -1).max(axis=1)))
