"""`hokical apply`: labels and confidence for new logits."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import hokical
from hokical._core.logits import Logits
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.applied import Applied, Asked, predict_parts, show_applied
from hokical.cli.beyond import Beyond, kind_of
from hokical.cli.inputs import check_arrays, dense_options, in_many_files, load_dense, load_examples
from hokical.cli.show import bad_option, check_options, say, spinner

#: Logits that are worked on between two steps of the progress bar.
_PART_SIZE = 1 << 21
_NOT_CERTIFIED = (
    "the pixels or tokens of a fit give no guarantee, as neighbours are not independent; certify "
    "the calibrator on new items: `hokical certify CALIBRATOR FILE --class-axis ...`."
)
_PROMISES = "--risk / --coverage / --delta"
#: Whom the coverage is promised to, and how sets are made; see `Calibrator.predict_set`.
By = StrEnum("By", ["all", "class", "group", "label"])
Kind = StrEnum("Kind", ["smallest", "adaptive", "ordered"])


@opt.reads(opt.Part.test, without=("labels", "label_column", *opt.BEYOND))
def apply(
    calibrator: opt.CalibratorFile,
    logits: Annotated[
        Path, opt.argument("LOGITS", "New logits; or a folder (or 'pattern*') of .parquet files.")
    ],
    output: Annotated[
        Path, opt.text("A .csv, .csv.gz, .parquet, .npz; a folder for a folder.", "-o", "--output")
    ],
    given: opt.Input,
    proba: Annotated[bool, opt.text("Also write all probabilities.", "--proba")] = False,
    keep: Annotated[
        str | None,
        opt.text("Columns to copy: a,b, or all, or none.", metavar="COLUMNS", show_default="id"),
    ] = None,
    risk: Annotated[
        float | None,
        opt.text("Also write `accepted`: labels with at most this error rate, e.g. 0.05."),
    ] = None,
    delta: Annotated[
        float | None,
        opt.text(
            "Probability that the promise fails; of --coverage on average if not given.",
            show_default="0.1 with --risk, --recall",
        ),
    ] = None,
    recall: Annotated[
        float | None,
        opt.text("Of several labels: find at least this share of each one's positives."),
    ] = None,
    coverage: Annotated[
        float | None,
        opt.text("Also write `set`: the labels it can be, with this coverage, e.g. 0.9."),
    ] = None,
    by: Annotated[
        By | None,
        opt.text("Whom it is promised to: all, each class, label or group.", show_default="all"),
    ] = None,
    kind: Annotated[
        Kind | None, opt.text("Sets: smallest, adaptive, ordered.", show_default="smallest")
    ] = None,
    max_size: Annotated[
        int | None, opt.text("Sets of at most so many labels; says what they cover.", min=1)
    ] = None,
    adapt: Annotated[
        bool, opt.text("First adapt to the class balance of these rows; see `shift`.", "--adapt")
    ] = False,
    scheduler: Annotated[
        str | None, opt.text("For a folder: address of a Dask scheduler, e.g. tcp://host:8786.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Write the predicted labels and their confidence for new logits.

    The output has one row per input row: columns to keep, label, confidence.
    Labels are names where the fit or this command knew the classes' names.

    For a folder of Parquet files, one output file is written per input file,
    with the rows in the same order. Existing outputs of the same inputs are
    kept, so a rerun continues after a crash.

    With --class-axis the results have the shape of the logits without the
    classes. Labels are not read, so --ignore-label changes nothing. Where an
    array `mask` is 0, results are -1 and NaN.
    """
    asked = _read_asked(
        proba, {"risk": risk, "recall": recall}, coverage, max_size, delta, by=by, kind=kind
    )
    dense = dense_options(logits, given, scheduler=scheduler)
    in_parts = dense is None and (scheduler is not None or in_many_files(logits))
    if in_parts and not (keep is None and asked.nothing_more):
        raise typer.BadParameter("--risk, --coverage and --keep work on one file, not on a folder.")
    if adapt and (dense or in_parts or risk is not None):
        raise bad_option("--adapt", "works on rows of one file, without --risk.")
    if dense and asked.sets.keys() - {"coverage", "kind", "delta"}:
        raise typer.BadParameter("sets of positions have --coverage and --kind alone.")
    fitted = data.read_calibrator(calibrator)
    tables = (".npz", *hokical.io._writing.TABLES)
    if what := kind_of(given, fitted):
        if proba or adapt or dense or in_parts or asked.sets.keys() - {"coverage", "by", "delta"}:
            raise typer.BadParameter(
                f"a calibrator of method {fitted.name} takes rows of one file, with --keep, "
                "--risk, --recall, --coverage, --by and --delta."
            )
        hokical.io.check_output(output, suffix=tables)
        found = _apply_beyond(fitted, what(logits, given, fitted, keep=keep, labelled=False), asked)
    else:
        if recall is not None:
            raise bad_option("--recall", "is for several labels at once.")
        wanted = data.choose_scores(given, keep, fitted=fitted, in_parts=in_parts)
        if in_parts:
            part = given.split.literal
            task = hokical.streams.PartTask(fitted, proba=proba, split=part, classes=wanted.classes)
            _apply_to_parts(task, logits, output, scheduler, as_json)
            return
        hokical.io.check_output(output, suffix=".npz" if dense else tables)
        if dense:
            found = _apply_to_maps(fitted, logits, given, dense, asked)
        else:
            found = _apply_to_rows(fitted, logits, given, wanted, asked, adapt=adapt)
    found.write(output, as_json)


