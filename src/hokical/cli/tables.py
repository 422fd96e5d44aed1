"""Tables of evaluations, which `evaluate`, `compare` and `demo` show."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.markup import escape

import hokical
from hokical.cli.console import DASH, interval, new_table, show_table

#: Classes that are all shown; of more, only the worst.
_MOST_CLASSES = 10
_MOST_GROUPS = 20


def metric_cells(evaluations: Sequence[hokical.report.Evaluation], metric: str) -> list[str]:
    """Value and interval per method, the better value in bold if lower is better."""
    known = hokical.metrics.METRICS[metric]
    shown = [round(each.score(metric), 4) for each in evaluations]  # compared as they are shown
    unequal = len(set(shown)) > 1 and known.better == "lower"
    cells = []
    for each, value in zip(evaluations, shown, strict=True):
        text = known.format(each.score(metric)) if value == value else DASH
        cells.append(f"[bold]{text}[/bold]" if unequal and value == min(shown) else text)
        cells.append(interval(each[metric].low, each[metric].high, known.format))
    return cells


def show_sets(evaluations: Sequence[hokical.report.Evaluation]) -> None:
    """A table of prediction sets, by method."""
    found = {each.name: each.sets for each in evaluations if each.sets is not None}
    if not found:
        return
    table = new_table(("method", "covered", "interval", "mean size", "worst class", "worst size"))
    for name, sets in found.items():
        worst = [min(row.coverage for row in rows) for rows in (sets.by_class, sets.by_size)]
        ends = interval(sets.overall.low, sets.overall.high, "{:.1%}".format)
        cells = (f"{sets.overall.coverage:.1%}", ends, f"{sets.overall.mean_size:.2f}")
        table.add_row(name, *cells, *(f"{share:.1%}" for share in worst))
    some = next(iter(found.values()))
    typer.echo()
    show_table(f"Prediction sets at {some.goal:.4g}, on {some.overall.n:,} examples", table)


def show_groups(evaluations: Sequence[hokical.report.Evaluation]) -> None:
    """Which groups are miscalibrated after the last method, the worst first."""
    found = {each.name: each.groups for each in evaluations if each.groups is not None}
    if not found:
        return
    *_, (name, last) = found.items()
    before = found.get("uncalibrated", last)
    heads = ("before", "predicted") if before is not last else ("predicted",)
    table = new_table(("group", "rows", *heads, "observed", "interval", "p-value", ""))
    for row in last.worst(_MOST_GROUPS):
        first = [before[row.full_name].predicted] if before is not last else []
        shares = [f"{share:.1%}" for share in (*first, row.predicted, row.observed)]
        cells = (
            f"{row.n:,}",
            *shares,
            interval(row.low, row.high, "{:.1%}".format),
            f"{row.p_value:.2g}",
        )
        table.add_row(escape(row.full_name), *cells, "off" if row.flagged else "")
    rest = len(last.rows) - _MOST_GROUPS
    lines = [f"{name}: {each.verdict}." for name, each in found.items()]
    lines += [f"{rest:,} more groups are not shown."] if rest > 0 else []
    typer.echo()
    show_table(f"Which groups are miscalibrated with {name}?", table, *lines)


def show_classes(evaluations: Sequence[hokical.report.Evaluation]) -> None:
    """For rows of each predicted label: how many, confidence, accuracy; before and after."""
    tables = {each.name: each.classes for each in evaluations if each.classes is not None}
    if not tables:
        return
    last = list(tables.values())[-1]
    few = len(last.rows) <= _MOST_CLASSES
    names = [row.name for row in (last.rows if few else last.worst(_MOST_CLASSES))]
    found = [{row.name: row for row in table.rows} for table in tables.values()]
    shown = new_table(("label", *("rows", "confidence", "accuracy") * len(found)))
    for name in names:
        cells: list[str] = []
        for row in (rows.get(name) for rows in found):
            if row is None:
                cells += ["0", "", ""]
            else:
                cells += [f"{row.n:,}", f"{row.predicted:.1%}", f"{row.observed:.1%}"]
        shown.add_row(escape(name), *cells)
    rest = len(last.rows) - len(names)
    more = [] if few else [f"The worst {len(names)} labels; {rest:,} more are not shown."]
    typer.echo()
    show_table(f"By predicted label: {', then '.join(tables)}", shown, *more)
