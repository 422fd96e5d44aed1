"""The options of all commands, each defined once, and what they name: data,
calibrators, methods.

A name means the same everywhere. Outputs replace no input.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
import typer

import hokical
from hokical._core import reading
from hokical._core.arrays import AnyArray
from hokical._core.logits import Logits
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.io import ensembles, examples, tables
from hokical.rules.members import PooledMembers
from hokical.stability.noise import parse_noise

if TYPE_CHECKING:  # help pages are fast without calibrators
    from hokical.calibrators.stored import StoredEstimator

    #: The calibrator whose fit says how data are read, if there is one.
    Fitted = StoredEstimator | None

#: Some class of calibrators.
Method = TypeVar("Method", bound="StoredEstimator")
#: What to do with rows that lack a score or a label.
Missing = StrEnum("Missing", ["error", "drop"])
#: The examples to use of a file that holds a validation and a test set.
Part = StrEnum("Part", ["val", "test"])
#: For which examples the coverage is guaranteed; see `Calibrator.predict_set`.
Coverages = StrEnum("Coverages", ["all", "class", "group", "label", "new group"])


def option(description: str, *names: str, **settings: Any) -> Any:
    """An option with its help text first; typer derives names that are not given."""
    counts = {"metavar": "<int>"} if "min" in settings else {}
    return typer.Option(*names, help=description, **counts | settings)


def argument(name: str, description: str, **settings: Any) -> Any:
    """An argument that the help page calls by a name in capitals."""
    return typer.Argument(metavar=name, help=description, **settings)


def complete_method(incomplete: str) -> list[str]:
    """Names of methods with this beginning, for the shell's completion."""
    names = ("auto", *hokical.calibrators.method_names())
    return [name for name in names if name.startswith(incomplete)]


