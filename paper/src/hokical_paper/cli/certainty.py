"""`hokical paper claims|certainty|check|docs`: claims over many divisions, pages
with results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hokical_paper.cli.options import (
    DivisionCount,
    RunOptions,
    add_run_options,
    list_files,
    show_tables,
)


@add_run_options
def claims(divisions: DivisionCount = 20, *, run: RunOptions) -> None:
    """Every object and claim of the paper, with its verdict.

    Also whose headers are rotated. Computes what is missing on the pairs' own
    division. Of new divisions it uses those that `certainty` has stored, and
    computes none: a claim about them is "not run" if there are none.

    Example: hokical paper claims --pairs mnist_lenet5
    """
    from hokical_paper.certainty.contests import Divisions
    from hokical_paper.certainty.divisions import run_divisions
    from hokical_paper.certainty.objects import claim_tables
    from hokical_paper.tables.headers import headers_table
    from hokical_paper.tables.render import without_column

    results = run.run()
    computed = run_divisions(
        results.suite, run.store, n_divisions=divisions, slow=True, stored_only=True
    )
    repeated = Divisions.of(computed, results.suite.names)
    tables = claim_tables(repeated, results)
    del tables["claims_by_method"]  # `certainty` writes it
    # Links lead nowhere in a terminal, which has room for the verdict in their place.
    tables["map"] = without_column(tables["map"], "here")
    show_tables(tables | {"headers": headers_table(results)})


@add_run_options
def certainty(
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for the tables.")
    ] = Path("paper-results"),
    divisions: DivisionCount = 20,
    stored: Annotated[
        bool,
        typer.Option(
            "--stored", help="Compute no division; use those of a stopped run."
        ),
    ] = False,
    *,
    run: RunOptions,
) -> None:
    """The paper's claims over many random divisions of the examples.

    Example: hokical paper certainty --pairs mnist_lenet5 --divisions 3
    """
    from hokical_paper.certainty.contests import Divisions
    from hokical_paper.certainty.divisions import run_divisions
    from hokical_paper.certainty.objects import claim_tables
    from hokical_paper.certainty.tables import certainty_table, ranks_table
    from hokical_paper.pages.output import write_tables
    from hokical_paper.pages.stored import RESULTS, store_results

    results = run.run()
    computed = run_divisions(
        results.suite,
        run.store,
        n_divisions=divisions,
        slow=run.slow,
        jobs=run.jobs,
        device=run.device,
        stored_only=stored,
    )
    repeated = Divisions.of(computed, results.suite.names)
    tables = {
        **claim_tables(repeated, results),
        "certainty": certainty_table(repeated, results),
        "ranks": ranks_table(repeated),
    }
    written = write_tables(tables, out / "tables", "markdown")
    written += write_tables(tables, out / "tables", "csv")
    store_results(out / RESULTS, tables)
    show_tables(tables)
    list_files([*written, out / RESULTS])


@add_run_options
def check(
    page: Annotated[
        Path, typer.Argument(help="A Markdown page.", exists=True, dir_okay=False)
    ],
    *,
    run: RunOptions,
) -> None:
    """Compute a page's cells again; fail if one moved too far.

    Only cells about the pairs' own division; stored results are used.

    Example: hokical paper check paper/docs/experiments.md --pairs mnist_lenet5
    """
    from hokical_paper.pages.stored import moved_cells, read_stored
    from hokical_paper.tables.builders import all_tables

    stored = read_stored(page.with_suffix(".json"))
    compared, moved = moved_cells(stored, all_tables(run.run()))
    for line in moved:
        typer.echo(line)
    typer.echo(f"{compared} cells of {page} compared, {len(moved)} moved.")
    if moved or not compared:
        raise typer.Exit(1)


def docs(
    page: Annotated[
        Path, typer.Argument(help="A Markdown page.", exists=True, dir_okay=False)
    ],
    results: Annotated[
        Path | None,
        typer.Option(
            help=(
                "results.json of `all` and `certainty`; default: the JSON file beside "
                "the page."
            ),
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Fill a page's tables from results.

    Tables are between `<!-- paper: NAME -->` and `<!-- end -->`. The CSV files
    and figures that the page links to are renewed, too.

    Example: hokical paper docs PAGE.md --results paper-results/results.json
    """
    from hokical_paper.pages.stored import update_page

    list_files(update_page(page, results))
