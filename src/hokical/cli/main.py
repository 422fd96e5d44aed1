"""The `hokical` command: its help, its own options, its exit codes."""

from typing import Annotated

import typer

import hokical
from hokical.cli.guard import Guard

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 bad usage or a bad file; 3 an alarm of `monitor`; 130 after "
    "Ctrl-C. "
    "Results go to stdout, everything else to stderr."
)

app = typer.Typer(
    cls=Guard,
    help="Honest confidence for classifiers: calibrate logits and measure calibration.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the `hokical` command."""
    app(prog_name="hokical")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hokical {hokical.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of errors; allowed anywhere.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail (exit code 1) after a warning; allowed anywhere.")
    ] = False,
) -> None:
    """Options of the command itself."""
