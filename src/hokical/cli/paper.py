"""`hokical paper`: the paper's experiments on the logit suite, as tables, figures and one page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hokical.cli.main import EXIT_CODES
from hokical.cli.options import Json, Resamples
from hokical.cli.paper_networks import add_network_commands
from hokical.cli.show import new_table, say, show_json, show_table

if TYPE_CHECKING:
    from hokical.paper.results import Results
    from hokical.paper.suite import Suite
    from hokical.paper.table_data import Table

app = typer.Typer(
    help="The paper's experiments: suite, tables, figures, networks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(StrEnum):
    """How tables are written."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    html = "html"


SuiteFolder = Annotated[
    Path | None,
    typer.Option("--suite", help="Folder of the logit suite; else HOKICAL_SUITE, else ./suite."),
]
CacheFolder = Annotated[
    Path | None, typer.Option("--cache", help="Where results are kept; else the user's cache.")
]
Pairs = Annotated[str | None, typer.Option(help="Only these pairs, with commas between.")]
Slow = Annotated[
    bool, typer.Option("--slow", help="Also run what takes minutes: ms_odir on 1000 classes.")
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes; else one per CPU. 1 gives the truest times.")
]


@app.command(epilog=EXIT_CODES)
def suite(folder: SuiteFolder = None, as_json: Json = False) -> None:
    """List the pairs of the suite: accuracy and uncalibrated ECE, from the logits themselves."""
    from hokical.paper.overview import overview

    opened = _opened(folder, None)
    rows = overview(opened)
    if as_json:
        show_json(rows)
        return
    table = new_table(("data set", "network", "classes", "validation", "test", "right", "ECE"))
    for row in rows:
        counts = (str(row["n_classes"]), f"{row['n_val']:,}", f"{row['n_test']:,}")
        scores = (f"{row['test_accuracy']:.2%}", f"{row['uncalibrated_ece']:.4f}")
        table.add_row(row["dataset"], row["model"], *counts, *scores)
    show_table(f"{opened.folder}: {len(rows)} pairs", table)


@app.command(epilog=EXIT_CODES)
def tables(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which tables; else all.")
    ] = None,
    style: Annotated[Format, typer.Option("--format", help="How to show them.")] = Format.terminal,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for one file per table.")
    ] = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Rows of 95 % intervals (CSV has them always).")
    ] = False,
    folder: SuiteFolder = None,
    cache: CacheFolder = None,
    pairs: Pairs = None,
    slow: Slow = False,
    jobs: Jobs = None,
    resamples: Resamples = 200,
) -> None:
    """Run what is not cached and show the paper's tables, ours beside the paper's."""
    from hokical.paper.output import TEXTS, write_tables
    from hokical.paper.tables import builders

    known = builders()
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"no table {name!r}; there are {', '.join(known)}.")
    if out is not None and style is Format.terminal:
        raise typer.BadParameter("-o writes files: choose --format markdown, csv or html.")
    results = _results(folder, cache, pairs, slow, jobs, resamples)
    found = {name: known[name](results) for name in names or known}
    if intervals and style in (Format.terminal, Format.markdown):
        found = {name: table.with_intervals() for name, table in found.items()}
    if out is not None:
        _say_written(write_tables(found, out, style.value))
    elif style is Format.terminal:
        _show_tables(found)
    else:
        typer.echo("\n".join(TEXTS[style.value](table) for table in found.values()))


@app.command(epilog=EXIT_CODES)
def figures(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the PNG files.")] = Path(
        "paper-results"
    ),
    folder: SuiteFolder = None,
    cache: CacheFolder = None,
    pairs: Pairs = None,
    slow: Slow = False,
    jobs: Jobs = None,
    resamples: Resamples = 200,
) -> None:
    """Run what is not cached and draw the paper's figures."""
    from hokical.paper.cache import Cache
    from hokical.paper.figures import need_matplotlib
    from hokical.paper.output import draw_all, write_figures

    need_matplotlib()
    results = _results(folder, cache, pairs, slow, jobs, resamples)
    _say_written(write_figures(draw_all(results, Cache(cache).folder), out))


@app.command("all", epilog=EXIT_CODES)
def everything(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for all of it.")] = Path(
        "paper-results"
    ),
    folder: SuiteFolder = None,
    cache: CacheFolder = None,
    pairs: Pairs = None,
    slow: Slow = False,
    jobs: Jobs = None,
    resamples: Resamples = 200,
) -> None:
    """Every table, figure and finding, and one HTML page with all of them."""
    from hokical.paper.cache import Cache
    from hokical.paper.figures import need_matplotlib
    from hokical.paper.findings import findings
    from hokical.paper.output import write_everything
    from hokical.paper.tables import builders

    need_matplotlib()
    results = _results(folder, cache, pairs, slow, jobs, resamples)
    written = write_everything(results, out, Cache(cache).folder)
    _show_tables({name: builders()[name](results) for name in ("ece", "wins")})
    for text in findings(results):
        typer.echo(f"- {text}")
    say(f"{len(written)} files in {out.resolve()}; begin with {(out / 'index.html').resolve()}")


def _opened(folder: Path | None, pairs: str | None) -> Suite:
    from hokical.paper.suite import open_suite

    opened = open_suite(folder)
    if pairs is None:
        return _cautioned(opened)
    wanted = [name.strip() for name in pairs.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in opened.names]
    if unknown or not wanted:
        raise typer.BadParameter(
            f"no pairs {unknown}; there are {', '.join(opened.names)}.", param_hint="--pairs"
        )
    return _cautioned(opened.only(wanted))


def _cautioned(opened: Suite) -> Suite:
    if opened.caution:
        say(f"Warning: {opened.caution}")
    return opened


def _results(
    folder: Path | None,
    cache: Path | None,
    pairs: str | None,
    slow: bool,
    jobs: int | None,
    resamples: int,
) -> Results:
    from hokical.paper.cache import Cache
    from hokical.paper.running import run_suite

    opened = _opened(folder, pairs)
    return run_suite(opened, Cache(cache), slow=slow, jobs=jobs, n_resamples=resamples)


def _show_tables(found: dict[str, Table]) -> None:
    from hokical.paper.render import to_terminal

    for table in found.values():
        show_table(table.title, to_terminal(table), *table.notes, "")


def _say_written(paths: list[Path]) -> None:
    for path in paths:
        typer.echo(str(path))


add_network_commands(app)
