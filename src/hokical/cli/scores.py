"""The tables of a comparison, for `compare` and `demo`, and of classes, for `evaluate` too."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

import hokical
from hokical.cli.show import interval, new_table, say, show_json, show_table, spinner, stdout, warn

if TYPE_CHECKING:
    from hokical.metrics.summaries import Summary
    from hokical.report.comparison import Comparison

#: Headings that are shorter than those of reports.
_SHORT = {"classwise_ece": "class ECE", "brier_full": "Brier", "log_loss_full": "log loss"}
#: The width from which intervals, differences and times are shown, what the numbers
#: need in narrower tables, and in this one.
_ROOMY, _NARROW_NUMBERS, _NUMBERS = 116, 60, 98
#: Classes that are all shown; of more, only the worst.
_MOST_CLASSES = 10


def show_comparison(
    comparison: Comparison,
    title: str,
    report: Path | None,
    *,
    as_json: bool = False,
    form: str = "table",
    classes: tuple[str, ...] = (),
) -> None:
    """Write the report, and show table, classes and headline, or the numbers in a format."""
    if report is not None:
        with spinner("Writing the report"):
            hokical.report.write_report(comparison, report)
    subject = comparison[comparison.subject]
    if as_json or form == "json":
        where: dict[str, Any] = {"report": None if report is None else str(report)}
        show_json(comparison.to_dict() | where)
    elif form != "table":
        typer.echo(getattr(comparison, f"to_{form}")(), nl=False)
    else:
        table = results_table(comparison, stdout().width)
        show_table(title, table, _caption(comparison), "", comparison.headline())
        plain = {r.name: r.summary for r in comparison.results if r.name == "uncalibrated"}
        show_classes(plain | {subject.name: subject.summary}, classes)
    for reason in dict.fromkeys(comparison.skipped.values()):
        names = [name for name, why in comparison.skipped.items() if why == reason]
        say(f"Left out: {', '.join(names)} ({reason}).")
    for result in comparison.results:
        for note in result.notes:
            say(f"{result.name}: {note}")
    if subject.summary.class_warning is not None:
        warn(f"{subject.name}: {subject.summary.class_warning}")
    if report is not None:
        say(f"Report: {report.resolve()}")


def results_table(comparison: Comparison, width: int) -> Table:
    """One row per method, the best of each score in bold."""
    roomy = width >= _ROOMY
    titles = hokical.report.tables.HEADINGS
    heads = [_SHORT.get(name, titles[name][0]) for name in comparison.main_columns]
    extra = ("ECE interval", "difference", "fit") if roomy else ()
    table = new_table(("method", *heads, *extra))
    verdicts = {found.method: found for found in comparison.differences()}
    room = max(16, width - (_NUMBERS if roomy else _NARROW_NUMBERS))
    for result in comparison.results:
        cells = comparison.marked_cells(result, "[bold]{}[/bold]")
        if roomy:
            ece, seconds = result.summary["ece"], result.fit_seconds
            found = verdicts.get(result.name)
            cells.append(interval(ece.low, ece.high))
            known = found is not None and math.isfinite(found.value)
            value = f"{found.value:+.4f} " if found and known else ""
            cells.append("" if found is None else f"{value}{_SIGNS[found.verdict]}")
            cells.append("before" if seconds is None else f"{seconds:.2f} s")
        table.add_row(escape("\n".join(textwrap.wrap(result.label, room))), *cells)
    return table


_SIGNS = {"better": "<", "worse": ">", "no clear difference": "=", "unknown": "?"}


def _caption(comparison: Comparison) -> str:
    """What the columns are, and what a wider terminal would show."""
    console = stdout()
    bold = ", best in bold" if console.is_terminal else ""
    judged = "all classes" if comparison.has_vectors else "the label"
    roomy = console.width >= _ROOMY
    more = (
        f"Difference: log loss less that of {comparison.subject}; < better, > worse, = not clear "
        "(5 %, Holm)."
        if roomy
        else f"From {_ROOMY} columns on also intervals, differences and times; all of it "
        "with --format csv."
    )
    return f"ECE: 15 bins. Brier, log loss: of {judged}. Lower is better{bold}. {more}"


def show_classes(summaries: dict[str, Summary], names: tuple[str, ...] = ()) -> None:
    """For rows of each label: how many, what they say, how often they are right; before, after."""
    tables = {name: found.classes for name, found in summaries.items() if found.classes is not None}
    if not tables:
        return
    last = list(tables.values())[-1]
    few = len(last.rows) <= _MOST_CLASSES
    labels = [row.label for row in (last.rows if few else last.worst(_MOST_CLASSES))]
    found = [{row.label: row for row in table.rows} for table in tables.values()]
    shown = new_table(("label", *("rows", "says", "right") * len(found)))
    for label in labels:
        cells: list[str] = []
        for row in (rows.get(label) for rows in found):
            numbers = () if row is None else (f"{row.n:,}", f"{row.says:.1%}", f"{row.right:.1%}")
            cells += numbers or ("0", "", "")
        shown.add_row(escape(names[label]) if names else str(label), *cells)
    rest = len(last.rows) - len(labels)
    more = [] if few else [f"The worst {len(labels)} labels; {rest:,} more are not shown."]
    typer.echo()
    show_table(f"Rows by the label they got: {', then '.join(tables)}", shown, *more)
