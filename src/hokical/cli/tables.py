"""Tables of prediction sets, groups and classes, which several commands show."""

from __future__ import annotations

import typer
from rich.markup import escape

import hokical
from hokical.cli.console import interval, new_table, show_table

#: Classes that are all shown; of more, only the worst.
_MOST_CLASSES = 10
_MOST_GROUPS = 20


def show_sets(found: dict[str, hokical.metrics._sets.SetSummary]) -> None:
    """A table of prediction sets, by method."""
    if not found:
        return
    some = next(iter(found.values()))
    table = new_table(("method", "covered", "interval", "mean size", "worst class", "worst size"))
    for name, sets in found.items():
        worst = [min(r.coverage for r in rows) for rows in (sets.by_class, sets.by_size)]
        ends = interval(sets.overall.low, sets.overall.high)
        cells = (f"{sets.overall.coverage:.1%}", ends, f"{sets.overall.mean_size:.2f}")
        table.add_row(name, *cells, *(f"{share:.1%}" for share in worst))
    show_table(f"Prediction sets at {some.goal:.4g}, on {some.overall.n:,} examples", table)


def show_groups(found: dict[str, hokical.metrics.GroupTable], what: str = "group") -> None:
    """Which groups are miscalibrated, and those of the last method, the smallest p-value first."""
    if not found:
        return
    *_, (name, last) = found.items()
    before = found.get("uncalibrated", last)
    heads = ("rows", "before", "predicted") if before is not last else ("rows", "predicted")
    table = new_table((what, *heads, "observed", "interval", "p-value", ""))
    for row in last.worst(_MOST_GROUPS):
        first = [before[row.full_name].predicted] if before is not last else []
        shares = [f"{share:.1%}" for share in (*first, row.predicted, row.observed)]
        cells = (f"{row.n:,}", *shares, interval(row.low, row.high), f"{row.p_value:.2g}")
        table.add_row(escape(row.full_name), *cells, "off" if row.flagged else "")
    rest = len(last.rows) - _MOST_GROUPS
    lines = [f"{name}: {escape(each.verdict)}." for name, each in found.items()]
    lines += [f"{rest:,} more groups are not shown."] if rest > 0 else []
    typer.echo()
    show_table(f"Which groups are miscalibrated? {name}", table, *lines)


def show_classes(results: dict[str, hokical.report.Evaluation]) -> None:
    """For rows of each predicted label: how many, confidence, accuracy; before and after."""
    tables = {name: each.classes for name, each in results.items() if each.classes is not None}
    if not tables:
        return
    last = list(tables.values())[-1]
    few = len(last.rows) <= _MOST_CLASSES
    labels = [row.name for row in (last.rows if few else last.worst(_MOST_CLASSES))]
    found = [{row.name: row for row in table.rows} for table in tables.values()]
    shown = new_table(("label", *("rows", "conf.", "acc.") * len(found)))
    for label in labels:
        cells: list[str] = []
        for row in (rows.get(label) for rows in found):
            shares = () if row is None else (row.predicted, row.observed)
            cells += ("0", "", "") if row is None else (f"{row.n:,}", *map("{:.1%}".format, shares))
        shown.add_row(escape(label), *cells)
    rest = len(last.rows) - len(labels)
    more = [] if few else [f"The worst {len(labels)} labels; {rest:,} more are not shown."]
    typer.echo()
    show_table(f"Rows by predicted label: {', then '.join(tables)}", shown, *more)
