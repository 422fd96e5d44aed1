"""The `hokical` command: parse, one call, show."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import hokical
from hokical.calibrators.registry import methods_without_extra_input, table
from hokical.comparison import MethodResult, compare
from hokical.demo import demo_logits, headline

app = typer.Typer(
    help="Honest confidence for classifiers.", no_args_is_help=True, pretty_exceptions_enable=False
)

_CAPTION = "ECE: 15 bins of equal width; ECE=: of equal mass. Lower is better, best in bold."
_COLUMNS = ("ece", "ece_mass", "brier", "log_loss")
_TITLES = ("ECE", "ECE=", "Brier", "log loss")


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
    validation, test = demo_logits()
    results = compare(validation, test, methods_without_extra_input())
    by_name = {result.name: result for result in results}
    console = Console()
    console.print(_results_table(results))
    console.print("\n" + headline(by_name["uncalibrated"], by_name["hoki"]), highlight=False)
    for result in results:
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


def _results_table(results: list[MethodResult]) -> Table:
    """One row per method, the best of each score in bold."""
    shown = Table(title="A small network on MNIST, 10,000 test digits", caption=_CAPTION)
    shown.add_column("method", no_wrap=True)
    for title in ("says", "right", *_TITLES, "fit"):
        shown.add_column(title, justify="right")
    best = {column: min(getattr(result, column) for result in results) for column in _COLUMNS}
    for result in results:
        shown.add_row(
            result.name,
            f"{result.mean_confidence:.1%}",
            f"{result.accuracy:.1%}",
            *(_score(getattr(result, column), best[column]) for column in _COLUMNS),
            f"{result.fit_seconds:.2f} s",
        )
    return shown


def _score(value: float, best: float) -> str:
    return f"[bold]{value:.4f}[/bold]" if value == best else f"{value:.4f}"
