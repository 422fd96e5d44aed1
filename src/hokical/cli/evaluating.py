"""`hokical evaluate`: every metric of one data set, before and after calibration.

`hokical compare`: methods side by side.

`hokical shift`: class frequencies and accuracy of logits without labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import hokical
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.application import check_method
from hokical.cli.reading import ANY, LABELLED, UNLABELLED, Source, read_calibrator, reads

_FOOTNOTE = (
    "AUROC, correct against errors: higher is better. Selective risk: most confident 80 %. "
    "Intervals are two-sided and tested by simulation; the bound below is one-sided, proven, "
    "and wider."
)


@reads(*ANY, "cluster")
def evaluate(
    first: Annotated[
        Path, opt.argument("CALIBRATOR|FILE", "File that `fit` saved, or else the test data.")
    ],
    second: Annotated[
        Path | None, opt.argument("FILE", "Test data, logits with labels, after a calibrator.")
    ] = None,
    coverage: opt.Coverage = None,
    report: opt.Report = None,
    positive: opt.Positive = None,
    folds: Annotated[
        int | None, opt.text("Fit --method and test it by cross-fitting in so many folds.", min=2)
    ] = None,
    method: opt.Method = None,
    as_json: opt.Json = False,
    *,
    given: Source,
) -> None:
    """Measure calibration, with intervals and guarantees.

    With a CALIBRATOR, before and after calibration; without, uncalibrated, or
    with --folds a method that is fitted on the other folds.
    With two classes the probability of the event comes first.

    A folder (or 'pattern*') of Parquet files is read in parts and may be
    larger than memory.
    """
    if second is None and first.suffix == ".json":
        raise ui.bad_option("FILE", f"is missing: name the data after the calibrator {first}.")
    if (folds is None and method is not None) or (folds is not None and second is not None):
        raise ui.bad_option("--folds", "goes with one file and a --method, not with a calibrator.")
    path, calibrator = (first, None) if second is None else (second, first)
    fitted = None if calibrator is None else read_calibrator(calibrator)
    data: Any = given.at(path).open(fitted)
    whole, scores = isinstance(data, Rows), getattr(data, "scores", data)
    n = getattr(scores, "n_classes", 1)  # of confidences: an event is refused in words
    own: dict[str, Any] = {}
    if whole:
        own = {"groups": data.groups, "cluster": given.clusters(data)}
    subject = fitted if folds is None else check_method(method or "auto")
    with ui.spinner("Measuring"), ui.check_options():
        found = hokical.evaluate(
            subject, *(data[:3] if whole else [data]), **own, coverage=coverage, folds=folds,
            class_names=data.classes, data_name=path.name,
            positive=None if positive is None else ui.event_index(positive, data.classes, n),
        )  # fmt: skip
    ui.show_found(found, found, report, as_json, lambda: _show(found, path))


def _show(found: hokical.report.Evaluation, path: Path) -> None:
    """All metrics in a table, then classes, sets and groups."""
    columns, level = ["metric"], f"{1.0 - found.summary.options.delta:.0%} interval"
    for each in found.both:
        columns += [each.name, level]
    table = ui.new_table(columns)
    for name in found.summary.estimates:
        title = hokical.metrics.METRICS[name].full_title
        table.add_row(title, *ui.metric_cells(found.both, name))
    title = f"{path.name}: {found.data.size}"
    title += f"; {found.label}" if found.before is not None else ""
    notes = (_FOOTNOTE,) if "selective_risk" in found.summary.estimates else ()
    if found.binary is None:
        ui.show_table(title, table, *notes, "", found.headline)
    else:
        ui.show_event(found, path.name)
        said = f"{found.label_verdict} {found.label_details}"
        ui.show_table(
            f"Predicted label; {found.label}", table, *notes, "", said, "", found.headline
        )
    ui.show_details(found, found.both)


@reads("classes", *LABELLED[:-1], "cluster")
def compare(
    val: opt.Validation,
    test: Annotated[
        Path | None, opt.argument("TEST", "Test data; if omitted, VAL must hold both parts.")
    ] = None,
    methods: Annotated[str, opt.text("all, or names of `hokical methods`: hoki,temps.")] = "all",
    coverage: opt.Coverage = None,
    report: opt.Report = None,
    seed: opt.Seed = 0,
    test_labels: Annotated[
        Path | None, opt.text("File with the labels of TEST, if not in --labels.")
    ] = None,
    as_json: opt.Json = False,
    *,
    given: Source,
) -> None:
    """Fit methods on VAL and compare them on TEST."""
    entrants = _choose_methods(methods)
    fitted_on, tested_on, belongs = _open_pair(given.at(val), test, test_labels)
    with ui.check_options():
        found = hokical.compare(
            fitted_on[:2],
            tested_on[:2],
            entrants,
            data_names=(val.name, (test or val).name),
            class_names=tested_on.classes,
            coverage=coverage,
            groups=(fitted_on.groups, tested_on.groups),
            cluster=belongs,
            random_state=seed,
        )
    heading = f"{(test or val).name}: {found[found.subject].data.size}"
    show_comparison(found, heading, report, as_json)


def _choose_methods(methods: str) -> list[str] | None:
    """The methods by name; None for all that the data allow."""
    if methods == "all":
        return None
    asked = [check_method(name) for name in opt.split_names(methods)]
    if not asked:
        raise ui.bad_option("--methods", "name at least one method, or `all`.")
    return list(dict.fromkeys(["uncalibrated", *asked]))


def _open_pair(given: Source, test: Path | None, labels: Path | None) -> tuple[Rows, Rows, Any]:
    """The examples to fit on and to test on, of two files or of one with both parts.

    And the clusters of the latter.
    """
    fitted_on = given.at(given.path, split=opt.Part.val, cluster=None).read()
    if test is None and fitted_on.part is None:
        raise typer.BadParameter(
            f"{given.path} holds one set; pass TEST, data that nothing was fitted on."
        )
    names = ",".join(fitted_on.classes) or None  # in whose order the other's columns are put
    if any("," in name for name in fitted_on.classes):
        names = given.classes
    own = {"split": opt.Part.test, "classes": names, "labels": labels or given.labels}
    new = given.at(test or given.path, **own)
    tested_on = new.read()
    for rows in (fitted_on, tested_on):
        if rows.kind == "confidence":
            raise typer.BadParameter(
                "`compare` needs logits or probabilities; for confidences use `fit`, then "
                "`evaluate`."
            )
        if rows.weights is not None:
            ui.say("Weights are not used here.")
    return fitted_on, tested_on, new.clusters(tested_on)


def show_comparison(
    comparison: hokical.report.comparison.Comparison,
    title: str,
    report: Path | None,
    as_json: bool,
) -> None:
    """Write the report, and show table, classes and headline, or the numbers as JSON."""
    subject = comparison[comparison.subject]

    def show() -> None:
        bold = ", the best in bold" if ui.stdout().is_terminal else ""
        note = f"ECE has 15 bins. Of ECE, Brier and log loss lower is better{bold}."
        table = _results_table(comparison)
        ui.show_table(title, table, note, *_verdicts(comparison), "", comparison.headline)
        ui.show_details(subject, comparison.results)

    for reason in dict.fromkeys(comparison.skipped.values()):
        names = [name for name, why in comparison.skipped.items() if why == reason]
        ui.say(f"Left out: {', '.join(names)} ({reason}).")
    ui.show_found(comparison, subject, report, as_json, show, title)


def _results_table(comparison: hokical.report.comparison.Comparison) -> Table:
    """One row per method, the best of each score in bold."""
    heads, rows = comparison.cells("[bold]{}[/bold]")
    table = ui.new_table([head.replace("classwise", "class") for head in heads])
    for result, (_, *cells) in zip(comparison.results, rows, strict=True):
        table.add_row(escape(result.name), *(mark.format(text) for text, mark in cells))
    return table


def _verdicts(comparison: hokical.report.comparison.Comparison) -> list[str]:
    """Which methods differ clearly from the subject, which do not."""
    found: dict[str, list[str]] = {}
    for each in comparison.differences():
        found.setdefault(each.verdict, []).append(each.method)
    texts = [f"{verdict}: {', '.join(names)}" for verdict, names in sorted(found.items())]
    against = f"Log loss compared with {comparison.subject} (5 %, Holm): "
    return [f"{against}{'; '.join(texts)}."] if texts else []


@reads(*UNLABELLED)
def shift(
    calibrator: opt.CalibratorFile,
    data: opt.NewData,
    delta: Annotated[float, opt.Delta] = 0.05,
    positive: opt.Positive = None,
    as_json: opt.Json = False,
    *,
    given: Source,
) -> None:
    """Estimate class frequencies and accuracy without labels.

    Exits with 3 if the rows are not consistent with label shift: estimates
    are then withheld.
    """
    fitted = read_calibrator(calibrator)
    if fitted.name == "confidence":
        raise typer.BadParameter("`shift` needs a calibrator of logits, not of confidences.")
    rows = given.at(data).read(fitted._without_groups(), "none")
    with ui.spinner("Estimating class frequencies"), ui.check_options():
        found = fitted.estimate_shift(rows.scores, delta=delta, groups=rows.groups)
    names = rows.classes or tuple(map(str, range(fitted.n_classes_)))
    event = ui.event_index(positive, rows.classes, fitted.n_classes_)
    if as_json:
        ui.show_json(_values(found, names) | ({} if event is None else {"event": names[event]}))
    else:
        said = "" if event is None else f"{_event_frequency(found, event, rows.classes)}\n"
        ui.stdout().print(Text(f"{said}{data.name}: {found}"))
    if not found.holds:
        raise typer.Exit(ui.ALARM)


def _event_frequency(
    found: hokical.guarantees.ShiftEstimate, event: int, names: tuple[str, ...]
) -> str:
    """The share of events, of two classes, in words."""
    old, new = (each[event] for each in (found.old_class_frequencies, found.class_frequencies))
    low, high = found.class_frequencies_interval[event]
    before = f"{old:.1%} among the calibration examples"
    now = f"{new:.1%} estimated here ({low:.1%} to {high:.1%})" if found.holds else "unknown here"
    return f"Events ({ui.event_name(event, names)}): {before}, {now}."


def _values(found: hokical.guarantees.ShiftEstimate, names: tuple[str, ...]) -> dict[str, Any]:
    """The estimate for JSON; null is what cannot be estimated."""
    known = ("n", "verdict", "guarantee", "holds", "p_value", "change_p_value", "label_shares",
             "old_class_frequencies")  # fmt: skip
    rest = ("accuracy", "adapted_accuracy", "log_loss", "brier", "accuracy_interval",
            "class_frequencies", "class_frequencies_interval", "label_accuracy")  # fmt: skip
    values = {name: getattr(found, name) for name in known} | {"classes": list(names)}
    values |= {name: getattr(found, name) if found.holds else None for name in rest}
    return values | {"by_group": {k: _values(part, names) for k, part in found.by_group.items()}}
