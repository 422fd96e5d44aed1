"""`hokical monitor`: feed data to a monitor that is kept in a file."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import hokical
from hokical._core.groups import take_rows
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.reading import LABELLED, Source, read_calibrator, reads, warn_of_rows_of_fit
from hokical.io.tables import check_output

#: Classes in the table.
_SHOWN = 5
#: What the library's words are called here.
_OPTIONS = {
    "pass `ids` with the predictions and then `add_labels(ids, labels)`": "name --id-column COLUMN "
    "with both files",
    "`again=True`": "--again",
    "`CalibrationMonitor.from_validation(calibrator, logits, labels)`": "--reference FILE",
}


@reads(*LABELLED)
def monitor(
    calibrator: opt.CalibratorFile,
    data: Annotated[Path, opt.argument("FILE", "New logits, with labels where known.")],
    state: Annotated[Path | None, opt.text("File of the monitor, created if missing.")] = None,
    reference: Annotated[
        Path | None, opt.text("Validation data, if the calibrator keeps none of its fit.")
    ] = None,
    id_column: Annotated[
        str | None, opt.text("Column of ids, by which later labels are joined.", metavar="COLUMN")
    ] = None,
    again: Annotated[bool, opt.text("Count rows that were counted before.", "--again")] = False,
    window: Annotated[int, opt.text("Latest labelled examples that count as now.", min=1)] = 5000,
    delta: Annotated[float, opt.Delta] = 0.01,
    tolerance: Annotated[float, opt.text("Tolerated gap between confidence and accuracy.")] = 0.01,
    coverage: opt.Coverage = None,
    positive: opt.Positive = None,
    as_json: opt.Json = False,
    *,
    given: Source,
) -> None:
    """Watch a model in service for drift of confidence and inputs.

    Exits with 3 if an alarm was raised, now or earlier; the lifetime
    false-alarm probability is at most --delta. Rows without a label (-1 or an
    empty cell) count among the inputs only, or with --id-column wait for a
    later file with their labels. Options of window and alarm apply to a new
    monitor; one from --state has its own.
    """
    if state is not None:
        check_output(state)
    fitted = read_calibrator(calibrator)
    if fitted.name == "confidence" and coverage is not None:
        raise ui.bad_option(
            "--coverage", "needs a calibrator of logits; this one is of confidences."
        )
    rows_of = given.at(data, keep=id_column)
    options = {"window": window, "delta": delta, "tolerance": tolerance, "coverage": coverage}
    with nullcontext() if state is None else hokical.CalibrationMonitor.lock(state):
        if state is not None and state.exists():
            watching = _load_monitor(state, fitted, coverage)
        else:
            own: dict[str, Any] = {"labels": None, "split": opt.Part.val}
            first = None if reference is None else given.at(reference, **own)
            watching = _new_monitor(fitted, first, options)
        late = None if id_column is None or given.labels else rows_of.read_late(fitted, id_column)
        if late is None:
            rows = rows_of.read(fitted, "some")
            warn_of_rows_of_fit(fitted, rows, data)
            ids = None
            if id_column is not None:
                ids = next(iter(rows.kept.values()))[rows.used].astype(np.str_)
            _count(watching, fitted, rows, ids, again)
        else:
            with ui.check_options("FILE or --state", _OPTIONS):
                watching.add_labels(*late)
        if state is not None:
            watching.save(state)
    classes = getattr(fitted, "n_classes_", 1)
    event = None
    if positive is not None or classes == 2:
        event = ui.event_index(positive, watching.class_names, classes)
    _show(watching.status(), as_json, event, watching.class_names)


def _show(status: hokical.monitoring.Status, as_json: bool, event: int | None, names: Any) -> None:
    """What is known now, of the `event` of two classes too; an alarm is also the exit code."""
    values, facts = status.to_dict(), _facts(status)
    if event is not None and status.n_window:
        predicted, observed = _event_shares(status, event)
        name = ui.event_name(event, names)
        values["event"] = {"name": name, "predicted": predicted, "observed": observed}
        said = f"{name}: predicted {predicted:.1%}, observed {observed:.1%}"
        facts = {"verdict": facts["verdict"], "event": said} | facts
    ui.show_result(values, facts, as_json)
    for parts, rows_of in ((status.classes, "predicted class"), (status.groups, "group")):
        if parts and not as_json:
            _show_parts(parts, rows_of)
    if status.alarmed:
        raise typer.Exit(ui.ALARM)


def _event_shares(status: hokical.monitoring.Status, event: int) -> tuple[float, float]:
    """Mean probability and share of the event in the window, from the rows of each label."""
    sums = np.zeros(2)
    for part in status.classes:
        if part.n:
            own = np.array([part.mean_confidence, part.accuracy])
            sums += part.n * (own if part.label == event else 1.0 - own)
    predicted, observed = (sums / status.n_window).tolist()
    return predicted, observed


def _count(
    watching: hokical.CalibrationMonitor, fitted: Any, rows: Rows, ids: Any, again: bool
) -> None:
    """Count rows, and the labels of rows that wait for them."""
    scores: Any = rows.scores
    truth = np.full(rows.n_rows, -1) if rows.labels is None else rows.labels
    waits = np.zeros(rows.n_rows, np.bool_) if ids is None else watching.waits_for(ids)
    new, late = np.flatnonzero(~waits), np.flatnonzero(waits & (truth >= 0))
    options: dict[str, Any] = {"ids": None if ids is None else ids[new], "again": again}
    options["groups"] = None if rows.groups is None else take_rows(rows.groups, new)
    with ui.spinner(f"Watching {fitted.name}"), ui.check_options("FILE or --state", _OPTIONS):
        if rows.kind == "confidence":
            found = fitted.predict(scores[new], options["groups"])
            watching.update(found, truth[new], **options)
        elif new.size:
            watching.update_logits(scores.take(new), truth[new], **options)
            watching.class_names = rows.classes or watching.class_names
        if late.size:
            watching.add_labels(ids[late], truth[late])


def _load_monitor(
    state: Path, fitted: hokical.Calibrator, coverage: float | None
) -> hokical.CalibrationMonitor:
    with ui.check_options("CALIBRATOR or --state"):
        watching = hokical.CalibrationMonitor.load(state, fitted)
    if coverage not in (None, watching.options.coverage):
        raise ui.bad_option(
            "--coverage",
            f"the monitor in {state} watches {watching.options.coverage or 'no sets'}. Use another "
            "--state.",
        )
    return watching


def _new_monitor(
    fitted: Any, reference: Source | None, options: dict[str, Any]
) -> hokical.CalibrationMonitor:
    if reference is None:
        with ui.check_options(words=_OPTIONS):
            return hokical.CalibrationMonitor(fitted, **options)
    known = reference.read(fitted)
    with ui.check_options():
        labels: Any = known.labels == 1 if known.kind == "confidence" else known.labels
        return hokical.CalibrationMonitor.from_validation(
            fitted, known.scores, labels, groups=known.groups, **options
        )


def _facts(status: hokical.monitoring.Status) -> dict[str, str | None]:
    ece, inputs, drift = status.ece, status.inputs, status.calibration
    digits = drift.log_e / math.log(10.0)
    evidence = f"{drift.e_value:.3g}" if digits < 6 else f"10^{digits:.0f}"
    shares, error = f"{status.mean_confidence:.1%} / {status.accuracy:.1%}", f"{ece.value:.4f}"
    error += f" (true error in {ui.interval(ece.low, ece.high)})"
    return {
        "verdict": str(status.verdict),
        "labels": f"{status.n:,} so far, {status.n_window:,} in the window",
        "waiting for labels": f"{status.n_waiting:,} rows" if status.n_waiting else None,
        "confidence / accuracy": shares if status.n_window else ui.DASH,
        "ECE": error if status.n_window else ui.DASH,
        "evidence": f"{evidence} (alarm at {drift.threshold:.3g})",
        "sets": None if status.sets is None else _describe_sets(status.sets),
        "inputs": ui.DASH
        if inputs is None
        else f"{inputs.distance:.1%} moved, p {inputs.p_value:.2g}",
    }


def _describe_sets(sets: hokical.monitoring.coverage.SetStatus) -> str:
    held = f"contain {sets.covered:.1%} of {sets.n:,} labels" if sets.n else "no labels yet"
    found = "" if sets.alarm is None else "; too few: certify again"
    return f"{held}, {sets.coverage:.4g} was guaranteed{found}"


def _show_parts(parts: tuple[hokical.monitoring.e_process.PartStatus, ...], rows_of: str) -> None:
    """The classes or groups with most evidence against them."""
    table = ui.new_table([rows_of, "confidence", "accuracy", "rows", ""])
    for each in parts[:_SHOWN]:
        shares = [
            f"{share:.1%}" if each.n else ui.DASH for share in (each.mean_confidence, each.accuracy)
        ]
        alarm = "" if each.alarm is None else f"{each.alarm.direction}-confident"
        table.add_row(Text(each.name), *shares, f"{each.n:,}", alarm)
    more = len(parts) - _SHOWN
    ui.show_table("", table, *(["and more; see --json"] if more > 0 else []))
