"""The data of a command: examples in memory, a source that is read in parts, or maps and tokens.

All three are fitted on and measured alike, so that commands need not know which they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

import hokical
from hokical.cli.beyond import Beyond, kind_of
from hokical.cli.data import choose_scores
from hokical.cli.options import Input, Part
from hokical.cli.show import bad_option, refuse, say, spinner

_CLASS_AXIS = "the axis of the classes: 1 for (n, classes, h, w), -1 for (n, tokens, classes)"


class Rows:
    """Examples in memory, of a `part` of a file if it has parts."""

    unit, about = "examples", dict[str, Any]()

    def __init__(self, path: Path, examples: hokical.io.LabelledRows) -> None:
        self.path, self.examples, self.rows = path, examples, examples.logits
        self.part, self.classes = examples.part, examples.classes

    def fit(self, calibrator: hokical.calibrators.BaseCalibrator) -> tuple[Any, dict[str, Any]]:
        """A model with `save`, and numbers of examples and of the share that is right."""
        examples, logits = self.examples, self.examples.logits
        if calibrator.binary_only and logits.n_classes > 2:
            raise bad_option(
                "--method",
                f"{calibrator.name} is for two classes; {self.path.name} has {logits.n_classes}. "
                "Leave it out, or try structured.",
            )
        # The choice of noise has its own progress bar.
        searching = getattr(calibrator, "noise", None) == "auto"
        with nullcontext() if searching else spinner(f"Fitting {calibrator.name}"):
            own = {} if examples.groups is None else {"groups": examples.groups}
            if own and not isinstance(calibrator, hokical.AutoCalibrator):
                raise bad_option(
                    "--groups",
                    f"only the default learns from groups, and not {calibrator.name}: leave out "
                    "--method.",
                )
            calibrator.fit(*examples.pair, examples.weights, **own)
        right = float((logits.labels == examples.labels).mean())
        return calibrator, {"examples": logits.n_rows, "accuracy": right}

    def certify(self, fitted: hokical.Calibrator) -> hokical.Calibrator:
        """A calibrator that has noted the examples, for promises."""
        examples = self.examples
        with check_arrays(self.path):
            return fitted.certify(*examples.pair, examples.weights, groups=examples.groups)

    def compare(
        self, fitted: hokical.Calibrator | None, *, full: bool, **options: Any
    ) -> hokical.report._comparison.Comparison:
        """Before calibration, and after it if there is a calibrator."""
        examples, known = self.examples, [] if fitted is None else [fitted]
        options |= {"sample_weight": examples.weights}
        about = (options, examples.groups, self.path.name, full)
        found = hokical.report._before_after.judge_logits(known, examples.pair, *about)
        return replace(found, class_names=self.classes)


class Stream:
    """A source that is read in parts, so that it may be larger than memory."""

    unit, rows, about = "examples", None, dict[str, Any]()

    def __init__(self, path: Path, source: hokical.streams.ChunkSource, part: Any) -> None:
        self.path, self.source = path, source
        self.part, self.classes = part, source.classes

    def fit(self, calibrator: hokical.calibrators.BaseCalibrator) -> tuple[Any, dict[str, Any]]:
        hokical.streams.fit(calibrator, self.source)
        table = calibrator.fit_scores_
        if table is None:
            return calibrator, {"examples": self.source.n_rows, "accuracy": None}
        return calibrator, {"examples": table.total, "accuracy": table.accuracy}

    def certify(self, fitted: hokical.Calibrator) -> hokical.Calibrator:
        with check_arrays(self.path):
            return hokical.streams.certify(fitted, self.source)

    def without_calibration(self) -> hokical.Calibrator:
        head = self.source.first_chunk().rows(slice(1))
        with check_arrays(self.path):
            return hokical.make("uncalibrated").fit(head.logits, head.labels)

    def measure(
        self, judged: hokical.Calibrator, *, n_bins: int, full: bool, **_: Any
    ) -> hokical.metrics.Summary:
        with check_arrays(self.path):
            return hokical.streams.evaluate(judged, self.source, n_bins=n_bins, full=full)


class Maps:
    """Arrays with a prediction per pixel or token, left on disk; `options` are those of `Dense`."""

    unit, rows, classes, about = "positions", None, (), dict[str, Any]()

    def __init__(
        self, path: Path, arrays: dict[str, Any], part: Any, options: dict[str, Any]
    ) -> None:
        self.path, self.arrays, self.part, self.options = path, arrays, part, options

    def fit(self, calibrator: hokical.calibrators.BaseCalibrator) -> tuple[Any, dict[str, Any]]:
        model = hokical.Dense(calibrator, **self.options)
        with check_arrays(self.path):
            model.fit(**self.arrays)
        return model, {"examples": model.n_positions_, "accuracy": model.accuracy_}

    def certify(self, fitted: hokical.Calibrator) -> hokical.Calibrator:
        counted = {name: array for name, array in self.arrays.items() if name != "sample_weight"}
        with check_arrays(self.path):
            model = hokical.Dense(fitted, **self.options).certify(**counted)
        return model.fitted_calibrator()

    def without_calibration(self) -> hokical.Calibrator:
        found: hokical.Calibrator = self.fit(hokical.make("uncalibrated"))[0].calibrator_
        return found

    def measure(
        self, judged: hokical.Calibrator, *, random_state: int, **options: Any
    ) -> hokical.metrics.Summary:
        with check_arrays(self.path):
            return hokical.Dense(judged, **self.options).evaluate(**self.arrays, **options)


def open_data(
    path: Path,
    given: Input,
    *,
    fitted: Any = None,
    **dense: Any,
) -> Rows | Stream | Maps | Beyond:
    """The data of a path with labels, opened as the options say; `about` is how it was read."""
    if kind := kind_of(given, fitted):
        if given.class_axis is not None or in_many_files(path):
            raise typer.BadParameter(f"{kind.options} works on one file, without --class-axis.")
        return kind(path, given, fitted)
    maps = dense_options(path, given, **dense)
    in_parts = maps is None and in_many_files(path)
    wanted = choose_scores(given, fitted=fitted, in_parts=in_parts)
    found: Rows | Stream | Maps
    if maps is not None:
        found = Maps(path, *load_dense(path, given), maps)
    elif in_parts:
        found = Stream(path, *_open_parts(path, given, wanted.classes))
    else:
        found = Rows(path, load_examples(path, given, wanted, weighted=True, fitted_by=fitted))
    about: dict[str, Any] = {"scores": "probabilities" if wanted.probabilities else "logits"}
    about |= {"zeros": wanted.zeros} if wanted.probabilities else {}
    about |= {"binary_score": wanted.binary_score} if wanted.binary_score else {}
    found.about = about | ({"score_columns": given.score_columns} if given.score_columns else {})
    return found


def load_examples(
    path: Path,
    given: Input,
    wanted: hokical.io.Wanted,
    *,
    weighted: bool = False,
    **options: Any,
) -> hokical.io.LabelledRows:
    """Logits and labels of a file, with a message about the part used, and about weights."""
    try:
        with spinner(f"Reading {path.name}"):
            examples = hokical.io.read_examples(
                path, split=given.split.literal, labels=given.labels, wanted=wanted, **options
            )
    except hokical.io.DataFileError as error:
        raise _dense_error(path, given.split) or error from error.__cause__
    scores = examples.logits.values
    if wanted.binary_score and not wanted.probabilities and 0 <= scores.min() <= scores.max() <= 1:
        say(
            f"Note: all of `{wanted.binary_score}` lies in [0, 1] and is taken for log-odds; if it "
            "is a probability, add --probabilities."
        )
    if examples.classes and not wanted.classes and not wanted.keep and not wanted.score_columns:
        _say_set_aside(name for name in examples.kept if name not in (examples.groups or ()))
    if examples.n_dropped:
        total = examples.logits.n_rows + examples.n_dropped
        say(f"Dropped {examples.n_dropped:,} of {total:,} rows of {path.name} without a value.")
    if examples.part is not None:
        say(f"Using the {examples.part} part of {path} ({examples.logits.n_rows} examples).")
    if examples.weights is not None:
        _say_weighted(path) if weighted else say(f"The weights in {path} are not used here.")
    return examples


def _dense_error(path: Path, part: Part) -> hokical.io.DataFileError | None:
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
        f"For maps and tokens `fit`, `evaluate` and `apply` have --class-axis, {_CLASS_AXIS}.",
    )


def _open_parts(
    path: Path, given: Input, classes: tuple[str, ...]
) -> tuple[hokical.streams.ChunkSource, hokical.io._names.FileSplit | None]:
    """A source that is read in parts, with a message about weights; which part of a table it is."""
    part = given.split.literal
    source = hokical.streams.open_source(path, split=part, labels=given.labels, classes=classes)
    with hokical.io._errors.report_file(path):  # without rows, for instance
        first = source.first_chunk()
        source.classes = hokical.io._names.check_classes(classes, first.n_classes) or source.classes
    if first.weights is not None:
        _say_weighted(path)
    return source, part if source.n_rows is None else None


def _say_set_aside(columns: Iterable[str]) -> None:
    if names := ", ".join(columns):
        say(f"Not taken for a class: {names}. If it is one, see --classes.")


def _say_weighted(path: Path) -> None:
    say(f"Rows count by the weights in {path}.")


def in_many_files(path: Path) -> bool:
    """Whether a path is a folder, or a pattern that matches several files."""
    return path.is_dir() or hokical.io.is_pattern(path)


def dense_options(
    path: Path, given: Input, per_item: int | None = None, random_state: int = 0, **others: object
) -> dict[str, Any] | None:
    """Options of `Dense`, or None for plain logits; `others` are incompatible options."""
    if given.class_axis is None:
        needed = {"ignore_label": given.ignore_label or None, "max_positions_per_item": per_item}
        refuse(f"needs --class-axis, {_CLASS_AXIS} and (n, classes).", **needed)
        return None
    refuse("cannot be combined with --class-axis.", **others)
    if hokical.io.is_pattern(path) or (path.is_dir() and any(path.glob("*.parquet"))):
        raise typer.BadParameter(
            f"{path}: --class-axis works on one .npz or .npy file, not on several files. "
            "In Python, `Dense` takes batches."
        )
    return {
        "class_axis": given.class_axis,
        "ignore_label": given.ignore_label or None,
        "max_positions_per_item": per_item,
        "random_state": random_state,
    }


def load_dense(
    path: Path, given: Input, *, need_labels: bool = True
) -> tuple[dict[str, Any], hokical.io._names.FileSplit | None]:
    """The arrays of a file, left on disk, as the keyword arguments of `Dense.fit`; the part."""
    arrays, part = hokical.dense.open_part(path, given.split.literal, given.labels)
    if part is not None:
        shape = tuple(arrays["logits"].shape)
        say(f"Using the {part} part of {path} (logits of shape {shape}).")
    if need_labels and "labels" not in arrays:
        raise hokical.io.DataFileError(
            path, "expected labels beside the logits; found none.", "See --labels FILE."
        )
    if need_labels and "sample_weight" in arrays:
        _say_weighted(path)
    return arrays, part


@contextmanager
def check_arrays(path: Path) -> Iterator[None]:
    """Report errors of `Dense` about the arrays as errors of the file."""
    try:
        yield
    except hokical.io.DataFileError:
        raise
    except (TypeError, ValueError) as error:
        text = str(error)
        for name in ("class_axis", "ignore_label", "max_positions_per_item"):
            option = "--" + name.replace("_", "-")
            text = text.replace(f"{name}=", f"{option} ").replace(name, option)
        raise hokical.io.DataFileError(path, text) from error
