"""Results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import typer
from rich import box
from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from hokical._core.runtime import progress_bar
from hokical._core.storage import json_values, printable

#: Columns that sentences are wrapped at, in narrower terminals at these.
_TEXT_WIDTH = 80
_UNBOUNDED = 100_000
#: The exit code of `monitor` and `shift` after an alarm.
ALARM = 3
#: For what is not known.
DASH = "\N{EN DASH}"
#: What the library's words are called here: patterns, and what takes their place.
_WORDS = {
    r'`by="([a-z ]+)"`': r"--by '\1'",
    r"\bCall `certify": "Run `certify",
    r"`certify\([^`]*groups=[^`]*\)`": "`hokical certify --groups COLUMN`",
    r"`certify\((logits|scores|confidence), (labels|right)\)`": "`hokical certify`",
    r'`reused="ignore"` \(--look-alike\)': "--look-alike",
    r"pass `ids` with the predictions and then `add_labels\(ids, labels\)`": (
        "name --id-column COLUMN with both files"
    ),
    r"`again=True`": "--again",
    r"`hokical\.evaluate\([^`]*folds=10\)`": "`hokical evaluate FILE --folds 10`",
    r"`CalibrationMonitor.from_validation\(calibrator, logits, labels\)`": "--reference FILE",
    r'`scores` must be "logits" or "probabilities" here': (
        "--probabilities or --logits must be given"
    ),
    r'`scores="probabilities"`': "--probabilities",
    r"`output`": "--scores",
    r"`positive`": "the event",
    r"`calibrator`": "the calibrator",
}
#: The warnings of this command.
warned: list[str] = []


class _Terminal(Console):
    """A console that shows control characters of names and files instead of obeying
    them.
    """

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for segment, style, control in super().render(renderable, options):
            lines = (
                segment if control else "\n".join(map(printable, segment.split("\n")))
            )
            yield Segment(lines, style, control)


def stdout(*, unbounded: bool = False) -> Console:
    """The console for results, of its own width or of any."""
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = None if has_width else _TEXT_WIDTH
    return _Terminal(width=_UNBOUNDED if unbounded else width, highlight=False)


def stderr() -> Console:
    """The console for everything else."""
    return _Terminal(stderr=True, highlight=False)


def in_words(message: str) -> str:
    """A message of the library in the words of the command line."""
    for pattern, replacement in _WORDS.items():
        message = re.sub(pattern, replacement, message)
    return message


def say(text: str) -> None:
    """A message on stderr; lines that begin with a space are commands and stay whole."""
    console = stderr()
    for line in in_words(text).splitlines():
        shown = line if line.startswith(" ") else wrap(line, console)
        console.print(Text(shown), soft_wrap=True)


def wrap(text: str, console: Console, indent: int = 0) -> str:
    """A text in lines of at most 80 columns, or as many as the console has; all but the
    first are indented.
    """
    wrapper = textwrap.TextWrapper(
        max(min(console.width, _TEXT_WIDTH) - indent, 20),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"\n{' ' * indent}".join(wrapper.wrap(text))


def show_words(*texts: str) -> None:
    """Sentences on stdout, each on a line of its own."""
    console = stdout()
    for text in texts:
        console.print(Text(wrap(text, console)), soft_wrap=True)


def warn(text: str) -> None:
    """A warning on stderr; with --strict the command then fails."""
    if text not in warned:  # several methods may have the same to say
        say(f"Warning: {text}")
        warned.append(text)


def show_json(data: Any) -> None:
    """Strict JSON on stdout; NaN and infinities become null."""
    typer.echo(json.dumps(json_values(data), indent=2, allow_nan=False))


def new_table(columns: Iterable[str], rows: Iterable[Iterable[Any]] = ()) -> Table:
    """A table of a text column and number columns, none of which is ever cut.

    A cell is a text, or a tuple of a text and whether it is the best.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        cells = ((cell, False) if isinstance(cell, str) else cell for cell in row)
        table.add_row(*(Text(text, "bold" if best else "") for text, best, *_ in cells))
    return table


def show_table(title: str, table: Table, *remarks: str) -> None:
    """A table between its title and remarks, which may be wider than it is."""
    console = stdout()
    console.print(Text(title, style="bold"), soft_wrap=True)
    stdout(unbounded=True).print(table)
    if remarks:
        show_words("", *remarks)


def interval(low: float, high: float, form: str = ".1%") -> str:
    """Both ends of an interval, or a dash if there is none."""
    return (
        DASH
        if math.isnan(low) or math.isnan(high)
        else f"{low:{form}} to {high:{form}}"
    )


class Result(NamedTuple):
    """What a command found: `values` for --json; names and lines, or what shows it.

    Then `warning` and `remark` go to stderr. `code` is the exit code.
    """

    values: Any
    show: Mapping[str, str | None] | Callable[[], None]
    warning: str | None = None
    remark: str | None = None
    code: int = 0

    def print(self, as_json: bool) -> None:
        """Show it, and exit if there is a code."""
        if as_json:
            show_json(self.values)
        elif callable(self.show):
            self.show()
        else:
            show_facts(self.show)
        if self.warning is not None:
            warn(self.warning)
        if self.remark is not None:
            say(self.remark)
        if self.code:
            raise typer.Exit(self.code)


def show_facts(facts: Mapping[str, str | None]) -> None:
    """Names and values in two columns, without a frame."""
    shown = {name: value for name, value in facts.items() if value}
    console = stdout()
    width = max(map(len, shown))
    for name, value in shown.items():
        lines = wrap(in_words(value), console, indent=width + 2)
        line = Text.assemble((name.ljust(width), "bold"), "  ", lines)
        console.print(line, soft_wrap=True)


def bad_option(option: str | None, text: str) -> Exception:
    """The error of an option, with what is wrong with it."""
    return typer.BadParameter(text, param_hint=option)


def refuse(why: str, **options: Any) -> None:
    """Raise for the first of some options that was given; those with None or False
    were not.
    """
    for name, value in options.items():
        if value is not None and value is not False:
            raise bad_option(f"--{name.replace('_', '-')}", why)


@contextmanager
def check_options(option: str | None = None) -> Iterator[None]:
    """Report errors of the library as errors of an option, or of the command line."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise bad_option(option, str(error)) from error


def spinner(what: str) -> AbstractContextManager[Any]:
    """Show what is being done on stderr, if that is a terminal and a second has
    passed.
    """
    return progress_bar(printable(f"{what} ..."), None)
