"""`hokical evaluate`: every metric of one data set, before and after calibration."""

from __future__ import annotations

import math
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
    if coverage is not None:
        if fitted is None or not isinstance(found, Rows) or found.wanted.answers:
            raise bad_option("--coverage", "needs a calibrator of logits, and rows of one file.")
        options["coverage"] = coverage
    with spinner("Measuring"):
        last = _evaluate(found, fitted, options)
    results = {each.name: each for each in (last.before, last) if each is not None}
    if report is not None:
        last.to_html(report)
    if as_json:
        show_json({each["method"]: each for each in last.to_dict()["methods"]})
        return
    unit = "examples" if last.before is None else f"examples; {last.name}: {last.title}"
    _show(results, data, unit)
    show_sets({name: each.sets for name, each in results.items() if each.sets})
    show_groups({name: each.groups for name, each in results.items() if each.groups})


def _evaluate(
    found: Rows | Stream, fitted: Any, options: dict[str, Any]
) -> hokical.report.Evaluation:
    """The evaluation of rows, or of a source that is read in parts."""
    about = options | {"data_name": found.path.name}
    if isinstance(found, Stream):
        return hokical.evaluate(fitted, found.source, class_names=found.classes, **about)
    about |= {"groups": found.groups, "sample_weight": found.use_weights()}
    if found.wanted.answers:
        with check_options("--confidence"):
            return hokical.evaluate(fitted, found.scores, found.labels, **about)
    with check_options("--coverage"):
        about |= {"class_names": found.classes}
        return hokical.evaluate(fitted, found.scores, found.labels, **about)


def _show(results: dict[str, hokical.report.Evaluation], source: Path, unit: str) -> None:
    summaries = {name: each.summary for name, each in results.items()}
    some = next(iter(summaries.values()))
    intervals = some.options.n_resamples > 0
    columns = ["metric"]
    for name in summaries:
        columns += [name, f"{1.0 - some.options.delta:.0%} interval"] if intervals else [name]
    table = new_table(columns)
    for name in some.estimates:
        title = hokical.metrics.METRICS[name].full_title
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
        guarantees.insert(0, f"ECE corrected for sampling noise: {texts}.")
    notes = (_FOOTNOTE, "") if "selective_risk" in some.estimates else ()
    show_table(f"{source.name}: {some.n:,} {unit}", table, *notes, *guarantees)
    show_classes(results)
    for name, each in results.items():
        if each.class_warning is not None:
            warn(f"{name}: {each.class_warning}")


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
