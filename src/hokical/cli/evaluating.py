"""`hokical evaluate`: every metric of one data set, before and after calibration.

`hokical compare`: methods side by side. `hokical demo`: all methods on the bundled
logits. `hokical shift`: class frequencies and accuracy of logits without labels.
`hokical monitor`: feed data to a monitor that is kept in a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from hokical.cli.options import (
    ANY,
    LABELLED,
    UNLABELLED,
    Source,
    command,
    read_calibrator,
)
from hokical.demo import DEMO_CLASSES, demo_logits
from hokical.io.tables import check_output

#: Labels or groups that are all shown, of more only the worst; those of a monitor.
_MOST_ROWS = 10
_MOST_PARTS = 5
#: What a monitor does not know without labels.
_UNKNOWN = {"confidence / accuracy": ui.DASH, "ECE": ui.DASH}
_FOOTNOTE = (
    "AUROC, correct against errors: higher is better. Selective risk: most confident "
    "80 %. Intervals are two-sided and tested by simulation; the bound below is "
    "one-sided, proven, and wider."
)


@command(*ANY, "cluster")
def evaluate(
    first: Path,
    second: Path | None = None,
    coverage: float | None = None,
    report: Path | None = None,
    positive: str | None = None,
    folds: int | None = None,
    method: str | None = None,
    *,
    given: Source,
) -> ui.Result:
    """Measure calibration, with intervals and guarantees.

    With a CALIBRATOR, before and after calibration; without, uncalibrated, or
    with --folds a method that is fitted on the other folds.
    With two classes the probability of the event comes first.

    A folder (or 'pattern*') of Parquet files is read in parts and may be
    larger than memory.
    """
    if second is None and first.suffix == ".json":
        raise ui.bad_option(
            "FILE", f"is missing: name the data after the calibrator {first}."
        )
    if (folds is None and method is not None) or (
        folds is not None and second is not None
    ):
        raise ui.bad_option(
            "--folds", "goes with one file and a --method, not with a calibrator."
        )
    path, subject = (
        (first, None) if second is None else (second, read_calibrator(first))
    )
    data: Any = given.at(path).open(subject)
    own: dict[str, Any] = {
        "class_names": data.classes,
        "data_name": path.name,
        "folds": folds,
    }
    if whole := isinstance(data, Rows):
        own |= {"groups": data.groups, "cluster": given.clusters(data)}
    n_classes = getattr(
        data.scores if whole else data, "n_classes", 1
    )  # 1 of confidences
    own["positive"] = opt.event_index(positive, data.classes, n_classes)
    if folds is not None:
        subject = opt.check_method(method or "auto")
    with ui.spinner("Measuring"), ui.check_options():
        rows = _rows_to_evaluate(data, subject) if whole else [data]
        found = hokical.evaluate(subject, *rows, coverage=coverage, **own)

    def show() -> None:
        labels = ui.new_table(*found.metric_cells("label"))
        said = "" if found.before is None else f"; {found.label}"
        title = f"{path.name}: {found.data.size}{said}"
        words = ["", found.headline]
        if (event := found.binary) is not None:
            remarks = found.missing_intervals("event")
            remarks += [event.remark] if event.remark else []
            events = ui.new_table(*found.metric_cells("event"))
            ui.show_table(f"{path.name}: {event.title}", events, *remarks)
            heads = ("probability", "rows", "events", "mean", "observed", found.level)
            bands = []
            for row in event.bands().rows:
                shares = (
                    f"{row.mean_probability:.1%}",
                    f"{row.observed:.1%}",
                    *_tested(row),
                )
                counts = (f"{row.n:,.10g}", f"{row.events:,.10g}")
                bands.append((ui.interval(row.lower, row.upper), *counts, *shares))
            table = ui.new_table((*heads, "p-value", ""), bands)
            ui.show_table(f"\nBy band of probability, with {found.name}", table)
            title = f"\nPredicted label; {found.label}"
            words = ["", " ".join(found.words("label")), *words]
        notes = found.missing_intervals("label")
        notes += [_FOOTNOTE] if "selective_risk" in found.summary.estimates else []
        ui.show_table(title, labels, *notes, *words)
        _show_details(found, found.stages)

    return _with_report(found, report, show)


def _rows_to_evaluate(data: Rows, subject: object) -> tuple[Any, Any, Any]:
    """Scores, labels and weights; labels of confidences say if these were right."""
    if data.kind == "logits" or subject is not None:
        return data.scores, data.labels, data.weights
    if data.scores.ndim == 2:
        raise ui.bad_option(
            "--confidence",
            "takes one column without a calibrator: `fit` combines several signals.",
        )
    return data.scores, data.labels == 1, data.weights


def _tested(row: Any) -> tuple[str, str, str]:
    """The interval and the test of a row of a table."""
    return (
        ui.interval(row.low, row.high),
        f"{row.p_value:.2g}",
        "off" if row.flagged else "",
    )


def _show_details(found: hokical.report.Evaluation, methods: Sequence[Any]) -> None:
    """Rows by predicted label and by group after calibration; the sets of all
    methods.
    """
    _show_rows(f"By predicted label, with {found.name}", found.classes)
    rows = []
    for each in methods:
        if (sets := each.sets) is not None:
            own = sets.overall
            worst = (
                min(row.coverage for row in part)
                for part in (sets.by_class, sets.by_size)
            )
            cells = (
                f"{own.coverage:.1%}",
                ui.interval(own.low, own.high),
                f"{own.mean_size:.2f}",
            )
            rows.append((each.name, *cells, *(f"{share:.1%}" for share in worst)))
            title = f"\nPrediction sets at {sets.goal:.4g}, on {own.n:,} examples"
    if rows:
        heads = (
            "method",
            "covered",
            "interval",
            "mean size",
            "worst class",
            "worst size",
        )
        ui.show_table(title, ui.new_table(heads, rows))
    verdicts = [
        f"{each.name}: {each.groups.verdict}." for each in methods if each.groups
    ]
    _show_rows(
        f"Which groups are miscalibrated with {found.name}?", found.groups, *verdicts
    )


def _show_rows(
    title: str, found: hokical.metrics.GroupTable | None, *remarks: str
) -> None:
    """A row per group or predicted label; of many, the worst."""
    if found is None:
        return
    shown = found.rows if len(found.rows) <= _MOST_ROWS else found.worst(_MOST_ROWS)
    left = len(found.rows) - len(shown)
    event = len(found.asked) > 1
    more = [f"The worst {len(shown)}; {left:,} more are not shown."] if left else []
    heads = [
        "",
        "rows",
        "predicted",
        "observed",
        *(["O:E"] if event else []),
        "interval",
    ]
    rows = []
    for row in shown:
        shares = [f"{row.predicted:.1%}", f"{row.observed:.1%}"]
        shares += [f"{row.oe_ratio:.2f}"] if event else []
        rows.append((row.full_name, f"{row.n:,}", *shares, *_tested(row)))
    ui.show_table(
        f"\n{title}", ui.new_table([*heads, "p-value", ""], rows), *remarks, *more
    )


def _with_report(
    found: Any, report: Path | None, show: Callable[[], None], title: str | None = None
) -> ui.Result:
    """An evaluation or a comparison, whose report is written here."""
    values = found.to_dict() | {"report": report and str(report)}
    remark = None
    if report is not None:
        with ui.spinner("Writing the report"):
            found.to_html(report, title=title)
        remark = f"Report: {report.resolve()}"
    subject = found[found.subject] if hasattr(found, "subject") else found
    warning = subject.class_warning and f"{subject.name}: {subject.class_warning}"
    return ui.Result(values, show, warning, remark)


@command("classes", *LABELLED[:-1], "cluster")
def compare(
    val: Path,
    test: Path | None = None,
    methods: str = "all",
    coverage: float | None = None,
    report: Path | None = None,
    seed: int = 0,
    test_labels: Path | None = None,
    *,
    given: Source,
) -> ui.Result:
    """Fit methods on VAL and compare them on TEST."""
    asked = [
        opt.check_method(name) for name in opt.split_names(methods) if methods != "all"
    ]
    if not asked and methods != "all":
        raise ui.bad_option("--methods", "name at least one method, or `all`.")
    entrants = (
        None if methods == "all" else list(dict.fromkeys(["uncalibrated", *asked]))
    )
    given = given.at(val, weighted=False)
    fitted_on = given.at(val, split=opt.Part.val, cluster=None).read()
    if test is None and fitted_on.part is None:
        why = "holds one set; pass TEST, data that nothing was fitted on."
        raise typer.BadParameter(f"{val} {why}")
    names = (
        ",".join(fitted_on.classes) or None
    )  # in whose order the other's columns are put
    if any("," in name for name in fitted_on.classes):
        names = given.classes
    path = test or val
    new = given.at(
        path, classes=names, labels=test_labels or given.labels, split=opt.Part.test
    )
    tested_on = new.read()
    for rows in (fitted_on, tested_on):
        if rows.kind == "confidence":
            why = (
                "`compare` needs logits or probabilities; for confidences use `fit`, "
                "then"
            )
            raise typer.BadParameter(f"{why} `evaluate`.")
    own: dict[str, Any] = {"coverage": coverage, "cluster": new.clusters(tested_on)}
    own |= {"data_names": (val.name, path.name), "class_names": tested_on.classes}
    own |= {"groups": (fitted_on.groups, tested_on.groups), "random_state": seed}
    with ui.check_options():
        found = hokical.compare(fitted_on[:2], tested_on[:2], entrants, **own)
    return _show_comparison(
        found, f"{path.name}: {found[found.subject].data.size}", report
    )


@command(report=opt.text("HTML report to write."))
def demo(report: Path = Path("report.html")) -> ui.Result:
    """Compare all methods on the shipped data, and write a report."""
    title = "ResNet-110 on CIFAR-10, 10,000 test images"
    comparison = hokical.compare(*demo_logits(), class_names=DEMO_CLASSES)
    return _show_comparison(comparison, title, report)


def _show_comparison(found: Any, title: str, report: Path | None) -> ui.Result:
    """Write the report, and show table, classes and headline, or the numbers as
    JSON.
    """

    def show() -> None:
        bold = ", the best in bold" if ui.stdout().is_terminal else ""
        notes = [f"ECE has 15 bins. Of ECE, Brier and log loss lower is better{bold}."]
        verdicts: dict[str, list[str]] = {}
        for each in found.differences():
            verdicts.setdefault(each.verdict, []).append(each.method)
        if verdicts:
            texts = (
                f"{verdict}: {', '.join(own)}"
                for verdict, own in sorted(verdicts.items())
            )
            against = f"Log loss compared with {found.subject} (5 %, Holm): "
            notes.append(f"{against}{'; '.join(texts)}.")
        heads, rows = found.cells()
        named = (
            [each.name, *row[1:]] for each, row in zip(found.results, rows, strict=True)
        )
        table = ui.new_table(
            (head.replace("classwise", "class") for head in heads), named
        )
        ui.show_table(title, table, *notes, "", found.headline)
        _show_details(found[found.subject], found.results)

    for reason in dict.fromkeys(found.skipped.values()):
        names = [name for name, why in found.skipped.items() if why == reason]
        ui.say(f"Left out: {', '.join(names)} ({reason}).")
    return _with_report(found, report, show, title)


@command(*UNLABELLED)
def shift(
    calibrator: Path,
    data: Path,
    delta: float = 0.05,
    positive: str | None = None,
    *,
    given: Source,
) -> ui.Result:
    """Estimate class frequencies and accuracy without labels.

    Exits with 3 if the rows are not consistent with label shift: estimates
    are then withheld.
    """
    fitted = read_calibrator(calibrator)
    if fitted.name == "confidence":
        raise typer.BadParameter(
            "`shift` needs a calibrator of logits, not of confidences."
        )
    rows = given.at(data).read(fitted.without_groups(), "none")
    with ui.spinner("Estimating class frequencies"), ui.check_options():
        found = fitted.estimate_shift(rows.scores, delta=delta, groups=rows.groups)
    names = rows.classes or tuple(map(str, range(fitted.n_classes_)))
    event = opt.event_index(positive, rows.classes, len(names))
    values = _values(found, names)
    said = ""
    if event is not None:  # the share of events in words
        values["event"] = names[event]
        name = rows.classes[event] if rows.classes else f"class {event}"
        now = "unknown here"
        if found.holds:
            ends = ui.interval(*found.class_frequencies_interval[event])
            now = f"{found.class_frequencies[event]:.1%} estimated here ({ends})"
        old = f"{found.old_class_frequencies[event]:.1%} among the calibration examples"
        said = f"Events ({name}): {old}, {now}.\n"
    text = Text(f"{said}{data.name}: {found}")
    code = 0 if found.holds else ui.ALARM
    return ui.Result(values, lambda: ui.stdout().print(text), code=code)


def _values(
    found: hokical.guarantees.ShiftEstimate, names: tuple[str, ...]
) -> dict[str, Any]:
    """The estimate for JSON; null is what cannot be estimated."""
    known = (
        "n",
        "verdict",
        "guarantee",
        "holds",
        "p_value",
        "change_p_value",
        "label_shares",
        "old_class_frequencies",
    )
    rest = (
        "accuracy",
        "adapted_accuracy",
        "log_loss",
        "brier",
        "accuracy_interval",
        "class_frequencies",
        "class_frequencies_interval",
        "label_accuracy",
    )
    values = {name: getattr(found, name) for name in known} | {"classes": list(names)}
    values |= {name: getattr(found, name) if found.holds else None for name in rest}
    return values | {
        "by_group": {k: _values(part, names) for k, part in found.by_group.items()}
    }


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
    given: Source,
) -> ui.Result:
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
    if fitted.name == "confidence":
        ui.refuse(
            "needs a calibrator of logits; this one is of confidences.",
            coverage=coverage,
        )
    new = given.at(data, keep=id_column)
    options: dict[str, Any] = {"window": window, "delta": delta, "tolerance": tolerance}
    options["coverage"] = coverage
    with nullcontext() if state is None else hokical.CalibrationMonitor.lock(state):
        if state is not None and state.exists():
            with ui.check_options("CALIBRATOR or --state"):
                watching = hokical.CalibrationMonitor.load(state, fitted)
            if coverage not in (None, (own := watching.options.coverage)):
                why = (
                    f"the monitor in {state} watches {own or 'no sets'}. Use another "
                    "--state."
                )
                raise ui.bad_option("--coverage", why)
        elif reference is None:
            with ui.check_options():
                watching = hokical.CalibrationMonitor(fitted, **options)
        else:
            known = given.at(reference, labels=None, split=opt.Part.val).read(fitted)
            options["groups"] = known.groups
            with ui.check_options():
                watching = hokical.CalibrationMonitor.from_validation(
                    fitted, *known[:2], **options
                )
        late = (
            None
            if id_column is None or given.labels
            else new.read_late(fitted, id_column)
        )
        if late is None:
            rows = new.read(fitted, "some")
            ids = None
            new.check_new(fitted, rows)
            if id_column is not None:
                ids = next(iter(rows.kept.values()))[rows.used].astype(np.str_)
            _count(watching, fitted, rows, ids, again)
        else:
            with ui.check_options("FILE or --state"):
                watching.add_labels(*late)
        if state is not None:
            watching.save(state)
    event = opt.event_index(
        positive, watching.class_names, getattr(fitted, "n_classes_", 1)
    )
    return _describe_status(watching.status(), event, watching.class_names)


def _count(watching: Any, fitted: Any, rows: Rows, ids: Any, again: bool) -> None:
    """Count rows, and the labels of rows that wait for them."""
    scores: Any = rows.scores
    truth = np.full(rows.n_rows, -1) if rows.labels is None else rows.labels
    waits = np.zeros(rows.n_rows, np.bool_) if ids is None else watching.waits_for(ids)
    new = np.flatnonzero(~waits)
    late = np.flatnonzero(waits & (truth >= 0))
    options: dict[str, Any] = {"ids": None if ids is None else ids[new], "again": again}
    options["groups"] = None if rows.groups is None else take_rows(rows.groups, new)
    with ui.spinner(f"Watching {fitted.name}"), ui.check_options("FILE or --state"):
        if rows.kind == "confidence":
            found = fitted.predict(scores[new], groups=options["groups"])
            watching.update(found, truth[new], **options)
        elif new.size:
            watching.update_logits(scores.take(new), truth[new], **options)
            watching.class_names = rows.classes or watching.class_names
        if late.size:
            watching.add_labels(ids[late], truth[late])


def _describe_status(status: Any, event: int | None, names: Sequence[str]) -> ui.Result:
    """What is known now, of the `event` of two classes too; an alarm is also the
    exit code.
    """
    values = status.to_dict()
    known = bool(status.n_window)
    drift = status.calibration
    facts = {"verdict": str(status.verdict)}
    if (
        event is not None and known
    ):  # its mean probability and share, from the rows of each label
        sums = np.zeros(2)
        for part in status.classes:
            if part.n:
                shares = np.array([part.mean_confidence, part.accuracy])
                sums += part.n * (shares if part.label == event else 1.0 - shares)
        predicted, observed = (sums / status.n_window).tolist()
        name = names[event] if names else f"class {event}"
        values["event"] = {"name": name, "predicted": predicted, "observed": observed}
        facts["event"] = f"{name}: predicted {predicted:.1%}, observed {observed:.1%}"
    facts["labels"] = f"{status.n:,} so far, {status.n_window:,} in the window"
    if status.n_waiting:
        facts["waiting for labels"] = f"{status.n_waiting:,} rows"
    both = f"{status.mean_confidence:.1%} / {status.accuracy:.1%}"
    ends = status.ece
    error = (
        f"{ends.value:.4f} (true error in {ui.interval(ends.low, ends.high, '.4f')})"
    )
    facts |= {"confidence / accuracy": both, "ECE": error} if known else _UNKNOWN
    digits = drift.log_e / math.log(10.0)
    evidence = f"{drift.e_value:.3g}" if digits < 6 else f"10^{digits:.0f}"
    facts["evidence"] = f"{evidence} (alarm at {drift.threshold:.3g})"
    if (sets := status.sets) is not None:
        held = (
            f"contain {sets.covered:.1%} of {sets.n:,} labels"
            if sets.n
            else "no labels yet"
        )
        alarm = "" if sets.alarm is None else "; too few: certify again"
        facts["sets"] = f"{held}, {sets.coverage:.4g} was guaranteed{alarm}"
    new = status.inputs
    facts["inputs"] = ui.DASH
    if new is not None:
        facts["inputs"] = f"{new.distance:.1%} moved, p {new.p_value:.2g}"

    def show() -> None:
        """The facts, and the classes and groups with most evidence against them."""
        ui.show_facts(facts)
        for parts, rows_of in (
            (status.classes, "predicted class"),
            (status.groups, "group"),
        ):
            rows = []
            for each in parts[:_MOST_PARTS]:
                both = (each.mean_confidence, each.accuracy)
                shares = [f"{share:.1%}" if each.n else ui.DASH for share in both]
                alarm = (
                    "" if each.alarm is None else f"{each.alarm.direction}-confident"
                )
                rows.append((each.name, *shares, f"{each.n:,}", alarm))
            if rows:
                table = ui.new_table(
                    [rows_of, "confidence", "accuracy", "rows", ""], rows
                )
                more = ["and more; see --json"] if len(parts) > _MOST_PARTS else []
                ui.show_table("", table, *more)

    return ui.Result(values, show, code=ui.ALARM if status.alarmed else 0)