def split_names(text: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


#: Options that say how data are read have a part of their own on help pages.
_DATA: dict[str, Any] = {"rich_help_panel": "Input format"}
_COLUMN = _DATA | {"metavar": "COLUMN"}
_COLUMNS = _DATA | {"metavar": "COLUMNS"}

#: Options with names, of which a command takes several: after commas, or repeated.
REPEATABLE = frozenset({"score_columns", "classes", "confidence", "groups", "keep"})

#: By the name of a command's parameter, whose type and default its function says.
OPTIONS: dict[str, Any] = {
    "calibrator": argument("CALIBRATOR", "File that `fit` saved."),
    "data": argument("FILE", "New logits; labels are not needed."),
    "val": argument(
        "VAL", "Logits and labels: .npz, .npy, .csv, .parquet.", show_default=False
    ),
    "test": argument("TEST", "Test data; if omitted, VAL must hold both parts."),
    "first": argument(
        "CALIBRATOR|FILE", "File that `fit` saved, or else the test data."
    ),
    "second": argument("FILE", "Test data, logits with labels, after a calibrator."),
    # How data are read. What is not given is as in the fit of the calibrator, where
    # there is one.
    "labels": option("File with the labels, if not beside the scores.", **_DATA),
    "label_column": option("Column of the labels.", **_COLUMN),
    "score_columns": option(
        "Columns of the scores: a,b,c, or a pattern: 'P(*)'.", **_COLUMNS
    ),
    "classes": option(
        "Class names in column order: cat,dog.", metavar="NAMES", **_DATA
    ),
    "probabilities": option(
        "What the scores are.",
        "--probabilities/--logits",
        show_default="by name",
        **_DATA,
    ),
    "confidence": option(
        "Column of a confidence per row, or several signals: a,b; labels say if it was "
        "right.",
        **_COLUMNS,
    ),
    "groups": option("Columns with the groups of rows: sex,site.", **_COLUMNS),
    "cluster": option(
        "Column that says which rows belong together: patient.", **_COLUMN
    ),
    "missing": option(
        "Rows without a score or label: error, or drop.", metavar="WORD", **_DATA
    ),
    "ensemble": option(
        "Each FILE is a member of an ensemble: rows are joined by id.",
        "--ensemble",
        **_DATA,
    ),
    "split": option("Part of a file with val_logits and test_logits.", **_DATA),
    "test_labels": option("File with the labels of TEST, if not in --labels."),
    "id_column": option(
        "Column of ids, by which later labels are joined.", metavar="COLUMN"
    ),
    "keep": option(
        "Columns to copy: a,b, or all (but scores), or none.",
        metavar="COLUMNS",
        show_default="id",
    ),
    # What is done.
    "method": option(
        "Name from `hokical methods`.",
        show_default="auto",
        autocompletion=complete_method,
    ),
    "methods": option("all, or names of `hokical methods`: hoki,temps."),
    "settings": option(
        "An option of the method: n_bins=20; repeatable.", "--set", metavar="K=V"
    ),
    "most_members": option("Use at most this many members of an ensemble.", min=1),
    "exchangeable": option(
        "Of an ensemble: members differ by chance alone, as passes with dropout do.",
        "--exchangeable",
    ),
    "keep_labels": option(
        "Predict the classifier's own labels.",
        "--keep-labels/--no-keep-labels",
        show_default="no",
    ),
    "look_alike": option("Accept rows identical to calibration rows.", "--look-alike"),
    "folds": option("Cross-fit --method in this many folds.", min=2),
    "positive": option(
        "Of two classes: the event.", metavar="NAME", show_default="the second"
    ),
    "proba": option(
        "Also give the probabilities of all classes.",
        "--proba/--no-proba",
        show_default="no",
    ),
    "risk": option(
        "Also write `accepted`: labels with at most this error rate, e.g. 0.05."
    ),
    "interval": option(
        "Also write `probability` of the event, `low` and `high`.", "--interval"
    ),
    "coverage": option("Conformal prediction sets with this coverage, e.g. 0.9."),
    "by": option(
        "Coverage for all examples, each class, label or group, or a 'new group'; "
        "--risk for all, each group, or a 'new group'.",
        metavar="WORD",
    ),
    "delta": option("Probability that what is guaranteed fails to hold."),
    "adapt": option("First adapt to the class frequencies of these rows.", "--adapt"),
    "state": option("File of the monitor, created if missing."),
    "reference": option("Validation data, if the calibrator keeps none of its fit."),
    "again": option("Count rows that were counted before.", "--again"),
    "window": option("Latest labelled examples that count as now.", min=1),
    "tolerance": option("Tolerated gap between confidence and accuracy."),
    "attach": option("ONNX classifier to put the calibrator behind."),
    "scores": option("With --attach: its tensor of scores, if unclear."),
    "opset": option("Version of the operators.", show_default="17"),
    "float32": option("Compute in float32, for runtimes without float64.", "--float32"),
    "check": option("Run the result with onnxruntime and compare with Python."),
    "seed": option("Seed of everything random.", min=0),
    # Where results go.
    "output": option("File to write.", "-o", "--output"),
    "report": option("Write an HTML report here (.html)."),
    "as_json": option("Print the result as JSON.", "--json"),
}
Json = Annotated[bool, OPTIONS["as_json"]]

#: Parameters of commands that name what is written; all other paths are read.
OUTPUTS = frozenset({"output", "report", "state"})
_KINDS = ("logits", "probabilities", "confidence")
#: What `fit` stores beside a calibrator, each where it is known.
_METADATA = {
    "examples": int,
    "accuracy": float,
    "classes": list,
    "scores": str,
    "zeros": str,
}


#: By method: scores that no command reads, and the call in Python.
_PYTHON_ONLY = {
    "multilabel": ("several labels per example", "predict_proba(scores)"),
    "survival": ("transformations that keep labels", "predict(survived)"),
}


@dataclass(frozen=True)
class Source:
    """A data file and how to read it; what is None is as in the fit of the calibrator.

    Fields are options of commands, see `command`. `keep` are other columns to keep:
    names, "all" or "none"; None for ids. `weighted` says whether weights count for the
    command. `members` are the files of an ensemble with a member in each, of which
    `path` is the first.
    """

    path: Path = Path()
    labels: Path | None = None
    label_column: str | None = None
    score_columns: str | None = None
    classes: tuple[str, ...] = ()
    probabilities: bool | None = None
    confidence: str | None = None
    groups: str | None = None
    cluster: str | None = None
    missing: Missing = Missing.error
    split: Part = Part.test
    keep: str | None = None
    weighted: bool = True
    ensemble: bool = False
    members: tuple[Path, ...] = ()

    def at_files(self, paths: Sequence[Path], fitted: object = None) -> Source:
        """The same for one file, or for those of the members of an ensemble."""
        ensemble = self.ensemble
        several = len(paths) > 1
        if (several or ensemble) and fitted is not None and not is_of_ensemble(fitted):
            raise ui.bad_option(
                "--ensemble",
                "needs a calibrator that was fitted on an ensemble; this one reads one "
                "row of scores for each example. Pass one file, or quote a pattern of "
                "Parquet files: 'part-*.parquet'.",
            )
        if several and not ensemble and fitted is None:
            raise ui.bad_option(
                "--ensemble",
                f"is missing: several files ({paths[0]}, {paths[1]}, ...) are the "
                "members of an ensemble. A pattern of Parquet files is quoted: "
                "'part-*.parquet'.",
            )
        is_one_file = len(paths) == 1 and not _is_one_member(paths[0], fitted, ensemble)
        members = () if is_one_file else tuple(paths)
        return self.at(paths[0], members=members)

    @property
    def name(self) -> str:
        """The names of its files."""
        return ", ".join(path.name for path in self.members or (self.path,))

    def at(self, path: Path, **options: Any) -> Source:
        """The same for another file, with other options."""
        return replace(self, path=path, **options)

    @property
    def in_parts(self) -> bool:
        """Whether the path is a folder, or a pattern that matches several files."""
        is_one = len(self.members) < 2
        return is_one and (self.path.is_dir() or tables.is_pattern(self.path))

    def read(
        self, fitted: Fitted = None, labelled: Literal["all", "some", "none"] = "all"
    ) -> Rows:
        """Its rows, of which all, some or none have a label that is read."""
        with ui.spinner(f"Reading {self.path.name}"):
            options = self._reading_options(fitted)
            if self.members:
                rows = hokical.io.read_ensemble(
                    self.members, labelled=labelled, **options
                )
            else:
                rows = examples.read_examples(self.path, labelled=labelled, **options)
        self._check_members(fitted, rows)
        self._say_what_is_used(rows, fitted)
        self._check_kind(rows, fitted)
        return rows

    def _reading_options(self, fitted: Fitted) -> dict[str, Any]:
        """Options of `hokical.io.examples.read_examples`."""
        keep = None if self.keep is None else split_names(self.keep)
        if self.keep == "none":
            keep = ()
        if self.cluster is not None:
            keep = (self.cluster,)
        return {
            "labels": self.labels,
            "missing": self.missing.value,
            "fitted_by": None if takes_confidences(fitted) else fitted,
            "groups": split_names(self.groups) or _groups_of_fit(fitted),
            "keep": keep,
            **self._columns(fitted),
        }

    def _say_what_is_used(self, rows: Rows, fitted: Fitted) -> None:
        """Say which rows, weights and columns are used, where this is no matter of
        course.
        """
        name = self.name
        n_rows = f"{len(rows.used):,} rows"
        if rows.part is not None:
            ui.say(f"Using the {rows.part} part of {name} ({n_rows}).")
        if rows.n_dropped:
            ui.say(f"Dropped {rows.n_dropped:,} of {n_rows} of {name} without a value.")
        if rows.weights is not None:
            how = "by the" if self.weighted else "alike, whatever the"
            ui.say(f"Rows count {how} weights in {self.path}.")
        if fitted is None and rows.unused:
            ui.say(
                f"Columns of {name} that are not used: {', '.join(rows.unused[:6])}."
            )

    def _check_kind(self, rows: Rows, fitted: Fitted) -> None:
        """Raise if the rows hold confidences, and the fit logits, or the reverse."""
        alone = takes_confidences(fitted)
        if fitted is not None and (rows.kind == "confidence") != alone:
            raise ui.bad_option(
                "FILE",
                f"{self.path} holds another kind of scores than "
                f"{'confidences' if alone else 'logits'}, as in the fit.",
            )

    def _check_members(self, fitted: object, rows: Rows) -> None:
        """Raise if members that a calibrator needs are missing."""
        scores = rows.scores
        members = members_of(fitted)
        if members is None or members.exchangeable:
            return
        if not isinstance(scores, hokical.Ensemble):
            return
        missing = [name for name in members.needed if name not in scores.names]
        if scores.named and missing:
            raise hokical.io.DataFileError(
                self.path,
                f"expected the members {', '.join(members.needed)}, which the "
                f"calibrator needs; found {', '.join(scores.names)}.",
                f"Add {', '.join(missing)}, by the names of the fit.",
            )

    def open(self, fitted: Fitted = None) -> Rows | hokical.streams.ChunkSource:
        """Its rows with labels; a folder or pattern of Parquet files is read in
        parts.
        """
        if not self.in_parts:
            return self.read(fitted)
        alone = self.groups or self.cluster or self.confidence or _groups_of_fit(fitted)
        if alone or self.missing is Missing.drop:
            raise typer.BadParameter(
                f"{self.path}: --groups, --cluster, --confidence and --missing need "
                "one file, not several."
            )
        with tables.report_file(self.path):
            columns = self._columns(fitted)
            source = hokical.streams.open_source(self.path, fitted_by=fitted, **columns)
            if source.first_chunk().weights is not None:
                ui.say(f"Rows count by the weights in {self.path}.")
        return source

    def check_new(self, fitted: StoredEstimator, rows: Rows) -> None:
        """Warn if its rows are those that the calibrator was fitted on."""
        if isinstance(rows.scores, (Logits, hokical.Ensemble)):
            of_fit = fitted.is_of_fit(rows)
            hokical.guarantees.fingerprints.warn_of_rows_of_fit(of_fit, self.path.name)

    def clusters(self, rows: Rows) -> Any:
        """What each of its rows belongs to, None if no column says it."""
        return (
            None if self.cluster is None else next(iter(rows.kept.values()))[rows.used]
        )

    def read_late(
        self, fitted: Fitted, id_column: str
    ) -> tuple[AnyArray, AnyArray] | None:
        """Ids and labels of a file without scores; None if it has scores."""
        late = examples.read_late_labels(
            self.path, id_column, takes_confidences(fitted), self._columns(fitted)
        )
        return late and (late[0].astype(np.str_), late[1])

    def _columns(self, fitted: Fitted) -> dict[str, Any]:
        """Which columns are read, and what they hold."""
        stored = {} if fitted is None else examples.options_from(fitted.metadata_)
        names = class_names_of(fitted) or stored.get("classes", ())
        if names and self.classes and tuple(names) != self.classes:
            raise ui.bad_option(
                "--classes",
                f"must be in the order of the fit, {', '.join(names)}; got "
                f"{', '.join(self.classes)}. Leave it out: the calibrator knows them.",
            )
        options = {
            "kind": self._kind(fitted, stored),
            "score_columns": split_names(self.confidence)
            or split_names(self.score_columns),
            "label_column": self.label_column,
            "classes": names or self.classes,
            "split": self.split.value,
        }
        return stored | {name: value for name, value in options.items() if value}

    def _kind(self, fitted: Fitted, stored: dict[str, Any]) -> str | None:
        """What the scores are, with a warning if those of the fit were others; None if
        nothing says it.
        """
        kind_of_fit = stored.get("kind")
        if takes_confidences(fitted):
            kind_of_fit = "confidence"
        kind = kind_of_fit
        if self.confidence is not None:
            kind = "confidence"
        elif self.probabilities is not None:
            kind = _KINDS[self.probabilities]
        if kind_of_fit and kind != kind_of_fit:
            ui.warn(
                f"The scores are {kind}; the calibrator was fitted on {kind_of_fit}."
            )
        return kind


#: Which of them a command has: of data without labels, of data for a calibrator, and
#: all.
UNLABELLED = ("score_columns", "probabilities", "groups", "missing", "split")
LABELLED = ("labels", "label_column", *UNLABELLED)
ANY = ("classes", "confidence", *LABELLED)


def command(
    *names: str, split: Part = Part.test, **overrides: Any
) -> Callable[[Callable[..., ui.Result]], Callable[..., None]]:
    """Give the parameters of a command their options, of the same names or `overrides`.

    With `names` of fields of a `Source`, it has those options too, and gets them as
    `source_options`, without a path. What it returns is shown, with --json as JSON.
    """

    def add(function: Callable[..., ui.Result]) -> Callable[..., None]:
        options = _command_options(function, names, split, overrides)

        @wraps(function)
        def run(*, as_json: bool, **values: Any) -> None:
            _protect(values)
            for name in REPEATABLE & {*values}:
                values[name] = ",".join(values[name]) if values[name] else None
            read = {name: values.pop(name) for name in names}
            if "classes" in read:
                read["classes"] = split_names(read["classes"])
            if names:
                values["source_options"] = Source(**read)
            function(**values).print(as_json)

        vars(run)["__signature__"] = Signature(options)
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return add


def _command_options(
    function: Callable[..., ui.Result],
    names: Sequence[str],
    split: Part,
    overrides: dict[str, Any],
) -> list[Parameter]:
    """The options of a command: the parameters of its function, --json, and fields of
    a `Source`.
    """
    parameters = dict(signature(function, eval_str=True).parameters)
    parameters.pop("source_options", None)
    parameters["as_json"] = Parameter(
        "as_json", Parameter.KEYWORD_ONLY, default=False, annotation=bool
    )
    source_fields = dict(signature(Source, eval_str=True).parameters)
    source_fields["split"] = source_fields["split"].replace(default=split)
    parameters |= {
        name: field for name, field in source_fields.items() if name in names
    }
    options = []
    for name, parameter in parameters.items():
        kind = parameter.annotation
        default = parameter.default
        if name in REPEATABLE:
            kind = list[str] | None
            default = None
        described = overrides[name] if name in overrides else OPTIONS[name]
        annotation: Any = Annotated[kind, described]
        options.append(
            parameter.replace(
                annotation=annotation, default=default, kind=Parameter.KEYWORD_ONLY
            )
        )
    return options


def is_of_ensemble(fitted: object) -> bool:
    """Whether a calibrator was fitted on an ensemble."""
    return isinstance(fitted, hokical.Calibrator) and fitted.schema_.members is not None


def members_of(fitted: object) -> PooledMembers | None:
    """The members of the ensemble of the fit, None where there was none."""
    members = fitted.schema_.members if isinstance(fitted, hokical.Calibrator) else None
    return members if isinstance(members, PooledMembers) else None


def _is_one_member(path: Path, fitted: object, ensemble: bool) -> bool:
    """Whether one file is the only member that is needed, and has no members."""
    members = members_of(fitted)
    if not ensemble or members is None or len(members.needed) != 1:
        return False
    table = tables.open_table(path, "test")
    return not (ensembles.named_members(table) or ensembles.stacked_members(table))


def takes_confidences(fitted: object) -> bool:
    """Whether it is a calibrator of one confidence per row."""
    return isinstance(fitted, hokical.ConfidenceCalibrator)


def class_names_of(fitted: object) -> tuple[str, ...]:
    """The names of the classes of the fit, if they are known."""
    return fitted.class_names if isinstance(fitted, hokical.Calibrator) else ()


def n_classes_of(fitted: object) -> int | None:
    """The number of classes; None of a calibrator that takes no logits."""
    if isinstance(fitted, (hokical.Calibrator, hokical.Dense)):
        return fitted.n_classes_
    return None


def _groups_of_fit(fitted: Fitted) -> tuple[str, ...]:
    """The columns with groups that a calibrator learned from."""
    coding = None if fitted is None else fitted.needed_groups
    return () if coding is None else tuple(coding.columns)


def read_calibrator(
    path: Path, *, for_rows: bool = True, beside: Path | None = None
) -> Any:
    """A saved calibrator; `for_rows` of a file: of logits or confidences, and
    nothing else.

    If `beside` is the calibrator instead, the error says so.
    """
    try:
        calibrator = hokical.load(path)
    except hokical.CalibratorFileError as error:
        if beside is not None and is_calibrator(beside):
            raise typer.BadParameter(
                f"{beside} is the calibrator and comes first, then the data {path}: "
                "swap the two."
            ) from error
        raise
    except OSError as error:
        raise hokical.io.DataFileError(
            path,
            f"expected a calibrator file; cannot be read: {error.strerror}.",
            "See `fit`.",
        ) from error
    if not _is_metadata(calibrator.metadata_):
        raise hokical.CalibratorFileError(
            f"{path} has unusable facts about its fit. Fit again."
        )
    if for_rows:
        _check_readable(path, calibrator)
    return calibrator


def _is_metadata(metadata: dict[str, Any]) -> bool:
    """Whether what `fit` stored beside a calibrator has the types that it wrote."""
    types = all(
        isinstance(value, _METADATA.get(name, object))
        for name, value in metadata.items()
    )
    names = metadata.get("classes", ())
    return (
        types
        and metadata.get("scores", "logits") in _KINDS
        and all(isinstance(name, str) for name in names)
    )


def _check_readable(path: Path, calibrator: StoredEstimator) -> None:
    """Raise unless commands can read rows for a calibrator."""
    if calibrator.name in _PYTHON_ONLY:
        scores, call = _PYTHON_ONLY[calibrator.name]
        raise typer.BadParameter(
            f"{path} is for {scores}, which no command reads. Use it in Python: "
            f"`hokical.load(path).{call}`."
        )
    if isinstance(calibrator, hokical.Calibrator):
        rule = calibrator.rule_
        with ui.check_options("CALIBRATOR"):
            hokical.calibrators.stored.check_plain_logits(
                rule.name, rule.logits_kind, "method"
            )


def is_calibrator(path: Path) -> bool:
    """Whether a file holds a calibrator."""
    try:
        hokical.load(path)
    except (OSError, ValueError):
        return False
    return True


def check_method(name: str) -> str:
    """The name, if the method needs only logits and labels."""
    catalog = hokical.calibrators.catalog
    names = [*catalog.method_names(2), "auto"]
    name = catalog.resolve_alias(name)
    if name in names:
        return name
    why = (
        f"{name} needs more than logits, which cannot be given here; fit it in Python."
    )
    if name not in catalog.method_names():
        why = (
            f"no method {name!r}; there are {', '.join(names)}.{catalog.suggest(name)}"
        )
    raise typer.BadParameter(why)


def event_index(
    positive: str | None, names: Sequence[str], n_classes: int
) -> int | None:
    """The column of the event, of two classes; None of more."""
    with ui.check_options("--positive"):
        return reading.event_index(positive, names, n_classes)


def set_options(calibrator: Method, settings: Iterable[str]) -> Method:
    """The calibrator with options such as `n_bins=20`, of the types that its parameters
    have.

    A value is a number, true, false, none or several of them in brackets; else the text
    itself.
    """
    defaults = calibrator.get_params(deep=False)
    chosen = dict[str, Any]()
    for setting in settings:
        key, sign, text = (part.strip() for part in setting.partition("="))
        if not sign or key not in defaults:
            listed = ", ".join(f"{name}={value}" for name, value in defaults.items())
            raise ui.bad_option(
                "--set",
                f"must be an option of {calibrator.name}: {listed or 'it has none'}; "
                f"got {setting!r}.",
            )
        value = _parse_value(text, type(defaults[key]))
        kind = _wrong_kind(value, type(defaults[key]))
        if kind:
            raise ui.bad_option(
                "--set",
                f"must be {kind}, as the default {defaults[key]}; got {setting!r}.",
            )
        chosen[key] = value
    with ui.check_options("--set"):
        if chosen.get("noise", "auto") != "auto":
            chosen["noise"] = parse_noise(str(chosen["noise"]))
        return calibrator.set_params(**chosen)


def _parse_value(text: str, kind: type) -> Any:
    """The value that a text stands for; the text itself, if it is none.

    >>> (
    ...     _parse_value("20.0", int),
    ...     _parse_value("true", bool),
    ...     _parse_value("[1, 2]", list),
    ... )
    (20, True, [1, 2])
    """
    value: Any = text
    with suppress(SyntaxError, ValueError):
        is_constant = text.lower() in ("true", "false", "none")
        value = ast.literal_eval(text.capitalize() if is_constant else text)
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and kind is int else value


def _wrong_kind(value: object, kind: type) -> str:
    """The kind that a value should have, in words; "" if it has it."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is bool and not isinstance(value, bool):
        return "true or false"
    if kind is int and not (is_number and isinstance(value, int)):
        return "a whole number"
    if kind is float and not is_number:
        return "a number"
    return ""


def _protect(values: dict[str, Any]) -> None:
    """Refuse an output that is an input too, or another output; a report that cannot
    be written.
    """
    paths = _named_paths(values)
    for name in (*OUTPUTS, _LOCK, _NUMBERS):
        if name not in paths or paths[name].is_dir():  # which the command checks itself
            continue
        files = [
            file
            for key, path in paths.items()
            if key != name
            for file in _files_read(path)
        ]
        if any(_is_same(paths[name], file) for file in files):
            role = f"the {name}" if " " in name else f"the --{name}"
            raise hokical.io.DataFileError(
                paths[name],
                f"cannot be {role}: it is an input too, or another output, and would "
                "be lost.",
                "Choose another name.",
            )
    if "report" in paths:
        tables.check_output(paths["report"], suffix=(".html", ".htm"))


#: Files that are written beside outputs.
_LOCK = "lock of --state"
_NUMBERS = "numbers of --report"


def _named_paths(values: dict[str, Any]) -> dict[str, Path]:
    """The paths among the values of options, by name, with files beside outputs."""
    paths = {name: path for name, path in values.items() if isinstance(path, Path)}
    for name, listed in values.items():
        if isinstance(listed, list):
            files = [path for path in listed if isinstance(path, Path)]
            paths |= {f"{name} {k}": path for k, path in enumerate(files)}
    if "state" in paths:  # the lock is removed in the end
        paths[_LOCK] = Path(f"{paths['state']}.lock")
    if "report" in paths:
        from hokical.report.tracking import json_beside

        paths[_NUMBERS] = json_beside(paths["report"])
    return paths


def _files_read(path: Path) -> list[Path]:
    """The files that are read where a path is given: those of a folder, labels
    beside logits.
    """
    if path.is_dir() or tables.is_pattern(path):
        return tables.list_files(path)
    return [path, examples.labels_beside(path)]


def _is_same(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file, which may not exist yet."""
    try:
        return first.samefile(second)
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)
