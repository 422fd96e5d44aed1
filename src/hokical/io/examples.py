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
| members | `NAME:logit_*`, arrays `logits_NAME` or (members, n, classes); `io.ensembles` |

Upper and lower case are the same. `*` is the name of a class, or its number.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np

from hokical._core import reading
from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.checks import check_choice, show
from hokical._core.conversion import (
    SUM_SLACK,
    Zeros,
    from_binary_scores,
    from_probabilities,
)
from hokical._core.groups import look_up
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import Rows
from hokical._core.runtime import FitDataWarning, warn_user
from hokical._core.storage import as_path
from hokical.io import ensembles, tables
from hokical.io.ensembles import EnsembleLayout
from hokical.io.tables import MISSING, NO_NAME, TABLE, DataFileError, FileSplit, Table

if TYPE_CHECKING:
    from hokical.calibrators.calibrator import Calibrator

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
#: Columns of numbers that are looked at to suggest which may hold scores.
_MAX_CANDIDATES = 5
_TRUTH = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1}
#: Of whether an answer was right, too.
_RIGHT = _TRUTH | {"wrong": 0, "right": 1, "incorrect": 0, "correct": 1}


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
    #: Whether a row of scores may be empty, as that of a member that was not evaluated.
    of_member: bool = False
    weight_column: str | None = None

    @property
    def known_columns(self) -> tuple[str, ...]:
        """The columns of the fit, if there is one."""
        return () if self.fitted_by is None else self.fitted_by.schema_.columns

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The names of the classes of the fit, if there is one."""
        return () if self.fitted_by is None else self.fitted_by.class_names


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
        beside `right`; `sample_weight`. Several evaluations of each row are columns
        `NAME:logit_*`, arrays `logits_NAME` or one array (members, n, classes), and
        give an Ensemble; for a file of each see `read_ensemble`.
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
    wanted = columns_of(
        labels,
        fitted_by,
        labelled=labelled,
        kind=kind,
        score_columns=score_columns,
        label_column=label_column,
        classes=classes,
        groups=groups,
        keep=keep,
        missing=missing,
        zeros=zeros,
    )
    table = tables.open_table(as_path(path), split)
    layout = find_layout(table, wanted)
    return read_layout(layout, labels, label_column)


class ReadOptions(TypedDict, total=False):
    """Options of `read_examples` that say what is read of a file."""

    labelled: Labelled
    kind: ScoreKind | None
    score_columns: tuple[str, ...]
    label_column: str | None
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    keep: tuple[str, ...] | None
    missing: Literal["error", "drop"]
    zeros: Zeros


def columns_of(
    labels: Location | None,
    fitted_by: Calibrator | None = None,
    **options: Unpack[ReadOptions],
) -> Columns:
    """What `read_examples` reads, by its options."""
    wanted: dict[str, Any] = {**options}
    check_choice("labelled", wanted.get("labelled", "all"), Labelled)
    drop_missing = wanted.pop("missing", "error") == "drop"
    if wanted.get("labelled") == "none" or labels is not None:
        wanted.pop("label_column", None)
    return Columns(**wanted, drop_missing=drop_missing, fitted_by=fitted_by)


def find_layout(table: Table, wanted: Columns) -> Layout | EnsembleLayout:
    """Which columns hold what, of one row of scores for each example or of several."""
    fitted = wanted.fitted_by
    members = _find_members(table, wanted)
    ensembles.check_members(table, len(members), fitted)
    if not members:
        return Layout(table, wanted)
    of_first = replace(wanted, of_member=True)
    of_others = Columns(
        wanted.kind,
        zeros=wanted.zeros,
        labelled="none",
        fitted_by=fitted,
        of_member=True,
    )
    layouts = dict[str, Layout]()
    for name, member_table in members.items():
        layouts[name] = Layout(member_table, of_others if layouts else of_first)
        classes = next(iter(layouts.values())).classes
        of_others = replace(of_others, classes=classes)
    named = ensembles.are_named(table)
    return EnsembleLayout(layouts, ensembles.is_exchangeable(fitted), named)


def _find_members(table: Table, wanted: Columns) -> dict[str, Table]:
    """The tables of the members of a file; none if it has one row of scores."""
    if wanted.score_columns or wanted.kind == "confidence":
        return {}
    named = ensembles.named_members(table)
    members = named or ensembles.stacked_members(table)
    fitted = wanted.fitted_by
    if fitted is not None and fitted.schema_.members is not None:
        return members
    has_other_scores = named and _names_scores(ensembles.others(table))
    return {} if has_other_scores or len(members) < 2 else members


def _names_scores(names: Sequence[str]) -> bool:
    """Whether columns of these names are scores by the convention."""
    for array_names, patterns in _SCORES.values():
        if {*map(str.lower, names)} & {*array_names}:
            return True
        for pattern in patterns:
            regex = re.compile(pattern, re.IGNORECASE)
            if sum(regex.fullmatch(name.strip()) is not None for name in names) > 1:
                return True
    return False


def read_layout(
    layout: Layout | EnsembleLayout,
    labels: Location | None,
    label_column: str | None,
) -> Rows:
    """The rows of a table, with labels of their own or of another file."""
    labelled = layout.wanted.labelled
    table = layout.table
    beside = None if labelled == "none" else layout.find_labels(labels, label_column)
    if labelled == "all" and beside is None and layout.labels is None:
        raise table.error(
            f"expected labels in `label` or `y`; found {table.listed()}.",
            "Name the column, --label-column NAME, or the file that has them, "
            "--labels FILE.",
        )
    return layout.read(table, beside)


def read_late_labels(
    path: Location, id_column: str, right: bool, columns: Mapping[str, Any]
) -> tuple[AnyArray, AnyArray] | None:
    """Ids and labels (n,) of a file without scores; None if it is another one.

    `columns` are the label_column, classes and score_columns of the fit, where they are
    known. A file has scores if it has one of the score_columns, or columns whose names
    say that they are scores. Labels are class indices, or of confidences 1 if `right`;
    -1 where there is none.
    """
    table = tables.open_table(Path(path), "test")
    ids = table.first(id_column)
    labels = table.first(*filter(None, (columns.get("label_column"), *LABELS)))
    other_names = [name for name in table.names if name != ids]
    has_scores = not {*columns.get("score_columns", ())}.isdisjoint(other_names)
    if labels is None and len(other_names) == 1:
        labels = other_names[0]
    if ids is None or labels is None or has_scores:
        return None
    with suppress(DataFileError):
        Layout(table, Columns(label_column=labels))
        return None  # as it has scores
    with tables.report_file(table.path, table.place):
        codes = encode_labels(
            table.read_column(labels), columns.get("classes", ()), right=right
        )
    return table.read_column(ids), codes


def named_columns(groups: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that groups name, alone or in a list; none if they are given in
    another way.
    """
    names = [groups] if isinstance(groups, str) else groups
    are_columns = isinstance(names, (list, tuple)) and {*map(str, names)} <= {*columns}
    return tuple(names) if are_columns else ()


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
    arrow = tables.import_arrow("pyarrow")
    try:
        rows = arrow.table(table.collect() if lazy else table)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "`labels` must be an array, or the name of a column where the scores are a "
            f"table; got {show(labels)} and a {type(table).__name__}."
        ) from error
    data = tables.arrow_table(TABLE, rows)
    group_columns = named_columns(groups, data.names)
    options = {} if fitted_by is None else options_from(fitted_by.metadata_)
    wanted = Columns(
        kind=kind or options.get("kind"),
        score_columns=tuple(score_columns),
        label_column=labels,
        weight_column=sample_weight if isinstance(sample_weight, str) else None,
        groups=group_columns,
        classes=tuple(classes),
        fitted_by=None if kind == "confidence" else fitted_by,
    )
    try:
        layout = find_layout(data, wanted)
        examples = layout.read(data)
    except DataFileError as error:
        raise ValueError(_in_words_of_python(error)) from error
    if fitted_by is None:
        _warn_of_columns(layout, has_weights=sample_weight is not None)
    weights = sample_weight
    if wanted.weight_column or sample_weight is None:
        weights = examples.weights
    metadata = dict(examples.about)
    if metadata.get("scores") == "logits":
        del metadata["scores"]
    return replace(
        examples,
        weights=weights,
        groups=examples.groups if group_columns else groups,
        about=metadata,
    )


