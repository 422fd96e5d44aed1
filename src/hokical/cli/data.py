"""Reading the input of a command: examples, calibrators, names of methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import hokical
from hokical.cli.options import Part
from hokical.cli.show import say
from hokical.cli.spinner import spinner

if TYPE_CHECKING:
    from hokical.calibrators import Calibrator
    from hokical.io import DataFileError, LabelledRows
    from hokical.streams import ChunkSource


def load_examples(
    path: Path, part: Part, labels: Path | None = None, *, weighted: bool = False, **options: Any
) -> LabelledRows:
    """Logits and labels of a file, with a message about the part used, and about weights."""
    try:
        with spinner(f"Reading {path.name}"):
            examples = hokical.io.read_examples(path, split=part.literal, labels=labels, **options)
    except hokical.io.DataFileError as error:
        raise _dense_error(path, part) or error from error.__cause__
    if examples.part is not None:
        say(f"Using the {examples.part} part of {path} ({examples.logits.n_rows} examples).")
    if examples.weights is not None:
        say_weighted(path) if weighted else say(f"The weights in {path} are not used here.")
    return examples


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


def load_calibrator(path: Path) -> Calibrator:
    """A saved calibrator that needs only logits."""
    try:
        calibrator = hokical.load(path)
    except OSError as error:
        raise hokical.io.DataFileError(
            path, f"expected a calibrator file; cannot be read: {error.strerror}.", "See `fit`."
        ) from error
    check_method(calibrator.name)
    return calibrator


def check_method(name: str) -> str:
    """The name, if the method needs only logits and labels."""
    known = [*hokical.calibrators.methods_from_logits(), "auto"]
    if name in known:
        return name
    if name in hokical.calibrators.method_names():
        raise typer.BadParameter(
            f"{name} also needs the logits of transformed inputs, which cannot be given here; use "
            "`ReCal().fit(Views(logits, transformed), labels)` in Python."
        )
    raise typer.BadParameter(f"no method {name!r}; there are {', '.join(known)}.")
