"""`hokical monitor`: feed data to a monitor that is kept in a file. `hokical shift`:
class frequencies and accuracy of logits without labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.text import Text

import hokical
from hokical._core.groups import take_rows
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.options import LABELLED, UNLABELLED, Source, command, read_calibrator
from hokical.io.tables import check_output

#: Classes or groups of a monitor that are shown.
_MAX_PARTS = 5
#: What a monitor does not know without labels.
_UNKNOWN = {"confidence / accuracy": ui.DASH, "ECE": ui.DASH}
#: E-values of more digits are shown as a power of ten.
_MAX_DIGITS = 6
#: Facts of a shift that are always known, and those that need label shift to hold.
_SHIFT_FACTS = (
    "n",
    "verdict",
    "guarantee",
    "holds",
    "p_value",
    "change_p_value",
    "label_shares",
    "old_class_frequencies",
)
_SHIFT_ESTIMATES = (
    "accuracy",
    "adapted_accuracy",
    "log_loss",
    "brier",
    "accuracy_interval",
    "class_frequencies",
    "class_frequencies_interval",
    "label_accuracy",
)


@command(*UNLABELLED)
def shift(
    calibrator: Path,
    data: Path,
    delta: float = 0.05,
    positive: str | None = None,
    *,
    source_options: Source,
) -> ui.Result:
    """Estimate class frequencies and accuracy without labels.

    Exits with 3 if the rows are not consistent with label shift: estimates
    are then withheld.

    Example: hokical shift cal.json new.npz
    """
    fitted = read_calibrator(calibrator, beside=data)
    if fitted.name == "confidence":
        raise typer.BadParameter(
            "`shift` needs a calibrator of logits, not of confidences."
        )
    rows = source_options.at(data).read(fitted.without_groups(), "none")
    with ui.spinner("Estimating class frequencies"), ui.check_options():
        estimate = fitted.estimate_shift(rows.scores, delta=delta, groups=rows.groups)
    names = rows.classes or tuple(map(str, range(fitted.n_classes_)))
    event = opt.event_index(positive, rows.classes, len(names))
    values = _shift_values(estimate, names)
    text = f"{data.name}: {estimate}"
    if event is not None:
        values["event"] = names[event]
        name = rows.classes[event] if rows.classes else f"class {event}"
        text = f"{_event_share(estimate, event, name)}\n{text}"
    code = 0 if estimate.holds else ui.ALARM
    return ui.Result(values, lambda: ui.stdout().print(Text(text)), code=code)


def _event_share(
    estimate: hokical.guarantees.ShiftEstimate, event: int, name: str
) -> str:
    """The share of events among the calibration examples and now, in words."""
    now = "unknown here"
    if estimate.holds:
        low_high = ui.interval(*estimate.class_frequencies_interval[event])
        now = f"{estimate.class_frequencies[event]:.1%} estimated here ({low_high})"
    old = estimate.old_class_frequencies[event]
    return f"Events ({name}): {old:.1%} among the calibration examples, {now}."


def _shift_values(
    estimate: hokical.guarantees.ShiftEstimate, names: tuple[str, ...]
) -> dict[str, Any]:
    """The estimate for JSON; null is what cannot be estimated."""
    values = {name: getattr(estimate, name) for name in _SHIFT_FACTS}
    values["classes"] = list(names)
    for name in _SHIFT_ESTIMATES:
        values[name] = getattr(estimate, name) if estimate.holds else None
    values["by_group"] = {
        group: _shift_values(group_estimate, names)
        for group, group_estimate in estimate.by_group.items()
    }
    return values


@command(*LABELLED, data=opt.argument("FILE", "New logits, with labels where known."))
def monitor(
    calibrator: Path,
    data: Path,
    state: Path | None = None,
    reference: Path | None = None,
    id_column: str | None = None,
    again: bool = False,
    window: int = 5000,
    delta: float = 0.01,
    tolerance: float = 0.01,
    coverage: float | None = None,
    positive: str | None = None,
    *,
    source_options: Source,
) -> ui.Result:
    """Watch a model in service for drift of confidence and inputs.

    Exits with 3 if an alarm was raised, now or earlier; the lifetime
    false-alarm probability is at most --delta. Rows without a label (-1 or an
    empty cell) count among the inputs only, or with --id-column wait for a
    later file with their labels. Options of window and alarm apply to a new
    monitor; one from --state has its own.

    Example: hokical monitor cal.json new.npz --state monitor.json
    """
    if state is not None:
        check_output(state)
    fitted = read_calibrator(calibrator, beside=data)
    if fitted.name == "confidence":
        ui.refuse(
            "needs a calibrator of logits; this one is of confidences.",
            coverage=coverage,
        )
    source = source_options.at(data, keep=id_column)
    options: dict[str, Any] = {
        "window": window,
        "delta": delta,
        "tolerance": tolerance,
        "coverage": coverage,
    }
    with nullcontext() if state is None else hokical.CalibrationMonitor.lock(state):
        if state is not None and state.exists():
            watching = _load_monitor(state, fitted, coverage)
        elif reference is None:
            with ui.check_options():
                watching = hokical.CalibrationMonitor(fitted, **options)
        else:
            examples = source_options.at(
                reference, labels=None, split=opt.Part.val
            ).read(fitted)
            with ui.check_options():
                watching = hokical.CalibrationMonitor.from_validation(
                    fitted,
                    examples.scores,
                    examples.labels,
                    groups=examples.groups,
                    **options,
                )
        _feed(watching, fitted, source, id_column, again)
        if state is not None:
            watching.save(state)
    n_classes = opt.n_classes_of(fitted) or 1
    event = opt.event_index(positive, watching.class_names, n_classes)
    return _describe_status(watching.status(), event, watching.class_names)


def _load_monitor(
    state: Path, fitted: Any, coverage: float | None
) -> hokical.CalibrationMonitor:
    """The monitor of a file, if it watches the coverage that was named."""
    with ui.check_options("CALIBRATOR or --state"):
        watching = hokical.CalibrationMonitor.load(state, fitted)
    watched = watching.options.coverage
    if coverage not in (None, watched):
        raise ui.bad_option(
            "--coverage",
            f"the monitor in {state} watches {watched or 'no sets'}. Use another "
            "--state.",
        )
    return watching


def _feed(
    watching: hokical.CalibrationMonitor,
    fitted: Any,
    source: Source,
    id_column: str | None,
    again: bool,
) -> None:
    """Count the rows of a file, or labels that come later than their rows."""
    if id_column is not None and not source.labels:
        late = source.read_late(fitted, id_column)
        if late is not None:
            with ui.check_options("FILE or --state"):
                watching.add_labels(*late)
            return
    rows = source.read(fitted, "some")
    source.check_new(fitted, rows)
    ids = None
    if id_column is not None:
        ids = next(iter(rows.kept.values()))[rows.used].astype(np.str_)
    _count(watching, fitted, rows, ids, again)


def _count(
    watching: hokical.CalibrationMonitor, fitted: Any, rows: Rows, ids: Any, again: bool
) -> None:
    """Count rows, and the labels of rows that wait for them."""
    scores: Any = rows.scores
    labels = np.full(rows.n_rows, -1) if rows.labels is None else rows.labels
    waits = np.zeros(rows.n_rows, np.bool_) if ids is None else watching.waits_for(ids)
    new = np.flatnonzero(~waits)
    late = np.flatnonzero(waits & (labels >= 0))
    groups = None if rows.groups is None else take_rows(rows.groups, new)
    new_ids = None if ids is None else ids[new]
    with ui.spinner(f"Watching {fitted.name}"), ui.check_options("FILE or --state"):
        if rows.kind == "confidence":
            confidence = fitted.predict(scores[new], groups=groups)
            watching.update(
                confidence, labels[new], ids=new_ids, again=again, groups=groups
            )
        elif new.size:
            watching.update_logits(
                scores.take(new), labels[new], ids=new_ids, again=again, groups=groups
            )
            watching.class_names = rows.classes or watching.class_names
        if late.size:
            watching.add_labels(ids[late], labels[late])


def _describe_status(status: Any, event: int | None, names: Sequence[str]) -> ui.Result:
    """What is known now, of the `event` of two classes too; an alarm is also the
    exit code.
    """
    values = status.to_dict()
    facts = {"verdict": str(status.verdict)}
    if event is not None and status.n_window:
        predicted, observed = _event_shares(status, event)
        name = names[event] if names else f"class {event}"
        values["event"] = {"name": name, "predicted": predicted, "observed": observed}
        facts["event"] = f"{name}: predicted {predicted:.1%}, observed {observed:.1%}"
    facts |= _status_facts(status)

    def show() -> None:
        """The facts, and the classes and groups with most evidence against them."""
        ui.show_facts(facts)
        _show_parts("predicted class", status.classes)
        _show_parts("group", status.groups)

    return ui.Result(values, show, code=ui.ALARM if status.alarmed else 0)


def _event_shares(status: Any, event: int) -> tuple[float, float]:
    """Mean probability and share of the event, from the rows of each label."""
    sums = np.zeros(2)
    for row in status.classes:
        if row.n:
            shares = np.array([row.mean_confidence, row.accuracy])
            sums += row.n * (shares if row.label == event else 1.0 - shares)
    predicted, observed = (sums / status.n_window).tolist()
    return predicted, observed


def _status_facts(status: Any) -> dict[str, str]:
    """What a status says of all rows, by name."""
    facts = {"labels": f"{status.n:,} so far, {status.n_window:,} in the window"}
    if status.n_waiting:
        facts["waiting for labels"] = f"{status.n_waiting:,} rows"
    if status.n_window:
        ece = status.ece
        low_high = ui.interval(ece.low, ece.high, ".4f")
        facts["confidence / accuracy"] = (
            f"{status.mean_confidence:.1%} / {status.accuracy:.1%}"
        )
        facts["ECE"] = f"{ece.value:.4f} (true calibration error in {low_high})"
    else:
        facts |= _UNKNOWN
    drift = status.calibration
    n_digits = drift.log_e / math.log(10.0)
    e_value = f"{drift.e_value:.3g}" if n_digits < _MAX_DIGITS else f"10^{n_digits:.0f}"
    facts["evidence"] = f"{e_value} (alarm at {drift.threshold:.3g})"
    if status.sets is not None:
        facts["sets"] = _set_words(status.sets)
    inputs = status.inputs
    facts["inputs"] = ui.DASH
    if inputs is not None:
        facts["inputs"] = f"{inputs.distance:.1%} moved, p {inputs.p_value:.2g}"
    return facts


def _set_words(sets: Any) -> str:
    """How often prediction sets held, beside what was guaranteed."""
    share = "no labels yet"
    if sets.n:
        share = f"contain {sets.covered:.1%} of {sets.n:,} labels"
    alarm = "" if sets.alarm is None else "; too few: certify again"
    return f"{share}, {sets.coverage:.4g} was guaranteed{alarm}"


def _show_parts(kind: str, parts: Sequence[Any]) -> None:
    """The classes or groups with most evidence against them."""
    rows = []
    for subset in parts[:_MAX_PARTS]:
        alarm = "" if subset.alarm is None else f"{subset.alarm.direction}-confident"
        confidence = f"{subset.mean_confidence:.1%}" if subset.n else ui.DASH
        accuracy = f"{subset.accuracy:.1%}" if subset.n else ui.DASH
        rows.append((subset.name, confidence, accuracy, f"{subset.n:,}", alarm))
    if rows:
        table = ui.new_table([kind, "confidence", "accuracy", "rows", ""], rows)
        more = ["and more; see --json"] if len(parts) > _MAX_PARTS else []
        ui.show_table("", table, *more)