def _in_words_of_python(error: DataFileError) -> str:
    """The message of an error, with arguments in the place of options of commands."""
    text = str(error).removeprefix(f"{TABLE}: ").replace("--label-column", "`labels`")
    return re.sub("--([a-z]+)-columns", r"`\1_columns`", text)


def _warn_of_columns(layout: Layout | EnsembleLayout, *, has_weights: bool) -> None:
    """Warn of columns of a table that are not used, and of weights that are."""
    if layout.unused:
        unused = ", ".join(layout.unused[:6])
        scores = ", ".join(layout.scores[:6])
        warn_user(
            f"columns of the table that are not used: {unused}. Scores are in "
            f"{scores}; name others in `score_columns`.",
            FitDataWarning,
        )
    if layout.weights is not None and not has_weights:
        warn_user(
            f"rows count by the column `{layout.weights}` of the table. Name it as "
            "`sample_weight`, or rename it if it holds no weights.",
            FitDataWarning,
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
    options = {"kind": metadata["scores"]} if "scores" in metadata else {}
    columns = metadata.get("score_columns", ())
    if isinstance(columns, str):  # as version 0.3 stored them
        columns = columns.replace("{class}", "*").split(",")
    for name, names in (
        ("score_columns", columns),
        ("classes", metadata.get("classes")),
    ):
        options |= {name: tuple(names)} if names else {}
    return options | {
        name: metadata[name] for name in ("label_column", "zeros") if name in metadata
    }


@dataclass(frozen=True)
class ScoreColumns:
    """Columns of scores by class, or by their own names, and what the scores are, if
    names say it.
    """

    kind: ScoreKind | None
    by_class: Mapping[str, str]


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
        self.kept: tuple[str, ...] = ()
        if wanted.keep not in (None, ALL):
            option = "--keep, --cluster or --id-column"
            self.kept = tuple(table.require(name, option) for name in wanted.keep or ())
        self.labels = self._find_label_column()
        self.weights = table.first(*WEIGHTS)
        if wanted.weight_column is not None:
            self.weights = table.require(wanted.weight_column, "`sample_weight`")
        self._taken = {self.labels, self.weights, *self.groups, *self.kept}
        score_columns = self._find_scores()
        by_class = self._as_in_fit(score_columns.by_class)
        self.scores = tuple(by_class.values())
        self.kind = wanted.kind or score_columns.kind
        if self.kind == "confidence" and wanted.label_column is None:
            self.labels = table.first(*RIGHT)
        self._refuse_parts()
        if wanted.keep is None or wanted.keep == ALL:
            self.kept = tuple(
                name
                for name in table.names
                if name not in self.scores and (wanted.keep == ALL or is_id(name))
            )
        self.columns = self.scores if len(self.scores) > 1 else ()
        named_by_class = self.columns and not all(map(str.isdecimal, by_class))
        self.classes = tuple(by_class) if named_by_class else ()
        if [*by_class] == [*score_columns.by_class]:
            self.classes = wanted.classes or self.classes
        is_of_part = table.part is not None and self.scores[0].lower().startswith(
            f"{table.part}_"
        )
        self.part = table.part if is_of_part else None
        self.unused = self._unused_columns()
        if wanted.labelled == "none":
            self.labels = None

    def _find_label_column(self) -> str | None:
        """The column of the labels: that which is named, or by the convention."""
        name = self.wanted.label_column
        by_convention = self.table.first(*LABELS)
        if name is None:
            return by_convention
        if self.wanted.labelled == "some":
            return self.table.first(name) or by_convention
        return self.table.require(name, "--label-column")

    def _refuse_parts(self) -> None:
        """Raise if a column chooses rows, as it did in version 0.3."""
        table = self.table
        used = {None, *self._taken, *self.scores}
        if table.part is None and table.first("split") not in used:
            raise table.error(
                "expected a table of one part; found a column `split`.",
                "Save its parts as tables of their own, or rename the column to use "
                "all rows.",
            )

    def _unused_columns(self) -> tuple[str, ...]:
        """Columns of numbers that are used for nothing, beside columns by class."""
        if not self.columns:
            return ()
        used = {*self._taken, self.labels, *self.scores, *self.kept}
        return tuple(
            name for name in self.table.numbers if name not in used and not is_id(name)
        )

    def _as_in_fit(self, by_class: Mapping[str, str]) -> Mapping[str, str]:
        """Columns by class in the order of the fit, if they are its columns.

        Others are refused, unless the user has named the columns or the classes.
        """
        wanted = self.wanted
        if len(by_class) < 2:
            return by_class
        classes = [*by_class]
        columns = [*by_class.values()]
        columns_of_fit = wanted.known_columns
        for names, names_of_fit in (
            (classes, wanted.known_classes),
            (classes, columns_of_fit),
            (columns, columns_of_fit),
        ):
            if order := reading.match_columns(names, names_of_fit):
                return {classes[k]: columns[k] for k in order}
        if columns_of_fit and not (wanted.score_columns or wanted.classes):
            raise self.table.error(
                f"expected {reading.describe_columns(columns, columns_of_fit)}.",
                "Rename them, or name the scores in the order of the fit: "
                "--score-columns NAMES.",
            )
        return by_class

    def _find_scores(self) -> ScoreColumns:
        """The columns of the scores, by what the user names, by the convention, or as
        in the fit.
        """
        named = self._named_scores()
        if named:
            return ScoreColumns(None, named)
        by_kind = self._scores_by_convention()
        for kind, columns in by_kind.items():
            if self.wanted.kind in (None, kind):
                ordered = columns if len(columns) == 1 else self._in_order(columns)
                return ScoreColumns(kind, ordered)
        columns_of_fit = self._scores_of_fit(by_kind)
        if columns_of_fit:
            return ScoreColumns(None, columns_of_fit)
        if self.table.names == [NO_NAME]:
            return ScoreColumns("logits", {NO_NAME: NO_NAME})
        named_like_labels = {} if by_kind else self._columns_named_like_labels()
        if named_like_labels:
            return ScoreColumns(None, named_like_labels)
        self._refuse_other_kinds(by_kind)
        raise self._no_scores()

    def _named_scores(self) -> Mapping[str, str]:
        """Columns by class that the options name; none if they name none."""
        wanted = self.wanted
        table = self.table
        names = wanted.score_columns
        if names and "*" in names[0]:
            columns = self._match(re.escape(names[0]).replace(r"\*", "(.+)", 1))
            if len(columns) < 2:
                raise table.error(
                    f"expected columns like {names[0]}, one for every class; found "
                    f"{table.listed()}.",
                    "Check --score-columns; `*` is the name of a class.",
                )
            return self._in_order(columns)
        if names:
            is_confidence = wanted.kind == "confidence"
            option = "--confidence" if is_confidence else "--score-columns"
            chosen = [table.require(name, option) for name in names]
            by_class = len(chosen) == len(wanted.classes) > 1
            return dict(zip(wanted.classes if by_class else names, chosen, strict=True))
        if wanted.classes and all(map(table.first, wanted.classes)):
            return {name: table.require(name, "--classes") for name in wanted.classes}
        return {}

    def _scores_by_convention(self) -> dict[ScoreKind, dict[str, str]]:
        """Columns by class of each kind that the names of columns say."""
        by_kind = dict[ScoreKind, dict[str, str]]()
        for kind, (array_names, patterns) in _SCORES.items():
            name = self.table.first(*array_names)
            if name is not None:
                by_kind[kind] = {name: name}
                continue
            for pattern in patterns:
                columns = self._match(pattern)
                if len(columns) > 1:
                    by_kind[kind] = columns
                    break
        return by_kind

    def _scores_of_fit(
        self, by_kind: Mapping[ScoreKind, Mapping[str, str]]
    ) -> Mapping[str, str]:
        """The columns of the fit, if the table has all of them as no other scores."""
        names = self.wanted.known_columns
        other_scores = {
            name for columns in by_kind.values() for name in columns.values()
        }
        if all(self.table.first(name) not in {None, *other_scores} for name in names):
            return {name: self.table.require(name, "the fit") for name in names}
        return {}

    def _columns_named_like_labels(self) -> Mapping[str, str]:
        """Columns that are named like the values of the label; none if some are not."""
        table = self.table
        few = len(table.names) <= 2
        if not self.labels or self.wanted.kind == "confidence" or few:
            return {}
        values = {
            str(value).strip() for value in table.read_column(self.labels).tolist()
        }
        values = {value for value in values if value.lower() not in MISSING}
        free = {name.strip(): name for name in table.names if name not in self._taken}
        if not values <= {*free}:
            return {}
        return {name: column for name, column in free.items() if name in values}

    def _refuse_other_kinds(
        self, by_kind: Mapping[ScoreKind, Mapping[str, str]]
    ) -> None:
        """Raise if there are scores of another kind than is wanted, but for numbered
        columns.
        """
        wanted_kind = self.wanted.kind
        for kind, columns in by_kind.items():
            if not all(name.strip().isdecimal() for name in columns.values()):
                raise self.table.error(
                    f"expected {wanted_kind}, as asked for or as in the fit; found "
                    f"{kind} in `{next(iter(columns.values()))}`.",
                    f"Pass {wanted_kind}, or use a calibrator that was fitted on "
                    f"{kind}.",
                )

    def _no_scores(self) -> DataFileError:
        """That no column says that it holds scores, and which might."""
        table = self.table
        if {"format_version", "library_version", "checksum"} <= set(table.names):
            return table.error(
                "expected scores; found a calibrator that `fit` saved.",
                "Pass a file with scores, such as `logits` or `probabilities`.",
            )
        members = list(ensembles.named_members(table))
        if members:
            return table.error(
                "expected one row of scores for each example; found members of an "
                f"ensemble ({', '.join(members[:4])}{', ...' * (len(members) > 4)}).",
                "An ensemble is read from one file, not in parts. Or name the scores "
                f"of one member: --score-columns '{members[0]}:logit_*'.",
            )
        other_part = "test" if table.part == "val" else "val"
        has_other_part = table.part and any(
            name.lower().startswith(f"{other_part}_") for name in table.names
        )
        of_right = {*RIGHT} - {*LABELS}
        are_confidences = of_right & {name.lower() for name in table.names}
        option = "--confidence" if are_confidences else "--score-columns"
        remedy = f"Name the scores: {option} {self._possible_scores()}"
        remedy += f", or the part: --split {other_part}." if has_other_part else "."
        return table.error(
            "expected scores in `logits`, `logit_*`, `probabilities`, `prob_*` or "
            f"`confidence`; found {table.listed()}.",
            remedy,
        )

    def _possible_scores(self) -> str:
        """Up to four columns that hold numbers, and no label: whole numbers below
        their count.
        """
        highest = dict[str, float]()
        for name in self.table.names:
            if name in self._taken or is_id(name):
                continue
            with suppress(DataFileError):
                values = self.table.read((name,), ())[0]
                if values.dtype.kind in "fiu" and values.size:
                    highest[name] = values.max() if _are_codes(values) else np.inf
            if len(highest) > _MAX_CANDIDATES:
                break
        names = [name for name in highest if highest[name] >= len(highest) - 1]
        return f"{','.join(names[:4]) or 'NAMES'}{',...' if len(names) > 4 else ''}"

    def _match(self, pattern: str) -> dict[str, str]:
        """Columns that match, by the class in their name; numbered ones alone if
        there are such.
        """
        regex = re.compile(pattern, re.IGNORECASE)
        by_class = dict[str, str]()
        for name in self.table.names:
            match = regex.fullmatch(name.strip())
            if match and name not in self._taken:
                by_class[match[1]] = name
        numbered = {key: name for key, name in by_class.items() if key.isdecimal()}
        return numbered or by_class

    def _in_order(self, by_class: dict[str, str]) -> Mapping[str, str]:
        """Columns in the order of the classes: by number, or as they are asked for."""
        if all(map(str.isdecimal, by_class)):
            numbers = sorted(map(int, by_class))
            if numbers[0] > 1 or numbers != list(
                range(numbers[0], numbers[0] + len(numbers))
            ):
                raise self.table.error(
                    "expected columns of scores numbered 0, 1, 2, ...; found "
                    f"{numbers}.",
                    "Add the missing columns, or name the columns: --score-columns "
                    "a,b,c.",
                )
            return dict(sorted(by_class.items(), key=lambda item: int(item[0])))
        classes = self.wanted.classes
        if missing := [name for name in classes if name not in by_class]:
            listed = ", ".join(f"`{name}`" for name in missing[:6])
            raise self.table.error(
                f"expected a column for each class; found none for {listed} among "
                f"{self.table.listed()}.",
                "Check --classes and --score-columns.",
            )
        return {name: by_class[name] for name in classes} or by_class

    def find_labels(
        self, labels: Location | None, column: str | None
    ) -> tuple[Table, str] | None:
        """Another table that has the labels, and their name in it.

        It is the file that the user names; else, beside an array without a name, one of
        a matching name.
        """
        path = self.table.path
        path_beside = labels_beside(path)
        has_no_name = self.table.names == [NO_NAME]
        if has_no_name and path_beside != path and path_beside.exists():
            labels = labels or path_beside
        if labels is None:
            return None
        label_table = tables.open_table(Path(labels), self.table.part or "val")
        name = label_table.first(*(LABELS if column is None else [column]))
        candidates = [name for name in label_table.names if not is_id(name)]
        if name is None and len(candidates) != 1:
            raise label_table.error(
                f"expected labels in `label` or `y`; found {label_table.listed()}.",
                "Name them: --label-column NAME.",
            )
        return label_table, name or candidates[0]

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
        label_table, label_name = beside or (table, self.labels)
        values, columns = table.read(self.scores, self.others)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        labels = None
        if self.wanted.labelled == "some":
            labels = np.full(len(values), -1)
        if label_name is not None:
            own_column = columns[label_name] if label_table is table else None
            labels = self._read_labels(table, label_table, label_name, own_column)
        weights = None
        if self.weights is not None and labels is not None:
            weights = to_numbers(columns[self.weights])
        used = self._used_rows(values, weights, labels)
        rows = np.flatnonzero(used)

        def take(array: Any) -> Any:
            return array if array is None or used.all() else array[rows]

        scores, kind, n_classes = self._read_scores(table, take(values), rows)
        with tables.report_file(table.path, lambda row: table.place(int(rows[row]))):
            weights = reading.as_weights(take(weights), len(rows), of_block=True)
        if labels is not None:
            with tables.report_file(label_table.path, label_table.place):
                labels = self._check_labels(labels, len(used), n_classes)
        groups = {name: to_numbers(take(columns[name])) for name in self.groups}
        return Rows(
            scores,
            take(labels),
            weights,
            groups=groups or None,
            columns=self.columns,
            classes=() if kind == "confidence" else self.classes,
            about=self.about(kind),
            kind="confidence" if kind == "confidence" else "logits",
            used=used,
            part=self.part,
            kept={name: table.as_written(name, columns[name]) for name in self.kept},
            unused=self.unused,
        )

    def _read_scores(
        self, table: Table, values: AnyArray, rows: IntArray
    ) -> tuple[Logits | AnyArray, ScoreKind, int]:
        """The checked scores of these rows of a table, their kind, and the number of
        classes.

        Of a member of an ensemble, rows without any value stay NaN.
        """
        evaluated = np.ones(len(values), np.bool_)
        if self.wanted.of_member:
            evaluated = _has_any_value(values)
        scored = rows[evaluated]
        with tables.report_file(table.path, lambda row: table.place(int(scored[row]))):
            evaluated_values = values if evaluated.all() else values[evaluated]
            kind = self.settle_kind(evaluated_values)
            scores, n_classes = self._as_scores(evaluated_values, kind)
        if self.wanted.of_member:
            scores = _spread(np.asarray(scores.values), evaluated)
        return scores, kind, n_classes

    def _read_labels(
        self, table: Table, label_table: Table, name: str, column: AnyArray | None
    ) -> AnyArray:
        """Labels (n,) in the order of the table, of its own column or of a file
        beside it.
        """
        values = label_table.read_column(name) if column is None else column
        with tables.report_file(label_table.path, label_table.place):
            labels = encode_labels(
                values, self.classes, right=self.kind == "confidence"
            )
        if label_table is table:
            return labels
        all_known = self.wanted.labelled == "all"
        return join_labels(table, label_table, labels, all_known=all_known)

    def _used_rows(
        self, values: AnyArray, weights: AnyArray | None, labels: AnyArray | None
    ) -> BoolArray:
        """Which rows (n,) are used: all, or those that lack nothing."""
        used = np.ones(len(values), np.bool_)
        if not self.wanted.drop_missing:
            return used
        if self.wanted.labelled == "all" and labels is not None:
            used &= labels != -1
        used &= _has_values(weights, used.size)
        return used if self.wanted.of_member else used & self._has_scores(values)

    def _has_scores(self, values: AnyArray) -> BoolArray:
        """Which rows (n,) have their scores; of several signals one is enough."""
        if self.kind == "confidence" and len(self.scores) > 1:
            return _has_any_value(values)
        return _has_values(values, len(values))

    def _check_labels(self, labels: AnyArray, n_rows: int, n_classes: int) -> AnyArray:
        """Labels (n,), -1 where there is none, if rows may lack one."""
        checked = reading.as_partial_labels(labels, n_rows, n_classes)
        wanted = self.wanted
        if wanted.labelled == "all" and not wanted.drop_missing and -1 in checked:
            raise ValueError(
                "each row must have a label; got no label in row "
                f"{np.argmin(checked)}. Fill it in, or leave out such rows: "
                "--missing drop."
            )
        return checked

    def read_logits(
        self, table: Table, beside: tuple[Table, str] | None = None
    ) -> Rows:
        """The same with logits (n, classes) as an array, of which a source of chunks
        consists.
        """
        rows = self.read(table, beside)
        if rows.kind == "confidence":
            raise table.error(
                "expected logits or probabilities; found confidences.",
                "Read the file whole.",
            )
        return replace(rows, scores=np.asarray(rows.scores.values))

    def about(self, kind: ScoreKind) -> dict[str, Any]:
        """What a calibrator has to remember, so that later files are read in the
        same way.
        """
        wanted = self.wanted
        facts = {
            "scores": kind,
            "score_columns": [*wanted.score_columns],
            "label_column": wanted.label_column,
            "zeros": wanted.zeros if kind == "probabilities" else None,
        }
        return {name: value for name, value in facts.items() if value}

    def settle_kind(self, values: AnyArray) -> ScoreKind:
        """What scores (n,) or (n, classes) are: as asked for, by their names or
        their values.
        """
        if self.wanted.kind is not None:
            return self.wanted.kind
        is_numeric = values.dtype.kind in "fiu" and values.size
        if self.kind == "confidence" or not is_numeric:
            return self.kind or "logits"
        is_nonnegative = values.min() >= 0.0
        is_unclear = values.ndim == 1 and self.kind != "probabilities"
        if is_unclear and is_nonnegative and values.max() <= 1.0:
            raise ValueError(
                f"`{self.scores[0] or 'logits'}` must be log-odds or probabilities of "
                "class 1; got one column in [0, 1], which can be either. Say what "
                "they are: --probabilities or --logits."
            )
        sums = np.zeros(1)
        if values.ndim == 2 and is_nonnegative:
            sums = values.sum(axis=1)
        if np.all(np.abs(sums - 100.0) <= 100.0 * SUM_SLACK):
            raise ValueError(
                "scores must be logits or probabilities, not percentages; got "
                f"{values[0].max():g} in row 0, and all rows sum to 100. Divide by "
                "100, or write them with the sign %."
            )
        sums_to_one = bool(np.all(np.abs(sums - 1.0) <= SUM_SLACK))
        return self.kind or ("probabilities" if sums_to_one else "logits")

    def _as_scores(self, values: AnyArray, kind: ScoreKind) -> tuple[Any, int]:
        """Logits (n, classes), or confidences (n,); and how many classes."""
        if index := reading.first_true(~self._has_scores(values)):
            column = int(np.argmax(np.isnan(np.atleast_1d(values[index]).ravel())))
            name = self.scores[column if len(self.scores) > 1 else 0] or column
            raise ValueError(
                f"expected a number in row {index[0]}, column `{name}`; found none "
                "(empty, NA or NaN). Fill it in, or leave out such rows: --missing "
                "drop."
            )
        name = self.scores[0] if len(self.scores) == 1 and self.scores[0] else kind
        if kind == "confidence":
            if len(self.scores) == 1:
                reading.check_length(values, len(values), name)
            return np.asarray(values, np.float64), 2
        if kind == "probabilities":
            values = from_probabilities(values, zeros=self.wanted.zeros, name=name)
        elif values.ndim == 1:
            values = from_binary_scores(values, name=name)
        fitted = self.wanted.fitted_by
        n_classes = None if fitted is None else fitted.n_classes_
        logits = as_logits(
            values, name=name, n_classes=n_classes, owner=type(fitted).__name__
        )
        classes = self.classes
        if classes and not len(classes) == len(set(classes)) == logits.n_classes:
            raise ValueError(
                f"`classes` must name each of the {logits.n_classes} columns of scores "
                f"once; got {len(classes)}: {', '.join(classes[:6])}. Check --classes."
            )
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
    texts = [str(label).strip() for label in labels.tolist()]
    codes: dict[str, int] = {name: code for code, name in enumerate(classes)}
    if codes.keys().isdisjoint(texts):
        numbers = to_numbers(np.array(texts))
        if numbers.dtype.kind == "f":
            return reading.whole_numbers(numbers)
        values = {*map(str.lower, texts)} - {*MISSING, "-1"}
        if right:
            codes = _RIGHT
        elif values <= {"true", "false"}:
            codes = _TRUTH
    codes = dict.fromkeys((*MISSING, "-1"), -1) | codes
    encoded = [codes.get(text, codes.get(text.lower())) for text in texts]
    unknown = [row for row, code in enumerate(encoded) if code is None]
    if unknown:
        no_number = (row for row in unknown if tables.parse_number(texts[row]) is None)
        row = next(no_number, unknown[0])
        message, remedy = _label_rule(classes, right=right)
        raise ValueError(f"{message}; got {texts[row]!r} in row {row}. {remedy}")
    return np.array(encoded, np.int64)


def _label_rule(classes: Sequence[str], *, right: bool) -> tuple[str, str]:
    """What labels must be, and what to do about others."""
    if right:
        return (
            "labels of confidences must be 0 or 1, true or false, yes or no, right or "
            "wrong, correct or incorrect",
            "Correct or drop it, or name another column: --label-column NAME.",
        )
    if classes:
        listed = ", ".join(classes[:6]) + ", ..." * (len(classes) > 6)
        return f"labels must be names of classes ({listed})", "Correct or drop the row."
    return (
        "labels must be column indices if the classes have no names",
        "Name the classes, class 0 first: --classes cat,dog,...",
    )


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
    table: Table, label_table: Table, labels: AnyArray, *, all_known: bool
) -> AnyArray:
    """Labels (n,) of another file in the order of a table: by id where both have
    such a column.
    """
    shared = [name for name in find_ids(table) if label_table.first(name) is not None]
    id_column = min(shared, key=len, default=None)
    if id_column is None:
        return labels
    ids = read_ids(table, id_column)
    label_ids = read_ids(label_table, label_table.require(id_column, "id"))
    index = np.array(look_up(ids, label_ids))
    missing = np.flatnonzero(index == len(label_ids))
    if missing.size and all_known:
        raise label_table.error(
            f"expected a label for each `{id_column}` of {table.path.name}; found none "
            f"for {ids[missing[0]]!r}, and {missing.size - 1:,} others.",
            "Add them, or drop these rows.",
        )
    return np.asarray(np.append(labels, -1)[index])


