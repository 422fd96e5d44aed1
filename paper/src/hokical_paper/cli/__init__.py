"""`hokical paper`: the paper's experiments on the logit suite, as tables, figures
and one page.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hokical_paper.cli.calarena import calarena
from hokical_paper.cli.certainty import certainty, check, claims, docs
from hokical_paper.cli.inputs import inputs
from hokical_paper.cli.networks import add_network_commands
from hokical_paper.cli.options import (
    RunOptions,
    SuiteFolder,
    add_run_options,
    count_of,
    list_files,
    open_pairs,
    show_tables,
)
from hokical_paper.cli.study import study
from hokical_paper.core.commands import (
    EXIT_CODES,
    Json,
    new_table,
    say,
    show_json,
    show_table,
)

app = typer.Typer(
    help="The paper's experiments: logit suite, tables, figures, networks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(StrEnum):
    """Output format of tables."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    html = "html"


@app.command(epilog=EXIT_CODES)
def suite(folder: SuiteFolder = None, as_json: Json = False) -> None:
    """List the pairs of the suite with their accuracy and uncalibrated ECE.

    Example: hokical paper suite --json
    """
    from hokical_paper.suite.overview import overview

    opened = open_pairs(folder, None)
    rows = overview(opened)
    if as_json:
        show_json(rows)
        return
    heads = ("data set", "network", "classes", "validation", "test", "accuracy", "ECE")
    table = new_table(heads)
    for row in rows:
        counts = (str(row["n_classes"]), f"{row['n_val']:,}", f"{row['n_test']:,}")
        scores = (f"{row['test_accuracy']:.2%}", f"{row['uncalibrated_ece']:.4f}")
        table.add_row(row["dataset"], row["model"], *counts, *scores)
    show_table(f"{opened.folder}: {count_of(opened)}", table)


@app.command(epilog=EXIT_CODES)
@add_run_options
def tables(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Tables; default: all."),
    ] = None,
    style: Annotated[
        Format, typer.Option("--format", help="Output format.")
    ] = Format.terminal,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for one file per table.")
    ] = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Add rows of 95 % intervals (CSV always has them)."
        ),
    ] = False,
    *,
    run: RunOptions,
) -> None:
    """Run what is not cached and show the tables, our results next to the paper's.

    Example: hokical paper tables ece noise --pairs mnist_lenet5
    """
    from hokical_paper.pages.output import TEXTS, write_tables
    from hokical_paper.tables.builders import all_tables, builders

    choices = builders()
    for name in names or ():
        if name not in choices:
            raise typer.BadParameter(
                f"no table {name!r}; choose from {', '.join(choices)}."
            )
    if out is not None and style is Format.terminal:
        raise typer.BadParameter(
            "-o writes files: choose --format markdown, csv or html."
        )
    results = run.run()
    built = (
        {name: choices[name](results) for name in names}
        if names
        else all_tables(results)
    )
    if intervals and style in (Format.terminal, Format.markdown):
        built = {name: table.with_intervals() for name, table in built.items()}
    if out is not None:
        list_files(write_tables(built, out, style.value))
    elif style is Format.terminal:
        show_tables(built)
    else:
        typer.echo("\n".join(TEXTS[style.value](table) for table in built.values()))


@app.command(epilog=EXIT_CODES)
@add_run_options
def figures(
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for the PNG files.")
    ] = Path("paper-results"),
    *,
    run: RunOptions,
) -> None:
    """Run what is not cached and draw the paper's figures.

    Example: hokical paper figures -o figures --pairs mnist_lenet5
    """
    from hokical_paper.figures.figures import require_matplotlib
    from hokical_paper.pages.output import draw_all, write_figures

    require_matplotlib()
    results = run.run()
    list_files(write_figures(draw_all(results, run.store.folder), out))


@app.command("all", epilog=EXIT_CODES)
@add_run_options
def run_all(
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for all files.")
    ] = Path("paper-results"),
    *,
    run: RunOptions,
) -> None:
    """Write every table, figure and finding, and one HTML page with all of them.

    Example: hokical paper all --pairs mnist_lenet5 -o paper-results
    """
    from hokical_paper.figures.figures import require_matplotlib
    from hokical_paper.pages.output import write_everything
    from hokical_paper.tables.builders import builders
    from hokical_paper.tables.findings import findings

    require_matplotlib()
    results = run.run()
    written = write_everything(results, out, run.store.folder)
    show_tables({name: builders()[name](results) for name in ("ece", "wins")})
    for text in findings(results):
        typer.echo(f"- {text}")
    page = (out / "index.html").resolve()
    say(f"{len(written)} files written to {out.resolve()}; start with {page}")


for _command in (calarena, claims, certainty, inputs, check, docs, study):
    app.command(epilog=EXIT_CODES)(_command)
add_network_commands(app)
