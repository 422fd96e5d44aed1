"""Calibrators and data files, as the options of a command name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

import hokical
from hokical._core.conversion import probability_scale
from hokical.cli.console import bad_option, check_options, say, spinner, warn
from hokical.cli.options import Missing, Part, split_names

#: What `fit` stores beside a calibrator, each where it is known.
_METADATA = {
    "examples": int, "accuracy": float, "classes": list, "scores": str, "binary_score": str,
    "zeros": str, "score_columns": str, "confidence": str, "right": str,
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A data file and how to read it; what is None is as in the fit of the calibrator."""

    path: Path
    split: Part = Part.test
    labels: Path | None = None
    label_column: str | None = None
    score_columns: str | None = None
    classes: str | None = None
    probabilities: bool | None = None
    confidence: str | None = None
    groups: str | None = None
    missing: Missing = Missing.error
    #: Other columns to read: names, "all" or "none"; None for those called `id`.
    keep: str | None = None

    @property
    def in_parts(self) -> bool:
        """Whether the path is a folder, or a pattern that matches several files."""
        return self.path.is_dir() or hokical.io.is_pattern(self.path)

    def wanted(self, fitted: Any = None) -> hokical.io.Wanted:
        """What the options, or else the fit, say of the file."""
        known = {} if fitted is None else fitted.metadata
        if self.confidence or "confidence" in known or getattr(fitted, "name", "") == "confidence":
            return self._wanted_confidences(known, fitted)
        scores = split_names(self.score_columns or known.get("score_columns"))
        single = scores[0] if len(scores) == 1 and "{" not in scores[0] else None
        single = single or (known.get("binary_score") if not scores else None)
        kind = (
            None if self.probabilities is None else ("logits", "probabilities")[self.probabilities]
        )
        wanted = hokical.io.Wanted(
            probabilities=_choose(kind, known.get("scores")) == "probabilities",
            binary_score=single,
            score_columns=() if single else scores,
            classes=self._class_names(known),
            zeros=known.get("zeros", "unlikely"),
            label_column=self.label_column,
            groups=split_names(self.groups) or _groups_of_fit(fitted),
            **self._common,
        )
        if wanted.probabilities and kind is None:
            say("Scores are read as probabilities, as in the fit; if they are not, add --logits.")
        return wanted

    @property
    def _common(self) -> dict[str, Any]:
        keep = None if self.keep is None else split_names("" if self.keep == "none" else self.keep)
        return {"keep": keep, "missing": str(self.missing)}

    def _wanted_confidences(self, known: dict[str, Any], fitted: Any) -> hokical.io.Wanted:
        return hokical.io.Wanted(
            answers=True,
            binary_score=self.confidence
            or self.score_columns
            or known.get("confidence", "confidence"),
            label_column=self.label_column or known.get("right", "right"),
            groups=split_names(self.groups) or _groups_of_fit(fitted),
            **self._common,
        )

    def _class_names(self, known: dict[str, Any]) -> tuple[str, ...]:
        names, fit_names = split_names(self.classes), tuple(known.get("classes", ()))
        if names and fit_names and set(names) != set(fit_names):
            raise typer.BadParameter(
                f"`--classes` must name the classes of the fit, {', '.join(fit_names)}; got "
                f"{', '.join(names)}. Leave it out: the calibrator knows them."
            )
        return fit_names or names

    def about(self, wanted: hokical.io.Wanted) -> dict[str, Any]:
        """What a calibrator has to remember of how its data were read."""
        if wanted.answers:
            return {"confidence": wanted.binary_score, "right": wanted.label_column}
        about = {"scores": "probabilities" if wanted.probabilities else "logits"}
        return about | ({"score_columns": self.score_columns} if self.score_columns else {})

    def read(self, fitted: Any = None, *, labelled: bool = True, unlabelled: bool = False) -> Rows:
        """Its rows; with `unlabelled`, those without a label have -1."""
        wanted = replace(self.wanted(fitted), unlabelled=unlabelled)
        if not labelled and wanted.answers:
            wanted = replace(wanted, label_column=None)
        logits_of = None if wanted.answers else fitted
        with spinner(f"Reading {self.path.name}"):
            found = hokical.io.read_examples(
                self.path, split=self.split.literal, labels=self.labels, wanted=wanted,
                need_labels=labelled, fitted_by=logits_of,
            )  # fmt: skip
        rows = Rows(self.path, found, wanted)
        rows.describe(fitted)
        return rows

    def open(self, fitted: Any = None) -> Rows | Stream:
        """Its rows with labels; a folder or pattern of Parquet files is read in parts."""
        return Stream.of(self, fitted) if self.in_parts else self.read(fitted)


