"""`hokical monitor`: feed logits to a monitor that is kept in a file."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import hokical
from hokical._core.groups import take_rows
from hokical._core.logits import as_logits
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.beyond import Answers, kind_of
from hokical.cli.inputs import check_arrays, dense_options, load_dense, load_examples
from hokical.cli.show import (
    DASH,
    bad_option,
    check_options,
    interval,
    new_table,
    show_result,
    show_table,
    spinner,
)

#: The exit code if an alarm was raised, now or before.
ALARM = 3
#: Classes in the table.
_SHOWN = 5
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@opt.reads(opt.Part.test, without=opt.BEYOND)
def monitor(
    calibrator: opt.CalibratorFile,
    logits: Annotated[Path, opt.argument("LOGITS", "New logits, with labels where known.")],
    given: opt.Input,
    state: Annotated[Path | None, opt.text("File of the monitor, created if missing.")] = None,
    reference: Annotated[
        Path | None, opt.text("Validation data; needed at first, except for unweighted hoki.")
    ] = None,
    log: Annotated[Path | None, opt.text("File of JSON lines to append the status to.")] = None,
    window: Annotated[
        str, opt.text("What counts as now: labelled examples, or a time: 30m, 12h, 1d.")
    ] = "5000",
    timestamp: Annotated[
        str | None, opt.text("Column or array of times: seconds or ISO dates.", metavar="COLUMN")
    ] = None,
    observed: Annotated[bool, opt.text("Rows were counted without labels.", "--observed")] = False,
    again: Annotated[bool, opt.text("Count a file that was counted before.", "--again")] = False,
    bins: opt.Bins = 15,
    delta: Annotated[
        float, opt.text("Probability of ever raising a false alarm, in all and by class.")
    ] = 0.01,
    tolerance: Annotated[float, opt.text("Tolerated gap between confidence and accuracy.")] = 0.01,
    class_tolerance: Annotated[float, opt.text("The same for rows of one predicted label.")] = 0.05,
    coverage: Annotated[
        float | None, opt.text("Also watch whether sets of this coverage keep it, e.g. 0.9.")
    ] = None,
    model: Annotated[str, opt.text("Name of the model in exports.")] = "model",
    as_json: opt.Json = False,
) -> None:
    """Watch a model in service for drift of confidence and inputs.

    Exits with 3 if an alarm was raised, now or before. Rows without a label
    (-1 or an empty cell) count among the inputs only. Options of window and
    alarm apply to a new monitor; one from --state has its own.
    """
    for output in (state, log):
        if output is not None:
            hokical.io.check_output(output)
    fitted = data.read_calibrator(calibrator)
    answers = kind_of(given, fitted)
    if answers not in (None, Answers) or (answers and (given.class_axis or coverage)):
        raise typer.BadParameter(
            "`monitor` watches logits, or confidences without --class-axis and --coverage; got a "
            f"calibrator of method {fitted.name}."
        )
    dense = dense_options(logits, given, timestamp=timestamp)
    plain = hokical.io.Wanted() if answers else data.choose_scores(given, fitted=fitted)
    wanted = replace(plain, keep=(timestamp,) if timestamp else None, unlabelled=True)
    read = partial(_read_rows, fitted=fitted, dense=dense)
    options: dict[str, Any] = {"window": _read_window(window), "n_bins": bins, "delta": delta}
    options |= {"tolerance": tolerance, "class_tolerance": class_tolerance, "model": model}
    options |= {"coverage": coverage}
    with nullcontext() if state is None else hokical.CalibrationMonitor.lock(state):
        if state is not None and state.exists():
            watching = _load_monitor(state, fitted, coverage)
        else:
            at_first = replace(given, split=opt.Part.val, labels=None)
            known = None if reference is None else read(reference, at_first, plain, 0)
            watching = _new_monitor(fitted, known, options)
        seed = watching.status().n_observed  # another position of each map at every run
        rows = read(logits, given, wanted, seed)
        data.warn_of_own_examples(
            fitted, logits, rows.part, None if dense or answers else rows.logits
        )
        if not answers:
            data.warn_of_probabilities(rows.logits, logits, wanted)
        times = None if timestamp is None else next(iter(rows.kept.values()))
        batch = data.sketch(logits, rows.part) if dense else _digest(rows, times)
        if not (_note(watching, batch, rows, observed) or again):
            raise hokical.io.DataFileError(
                logits,
                f"was counted before{', labels too' if observed else ''}.",
                "If only its labels are new, add --observed; if it is to count once more, --again.",
            )
        _count(watching, fitted, rows, times, observed)
        if state is not None:  # first: counts must not be lost, a status can be made again
            watching.save(state)
    if log is not None:
        watching.append_json_line(log)
    _show(watching.status(), as_json)


def _show(status: hokical.monitoring.Status, as_json: bool) -> None:
    """What is known now; an alarm is also the exit code."""
    show_result(status.to_dict(), _facts(status), as_json)
    for parts, rows_of in ((status.classes, "rows labelled"), (status.groups, "rows of")):
        if parts and not as_json:
            _show_parts(parts, rows_of)
    if status.alarmed:
        raise typer.Exit(ALARM)


def _read_window(text: str) -> int | timedelta:
    found = re.fullmatch(r"(\d{1,9})([smhdw]?)", text.strip())
    if found is None or int(found[1]) == 0:
        raise bad_option(
            "--window",
            "must be a number of examples, or a time such as 90s, 30m, 12h, 1d or 2w; got "
            f"{text!r}.",
        )
    number, unit = int(found[1]), found[2]
    return timedelta(seconds=number * _SECONDS[unit]) if unit else number


def _digest(rows: hokical.io.LabelledRows, times: Any) -> str:
    """A digest of scores and times, whatever the file and its format."""
    from hokical.io._chunks import Chunk
    from hokical.io._identities import hash_chunk

    with np.errstate(over="ignore"):
        scores = rows.logits.values.astype(np.float32)  # the same of text and of binary files
    moments = None if times is None else times.astype(np.str_)
    return hash_chunk(Chunk(scores, moments))


def _note(
    watching: hokical.CalibrationMonitor, batch: str, rows: hokical.io.LabelledRows, observed: bool
) -> bool:
    """Whether rows, or the labels of rows that were observed before, are counted for once."""
    labelled = rows.labels is not None and bool((rows.labels >= 0).any())
    if observed and not labelled:
        raise bad_option("--observed", "needs labels; found none.")
    new_labels = not labelled or watching.note_batch(f"labels of {batch}")
    return (watching.note_batch(batch) or observed) and new_labels


def _read_rows(
    path: Path,
    given: opt.Input,
    wanted: hokical.io.Wanted,
    seed: int,
    *,
    fitted: hokical.Calibrator,
    dense: dict[str, Any] | None,
) -> hokical.io.LabelledRows:
    """The rows of a file; of maps one position per item."""
    if kind_of(given, fitted):
        time = ",".join(wanted.keep or ()) or None
        return Answers(path, given, fitted, keep=time, unlabelled=wanted.unlabelled).rows
    if dense is None:
        return load_examples(path, given, wanted, fitted_by=fitted)
    arrays, part = load_dense(path, given, need_labels=not wanted.unlabelled)
    with check_arrays(path):
        model = hokical.Dense(fitted, **dense | {"random_state": seed})
        rows, truth = model.draw_positions(
            arrays["logits"], arrays.get("labels"), mask=arrays.get("mask")
        )
        return hokical.io.LabelledRows(as_logits(rows, fitted_by=fitted), truth, part)


def _count(
    watching: hokical.CalibrationMonitor,
    fitted: Any,
    rows: hokical.io.LabelledRows,
    times: Any,
    observed: bool,
) -> None:
    """Count rows; of answers, those that are right or wrong, and the others as inputs."""
    with spinner(f"Watching {fitted.name}"), check_options("--timestamp, --groups or --state"):
        if not isinstance(fitted, hokical.ConfidenceCalibrator):
            watching.update_logits(*rows.pair, times, groups=rows.groups, observed=observed)
            watching.class_names = rows.classes or watching.class_names
            return
        assert rows.labels is not None
        said, known = fitted.predict(rows.logits.values[:, 1], rows.groups), rows.labels >= 0
        moments = (None, None) if times is None else (times[known], times[~known])
        own = None if rows.groups is None else take_rows(rows.groups, np.flatnonzero(known))
        right = rows.labels[known] == 1
        watching.update(said[known], right, moments[0], groups=own, observed=observed)
        if not observed and not known.all():
            watching.observe(said[~known], moments[1])


def _load_monitor(
    state: Path, fitted: hokical.Calibrator, coverage: float | None
) -> hokical.CalibrationMonitor:
    with check_options("CALIBRATOR or --state"):
        watching = hokical.CalibrationMonitor.load(state, fitted)
    if coverage not in (None, watching.options.coverage):
        raise bad_option(
            "--coverage",
            f"the monitor in {state} watches {watching.options.coverage or 'no sets'}. Use another "
            "--state.",
        )
    return watching


def _new_monitor(
    fitted: hokical.Calibrator, known: hokical.io.LabelledRows | None, options: dict[str, Any]
) -> hokical.CalibrationMonitor:
    answers = isinstance(fitted, hokical.ConfidenceCalibrator)
    hoki = isinstance(fitted.rule_, hokical.rules._hoki.HokiRule)
    if known is None and not answers and not (hoki and fitted.fit_scores_ is not None):
        raise typer.BadParameter(
            f"the first run with {fitted.name!r} needs the examples of its fit: --reference FILE."
        )
    with check_options():
        if known is None:
            return hokical.CalibrationMonitor(fitted, **options)
        options = options | {"groups": known.groups}
        pair = (known.logits.values[:, 1], known.labels == 1) if answers else known.pair
        return hokical.CalibrationMonitor.from_validation(fitted, *pair, **options)


def _facts(status: hokical.monitoring.Status) -> dict[str, str | None]:
    ece, inputs, drift = status.ece, status.inputs, status.calibration
    digits = drift.log_e / math.log(10.0)
    evidence = f"{drift.e_value:.3g}" if digits < 6 else f"10^{digits:.0f}"
    shares, error = f"{status.mean_confidence:.1%} / {status.accuracy:.1%}", f"{ece.value:.4f}"
    error += f" (true error in {interval(ece.low, ece.high)})"
    unlike = status.n_unlike
    return {
        "verdict": str(status.verdict),
        "labels": f"{status.n:,} so far, {status.n_window:,} in the window",
        "says / right": shares if status.n_window else DASH,
        "ECE": error if status.n_window else DASH,
        "ECE since start": f"{status.ece_since_start:.4f}" if status.n else DASH,
        "evidence": f"{evidence} (alarm at {drift.threshold:.3g})",
        "sets": None if status.sets is None else _describe_sets(status.sets),
        "inputs": DASH if inputs is None else f"PSI {inputs.psi:.3f}, p {inputs.p_value:.2g}",
        "without labels": _describe_expected(status.expected),
        "unlike the fit": DASH if unlike is None else f"{unlike:,} of {status.n_seen:,} rows",
    }


def _describe_expected(found: hokical.monitoring._expected.Expected | None) -> str | None:
    if found is None or not found.holds:
        return None if found is None else found.verdict
    words = f"accuracy {found.accuracy:.1%} ({found.low:.1%} to {found.high:.1%})"
    return f"{words}{', below that of the fit' if found.dropped else ''}; {found.verdict}"


def _describe_sets(sets: hokical.monitoring._coverage.SetStatus) -> str:
    held = f"hold {sets.covered:.1%} of {sets.n:,} labels" if sets.n else "no labels yet"
    found = "" if sets.alarm is None else "; too few: certify again"
    return f"{held}, {sets.coverage:.4g} was promised{found}"


def _show_parts(parts: tuple[hokical.monitoring.ClassStatus, ...], rows_of: str) -> None:
    """The classes or groups with most evidence against them: says / is right / how many."""
    table = new_table([rows_of, "says", "is right", "rows", ""])
    for each in parts[:_SHOWN]:
        shares = [f"{share:.1%}" if each.n else DASH for share in (each.says, each.right)]
        alarm = "" if each.alarm is None else f"{each.alarm.direction}-confident"
        table.add_row(Text(each.name), *shares, f"{each.n:,}", alarm)
    more = len(parts) - _SHOWN
    show_table("", table, *(["and more; see --json"] if more > 0 else []))
