"""`hokical evaluate`: every metric of one data set, before and after calibration.

`hokical compare`: methods side by side. `hokical demo`: all methods on the bundled
logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import hokical
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.options import ANY, LABELLED, Source, command, read_calibrator
from hokical.demo import DEMO_CLASSES, demo_logits

if TYPE_CHECKING:
    from hokical.report.results import Comparison, Evaluation

#: Labels or groups that are all shown; of more only the worst.
_MAX_ROWS = 10
_FOOTNOTE = (
    "AUROC, correct against errors: higher is better. Selective risk: most confident "
    "80 %. Intervals are two-sided and tested by simulation; the bound above is "
    "one-sided, proven, and wider."
)


@command(
    *ANY,
    "cluster",
    "ensemble",
    second=opt.argument(
        "FILE...", "Test data, logits with labels, after a calibrator."
    ),
)
def evaluate(
    first: Path,
    second: list[Path] | None = None,
    coverage: float | None = None,
    report: Path | None = None,
    positive: str | None = None,
    folds: int | None = None,
    method: str | None = None,
    *,
    source_options: Source,
) -> ui.Result:
    """Measure calibration, with intervals and guarantees.

    With a CALIBRATOR, before and after calibration; without, uncalibrated, or
    with --folds a method that is fitted on the other folds.
    With two classes the probability of the event comes first.

    A folder (or 'pattern*') of Parquet files is read in parts and may be
    larger than memory.

    Example: hokical evaluate cal.json test.npz --report report.html
    """
    calibrator_file, data_files = _split_arguments(
        first, second or [], source_options.ensemble
    )
    method_without_folds = method is not None and folds is None
    if method_without_folds or (folds is not None and calibrator_file is not None):
        raise ui.bad_option(
            "--folds", "goes with one file and a --method, not with a calibrator."
        )
    calibrator = None
    if calibrator_file is not None:
        calibrator = read_calibrator(calibrator_file, beside=data_files[0])
    source = source_options.at_files(data_files, calibrator)
    data: Any = source.open(calibrator)
    subject = calibrator if folds is None else _method_to_fold(method, data)
    options: dict[str, Any] = {
        "classes": data.classes,
        "data_name": source.name,
        "folds": folds,
        "coverage": coverage,
    }
    examples: Sequence[Any] = [data]
    are_confidences = False
    if isinstance(data, Rows):
        options |= {"groups": data.groups, "cluster": source_options.clusters(data)}
        examples = _rows_to_evaluate(data, subject)
        are_confidences = data.kind == "confidence"
    n_classes = 1 if are_confidences else data.n_classes
    options["positive"] = opt.event_index(positive, data.classes, n_classes)
    with ui.spinner("Measuring"), ui.check_options():
        evaluation = hokical.evaluate(subject, *examples, **options)
    return _with_report(
        evaluation,
        evaluation,
        report,
        lambda: _show_evaluation(evaluation, source.name),
    )


def _split_arguments(
    first: Path, more: Sequence[Path], ensemble: bool
) -> tuple[Path | None, list[Path]]:
    """The file of the calibrator, if there is one, and those of the data."""
    if not more and first.suffix == ".json":
        raise ui.bad_option(
            "FILE", f"is missing: name the data after the calibrator {first}."
        )
    if not more or (ensemble and not opt.is_calibrator(first)):
        return None, [first, *more]
    return first, [*more]


def _method_to_fold(method: str | None, data: object) -> object:
    """What is fitted in folds: a method by name, or a calibrator of confidences."""
    if isinstance(data, Rows) and data.kind == "confidence":
        ui.refuse("does not go with confidences.", method=method)
        return hokical.ConfidenceCalibrator()
    return opt.check_method(method or "auto")


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


def _show_evaluation(evaluation: Evaluation, data_name: str) -> None:
    """The verdict, then tables of metrics, bands, labels, groups and sets."""
    method = "" if evaluation.before is None else f"; {evaluation.label}"
    title = f"{data_name}: {evaluation.data.size}{method}"
    ui.show_words(evaluation.headline)
    if evaluation.binary is not None:
        _show_event(evaluation, data_name)
        title = f"Predicted label; {evaluation.label}"
        ui.show_words("", " ".join(evaluation.words("label")))
    footnotes = evaluation.missing_intervals("label")
    if "selective_risk" in evaluation.summary.estimates:
        footnotes.append(_FOOTNOTE)
    table = ui.new_table(*evaluation.metric_cells("label"))
    ui.show_table(f"\n{title}", table, *footnotes)
    _show_details(evaluation, evaluation.stages)


def _show_event(evaluation: Evaluation, data_name: str) -> None:
    """Metrics and bands of the probability of the event."""
    summary = evaluation.binary
    if summary is None:
        return
    remarks = evaluation.missing_intervals("event")
    if summary.remark:
        remarks.append(summary.remark)
    metrics = ui.new_table(*evaluation.metric_cells("event"))
    ui.show_table(f"\n{data_name}: {summary.title}", metrics, *remarks)
    rows = [
        (
            ui.interval(band.lower, band.upper),
            f"{band.n:,.10g}",
            f"{band.events:,.10g}",
            f"{band.mean_probability:.1%}",
            f"{band.observed:.1%}",
            *_tested(band),
        )
        for band in summary.bands().rows
    ]
    heads = ("probability", "rows", "events", "mean", "observed", evaluation.level)
    table = ui.new_table((*heads, "p-value", ""), rows)
    ui.show_table(f"\nBy band of probability, with {evaluation.name}", table)


def _tested(row: Any) -> tuple[str, str, str]:
    """The interval and the test of a row of a table."""
    return (
        ui.interval(row.low, row.high),
        f"{row.p_value:.2g}",
        "off" if row.flagged else "",
    )


def _show_details(
    evaluation: Evaluation,
    results: Sequence[Evaluation],
) -> None:
    """Rows by predicted label and by group after calibration; the sets of all
    methods.
    """
    _show_rows(f"By predicted label, with {evaluation.name}", evaluation.classes)
    _show_sets(results)
    verdicts = [
        f"{result.name}: {result.groups.verdict}."
        for result in results
        if result.groups
    ]
    _show_rows(
        f"Which groups are miscalibrated with {evaluation.name}?",
        evaluation.groups,
        *verdicts,
    )


def _show_sets(results: Sequence[Evaluation]) -> None:
    """Coverage and size of the prediction sets of each method."""
    rows = []
    title = ""
    for result in results:
        sets = result.sets
        if sets is None:
            continue
        overall = sets.overall
        worst_class = min(row.coverage for row in sets.by_class)
        worst_size = min(row.coverage for row in sets.by_size)
        rows.append(
            (
                result.name,
                f"{overall.coverage:.1%}",
                ui.interval(overall.low, overall.high),
                f"{overall.mean_size:.2f}",
                f"{worst_class:.1%}",
                f"{worst_size:.1%}",
            )
        )
        title = f"\nPrediction sets at {sets.goal:.4g}, on {overall.n:,} examples"
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


def _show_rows(
    title: str, groups: hokical.metrics.GroupTable | None, *remarks: str
) -> None:
    """A row per group or predicted label; of many, the worst."""
    if groups is None:
        return
    shown = groups.rows if len(groups.rows) <= _MAX_ROWS else groups.worst(_MAX_ROWS)
    n_left_out = len(groups.rows) - len(shown)
    more = []
    if n_left_out:
        more = [f"The worst {len(shown)}; {n_left_out:,} more are not shown."]
    of_event = len(groups.asked) > 1
    heads = ["", "rows", "predicted", "observed"]
    heads += ["O:E"] if of_event else []
    heads += ["interval", "p-value", ""]
    rows = []
    for row in shown:
        cells = [row.full_name, f"{row.n:,}", f"{row.predicted:.1%}"]
        cells += [f"{row.observed:.1%}"]
        cells += [f"{row.oe_ratio:.2f}"] if of_event else []
        rows.append((*cells, *_tested(row)))
    ui.show_table(f"\n{title}", ui.new_table(heads, rows), *remarks, *more)


def _with_report(
    results: Evaluation | Comparison,
    subject: Evaluation,
    report: Path | None,
    show: Callable[[], None],
    title: str | None = None,
) -> ui.Result:
    """An evaluation or a comparison, whose report is written here."""
    values = results.to_dict() | {"report": report and str(report)}
    remark = None
    if report is not None:
        with ui.spinner("Writing the report"):
            results.to_html(report, title=title)
        remark = f"Report: {report.resolve()}"
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
    source_options: Source,
) -> ui.Result:
    """Fit methods on VAL and compare them on TEST.

    Example: hokical compare val.npz test.npz --methods temps,auto
    """
    entrants = _entrants(methods)
    source = source_options.at(val, weighted=False)
    validation = source.at(val, split=opt.Part.val, cluster=None).read()
    if test is None and validation.part is None:
        raise typer.BadParameter(
            f"{val} holds one set; pass TEST, data that nothing was fitted on."
        )
    path = test or val
    test_source = source.at(
        path,
        classes=validation.classes,
        labels=test_labels or source.labels,
        split=opt.Part.test,
    )
    test_rows = test_source.read()
    if "confidence" in (validation.kind, test_rows.kind):
        raise typer.BadParameter(
            "`compare` needs logits or probabilities; for confidences use `fit`, then "
            "`evaluate`."
        )
    with ui.check_options():
        comparison = hokical.compare(
            (validation.scores, validation.labels),
            (test_rows.scores, test_rows.labels),
            entrants,
            coverage=coverage,
            cluster=test_source.clusters(test_rows),
            data_names=(val.name, path.name),
            classes=test_rows.classes,
            groups=(validation.groups, test_rows.groups),
            random_state=seed,
        )
    subject = comparison[comparison.subject]
    return _show_comparison(comparison, f"{path.name}: {subject.data.size}", report)


def _entrants(methods: str) -> list[str] | None:
    """Names of methods, with the uncalibrated one first; None for all."""
    if methods == "all":
        return None
    names = [opt.check_method(name) for name in opt.split_names(methods)]
    if not names:
        raise ui.bad_option("--methods", "name at least one method, or `all`.")
    return list(dict.fromkeys(["uncalibrated", *names]))


@command(report=opt.option("HTML report to write."))
def demo(report: Path = Path("report.html")) -> ui.Result:
    """Compare all methods on the shipped data, and write a report.

    Example: hokical demo --report demo.html
    """
    title = "ResNet-110 on CIFAR-10, 10,000 test images"
    comparison = hokical.compare(*demo_logits(), classes=DEMO_CLASSES)
    return _show_comparison(comparison, title, report)


def _show_comparison(
    comparison: Comparison, title: str, report: Path | None
) -> ui.Result:
    """Write the report, and show headline, table and classes, or the numbers as
    JSON.
    """
    subject = comparison[comparison.subject]

    def show() -> None:
        ui.show_words(comparison.headline)
        bold = ", the best in bold" if ui.stdout().is_terminal else ""
        footnotes = [
            f"ECE has 15 bins. Of ECE, Brier and log loss lower is better{bold}.",
            *_difference_words(comparison),
        ]
        heads, rows = comparison.cells()
        named = [
            [result.name, *row[1:]]
            for result, row in zip(comparison.results, rows, strict=True)
        ]
        short_heads = [head.replace("classwise", "class") for head in heads]
        ui.show_table(f"\n{title}", ui.new_table(short_heads, named), *footnotes)
        _show_details(subject, comparison.results)

    for names, reason in _by_reason(comparison.skipped):
        ui.say(f"Left out: {', '.join(names)} ({reason}).")
    return _with_report(comparison, subject, report, show, title)


def _difference_words(comparison: Comparison) -> list[str]:
    """Which methods have a better or worse log loss than the subject."""
    verdicts: dict[str, list[str]] = {}
    for difference in comparison.differences():
        verdicts.setdefault(difference.verdict, []).append(difference.method)
    if not verdicts:
        return []
    texts = [
        f"{verdict}: {', '.join(methods)}"
        for verdict, methods in sorted(verdicts.items())
    ]
    return [
        f"Log loss compared with {comparison.subject} (5 %, Holm): {'; '.join(texts)}."
    ]


def _by_reason(skipped: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """The methods that were left out for each reason."""
    names: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        names.setdefault(reason, []).append(name)
    return [(methods, reason) for reason, methods in names.items()]