def _read_asked(
    proba: bool,
    promise: dict[str, float | None],
    coverage: float | None,
    max_size: int | None,
    delta: float | None,
    **others: StrEnum | None,
) -> Asked:
    """What is asked of a calibrator; `others` are options of sets alone."""
    promised = {name: value for name, value in promise.items() if value is not None}
    goals = {"coverage": coverage, "max_size": max_size}
    sets: dict[str, Any] = {name: value for name, value in goals.items() if value is not None}
    given = {name: str(value) for name, value in others.items() if value is not None}
    if given and not sets:
        option = next(iter(given)).replace("_", "-")
        raise bad_option(f"--{option}", "only goes with --coverage or --max-size.")
    if delta is not None and not promised and not sets:
        raise bad_option("--delta", "only goes with --risk, --recall or --coverage.")
    promised |= {"delta": 0.1 if delta is None else delta} if promised else {}
    sets |= given | ({"delta": delta} if sets and delta is not None else {})
    return Asked(proba, promised, sets)


def _apply_beyond(fitted: Any, rows: Beyond, asked: Asked) -> Applied:
    """Confidences of answers, or several labels at once."""
    with check_options("--risk / --recall / --coverage / --delta"):
        results, facts = rows.predict(fitted, asked.promise, asked.sets)
    return Applied(fitted.name, results, facts, rows.unit, rows.rows)


def _apply_to_maps(
    fitted: hokical.calibrators.FittedCalibrator,
    path: Path,
    given: opt.Input,
    dense: dict[str, Any],
    asked: Asked,
) -> Applied:
    """A label and a confidence for each pixel or token; masked ones are NaN."""
    on_average = {name: value for name, value in asked.sets.items() if name != "delta"}
    asked = replace(asked, sets=on_average)
    with check_options(_PROMISES):
        if not asked.nothing_more and fitted.held_out_scores_ is None:
            raise ValueError(_NOT_CERTIFIED)
        asked.try_on(fitted, data.blank_row(fitted))
    arrays, part = load_dense(path, given, need_labels=False)
    if not asked.nothing_more:
        data.warn_of_own_examples(fitted, path, part)
    model = hokical.Dense(fitted, **dense)
    chosen = [{name: arrays[name] for name in ("logits", "mask") if name in arrays}]
    with spinner(f"Applying {fitted.name}"), check_arrays(path):
        return Applied(fitted.name, *predict_parts(model, chosen, asked), "positions")


def _apply_to_rows(
    fitted: hokical.calibrators.FittedCalibrator,
    path: Path,
    given: opt.Input,
    wanted: hokical.io.Wanted,
    asked: Asked,
    *,
    adapt: bool,
) -> Applied:
    """A label and a confidence for each row of a file."""
    with check_options(_PROMISES):
        if asked.sets.get("by") == "group" and not wanted.groups:
            raise ValueError("--by group needs the column that tells them: --groups COLUMN.")
        asked.try_on(fitted, data.blank_row(fitted))
    examples = load_examples(path, given, wanted, need_labels=False, fitted_by=fitted)
    rows = examples.logits
    data.warn_of_probabilities(rows, path, wanted)
    with check_options("--groups"):
        grouped = fitted.with_groups(rows, examples.groups)
    if adapt:
        fitted, grouped = _adapt(fitted, grouped), rows
    if not asked.nothing_more:
        data.warn_of_own_examples(fitted, path, examples.part, rows)
    step = max(_PART_SIZE // rows.n_columns, 1)
    parts = [{"logits": grouped.take(slice(i, i + step))} for i in range(0, rows.n_rows, step)]
    found = predict_parts(fitted, parts, asked, examples.groups)
    return Applied(fitted.name, *found, "examples", examples)


def _adapt(fitted: hokical.Calibrator, rows: Logits) -> Any:
    """The calibrator for the balance of the rows, unless something else has changed."""
    with check_options("--adapt"):
        found = fitted.estimate_shift(rows)
        if not found.holds:
            raise ValueError(f"{found.verdict}. Apply the calibrator as it is, or fit it again.")
        say(str(found))
        return found.adapt()


def _apply_to_parts(
    task: hokical.streams.PartTask, logits: Path, output: Path, scheduler: str | None, as_json: bool
) -> None:
    """One output file per input file, here or on a cluster; existing ones are kept."""
    if output.suffix == ".npz":
        raise typer.BadParameter(
            f"{output}: results of a folder, {logits}, go into a folder, not an .npz."
        )
    jobs, fitted = hokical.streams.plan_parts(logits, output), task.calibrator
    with spinner(f"Applying {fitted.name} to {len(jobs)} files"), _cluster(scheduler) as run:
        results = hokical.streams.apply_parts(task, jobs, run)
    rows = sum(result.n_rows for result in results)
    mean = sum(result.confidence for result in results) / rows if rows else float("nan")
    facts: dict[str, Any] = {
        "parts": len(results),
        "already_done": sum(each.already_done for each in results),
    }
    facts |= {"examples": rows, "mean_confidence": mean}
    show_applied(fitted.name, output, facts, as_json)


def _cluster(scheduler: str | None) -> Any:
    if scheduler is None:
        return nullcontext()
    try:
        hokical.integrations.dask.import_dask("distributed")
    except ImportError as error:
        raise bad_option("--scheduler", str(error)) from error
    return hokical.integrations.dask.on_cluster(scheduler)
