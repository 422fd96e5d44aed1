"""Results on stdout, everything else on stderr.

Tables of evaluations, which `evaluate`, `compare` and `demo` show.
"""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

import hokical
from hokical._core.messages import progress_bar
from hokical._core.storage import json_values, printable
from hokical.metrics import risk_models

#: Width if there is no terminal, so that tables in files and pipes are not cut.
_WIDTH_OF_A_PIPE = 120
_UNBOUNDED = 100_000
#: The exit code of `monitor` and `shift` after an alarm.
ALARM = 3
#: For what is not known.
DASH = "\N{EN DASH}"
NO_WORDS: Mapping[str, str] = {}
#: The warnings of this command.
warned: list[str] = []


class _Terminal(Console):
    """A console that shows control characters of names and files instead of obeying them."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for segment, style, control in super().render(renderable, options):
            lines = segment if control else "\n".join(map(printable, segment.split("\n")))
            yield Segment(lines, style, control)


def stdout(*, at_least: int = 0) -> Console:
    """The console for results, as if it were at least this wide."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = None if known else _WIDTH_OF_A_PIPE
    console = _Terminal(width=width, highlight=False)
    if console.width >= at_least:
        return console
    return _Terminal(width=at_least, highlight=False)


def stderr() -> Console:
    """The console for everything else."""
    return _Terminal(stderr=True, highlight=False)


def say(text: str) -> None:
    """A message on stderr, in one line however narrow the terminal."""
    stderr().print(Text(text), soft_wrap=True)


def warn(text: str) -> None:
    """A warning on stderr; with --strict the command then fails."""
    if text not in warned:  # several methods may have the same to say
        say(f"Warning: {text}")
        warned.append(text)


def show_json(data: Any) -> None:
    """Strict JSON on stdout; NaN and infinities become null."""
    text = json.dumps(json_values(data), indent=2, allow_nan=False)
    typer.echo(text)


def new_table(columns: Iterable[str]) -> Table:
    """A table of a text column and number columns, none of which is ever cut."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    return table


def show_table(title: str, table: Table, *remarks: str) -> None:
    """A table between its title and remarks, which may be wider than it is."""
    console = stdout()
    console.print(Text(title, style="bold"), soft_wrap=True)
    unbounded = console.options.update(width=_UNBOUNDED)
    stdout(at_least=Measurement.get(console, unbounded, table).maximum).print(table)
    for remark in ("", *remarks) if remarks else ():
        console.print(Text(remark))


def interval(low: float, high: float, write: Callable[[float], str] = "{:.4f}".format) -> str:
    """Both ends of an interval, or a dash if there is none."""
    return DASH if math.isnan(low) or math.isnan(high) else f"{write(low)} - {write(high)}"


def show_result(values: dict[str, Any], lines: dict[str, str | None], as_json: bool) -> None:
    """The values as JSON, or the lines that say something."""
    if as_json:
        show_json(values)
    else:
        show_facts({name: line for name, line in lines.items() if line})


def show_facts(facts: dict[str, str]) -> None:
    """Names and values in two columns, without a frame; long sentences wrapped in a terminal."""
    width, console = max(map(len, facts)), stdout()
    for name, value in facts.items():
        room = console.width - width - 3 if sys.stdout.isatty() else _UNBOUNDED
        lines = textwrap.wrap(value, max(room, 20), break_long_words=False, break_on_hyphens=False)
        value = f"\n{' ' * (width + 2)}".join(lines)
        console.print(Text.assemble((name.ljust(width), "bold"), "  ", value), soft_wrap=True)


def bad_option(option: str | None, text: str) -> Exception:
    """The error of an option, with what is wrong with it."""
    return typer.BadParameter(text, param_hint=option)


def refuse(why: str, **options: Any) -> None:
    """Raise for the first of some options that was given; those with None or False were not."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise bad_option(f"--{name.replace('_', '-')}", why)


@contextmanager
def check_options(option: str | None = None, words: Mapping[str, str] = NO_WORDS) -> Iterator[None]:
    """Report errors of the library as errors of the command line, in its `words`."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise bad_option(option, in_options(str(error), words)) from error


def in_options(message: str, words: Mapping[str, str]) -> str:
    """A message of the library in the words of the command line."""
    for word, option in words.items():
        message = message.replace(word, option)
    return message


def spinner(what: str) -> AbstractContextManager[Any]:
    """Show what is being done on stderr, if that is a terminal and a second has passed."""
    return progress_bar(printable(f"{what} ..."), None)


#: Labels or groups that are all shown; of more, only the worst.
_MOST_ROWS = 10


def metric_cells(evaluations: Sequence[hokical.report.Evaluation], metric: str) -> list[str]:
    """Value and interval per method, the best value in bold."""
    known, cells = hokical.metrics.METRICS[metric], []
    best = hokical.report.content.best_of(evaluations, metric) if len(evaluations) > 1 else []
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
        metric = risk_models.EVENT_METRICS[name]
        cells = (metric.show(each[name], " to ") for each in summaries)
        texts = (text for pair in cells for text in pair)
        table.add_row(metric.title, *texts)
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
