"""`hokical evaluate`: every metric of one data set, before and after calibration."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import hokical
from hokical.cli import options as opt
from hokical.cli.console import (
    bad_option,
    check_options,
    interval,
    new_table,
    number,
    show_json,
    show_table,
    spinner,
    warn,
)
from hokical.cli.reading import Rows, Source, Stream, read_calibrator
from hokical.cli.tables import show_classes, show_groups, show_sets

_FOOTNOTE = "AUROC, right against wrong: higher is better. Selective risk: of the surest 80 %."


def evaluate(
    first: Annotated[Path, opt.argument("[CALIBRATOR]", "File that `fit` saved, if any.")],
    second: Annotated[
        Path | None, opt.argument("FILE", "Test logits with labels.", show_default=False)
    ] = None,
    coverage: opt.Coverage = None,
    report: opt.Report = None,
    resamples: opt.Resamples = 1000,
    seed: opt.Seed = 0,
    labels: opt.Labels = None,
    label_column: opt.LabelColumn = None,
    score_columns: opt.ScoreColumns = None,
    classes: opt.Classes = None,
    probabilities: opt.Probabilities = None,
    confidence: opt.Confidence = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    split: opt.Split = opt.Part.test,
    as_json: opt.Json = False,
) -> None:
    """Measure calibration, with intervals and guarantees.

    With a CALIBRATOR, before and after calibration; without, as it is.

    A folder (or 'pattern*') of Parquet files is read in parts and may be
    larger than memory; there are no intervals then.
    """
    data, calibrator = (first, None) if second is None else (second, first)
    fitted = None if calibrator is None else read_calibrator(calibrator)
    found = Source(
        data, split, labels=labels, label_column=label_column, score_columns=score_columns,
        classes=classes, probabilities=probabilities, confidence=confidence, groups=groups,
        missing=missing,
    ).open(fitted)  # fmt: skip
    if fitted is not None:
        found.warn_of_own(fitted)
    if report is not None:
        hokical.io.check_output(report, suffix=(".html", ".htm"))
    options: dict[str, Any] = {"n_resamples": resamples, "random_state": seed}
    with spinner("Measuring"):
        summaries, comparison = _measure(found, fitted, options)
    results = () if comparison is None else comparison.results
    tables = {each.name: each.groups for each in results if each.groups}
    sets = {} if coverage is None else _measure_sets(found, fitted, coverage)
    if report is not None:
        if comparison is None or found.weights is not None:
            raise bad_option("--report", "needs rows of one file, without weights.")
        hokical.report.write_report(comparison, report)
    if as_json:
        shown = {name: each.to_dict() for name, each in summaries.items()}
        for name, measured in sets.items():
            shown[name]["sets"] = measured.to_dict()
        for name, table in tables.items():
            shown[name]["groups"] = table.to_dict()
        show_json(shown)
        return
    unit = "examples"
    if fitted is not None:
        unit += f"; {fitted.name}: {hokical.report._results.method_title(fitted)}"
    _show(summaries, data, unit, found.classes)
    show_sets(sets)
    show_groups(tables)


def _measure(
    found: Rows | Stream, fitted: Any, options: dict[str, Any]
) -> tuple[dict[str, hokical.metrics.Summary], hokical.report._comparison.Comparison | None]:
    """Summaries before and after calibration, and the comparison that they are of, if any."""
    if isinstance(found, Stream):
        head = found.source.first_chunk().rows(slice(1))
        with hokical.io._errors.report_file(found.path):
            own = hokical.make("uncalibrated").fit(head.logits, head.labels)
            judged = [own] if fitted is None else [own, fitted]
            return {
                c.name: hokical.streams.evaluate(c, found.source, full=True) for c in judged
            }, None
    pair = found.scores, found.labels
    if found.wanted.answers:
        known = hokical.ConfidenceCalibrator() if fitted is None else fitted
        with check_options("--confidence"):
            comparison = hokical.report.before_and_after(
                known, *pair, groups=found.groups, data_name=found.path.name, **options
            )
    else:
        options = options | {"sample_weight": found.use_weights(), "n_bins": 15}
        known = [] if fitted is None else [fitted]
        comparison = hokical.report._before_after.judge_logits(
            known, pair, options, found.groups, found.path.name
        )
        comparison = replace(comparison, class_names=found.classes)
    return {each.name: each.summary for each in comparison.results}, comparison


def _measure_sets(
    found: Rows | Stream, fitted: Any, coverage: float
) -> dict[str, hokical.metrics.SetSummary]:
    if fitted is None or not isinstance(found, Rows) or found.wanted.answers:
        raise bad_option("--coverage", "needs a calibrator of logits, and rows of one file.")
    with check_options("--coverage"):
        members = fitted.predict_set(found.scores, coverage=coverage).members
    return {fitted.name: hokical.metrics.set_summary(members, found.labels, goal=coverage)}


def _show(
    summaries: dict[str, hokical.metrics.Summary], source: Path, unit: str, classes: tuple[str, ...]
) -> None:
    some = next(iter(summaries.values()))
    intervals = some.options.n_resamples > 0
    columns = ["metric"]
    for name in summaries:
        columns += [name, f"{1.0 - some.options.delta:.0%} interval"] if intervals else [name]
    table = new_table(columns)
    for name in some.estimates:
        # In 80 columns there is no room for "all classes".
        title = hokical.metrics.METRICS[name].full_title.removesuffix(" classes")
        table.add_row(title, *table_cells(summaries, name, intervals))
    guarantees = [
        f"{name}: with {1.0 - found.options.delta:.0%} confidence the true calibration error is "
        f"below {found.bounds['bousquet']:.4f}."
        for name, found in summaries.items()
        if found.bounds
    ]
    corrected = {name: found["ece"].corrected for name, found in summaries.items()}
    if None not in corrected.values():
        texts = ", ".join(f"{name} {value:.4f}" for name, value in corrected.items())
        guarantees.insert(0, f"ECE corrected for what chance adds: {texts}.")
    notes = (_FOOTNOTE, "") if "selective_risk" in some.estimates else ()
    show_table(f"{source.name}: {some.n:,} {unit}", table, *notes, *guarantees)
    show_classes(summaries, classes)
    for name, found in summaries.items():
        warning = found.warn_of_class(classes)
        if warning is not None:
            warn(f"{name}: {warning}")


def table_cells(
    summaries: dict[str, hokical.metrics.Summary], metric: str, intervals: bool
) -> list[str]:
    """Value and interval per calibrator, the better value in bold if lower is better."""
    # Compared as they are shown.
    shown = {name: round(found[metric].value, 4) for name, found in summaries.items()}
    numbers = [value for value in shown.values() if not math.isnan(value)]
    unequal = len(set(numbers)) > 1 and hokical.metrics.METRICS[metric].better == "lower"
    cells = []
    for name, found in summaries.items():
        text = number(shown[name])
        cells.append(f"[bold]{text}[/bold]" if unequal and shown[name] == min(numbers) else text)
        if intervals:
            cells.append(interval(found[metric].low, found[metric].high))
    return cells
