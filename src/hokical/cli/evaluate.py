"""`hokical evaluate`: every metric of one set of logits, before and after calibration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import hokical
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.beyond import Beyond, Tags
from hokical.cli.beyond import make as make_beyond
from hokical.cli.inputs import Maps, Rows, Stream, open_data
from hokical.cli.show import (
    bad_option,
    check_options,
    interval,
    new_table,
    number,
    refuse,
    say,
    show_json,
    show_table,
    spinner,
    warn,
)
from hokical.cli.tables import show_classes, show_groups, show_sets

_FOOTNOTE = "AUROC, right against wrong: higher is better. Selective risk: of the surest 80 %."


@opt.reads(opt.Part.test)
def evaluate(
    logits: Annotated[Path, opt.argument("LOGITS", "Test logits with labels.")],
    given: opt.Input,
    calibrator: Annotated[Path | None, opt.text("File of `fit`, to compare with softmax.")] = None,
    full: Annotated[bool, opt.text("Score all probabilities too.", "--full/--no-full")] = True,
    coverage: Annotated[
        float | None,
        opt.text("With --calibrator: also measure its prediction sets of this coverage."),
    ] = None,
    report: Annotated[Path | None, opt.text("Write an HTML report here.")] = None,
    settings: opt.Settings = None,
    bins: opt.Bins = 15,
    resamples: opt.Resamples = 1000,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure calibration, with intervals and guarantees.

    A folder (or 'pattern*') of Parquet files is read in parts and may be
    larger than memory; there are no intervals then. With
    --class-axis intervals and guarantees are by item, not by position.
    """
    fitted = None if calibrator is None else data.read_calibrator(calibrator)
    found = open_data(logits, given, fitted=fitted)
    if fitted is not None or not isinstance(found, Beyond):
        refuse("is for --confidence or --multilabel, without --calibrator.", set=settings or None)
    if fitted is not None:
        rows = found.rows if isinstance(found, Rows) else None
        data.warn_of_own_examples(fitted, logits, found.part, rows)
    if report is not None:
        hokical.io.check_output(report)
    options: dict[str, Any] = {"n_resamples": resamples, "random_state": seed, "n_bins": bins}
    summaries, comparison = _measure(found, fitted, settings or [], full=full, **options)
    results = () if comparison is None else comparison.results
    groups = {each.name: each.groups for each in results if each.groups}
    sets = {} if coverage is None else _measure_sets(found, fitted, coverage)
    if report is not None:
        if comparison is None or (isinstance(found, Rows) and found.examples.weights is not None):
            raise bad_option("--report", "needs rows of one file, without weights.")
        hokical.report.write_report(comparison, report)
    if isinstance(found, Maps) and any(each.bounds for each in summaries.values()):
        say("Intervals and guarantees are by item: neighbouring positions are not independent.")
    if as_json:
        shown = {name: each.to_dict() for name, each in summaries.items()}
        for name, measured in sets.items():
            shown[name]["sets"] = measured.to_dict()
        for name, table in groups.items():
            shown[name]["groups"] = table.to_dict()
        show_json(shown)
        return
    unit = found.unit if not isinstance(found, Tags) else f"labels of {found.n_rows:,} examples"
    if fitted is not None:
        unit += f"; {fitted.name}: {hokical.report._results.method_title(fitted)}"
    _show(summaries, logits, unit, found.classes)
    show_sets(sets)
    show_groups(groups, "label" if isinstance(found, Tags) else "group")


def _measure(
    found: Rows | Stream | Maps | Beyond, fitted: Any, settings: list[str], **options: Any
) -> tuple[dict[str, hokical.metrics.Summary], hokical.report._comparison.Comparison | None]:
    """Summaries before and after calibration, and the comparison that they are of, if any."""
    if isinstance(found, (Rows, Beyond)):
        if isinstance(found, Beyond) and fitted is None:
            fitted = make_beyond(type(found), settings)
        with spinner("Measuring"):
            comparison = found.compare(fitted, **options)
        return {each.name: each.summary for each in comparison.results}, comparison
    summaries = {}
    for judged in (found.without_calibration(), *([] if fitted is None else [fitted])):
        with spinner(f"Measuring {judged.name}"):
            summaries[judged.name] = found.measure(judged, **options)
    return summaries, None


def _measure_sets(
    found: Rows | Stream | Maps | Beyond, fitted: Any, coverage: float
) -> dict[str, hokical.metrics.SetSummary]:
    if fitted is None or not isinstance(found, Rows):
        raise bad_option("--coverage", "needs --calibrator, and rows of one file.")
    with check_options("--coverage"):
        members = fitted.predict_set(found.rows, coverage=coverage).members
    labels = found.examples.labels
    return {fitted.name: hokical.metrics.set_summary(members, labels, goal=coverage)}


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
