"""`hokical evaluate`: every metric of one set of logits, before and after calibration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

import hokical
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.compare import show_classes, show_groups, show_sets
from hokical.cli.inputs import Maps, Rows, open_data
from hokical.cli.show import (
    check_options,
    interval,
    new_table,
    number,
    say,
    show_json,
    show_table,
    spinner,
    warn,
)

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
    bins: opt.Bins = 15,
    resamples: opt.Resamples = 1000,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Measure calibration, with intervals and guarantees.

    A folder (or 'pattern*') of Parquet files, or a Zarr store, is read in
    parts and may be larger than memory; there are no intervals then. With
    --class-axis intervals and guarantees are by item, not by position.
    """
    fitted = None if calibrator is None else data.load_calibrator(calibrator)
    found, _ = open_data(logits, given, fitted=fitted)
    if fitted is not None:
        data.warn_of_own_examples(fitted, logits, found.part, found.rows)
    summaries: dict[str, hokical.metrics.Summary] = {}
    for judged in (found.without_calibration(), *([] if fitted is None else [fitted])):
        with spinner(f"Measuring {judged.name}"):
            summaries[judged.name] = found.measure(
                judged, n_bins=bins, full=full, resamples=resamples, seed=seed
            )
    sets = {}
    if coverage is not None:
        if fitted is None or not isinstance(found, Rows):
            raise typer.BadParameter(
                "needs --calibrator, and rows of one file.", param_hint="--coverage"
            )
        with check_options("--coverage"):
            members = fitted.predict_set(found.rows, coverage=coverage).members
        labels = found.examples.labels
        sets = {fitted.name: hokical.metrics.set_summary(members, labels, goal=coverage)}
    groups = {}
    if isinstance(found, Rows) and found.examples.groups is not None:
        judges = (found.without_calibration(), *([] if fitted is None else [fitted]))
        groups = {judged.name: found.audit(judged) for judged in judges}
    if isinstance(found, Maps) and any(each.bounds for each in summaries.values()):
        say("Intervals and guarantees are by item: neighbouring positions are not independent.")
    method_title = hokical.report._results.method_title
    if as_json:
        shown = {name: found.to_dict() for name, found in summaries.items()}
        for name, measured in sets.items():
            shown[name]["sets"] = measured.to_dict()
        for name, table in groups.items():
            shown[name]["groups"] = table.to_dict()
        show_json(shown)
    else:
        names = [] if fitted is None else [f"; {fitted.name}: {method_title(fitted)}"]
        _show(summaries, logits, "".join([found.unit, *names]), found.classes)
        if sets:
            show_sets(sets)
        show_groups(groups)


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
        f"{name}: with {1.0 - found.options.delta:.0%} certainty the true calibration error is "
        f"below {found.bounds['bousquet']:.4f}."
        for name, found in summaries.items()
        if found.bounds
    ]
    corrected = {name: found["ece"].corrected for name, found in summaries.items()}
    if None not in corrected.values():
        texts = ", ".join(f"{name} {value:.4f}" for name, value in corrected.items())
        guarantees.insert(0, f"ECE corrected for what chance adds: {texts}.")
    show_table(f"{source.name}: {some.n:,} {unit}", table, _FOOTNOTE, "", *guarantees)
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
