"""Reading the input of a command: examples, maps and tokens, calibrators, names of methods."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import typer

import hokical
from hokical._core.conversion import look_like_probabilities
from hokical._core.logits import Logits
from hokical.cli.options import Input, Missing, Zero
from hokical.cli.show import bad_option, check_options, say, warn

#: What `fit` stores beside a calibrator, each where it is known.
_METADATA = {
    "examples": int, "accuracy": float, "classes": list, "scores": str, "binary_score": str,
    "zeros": str, "data": str, "score_columns": str,
}  # fmt: skip


def choose_scores(
    given: Input,
    keep: str | None = None,
    *,
    fitted: hokical.calibrators.FittedCalibrator | None = None,
    in_parts: bool = False,
) -> hokical.io.Wanted:
    """What the options, or else the fit, say of the scores of a file."""
    names, kept = map(_split_names, (given.classes, "" if keep == "none" else keep))
    if given.binary_score and len(names) not in (0, 2):
        raise bad_option("--classes", f"must name 2 classes with --binary-score; got {len(names)}.")
    known = {} if fitted is None else fitted.metadata
    said = None
    if given.probabilities is not None:
        said = "probabilities" if given.probabilities else "logits"
    column = given.binary_score or known.get("binary_score")
    fit_names = tuple(known.get("classes", ()))
    if names and fit_names and set(names) != set(fit_names):
        raise typer.BadParameter(
            f"`--classes` must name the classes of the fit, {', '.join(fit_names)}; got "
            f"{', '.join(names)}. Leave it out: the calibrator knows them."
        )
    with check_options():
        wanted = hokical.io.Wanted(
            probabilities=_choose("--", said, known.get("scores"), "logits") == "probabilities",
            binary_score=None if column == "none" else column,
            classes=fit_names or names,
            keep=None if keep is None else kept,
            zeros=_choose("--zeros ", given.zeros, known.get("zeros"), "unlikely"),
            label_column=given.label_column,
            score_columns=_split_names(given.score_columns or known.get("score_columns")),
            decimal=given.decimal,
            encoding=given.encoding,
            missing="drop" if given.missing is Missing.drop else "error",
            groups=_split_names(given.groups) or _groups_of_fit(fitted, in_parts),
        )
    _check_reach(given, wanted, in_parts=in_parts)
    if given.zeros and not wanted.probabilities:
        raise bad_option("--zeros", "only goes with --probabilities.")
    if wanted.probabilities and not said:
        say("Scores are read as probabilities, as in the fit; if they are not, add --logits.")
    return wanted


def _groups_of_fit(
    fitted: hokical.calibrators.FittedCalibrator | None, in_parts: bool
) -> tuple[str, ...]:
    """The columns with groups that a calibrator learned from."""
    needed = getattr(getattr(fitted, "rule_", None), "needed_groups", None)
    if needed is not None and in_parts:
        raise typer.BadParameter(
            "this calibrator learned from groups, which are read from one file, not from a folder."
        )
    return () if needed is None else tuple(needed.columns)


def blank_row(fitted: hokical.calibrators.FittedCalibrator) -> Any:
    """Logits (1, classes) that are not to blame, with groups if those are needed."""
    logits, needed = np.zeros((1, fitted.n_classes_)), fitted.rule_.needed_groups
    if needed is None:
        return logits
    levels = zip(needed.columns, needed.levels, strict=True)
    return fitted.with_groups(logits, {name: [own[0]] for name, own in levels})


def _split_names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _check_reach(given: Input, wanted: hokical.io.Wanted, *, in_parts: bool) -> None:
    """Refuse options that only work on one file of scores (n, classes)."""
    on_maps = given.class_axis is not None
    if (on_maps and given.classes) or (
        (on_maps or in_parts) and (wanted.probabilities or wanted.binary_score)
    ):
        place = "maps (nor does --classes)" if on_maps else "folders"
        raise typer.BadParameter(
            "--probabilities and --binary-score, given here or in the fit, work on one file of "
            f"scores (n, classes), not on {place}."
        )
    for name in ("label_column", "score_columns", "decimal", "encoding", "missing", "groups"):
        if (on_maps or in_parts) and getattr(given, name) != getattr(Input, name):
            raise bad_option(
                f"--{name.replace('_', '-')}",
                "works on one file of scores (n, classes), not on folders or maps.",
            )


def _choose(option: str, said: str | None, known: str | None, default: str) -> Any:
    """What the user says, with a warning if the fit had something else; else what it had."""
    if said and known and said != known:
        warn(f"{option}{said} does not match the fit of the calibrator, which had {known}.")
    return said or known or default


def read_calibrator(path: Path, *, of_logits: bool = False, method: bool = True) -> Any:
    """A saved calibrator, `of_logits` if asked for, whose method needs no more unless told so."""
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
    if isinstance(found, hokical.calibrators.FittedCalibrator):
        if method:
            with check_options("CALIBRATOR"):
                hokical.calibrators._predictions.check_plain_logits(found, "method")
    elif of_logits:
        raise typer.BadParameter(
            f"{path} is not a calibrator of logits but of method {found.name}, which goes "
            "through `hokical certify`, `evaluate`, `apply`, `export` and `show`; use it in Python."
        )
    return found


def sketch(path: Path, part: str | None) -> str:
    """A hash by which a file or folder, or a part of it, is known again without reading it all."""
    from hokical.io._identities import sketch_files

    files = [path] if path.is_file() else hokical.io._opening.files_read(path)
    return sketch_files(files, str(part))


def warn_of_probabilities(logits: Logits, path: Path, wanted: hokical.io.Wanted) -> None:
    """Tell if scores that are taken for logits look like a softmax's output."""
    if not wanted.probabilities and look_like_probabilities(logits, logits.to_host(logits.top)):
        warn(
            f"{path.name} seems to hold probabilities: all rows lie in [0, 1] and sum to 1, but "
            "the calibrator takes logits. Add --probabilities, or pass the logits."
        )


