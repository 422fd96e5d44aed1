"""`hokical paper inputs`: do transformed inputs help?"""

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
def inputs(
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for the tables.")
    ] = Path("paper-results"),
    divisions: DivisionCount = 20,
    *,
    run: RunOptions,
) -> None:
    """Set transformed inputs beside logits: the change in score, with intervals.

    Example: hokical paper inputs --pairs mnist_lenet5 --divisions 3
    """
    from hokical_paper.certainty.contests import Divisions
    from hokical_paper.certainty.divisions import run_inputs
    from hokical_paper.certainty.inputs import input_network_table, input_table
    from hokical_paper.pages.output import write_tables
    from hokical_paper.pages.stored import RESULTS, store_results

    suite = run.open()
    computed = run_inputs(suite, run.store, n_divisions=divisions, jobs=run.jobs)
    pairs = [pair for pair in suite.pairs if pair.has_views]
    repeated = Divisions.of(computed, [pair.name for pair in pairs])
    shown = {"inputs": input_table(repeated, pairs)}
    tables = shown | {"inputs_by_network": input_network_table(repeated, pairs)}
    written = write_tables(tables, out / "tables", "markdown")
    written += write_tables(tables, out / "tables", "csv")
    store_results(out / RESULTS, tables)
    show_tables(shown)
    list_files([*written, out / RESULTS])
