"""The `hokical` command: parse, one call, show."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import hokical
from hokical.calibrators.registry import table
from hokical.comparison import Comparison, compare
from hokical.demo import demo_logits

app = typer.Typer(
    help="Honest confidence for classifiers.", no_args_is_help=True, pretty_exceptions_enable=False
)

_CAPTION = "ECE: 15 bins of equal width, or mass. Lower is better, best in bold."
_COLUMNS = ("ece", "ece_mass", "brier", "log_loss")
_TITLES = ("ECE", "ECE mass", "Brier", "log loss")


def main() -> None:
    """Entry point of the `hokical` command."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hokical {hokical.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def demo() -> None:
    """Calibrate the shipped MNIST network with every method and compare the results."""
    comparison = compare(*demo_logits())
    console = Console()
    console.print(_results_table(comparison))
    console.print("\n" + comparison.headline("hoki"), highlight=False)
    for result in comparison.results:
        for note in result.notes:
            Console(stderr=True).print(f"{result.name}: {note}", highlight=False)


@app.command()
def methods() -> None:
    """List the calibration methods."""
    shown = Table(title="Calibration methods", show_lines=True)
    for title in ("name", "class", "may change a label", "cost of a fit", "published in"):
        shown.add_column(title)
    for info in table():
        changes = "yes" if info.changes_labels else "no"
        shown.add_row(info.name, info.kind.__name__, changes, info.cost, info.reference)
    Console().print(shown)


def _results_table(comparison: Comparison) -> Table:
    """One row per method, the best of each score in bold."""
    shown = Table(title="A small network on MNIST, 10,000 test digits", caption=_CAPTION)
    shown.add_column("method", no_wrap=True)
    for title in ("says", "right", *_TITLES, "fit"):
        shown.add_column(title, justify="right")
    best = {column: comparison.best(column).score(column) for column in _COLUMNS}
    for result in comparison.results:
        shown.add_row(
            result.name,
            f"{result.score('mean_confidence'):.1%}",
            f"{result.score('accuracy'):.1%}",
            *(_score(result.score(column), best[column]) for column in _COLUMNS),
            f"{result.fit_seconds:.2f} s",
        )
    return shown


def _score(value: float, best: float) -> str:
    return f"[bold]{value:.4f}[/bold]" if value == best else f"{value:.4f}"