class Rows:
    """The rows of a file, all in memory: logits, or one confidence each."""

    def __init__(
        self, path: Path, found: hokical.io.LabelledRows, wanted: hokical.io.Wanted
    ) -> None:
        self.path, self.found, self.wanted = path, found, wanted
        self.labels, self.groups, self.weights = found.labels, found.groups, found.weights
        self.classes, self.n_rows = found.classes, found.logits.n_rows
        self.scores: Any = found.logits.values[:, 1] if wanted.answers else found.logits

    def describe(self, fitted: Any) -> None:
        """Say what was read and what was not, and warn of scores that look like others."""
        found, wanted, name = self.found, self.wanted, self.path.name
        values = found.logits.values
        plain = not wanted.answers and not wanted.probabilities
        if plain and wanted.binary_score and 0 <= values.min() <= values.max() <= 1:
            say(
                f"Note: `{wanted.binary_score}` lies in [0, 1] and is taken for log-odds; if it is "
                "a probability, add --probabilities."
            )
        if found.classes and wanted.keep is None and not (wanted.classes or wanted.score_columns):
            _describe_set_aside([own for own in found.kept if own not in (found.groups or ())])
        if found.n_dropped:
            total = self.n_rows + found.n_dropped
            say(f"Dropped {found.n_dropped:,} of {total:,} rows of {name} without a value.")
        if found.part is not None:
            say(f"Using the {found.part} part of {self.path} ({self.n_rows} examples).")
        top = found.logits.to_host(found.logits.top)
        if plain and fitted is not None and probability_scale(found.logits, top):
            warn(
                f"{name} seems to hold probabilities: all rows lie in [0, 1] and sum to 1, but "
                "the calibrator takes logits. Add --probabilities, or pass the logits."
            )

    def use_weights(self) -> Any:
        """The weights of the rows, with a message if there are any."""
        if self.weights is not None:
            say(f"Rows count by the weights in {self.path}.")
        return self.weights

    def fit(self, calibrator: Any) -> dict[str, Any]:
        """Fit a calibrator; the number of examples, and the share that is right."""
        if calibrator.method.binary_only and self.found.logits.n_classes > 2:
            raise bad_option(
                "--method",
                f"{calibrator.name} is for two classes; {self.path.name} has "
                f"{self.found.logits.n_classes}. Leave it out, or try structured.",
            )
        own = {} if self.groups is None else {"groups": self.groups}
        if own and calibrator.name not in ("auto", "confidence"):
            raise bad_option(
                "--groups",
                f"only auto learns from groups, not {calibrator.name}: leave out --method.",
            )
        with check_options(), spinner(f"Fitting {calibrator.name}"):
            calibrator.fit(self.scores, self.labels, sample_weight=self.use_weights(), **own)
        right: Any = self.labels
        if not self.wanted.answers:
            right = self.found.logits.labels == self.labels
        return {"examples": self.n_rows, "accuracy": float(right.mean())}

    def certify(self, fitted: Any) -> Any:
        """The calibrator with these held-out rows noted."""
        own = {"groups": self.groups, "sample_weight": self.weights}
        with check_options("FILE"):
            return fitted.certify(self.scores, self.labels, **own)

    def warn_of_own(self, fitted: Any) -> None:
        """Warn if the rows are those that the calibrator was fitted on."""
        kept = getattr(fitted, "kept_", None)
        support = None if kept is None else kept.support
        if self.wanted.answers or support is None:
            return
        table = fitted.kept_.fit_scores
        if (table is None or table.total == self.n_rows) and support.is_of(self.found.logits):
            warn(
                f"{self.path.name} holds the examples that the calibrator was fitted on, so it "
                "looks better than it is. Use other examples."
            )


