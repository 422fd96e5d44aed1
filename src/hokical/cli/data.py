"""Reading what a command is given: examples, calibrators, names of methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hokical.cli.options import Part
from hokical.cli.show import say
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator
    from hokical.files import DataFileError, Examples
    from hokical.files.names import Split

_NO_TRANSFORMED = (
    "{name} also needs the logits of transformed inputs, which files cannot give here; use "
    "`ReCal().fit(logits, labels, transformed=...)` in Python."
)


def load_examples(
    path: Path, part: Part, labels: Path | None = None, *, weighted: bool = False, **options: Any
) -> Examples:
    """Logits and labels of a file, with a word on which part was taken, and on weights."""
    from hokical.files import DataFileError, read_examples

    split: Split = "val" if part is Part.val else "test"
    try:
        with waiting(f"Reading {path.name}"):
            examples = read_examples(path, split=split, labels=labels, **options)
    except DataFileError as error:
        raise _of_maps(path, split) or error from error.__cause__
    if examples.part is not None:
        say(f"Using the {examples.part} part of {path} ({examples.logits.n_rows} examples).")
    if examples.weights is not None:
        say_weighted(path) if weighted else say(f"The weights in {path} are not used here.")
    return examples


def _of_maps(path: Path, split: Split) -> DataFileError | None:
    """The error for logits of maps or tokens, if a file has them; None if it has not."""
    from hokical.dense import open_dense
    from hokical.files import DataFileError

    try:
        shape = tuple(open_dense(path, split=split)["logits"].shape)
    except DataFileError:
        return None
    if len(shape) < 3:
        return None
    return DataFileError(
        path,
        f"expected logits (n, classes); found shape {shape}.",
        "For maps and tokens `fit`, `evaluate` and `apply` have --class-axis, the axis of the "
        "classes: 1 for (n, classes, h, w), -1 for (n, tokens, classes).",
    )


def say_weighted(path: Path) -> None:
    """That rows do not count alike must not go unseen."""
    say(f"Rows count by the weights in {path}.")


def in_many_files(path: Path) -> bool:
    """Whether a path is a folder, or a pattern that matches several files."""
    from hokical.streams.opening import is_pattern

    return path.is_dir() or is_pattern(path)


def load_calibrator(path: Path) -> BaseCalibrator:
    """A saved calibrator that logits alone are enough for."""
    from hokical.calibrators.registry import load
    from hokical.files import DataFileError

    try:
        calibrator = load(path)
    except OSError as error:
        raise DataFileError(
            path, f"expected a calibrator file; cannot be read: {error.strerror}.", "See `fit`."
        ) from error
    check_method(calibrator.name)
    return calibrator


def check_method(name: str) -> str:
    """A method that logits and labels are enough for, or an error that lists those there are."""
    from hokical.calibrators.registry import KINDS, methods_without_extra_input

    if name not in KINDS:
        known = ", ".join([*methods_without_extra_input(), "auto"])
        raise typer.BadParameter(f"no method {name!r}; there are {known}.")
    if KINDS[name].needs_transformed:
        raise typer.BadParameter(_NO_TRANSFORMED.format(name=name))
    return name