def find_ids(table: Table) -> list[str]:
    """The columns of ids, by their names."""
    return [name for name in table.names if is_id(name)]


def read_ids(table: Table, column: str) -> list[str]:
    """The ids of a column, each of which must occur once."""
    ids = [str(value).strip() for value in table.read_column(column).tolist()]
    for duplicate, count in Counter(ids).most_common(1):
        if count > 1:
            raise table.error(
                f"expected each `{column}` once; found {duplicate!r} twice.",
                "Drop one.",
            )
    return ids


def _are_codes(values: AnyArray) -> bool:
    """Whether a column (n,) holds whole numbers from 0 on."""
    return bool(
        values.ndim == 1
        and values.min() >= 0
        and np.array_equal(values, np.floor(values))
    )


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


def _has_any_value(values: AnyArray) -> BoolArray:
    """In which rows (n,) there is a score; a member was not evaluated in the others."""
    if values.dtype.kind != "f":
        return np.ones(len(values), np.bool_)
    return np.asarray(~np.isnan(values.reshape(len(values), -1)).all(axis=1))


def _spread(values: AnyArray, evaluated: BoolArray) -> FloatArray:
    """Logits (n, classes) in their places, NaN where a member was not evaluated."""
    spread = np.full((len(evaluated), values.shape[1]), np.nan)
    spread[evaluated] = values
    return spread
