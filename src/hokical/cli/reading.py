"""Calibrators and data files, as the options of a command name them; outputs replace no input."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import typer
from typer.core import TyperCommand

import hokical
from hokical._core.logits import Logits
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.options import split_names
from hokical.io.chunks import ChunkSource
from hokical.io.examples import options_from
from hokical.io.reading import (
    is_pattern,
    labels_beside,
    list_files,
    read_examples,
    read_late_labels,
)
from hokical.io.tables import check_output, report_file

#: What `fit` stores beside a calibrator, each where it is known.
_METADATA = {"examples": int, "accuracy": float, "classes": list, "scores": str, "zeros": str}
#: Parameters of commands that name what is written; all other paths are read.
OUTPUTS = frozenset({"output", "report", "state"})
_KINDS = ("logits", "probabilities", "confidence")


@dataclass(frozen=True)
class Source:
    """A data file and how to read it; what is None is as in the fit of the calibrator.

    Fields are the options of commands, see `reads`. `keep` are other columns to keep: names, "all"
    or "none"; None for ids.
    """

    path: Path = Path()
    labels: opt.Labels = None
    label_column: opt.LabelColumn = None
    score_columns: opt.ScoreColumns = None
    classes: opt.Classes = None
    probabilities: opt.Probabilities = None
    confidence: opt.Confidence = None
    groups: opt.Groups = None
    cluster: opt.Cluster = None
    missing: opt.MissingRows = opt.Missing.error
    split: opt.Split = opt.Part.test
    keep: str | None = None

    def at(self, path: Path, **options: Any) -> Source:
        """The same for another file, with other options."""
        return replace(self, path=path, **options)

    @property
    def in_parts(self) -> bool:
        """Whether the path is a folder, or a pattern that matches several files."""
        return self.path.is_dir() or is_pattern(self.path)

    def read(self, fitted: Any = None, labelled: Literal["all", "some", "none"] = "all") -> Rows:
        """Its rows, of which all, some or none have a label that is read."""
        keep = None if self.keep is None else split_names(self.keep.replace("none", ""))
        keep = keep if self.cluster is None else (self.cluster,)
        with ui.spinner(f"Reading {self.path.name}"):
            rows = read_examples(
                self.path,
                labels=self.labels,
                labelled=labelled,
                groups=split_names(self.groups) or _groups_of_fit(fitted),
                keep=keep,
                missing="drop" if self.missing is opt.Missing.drop else "error",
                fitted_by=None if getattr(fitted, "name", "") == "confidence" else fitted,
                **self._columns(fitted),
            )
        if rows.part is not None:
            ui.say(f"Using the {rows.part} part of {self.path.name} ({len(rows.used):,} rows).")
        if rows.n_dropped:
            dropped = f"Dropped {rows.n_dropped:,} of {len(rows.used):,} rows"
            ui.say(f"{dropped} of {self.path.name} without a value.")
        self._describe_weights(rows.weights)
        if fitted is None and rows.unused:
            ui.say(f"Columns of {self.path.name} that are not used: {', '.join(rows.unused[:6])}.")
        if fitted is not None and (rows.kind == "confidence") != (fitted.name == "confidence"):
            takes = "confidences" if fitted.name == "confidence" else "logits"
            raise ui.bad_option(
                "FILE", f"{self.path} holds another kind of scores than {takes}, as in the fit."
            )
        return rows

    def clusters(self, rows: Rows) -> Any:
        """What each of its rows belongs to, None if no column says it."""
        kept = [*rows.kept.values()]
        return None if self.cluster is None else kept[0][rows.used]

    def read_late(self, fitted: Any, id_column: str) -> tuple[Any, Any] | None:
        """Ids and labels of a file without scores; None if it has scores."""
        column = self.label_column or options_from(fitted.metadata_).get("label_column")
        names = tuple(getattr(fitted, "class_names", ()))
        right = fitted.name == "confidence"
        found = read_late_labels(
            self.path, id_column, label_column=column, classes=names, right=right
        )
        return None if found is None else (found[0].astype(np.str_), found[1])

    def open(self, fitted: Any = None) -> Rows | ChunkSource:
        """Its rows with labels; a folder or pattern of Parquet files is read in parts."""
        if not self.in_parts:
            return self.read(fitted)
        drops = self.missing is opt.Missing.drop
        alone = self.groups or self.cluster or self.confidence or _groups_of_fit(fitted)
        if alone or drops:
            raise typer.BadParameter(
                f"{self.path}: --groups, --cluster, --confidence and --missing need one file, not "
                "several."
            )
        with report_file(self.path):
            columns = self._columns(fitted)
            source = hokical.streams.open_source(self.path, fitted_by=fitted, **columns)
            weights = source.first_chunk().weights
        self._describe_weights(weights)
        return source

    def _describe_weights(self, weights: Any) -> None:
        if weights is not None:
            ui.say(f"Rows count by the weights in {self.path}.")

    def _columns(self, fitted: Any) -> dict[str, Any]:
        """Which columns are read, and what they hold."""
        found = {} if fitted is None else options_from(fitted.metadata_)
        if known_names := tuple(getattr(fitted, "class_names", ())):
            found["classes"] = known_names
        if getattr(fitted, "name", "") == "confidence":
            found["kind"] = "confidence"
        given: dict[str, Any] = {
            "kind": None if self.probabilities is None else _KINDS[self.probabilities],
            "score_columns": split_names(self.score_columns),
            "label_column": self.label_column,
            "classes": split_names(self.classes),
        }
        if self.confidence is not None:
            given |= {"kind": "confidence", "score_columns": (self.confidence,)}
        known, names = found.get("kind"), found.get("classes", ())
        if given["kind"] and known and given["kind"] != known:
            ui.warn(f"{given['kind']} do not match the fit of the calibrator, which had {known}.")
        if names and given["classes"] and set(names) != set(given["classes"]):
            raise ui.bad_option(
                "--classes",
                f"must name the classes of the fit, {', '.join(names)}; got {self.classes}. Leave "
                "it out: the calibrator knows them.",
            )
        chosen = {name: value for name, value in given.items() if value}
        return found | chosen | ({"classes": names} if names else {}) | {"split": self.split.value}


#: Which of them a command has: of data without labels, of data for a calibrator, and all.
UNLABELLED = ("score_columns", "probabilities", "groups", "missing", "split")
LABELLED = ("labels", "label_column", *UNLABELLED)
ANY = ("classes", "confidence", *LABELLED)


def reads(*names: str, split: opt.Part = opt.Part.test) -> Callable[[Any], Any]:
    """Give a command these options of a `Source`; it gets them as `given`, without a path."""

    def add(command: Any) -> Any:
        known = signature(Source, eval_str=True).parameters
        own = [
            e for e in signature(command, eval_str=True).parameters.values() if e.name != "given"
        ]
        own += [known[name].replace(kind=Parameter.KEYWORD_ONLY) for name in known if name in names]
        own = [e.replace(default=split) if e.name == "split" else e for e in own]

        @wraps(command)
        def run(**options: Any) -> Any:
            return command(given=Source(**{n: options.pop(n) for n in names}), **options)

        vars(run)["__signature__"] = Signature(own)
        run.__annotations__ = {each.name: each.annotation for each in own}
        return run

    return add


def warn_of_rows_of_fit(fitted: Any, rows: Rows, path: Path) -> None:
    """Warn if the rows of a file are those that the calibrator was fitted on."""
    if isinstance(rows.scores, Logits):
        found = fitted._are_of_fit(rows.scores)
        hokical.guarantees.calibration_data.warn_of_rows_of_fit(found, path.name)


def _groups_of_fit(fitted: Any) -> tuple[str, ...]:
    """The columns with groups that a calibrator learned from."""
    rule = getattr(fitted, "rule_", None)
    needed = getattr(rule, "needed_groups", None)
    return () if needed is None else tuple(needed.columns)


def read_calibrator(path: Path, *, for_rows: bool = True) -> Any:
    """A saved calibrator; `for_rows` of a file: of logits or confidences, and nothing else."""
    try:
        found = hokical.load(path)
    except OSError as error:
        raise hokical.io.DataFileError(
            path, f"expected a calibrator file; cannot be read: {error.strerror}.", "See `fit`."
        ) from error
    known = found.metadata_
    usable = all(isinstance(value, _METADATA.get(name, object)) for name, value in known.items())
    usable &= known.get("scores", "logits") in _KINDS
    if not usable or not all(isinstance(name, str) for name in known.get("classes", ())):
        raise hokical.CalibratorFileError(f"{path} has unusable facts about its fit. Fit again.")
    if for_rows and found.name == "multilabel":
        raise typer.BadParameter(
            f"{path} is for several labels per example, which no command reads. Use it in Python: "
            "`hokical.load(path).predict_proba(scores)`."
        )
    if for_rows and found.name != "confidence":
        with ui.check_options("CALIBRATOR"):
            hokical.calibrators.stored.check_plain_logits(found.rule_, "method")
    return found


class ProtectingCommand(TyperCommand):
    """A command whose outputs take the place of none of its inputs, nor of each other.

    A report that cannot be written is refused before the work is done.
    """

    def invoke(self, ctx: Any) -> Any:
        self._protect(ctx)
        if (report := ctx.params.get("report")) is not None:
            check_output(report, suffix=(".html", ".htm"))
        return super().invoke(ctx)

    def _protect(self, ctx: Any) -> None:
        paths = {name: path for name, path in ctx.params.items() if isinstance(path, Path)}
        if "state" in paths:  # which is removed in the end
            paths["lock of --state"] = Path(f"{paths['state']}.lock")
        for name in (*OUTPUTS, "lock of --state"):
            if name not in paths or paths[name].is_dir():  # which the command checks itself
                continue
            others = [path for other, path in paths.items() if other != name]
            files = [file for path in others for file in _files_read(path)]
            if any(_is_same(paths[name], file) for file in files):
                raise hokical.io.DataFileError(
                    paths[name],
                    f"cannot be the {name if ' ' in name else f'--{name}'}: it is an input too, or "
                    "another output, and would be lost.",
                    "Choose another name.",
                )


def _files_read(path: Path) -> list[Path]:
    """The files that are read where a path is given: those of a folder, labels beside logits."""
    if path.is_dir() or is_pattern(path):
        return list_files(path)
    return [path, labels_beside(path)]


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, which may not exist yet."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
