"""Reading the input of a command: examples, calibrators, names of methods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import hokical
from hokical.cli.options import Part
from hokical.cli.show import say, warn
from hokical.cli.spinner import spinner

if TYPE_CHECKING:
    from hokical.calibrators import Calibrator
    from hokical.calibrators.fitted import FittedCalibrator
    from hokical.core.logits import Logits
    from hokical.io import DataFileError, LabelledRows, Wanted
    from hokical.streams import ChunkSource


def load_examples(
    path: Path,
    part: Part,
    labels: Path | None = None,
    *,
    weighted: bool = False,
    wanted: Wanted | None = None,
    **options: Any,
) -> LabelledRows:
    """Logits and labels of a file, with a message about the part used, and about weights."""
    wanted = wanted or hokical.io.Wanted()
    names = tuple(getattr(options.get("fitted_by"), "beside", {}).get("classes", ()))
    if names and wanted.classes and set(wanted.classes) != set(names):
        raise typer.BadParameter(
            f"`--classes` must name the classes of the fit, {', '.join(names)}; got "
            f"{', '.join(wanted.classes)}. Leave it out: the calibrator knows them."
        )
    wanted = replace(wanted, classes=names or wanted.classes)  # in the order of the fit
    try:
        with spinner(f"Reading {path.name}"):
            examples = hokical.io.read_examples(
                path, split=part.literal, labels=labels, wanted=wanted, **options
            )
    except hokical.io.DataFileError as error:
        raise _dense_error(path, part) or error from error.__cause__
    _say_doubt(examples, wanted)
    if examples.part is not None:
        say(f"Using the {examples.part} part of {path} ({examples.logits.n_rows} examples).")
    if examples.weights is not None:
        say_weighted(path) if weighted else say(f"The weights in {path} are not used here.")
    return examples


def _say_doubt(examples: LabelledRows, wanted: Wanted) -> None:
    """Tell if binary scores look like probabilities."""
    scores = examples.logits.values
    if wanted.binary_score and not wanted.probabilities and 0 <= scores.min() <= scores.max() <= 1:
        say(
            f"Note: all of `{wanted.binary_score}` lies in [0, 1] and is taken for log-odds; if it "
            "is a probability, add --probabilities."
        )


def choose_scores(
    probabilities: bool,
    binary_score: str | None,
    classes: str | None,
    keep: str | None = "none",
    **others: bool,
) -> Wanted:
    """What the options say about the scores of a file; `others` do not go with them."""
    names, kept = (
        tuple(name.strip() for name in (text or "").split(",") if name.strip())
        for text in (classes, "" if keep == "none" else keep)
    )
    for other, given in others.items():
        if given and (probabilities or binary_score or names):
            raise typer.BadParameter(
                "--probabilities, --binary-score and --classes work on one file of scores "
                f"(n, classes), not {other.replace('_', ' ')}."
            )
    if binary_score and names and len(names) != 2:
        raise typer.BadParameter(
            f"must name 2 classes with --binary-score; got {len(names)}.", param_hint="--classes"
        )
    return hokical.io.Wanted(probabilities, binary_score, names, None if keep is None else kept)


def _dense_error(path: Path, part: Part) -> DataFileError | None:
    """The error for logits of maps or tokens, or None if a file has none."""
    try:
        shape = tuple(hokical.dense.open_dense(path, split=part.literal)["logits"].shape)
    except hokical.io.DataFileError:
        return None
    if len(shape) < 3:
        return None
    return hokical.io.DataFileError(
        path,
        f"expected logits (n, classes); found shape {shape}.",
        "For maps and tokens `fit`, `evaluate` and `apply` have --class-axis, the axis of the "
        "classes: 1 for (n, classes, h, w), -1 for (n, tokens, classes).",
    )


def open_parts(path: Path, part: Part, labels: Path | None) -> ChunkSource:
    """A source that is read in parts, with a message about weights."""
    source = hokical.streams.open_source(path, split=part.literal, labels=labels)
    if source.first_chunk().weights is not None:
        say_weighted(path)
    return source


def say_weighted(path: Path) -> None:
    """Tell that rows are weighted."""
    say(f"Rows count by the weights in {path}.")


def in_many_files(path: Path) -> bool:
    """Whether a path is a folder, or a pattern that matches several files."""
    return path.is_dir() or hokical.io.is_pattern(path)


def read_calibrator(path: Path) -> FittedCalibrator:
    """A saved calibrator; DataFileError if the file cannot be read."""
    try:
        return hokical.load(path)
    except OSError as error:
        raise hokical.io.DataFileError(
            path, f"expected a calibrator file; cannot be read: {error.strerror}.", "See `fit`."
        ) from error


def load_calibrator(path: Path) -> FittedCalibrator:
    """A saved calibrator that needs only logits."""
    calibrator = read_calibrator(path)
    check_method(calibrator.name)
    return calibrator


def warn_of_own_examples(calibrator: Calibrator, logits: Logits, path: Path) -> None:
    """Tell if rows are those that the calibrator was fitted on."""
    support, table = calibrator.support_, calibrator.fit_scores_
    as_many = table is None or table.total == logits.n_rows
    if support is not None and as_many and support.is_of(logits):
        warn(
            f"{path.name} holds the examples that the calibrator was fitted on, so it looks better "
            "than it is. Use other examples."
        )


def check_method(name: str) -> str:
    """The name, if the method needs only logits and labels."""
    known = [*hokical.calibrators.methods_from_logits(), "auto"]
    name = hokical.calibrators.catalog.find_method(name)
    if name in known:
        return name
    if name in hokical.calibrators.method_names():
        raise typer.BadParameter(
            f"{name} also needs the logits of transformed inputs, which cannot be given here; use "
            "`ReCal().fit(Views(logits, transformed), labels)` in Python."
        )
    hint = hokical.calibrators.catalog.suggest(name)
    raise typer.BadParameter(f"no method {name!r}; there are {', '.join(known)}.{hint}")
