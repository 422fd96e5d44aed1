"""Results on stdout, everything else on stderr."""

import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from hokical._core.files import printable
from hokical._core.progress import progress_bar
from hokical._core.storage import json_values

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
