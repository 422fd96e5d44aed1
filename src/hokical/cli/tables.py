"""Tables of evaluations, which `evaluate`, `compare` and `demo` show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

import hokical
from hokical.cli.console import (
    bad_option,
    interval,
    new_table,
    say,
    show_json,
    show_table,
    spinner,
    warn,
)
from hokical.metrics import _risk_models as risk_models

#: Labels or groups that are all shown; of more, only the worst.
_MOST_ROWS = 10


def metric_cells(evaluations: Sequence[hokical.report.Evaluation], metric: str) -> list[str]:
    """Value and interval per method, the best value in bold."""
    known, cells = hokical.metrics.METRICS[metric], []
    best = hokical.report._data.best_of(evaluations, metric) if len(evaluations) > 1 else []
    for each in evaluations:
        text = known.format(each.score(metric))
        cells.append(f"[bold]{text}[/bold]" if [each.name] == best else text)
        cells.append(interval(each[metric].low, each[metric].high, known.format))
    return cells


def event_index(positive: str | None, names: Sequence[str], n_classes: int) -> int | None:
    """The column of the event, of two classes; None of more."""
    if n_classes != 2:
        if positive is not None:
            raise bad_option("--positive", f"is for two classes; there are {n_classes}.")
        return None
    choices = [*names] or ["0", "1"]
    if positive is not None and positive not in choices:
        raise bad_option("--positive", f"must be {' or '.join(choices)}; got {positive}.")
    return 1 if positive is None else choices.index(positive)


def event_name(index: int, names: Sequence[str]) -> str:
    """The event in words."""
    return names[index] if names else f"class {index}"


def show_event(found: hokical.report.Evaluation, title: str) -> None:
    """The probability of the event: metrics before and after, and bands after calibration."""
    event, level = found.binary, f"{1.0 - found.summary.options.delta:.0%} interval"
    if event is None:
        return
    table = new_table(["metric", *(cell for each in found.both for cell in (each.name, level))])
    summaries: list[Any] = [each.binary for each in found.both]
    for name in risk_models.EVENT_MAIN:
        cells = (risk_models.show_estimate(name, each[name], " to ") for each in summaries)
        texts = (text for pair in cells for text in pair)
        table.add_row(risk_models.EVENT_TITLES[name][0], *texts)
    show_table(f"{title}: {event.title}", table, *([event.remark] if event.remark else []))
    bands = new_table(("probability", "rows", "events", "mean", "observed", level, "p-value", ""))
    for row in event.bands().rows:
        shares = (f"{row.mean_probability:.1%}", f"{row.observed:.1%}")
        bands.add_row(
            f"{row.lower:.1%} to {row.upper:.1%}", f"{row.n:,.10g}", f"{row.events:,.10g}", *shares,
            f"{row.low:.1%} to {row.high:.1%}", f"{row.p_value:.2g}", "off" if row.flagged else "",
        )  # fmt: skip
    typer.echo()
    show_table(f"By band of probability, with {found.name}", bands)
    typer.echo()


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


def show_rows(title: str, found: hokical.metrics.GroupTable | None, *remarks: str) -> None:
    """A row per group or predicted label; of many, the worst."""
    if found is None:
        return
    few = len(found.rows) <= _MOST_ROWS
    rows = found.rows if few else found.worst(_MOST_ROWS)
    event = len(found.asked) > 1
    ratio = ("O:E",) if event else ()
    table = new_table(("", "rows", "predicted", "observed", *ratio, "interval", "p-value", ""))
    for row in rows:
        ends = interval(row.low, row.high, "{:.1%}".format)
        own = (f"{row.oe_ratio:.2f}",) if event else ()
        shares = (f"{row.n:,}", f"{row.predicted:.1%}", f"{row.observed:.1%}", *own, ends)
        table.add_row(
            escape(row.full_name), *shares, f"{row.p_value:.2g}", "off" if row.flagged else ""
        )
    rest = f"The worst {len(rows)}; {len(found.rows) - len(rows):,} more are not shown."
    typer.echo()
    show_table(title, table, *remarks, *([] if few else [rest]))


def show_found(
    found: Any, subject: hokical.report.Evaluation, report: Path | None, as_json: bool,
    show: Callable[[], None], title: str | None = None,
) -> None:  # fmt: skip
    """Write the report of an evaluation or a comparison, `show` it, or its numbers as JSON."""
    if report is not None:
        with spinner("Writing the report"):
            found.to_html(report, title=title)
    if as_json:
        show_json(found.to_dict() | {"report": None if report is None else str(report)})
    else:
        show()
    if subject.class_warning is not None:
        warn(f"{subject.name}: {subject.class_warning}")
    if report is not None:
        say(f"Report: {report.resolve()}")


def show_details(found: hokical.report.Evaluation, all_methods: Sequence[Any]) -> None:
    """Rows by predicted label and by group after calibration; the sets of all methods."""
    show_rows(f"By predicted label, with {found.name}", found.classes)
    show_sets(all_methods)
    verdicts = [f"{each.name}: {each.groups.verdict}." for each in all_methods if each.groups]
    show_rows(f"Which groups are miscalibrated with {found.name}?", found.groups, *verdicts)
