"""Reading the input of a command: examples, maps and tokens, calibrators, names of methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

import hokical
from hokical._core.conversion import look_like_probabilities
from hokical._core.logits import Logits
from hokical.cli.options import Part, Zero
from hokical.cli.show import say, spinner, warn

#: What `fit` stores beside a calibrator, each where it is known.
_METADATA = {
    "examples": int, "accuracy": float, "classes": list, "scores": str, "binary_score": str,
    "zeros": str, "data": str,
}  # fmt: skip


def load_examples(
    path: Path,
    part: Part,
    labels: Path | None = None,
    *,
    weighted: bool = False,
    wanted: hokical.io.Wanted | None = None,
    **options: Any,
) -> hokical.io.LabelledRows:
    """Logits and labels of a file, with a message about the part used, and about weights."""
    wanted = wanted or hokical.io.Wanted()
    try:
        with spinner(f"Reading {path.name}"):
            examples = hokical.io.read_examples(
                path, split=part.literal, labels=labels, wanted=wanted, **options
            )
    except hokical.io.DataFileError as error:
        raise _dense_error(path, part) or error from error.__cause__
    scores = examples.logits.values
    if wanted.binary_score and not wanted.probabilities and 0 <= scores.min() <= scores.max() <= 1:
        say(
            f"Note: all of `{wanted.binary_score}` lies in [0, 1] and is taken for log-odds; if it "
            "is a probability, add --probabilities."
        )
    if examples.classes and not wanted.classes and not wanted.keep:
        _say_set_aside(examples.kept)
    if examples.part is not None:
        say(f"Using the {examples.part} part of {path} ({examples.logits.n_rows} examples).")
    if examples.weights is not None:
        say_weighted(path) if weighted else say(f"The weights in {path} are not used here.")
    return examples


def choose_scores(
    probabilities: bool | None,
    binary_score: str | None,
    classes: str | None,
    zeros: Zero | None,
    keep: str | None = None,
    *,
    fitted: hokical.calibrators.FittedCalibrator | None = None,
    dense: dict[str, Any] | None = None,
    in_parts: bool = False,
) -> hokical.io.Wanted:
    """What the options, or else the fit, say of the scores of a file."""
    names, kept = (
        tuple(name.strip() for name in (text or "").split(",") if name.strip())
        for text in (classes, "" if keep == "none" else keep)
    )
    if binary_score and len(names) not in (0, 2):
        raise typer.BadParameter(
            f"must name 2 classes with --binary-score; got {len(names)}.", param_hint="--classes"
        )
    known = {} if fitted is None else fitted.metadata
    said = None if probabilities is None else "probabilities" if probabilities else "logits"
    column = binary_score or known.get("binary_score")
    fit_names = tuple(known.get("classes", ()))
    if names and fit_names and set(names) != set(fit_names):
        raise typer.BadParameter(
            f"`--classes` must name the classes of the fit, {', '.join(fit_names)}; got "
            f"{', '.join(names)}. Leave it out: the calibrator knows them."
        )
    wanted = hokical.io.Wanted(
        probabilities=_choose("--", said, known.get("scores"), "logits") == "probabilities",
        binary_score=None if column == "none" else column,
        classes=fit_names or names,
        keep=None if keep is None else kept,
        zeros=_choose("--zeros ", zeros and zeros.value, known.get("zeros"), "unlikely"),
    )
    on_maps, not_logits = dense is not None, wanted.probabilities or wanted.binary_score
    if (on_maps and names) or ((on_maps or in_parts) and not_logits):
        place = "maps (nor does --classes)" if on_maps else "folders or with --checkpoint"
        raise typer.BadParameter(
            "--probabilities and --binary-score, given here or in the fit, work on one file of "
            f"scores (n, classes), not on {place}."
        )
    if zeros and not wanted.probabilities:
        raise typer.BadParameter("only goes with --probabilities.", param_hint="--zeros")
    if wanted.probabilities and not said:
        say("Scores are read as probabilities, as in the fit; if they are not, add --logits.")
    return wanted


def _choose(option: str, said: str | None, known: str | None, default: str) -> Any:
    """What the user says, with a warning if the fit had something else; else what it had."""
    if said and known and said != known:
        warn(f"{option}{said} does not match the fit of the calibrator, which had {known}.")
    return said or known or default


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
        "For maps and tokens `fit`, `evaluate` and `apply` have --class-axis, the axis of the "
        "classes: 1 for (n, classes, h, w), -1 for (n, tokens, classes).",
    )


def open_parts(
    path: Path, part: Part, labels: Path | None, classes: tuple[str, ...] = ()
) -> tuple[hokical.streams.ChunkSource, hokical.io._names.FileSplit | None]:
    """A source that is read in parts, with a message about weights; which part of a table it is."""
    source = hokical.streams.open_source(path, split=part.literal, labels=labels, classes=classes)
    with hokical.io._errors.report_file(path):  # without rows, for instance
        first = source.first_chunk()
        source.classes = hokical.io._names.check_classes(classes, first.n_classes) or source.classes
    if source.classes and not classes:
        _say_set_aside(source.set_aside)
    if first.weights is not None:
        say_weighted(path)
    return source, part.literal if source.n_rows is None else None


def _say_set_aside(columns: Iterable[str]) -> None:
    if names := ", ".join(columns):
        say(f"Not taken for a class: {names}. If it is one, see --classes.")


def say_weighted(path: Path) -> None:
    """Tell that rows are weighted."""
    say(f"Rows count by the weights in {path}.")


def in_many_files(path: Path) -> bool:
    """Whether a path is a folder, or a pattern that matches several files."""
    return path.is_dir() or hokical.io.is_pattern(path)


def read_calibrator(path: Path) -> hokical.calibrators.FittedCalibrator:
    """A saved calibrator; DataFileError if the file cannot be read."""
    try:
        found = hokical.load(path)
    except OSError as error:
        raise hokical.io.DataFileError(
            path, f"expected a calibrator file; cannot be read: {error.strerror}.", "See `fit`."
        ) from error
    metadata = found.metadata
    usable = all(isinstance(value, _METADATA.get(name, object)) for name, value in metadata.items())
    usable &= metadata.get("scores", "logits") in ("logits", "probabilities")
    usable &= metadata.get("zeros", "unlikely") in tuple(Zero)
    if not usable or not all(isinstance(name, str) for name in metadata.get("classes", ())):
        raise hokical.CalibratorFileError(f"{path} has unusable facts about its fit. Fit again.")
    return found


def load_calibrator(path: Path) -> hokical.calibrators.FittedCalibrator:
    """A saved calibrator that needs only logits."""
    calibrator = read_calibrator(path)
    check_method(calibrator.name)
    return calibrator


def sketch(path: Path, part: str | None) -> str:
    """A hash by which a file or folder, or a part of it, is known again without reading it all."""
    files = [path] if path.is_file() else hokical.io._opening.files_read(path)
    return hokical.io._identities.sketch_files(files, str(part))


def warn_of_probabilities(logits: Logits, path: Path, wanted: hokical.io.Wanted) -> None:
    """Tell if scores that are taken for logits look like a softmax's output."""
    if not wanted.probabilities and look_like_probabilities(logits, logits.to_host(logits.top)):
        warn(
            f"{path.name} seems to hold probabilities: all rows lie in [0, 1] and sum to 1, but "
            "the calibrator takes logits. Add --probabilities, or pass the logits."
        )


