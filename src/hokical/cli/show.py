"""Results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

#: Width where there is no terminal to ask: a table in a file or a pipe is not cut.
_WIDTH_OF_A_PIPE = 120
_UNBOUNDED = 100_000


def stdout(*, at_least: int = 0) -> Console:
    """The console for results, taken to be wider than it is where they need it."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if known else _WIDTH_OF_A_PIPE, highlight=False)
    return Console(width=at_least, highlight=False) if console.width < at_least else console


def stderr() -> Console:
    """The console for everything else."""
    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A remark on stderr, in one line however narrow the terminal."""
    stderr().print(Text(text), soft_wrap=True)


def show_json(data: Any) -> None:
    """Strict JSON on stdout; numbers that JSON has no word for become null."""
    typer.echo(json.dumps(_plain(data), indent=2, allow_nan=False))


def new_table(columns: Iterable[str]) -> Table:
    """A table whose first column is text and whose others are numbers, none ever cut."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    return table


def show_table(title: str, table: Table, *remarks: str) -> None:
    """A table between its title and remarks, which may be wider than it is."""
    console = stdout()
    console.print(Text(title, style="bold"), soft_wrap=True)
    stdout(at_least=_needed(console, table)).print(table)
    console.print()
    for remark in remarks:
        console.print(Text(remark))


def _needed(console: Console, table: Table) -> int:
    """The width below which rich would cut cells or drop columns; wider lines a terminal wraps."""
    options = console.options.update(width=_UNBOUNDED)
    for column in table.columns:
        cells = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
        column.min_width = max(cell.maximum if column.no_wrap else cell.minimum for cell in cells)
    measured = Measurement.get(console, options, table)
    if measured.maximum > console.width:  # rich shrinks the widest below what we ask of them
        for column in table.columns:
            column.max_width = column.min_width
    return measured.minimum


def interval(low: float, high: float) -> str:
    """Both ends of an interval, or a dash where there is none."""
    return "\N{EN DASH}" if math.isnan(low) or math.isnan(high) else f"{low:.4f} - {high:.4f}"


def show_facts(facts: dict[str, str]) -> None:
    """Names and values in two columns, without a frame."""
    width = max(map(len, facts))
    for name, value in facts.items():
        stdout().print(Text.assemble((name.ljust(width), "bold"), "  ", value), soft_wrap=True)


@contextmanager
def options_checked(option: str | None = None) -> Iterator[None]:
    """Let the library judge a value, and blame its verdict on the command line."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