class Stream:
    """Parquet files that are read in parts, so that they may be larger than memory."""

    groups, weights = None, None

    def __init__(self, path: Path, source: hokical.streams.ChunkSource) -> None:
        self.path, self.source, self.classes = path, source, source.classes

    @classmethod
    def of(cls, given: Source, fitted: Any) -> Stream:
        """The files of a folder or pattern, of which logits and labels are read."""
        wanted = given.wanted(fitted)
        others = (wanted.answers, wanted.probabilities, wanted.binary_score, wanted.groups)
        named = (given.label_column, wanted.score_columns, given.missing is Missing.drop)
        if any(others) or any(named):
            raise typer.BadParameter(
                f"{given.path}: of several files only logits and labels are read, without "
                "--probabilities, --score-columns, --label-column, --confidence, --groups and "
                "--missing. Use one file."
            )
        source = hokical.streams.open_source(
            given.path, split=given.split.literal, labels=given.labels, classes=wanted.classes
        )
        with hokical.io._errors.report_file(given.path):
            first = source.first_chunk()
            names = hokical.io._names.check_classes(wanted.classes, first.n_classes)
            source.classes = names or source.classes
        if first.weights is not None:
            say(f"Rows count by the weights in {given.path}.")
        return cls(given.path, source)

    def fit(self, calibrator: Any) -> dict[str, Any]:
        """Fit a calibrator; the number of examples, and the share that is right."""
        with hokical.io._errors.report_file(self.path):
            hokical.streams.fit(calibrator, self.source)
        table = calibrator.kept_.fit_scores
        if table is None:
            return {"examples": self.source.n_rows, "accuracy": None}
        return {"examples": table.total, "accuracy": table.accuracy}

    def certify(self, fitted: Any) -> Any:
        """The calibrator with these held-out rows noted."""
        with hokical.io._errors.report_file(self.path):
            return hokical.streams.certify(fitted, self.source)

    def warn_of_own(self, fitted: Any) -> None:
        """Nothing: files are not read twice."""


def _describe_set_aside(columns: Any) -> None:
    if names := ", ".join(columns):
        say(f"Not taken for a class: {names}. If it is one, see --classes.")


def _groups_of_fit(fitted: Any) -> tuple[str, ...]:
    """The columns with groups that a calibrator learned from."""
    rule = getattr(fitted, "rule_", None)
    needed = getattr(rule, "needed_groups", None) or getattr(rule, "coding", None)
    return () if needed is None else tuple(needed.columns)


def _choose(given: str | None, known: str | None) -> str:
    """What the user says, with a warning if the fit had something else; else what it had."""
    if given and known and given != known:
        warn(f"--{given} does not match the fit of the calibrator, which had {known}.")
    return given or known or "logits"


def read_calibrator(path: Path, *, for_rows: bool = True) -> Any:
    """A saved calibrator; `for_rows` of a file: logits or confidences, and nothing else."""
    try:
        found = hokical.load(path)
    except OSError as error:
        raise hokical.io.DataFileError(
            path, f"expected a calibrator file; cannot be read: {error.strerror}.", "See `fit`."
        ) from error
    known = found.metadata
    usable = all(isinstance(value, _METADATA.get(name, object)) for name, value in known.items())
    usable &= known.get("scores", "logits") in ("logits", "probabilities")
    if not usable or not all(isinstance(name, str) for name in known.get("classes", ())):
        raise hokical.CalibratorFileError(f"{path} has unusable facts about its fit. Fit again.")
    if for_rows and found.name == "multilabel":
        raise typer.BadParameter(
            f"{path} is for several labels per example, which files are not read for. Use it in "
            "Python: `hokical.load(path).predict_proba(scores)`."
        )
    if for_rows and found.name != "confidence":
        with check_options("CALIBRATOR"):
            hokical.calibrators._checks.check_plain_logits(found.rule_, "method")
    return found