def warn_of_own_examples(
    calibrator: hokical.calibrators.FittedCalibrator,
    path: Path,
    part: str | None,
    logits: Logits | None = None,
) -> None:
    """Tell if a file, or its rows, are those that the calibrator was fitted on."""
    own = calibrator.metadata.get("data") == sketch(path, part)
    support, table = calibrator.support_, calibrator.fit_scores_
    if not own and logits is not None and support is not None:
        as_many = table is None or table.total == logits.n_rows
        own = as_many and support.is_of(logits)
    if own:
        warn(
            f"{path.name} holds the examples that the calibrator was fitted on, so it looks better "
            "than it is. Use other examples."
        )


def check_method(name: str) -> str:
    """The name, if the method needs only logits and labels."""
    known = [*hokical.calibrators.methods_from_logits(), "auto"]
    name = hokical.calibrators._catalog.find_method(name)
    if name in known:
        return name
    if name in hokical.calibrators.method_names():
        raise typer.BadParameter(
            f"{name} needs more than logits, which cannot be given here; fit it in Python."
        )
    hint = hokical.calibrators._catalog.suggest(name)
    raise typer.BadParameter(f"no method {name!r}; there are {', '.join(known)}.{hint}")


def dense_options(
    path: Path,
    class_axis: int | None,
    ignore_label: list[int] | None,
    per_item: int | None = None,
    **others: object,
) -> dict[str, Any] | None:
    """Options of `Dense`, or None for plain logits; `others` are incompatible options."""
    if class_axis is None:
        dense_only = {"--ignore-label": ignore_label, "--max-positions-per-item": per_item}
        for name, value in dense_only.items():
            if value:
                raise typer.BadParameter(
                    "needs --class-axis, the axis of the classes: 1 for (n, classes, h, w), -1 for "
                    "(n, tokens, classes) and (n, classes).",
                    param_hint=name,
                )
        return None
    for name, other in others.items():
        if other is not None:
            raise typer.BadParameter(f"--{name} and --class-axis cannot be combined.")
    if hokical.io.is_pattern(path) or (path.is_dir() and any(path.glob("*.parquet"))):
        raise typer.BadParameter(
            f"{path}: --class-axis works on one .npz or .npy file or Zarr store, not on several "
            "files. In Python, `Dense` takes batches."
        )
    return {
        "class_axis": class_axis,
        "ignore_label": ignore_label or None,
        "max_positions_per_item": per_item,
    }


def load_dense(
    path: Path, split: Part, labels: Path | None = None, *, need_labels: bool = True
) -> tuple[dict[str, Any], hokical.io._names.FileSplit | None]:
    """The arrays of a file, left on disk, as the keyword arguments of `Dense.fit`; the part."""
    arrays, part = hokical.dense.open_part(path, split.literal, labels)
    if part is not None:
        shape = tuple(arrays["logits"].shape)
        say(f"Using the {part} part of {path} (logits of shape {shape}).")
    if need_labels and "labels" not in arrays:
        raise hokical.io.DataFileError(
            path, "expected labels beside the logits; found none.", "See --labels FILE."
        )
    if need_labels and "sample_weight" in arrays:
        say_weighted(path)
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
