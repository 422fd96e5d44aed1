"""Options and output that several `hokical paper` commands share."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hokical_paper.core.commands import say, show_table, stdout

if TYPE_CHECKING:
    from hokical_paper.running.cache import Cache
    from hokical_paper.running.results import Results
    from hokical_paper.suite.manifest import Suite
    from hokical_paper.tables.table import Table

SuiteFolder = Annotated[
    Path | None,
    typer.Option(
        "--suite", help="Folder of the logit suite; default: HOKICAL_SUITE, or ./suite."
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder for results; default: the user's cache."),
]
PairFilter = Annotated[
    str | None, typer.Option("--pairs", help="Only these, comma-separated.")
]
Slow = Annotated[
    bool,
    typer.Option(
        "--slow", help="Also run what takes minutes: matrix methods on many classes."
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes; default: one per CPU. 1 measures times most accurately."
    ),
]
FitDevice = Annotated[
    str | None,
    typer.Option(
        "--device", help="Fit matrix methods on this device of PyTorch, such as cuda."
    ),
]

DivisionCount = Annotated[
    int, typer.Option(min=2, help="Random divisions of each pair's examples.")
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse", help="Use what other versions stored, too; tables name the versions."
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """The options of every command that runs experiments."""

    folder: SuiteFolder = None
    cache: CacheFolder = None
    pairs: PairFilter = None
    slow: Slow = False
    jobs: Jobs = None
    device: FitDevice = None
    reuse: Reuse = False

    @property
    def store(self) -> Cache:
        from hokical_paper.running.cache import Cache

        return Cache(self.cache, reuse=self.reuse)

    def open(self) -> Suite:
        """The suite, after a check of the device."""
        from hokical_paper.running.devices import check_device

        check_device(self.device)
        return open_pairs(self.folder, self.pairs)

    def run(self) -> Results:
        """Every method on the pairs' own division; what is stored is not computed
        again.
        """
        suite = self.open()
        say(f"{count_of(suite)}; what is stored is not computed again.")  # at once
        from hokical_paper.running.cells import run_suite

        return run_suite(
            suite, self.store, slow=self.slow, jobs=self.jobs, device=self.device
        )


def add_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `RunOptions` to a command, which gets them as its argument
    `run`.

    Typer reads options from a function's signature, so the two signatures are joined.
    """
    common = inspect.signature(RunOptions, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if name != "run"
    }

    @wraps(command)
    def wrapped(**options: Any) -> None:
        run = RunOptions(**{name: options.pop(name) for name in common})
        command(**options, run=run)

    joined = {**parameters, **common}
    wrapped.__annotations__ = {name: item.annotation for name, item in joined.items()}
    wrapped.__signature__ = signature.replace(parameters=list(joined.values()))  # type: ignore[attr-defined]
    return wrapped


def count_of(suite: Suite) -> str:
    """How many pairs a suite has, in words."""
    n = len(suite.pairs)
    return "1 pair" if n == 1 else f"{n} pairs"


def open_pairs(folder: Path | None, pairs: str | None) -> Suite:
    """The suite, or those of its pairs that `pairs` names; warns of quick ones."""
    from hokical_paper.suite.manifest import open_suite

    opened = open_suite(folder)
    if pairs is not None:
        wanted = [name.strip() for name in pairs.split(",") if name.strip()]
        unknown = [name for name in wanted if name not in opened.names]
        if unknown or not wanted:
            raise typer.BadParameter(
                f"no pairs {unknown}; choose from {', '.join(opened.names)}.",
                param_hint="--pairs",
            )
        opened = opened.only(wanted)
    if opened.caution:
        say(f"Warning: {opened.caution}")
    return opened


def show_tables(built: dict[str, Table]) -> None:
    """Each table in as many parts as a terminal's width needs; whole in a pipe."""
    from hokical_paper.tables.render import fit_width, to_terminal

    width = stdout().width
    is_terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
    for table in built.values():
        if table.lead:
            typer.echo(f"{fill(table.lead, width)}\n")
        *narrow, last = fit_width(table, width) if is_terminal else [table]
        for piece in narrow:
            show_table(table.title, to_terminal(piece))
        show_table(table.title, to_terminal(last), *table.notes, "")


def list_files(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(str(path))
