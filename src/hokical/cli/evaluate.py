"""`hokical evaluate`: every metric of one data set, before and after calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import hokical
from hokical.cli import options as opt
from hokical.cli.console import bad_option, check_options, new_table, show_table, spinner
from hokical.cli.reading import Source, read_calibrator
from hokical.cli.tables import event_index, metric_cells, show_details, show_event, show_found
from hokical.io._examples import Examples

_FOOTNOTE = "AUROC, right against wrong: higher is better. Selective risk: most confident 80 %."


def evaluate(
    first: Annotated[
        Path, opt.argument("CALIBRATOR|FILE", "File that `fit` saved, or else the test data.")
    ],
    second: Annotated[
        Path | None, opt.argument("FILE", "Test data, logits with labels, after a calibrator.")
    ] = None,
    coverage: opt.Coverage = None,
    report: opt.Report = None,
    labels: opt.Labels = None,
    label_column: opt.LabelColumn = None,
    score_columns: opt.ScoreColumns = None,
    classes: opt.Classes = None,
    probabilities: opt.Probabilities = None,
    confidence: opt.Confidence = None,
    positive: opt.Positive = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    split: opt.Split = opt.Part.test,
    as_json: opt.Json = False,
) -> None:
    """Measure calibration, with intervals and guarantees.

    With a CALIBRATOR, before and after calibration; without, as it is. Of two
    classes the probability of the event comes first.

    A folder (or 'pattern*') of Parquet files is read in parts and may be
    larger than memory.
    """
    if second is None and first.suffix == ".json":
        raise bad_option("FILE", f"is missing: name the data after the calibrator {first}.")
    path, calibrator = (first, None) if second is None else (second, first)
    fitted = None if calibrator is None else read_calibrator(calibrator)
    data: Any = Source(
        path, split, labels=labels, label_column=label_column, score_columns=score_columns,
        classes=classes, probabilities=probabilities, confidence=confidence, groups=groups,
        missing=missing,
    ).open(fitted)  # fmt: skip
    own: dict[str, Any] = {"x": data}
    if isinstance(data, Examples):
        own = {"x": data.scores, "y": data.labels, "sample_weight": data.weights}
        own["groups"] = data.groups
    with spinner("Measuring"), check_options():
        found = hokical.evaluate(
            fitted, **own, coverage=coverage, class_names=data.classes, data_name=path.name,
            positive=None if positive is None else _event_class(positive, data),
        )  # fmt: skip
    show_found(found, found, report, as_json, lambda: _show(found, path))


def _event_class(positive: str, data: Any) -> Any:
    """The event as `evaluate` takes it."""
    scores = getattr(data, "scores", data)
    n_classes = getattr(scores, "n_classes", 1)  # of confidences: refused in words
    return event_index(positive, data.classes, n_classes)


def _show(found: hokical.report.Evaluation, path: Path) -> None:
    """All metrics in a table, then classes, sets and groups."""
    columns, level = ["metric"], f"{1.0 - found.summary.options.delta:.0%} interval"
    for each in found.both:
        columns += [each.name, level]
    table = new_table(columns)
    for name in found.summary.estimates:
        title = hokical.metrics.METRICS[name].full_title
        table.add_row(title, *metric_cells(found.both, name))
    title = f"{path.name}: {found.n:,} examples"
    title += f"; {found.label}" if found.before is not None else ""
    notes = (_FOOTNOTE,) if "selective_risk" in found.summary.estimates else ()
    if found.binary is None:
        show_table(title, table, *notes, "", found.headline)
    else:
        show_event(found, path.name)
        said = f"{found.label_verdict} {found.label_details}"
        show_table(f"Predicted label; {found.label}", table, *notes, "", said, "", found.headline)
    show_details(found, found.both)
