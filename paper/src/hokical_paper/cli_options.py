"""Options and output that several `hokical paper` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hokical.cli.show import say, show_table

if TYPE_CHECKING:
    from hokical_paper.suite import Suite
    from hokical_paper.table_data import Table

SuiteFolder = Annotated[
    Path | None,
    typer.Option("--suite", help="Folder of the logit suite; default: HOKICAL_SUITE, or ./suite."),
]
CacheFolder = Annotated[
    Path | None, typer.Option("--cache", help="Folder for results; default: the user's cache.")
]
PairFilter = Annotated[str | None, typer.Option("--pairs", help="Only these, comma-separated.")]
Slow = Annotated[
    bool,
    typer.Option("--slow", help="Also run what takes minutes: matrix methods on many classes."),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Processes; default: one per CPU. 1 measures times most accurately."),
]
FitDevice = Annotated[
    str | None,
    typer.Option("--device", help="Fit matrix methods on this device of PyTorch, such as cuda."),
]


def open_pairs(folder: Path | None, pairs: str | None) -> Suite:
    """The suite, or those of its pairs that `pairs` names; warns of quick ones."""
    from hokical_paper.suite import open_suite

    opened = open_suite(folder)
    if pairs is not None:
        wanted = [name.strip() for name in pairs.split(",") if name.strip()]
        unknown = [name for name in wanted if name not in opened.names]
        if unknown or not wanted:
            raise typer.BadParameter(
                f"no pairs {unknown}; choose from {', '.join(opened.names)}.", param_hint="--pairs"
            )
        opened = opened.only(wanted)
    if opened.caution:
        say(f"Warning: {opened.caution}")
    return opened


def show_tables(found: dict[str, Table]) -> None:
    from hokical_paper.render import to_terminal

    for table in found.values():
        show_table(table.title, to_terminal(table), *table.notes, "")


def list_files(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(str(path))