def warn_of_own_examples(
    calibrator: Any,
    path: Path,
    part: str | None,
    logits: Logits | None = None,
) -> None:
    """Tell if a file, or its rows, are those that the calibrator was fitted on."""
    own = calibrator.metadata.get("data") == sketch(path, part)
    support = getattr(calibrator, "support_", None)
    if not own and logits is not None and support is not None:
        table = calibrator.fit_scores_
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


def make_method(
    name: str, seed: int, settings: Iterable[str], options: dict[str, Any] | None = None
) -> hokical.calibrators.BaseCalibrator:
    """A calibrator with options such as `n_bins=20`, of the types that its parameters have."""
    known = hokical.make(check_method(name)).get_params(deep=False)
    chosen = dict(options or {}) | read_settings(settings, known, name)
    if isinstance(chosen.get("noise", "auto"), str) and chosen.get("noise", "auto") != "auto":
        with check_options("--noise"):
            chosen["noise"] = hokical.stability.parse_noise(chosen["noise"])
    with check_options("--set"):
        made = hokical.calibrators.make_seeded(name, seed, **chosen)
        made.set_params(**{k: v for k, v in chosen.items() if k == "random_state"})
    return made


def read_settings(settings: Iterable[str], known: dict[str, Any], name: str) -> dict[str, Any]:
    """Options such as `n_bins=20` of a method, which has those `known` with their defaults."""
    chosen = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign or key.strip() not in known:
            listed = ", ".join(f"{each}={default}" for each, default in known.items())
            raise bad_option("--set", f"must be an option of {name}: {listed}; got {setting!r}.")
        chosen[key.strip()] = _read_value(setting, value.strip(), known[key.strip()])
    return chosen


def _read_value(setting: str, text: str, default: Any) -> Any:
    """A number, true, false, none or several of them in brackets; else the text itself."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    try:
        value = words[text.lower()] if text.lower() in words else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        bool: isinstance(value, bool),
        int: number and int(value) == value,
        float: number,
    }.get(type(default), True)
    if not fits and not (isinstance(value, str) and isinstance(default, str)):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        raise bad_option(
            "--set", f"must be {kinds[type(default)]}, as the default {default}; got {setting!r}."
        )
    return value
