"""The `hokical` command: a function per command, each of which parses, calls and shows.

Here are its exit codes, and errors as one line on stderr. Commands reach the library
through lazy attributes of `hokical`, so that help pages are fast.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import hokical
from hokical.cli import console as ui
from hokical.cli.applying import apply
from hokical.cli.evaluating import compare, demo, evaluate
from hokical.cli.exporting import export
from hokical.cli.fitting import certify, fit
from hokical.cli.inspecting import methods, show
from hokical.cli.options import option
from hokical.cli.watching import monitor, shift

__all__ = ["main"]

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 bad usage or a bad file; 3 an alarm of `monitor` "
    "or `shift`; 130 after Ctrl-C. Results go to stdout, everything else to stderr."
)
FAILED = 1
BAD_USAGE = 2
INTERRUPTED = 130
#: Base of all errors of usage. Its module differs between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
#: Commands of other distributions, and the distribution to install.
_ADDED_BY = {"paper": "./paper (in a clone)"}


class Guard(TyperGroup):
    """A group of commands that fail in one line on stderr, with a traceback if
    `--debug` asks.
    """

    _arguments: frozenset[str] = frozenset()

    def main(self, args: Any = None, *more: Any, **options: Any) -> Any:
        """Exit code 0 if the reader of a pipe closes it, as in `hokical methods |
        head`.

        Typer and rich exit with 1 then, while handling the broken pipe.
        """
        # Alone it shows its help, which is typer's business.
        options["standalone_mode"] = not (sys.argv[1:] if args is None else args)
        ui.warned.clear()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)  # the fits' are such
                warnings.showwarning = lambda message, *_, **__: ui.warn(str(message))
                code = super().main(args, *more, **options) or 0
            if not code and "--strict" in self._arguments and ui.warned:
                code = FAILED
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except SystemExit as ending:
            broken = ending.__context__
            if not (isinstance(broken, OSError) and broken.errno == errno.EPIPE):
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):  # what Python flushes at exit must not fail again
                os.dup2(nowhere, stream)
            code = 0
        except Exception as error:
            if "--debug" in self._arguments:
                traceback.print_exc()
            code = _report(error)
        if code == INTERRUPTED:
            ui.stderr().print("\nInterrupted.")
        raise SystemExit(code)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`--debug` and `--strict` may be anywhere, also after the command."""
        self._arguments = frozenset(args)
        return super().parse_args(
            ctx, [arg for arg in args if arg not in ("--debug", "--strict")]
        )

    def invoke(self, ctx: Any) -> None:
        """What a command returns is not its exit code."""
        super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """hokical's own commands, then those that other distributions add."""
        return [*super().list_commands(ctx), *_added_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Commands of other distributions are loaded when they are used."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        added = _added_commands().get(cmd_name)
        if added is not None:
            command = typer.main.get_group(added.load())
            command.name = cmd_name
        elif cmd_name in _ADDED_BY:
            raise _UsageError(
                f"`hokical {cmd_name}` is not installed: pip install "
                f"{_ADDED_BY[cmd_name]}."
            )
        return command


class Command(TyperCommand):
    """A command whose options of one value are given once.

    The last of several would silently be used.
    """

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        """Raise for an option that is repeated."""
        context: Any = ctx  # whose module differs between versions of typer
        _, _, given = self.make_parser(context).parse_args(args=[*args])
        for option_given in given:
            takes_one = not (option_given.multiple or option_given.nargs == -1)
            if takes_one and given.count(option_given) > 1:
                raise typer.BadParameter(
                    "takes one value; it was given more than once.",
                    ctx=context,
                    param_hint=option_given.opts[0],
                )
        rest: list[str] = super().parse_args(context, args)
        return rest


def _added_commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="hokical.commands")}


def _report(error: Exception) -> int:
    """Report an error in one line, and return its exit code."""
    bad = (_UsageError, hokical.io.DataFileError, hokical.CalibratorFileError)
    code = BAD_USAGE if isinstance(error, bad) else FAILED
    format_message = getattr(error, "format_message", None)
    message = str(format_message() if format_message else error) or type(error).__name__
    message = re.sub("^Invalid value(: | for )|Value error, ", "", message)
    message = ui.in_words(
        message if message.endswith((".", "?", "!")) else f"{message}."
    )
    parameter = getattr(error, "param", None) or getattr(error, "param_hint", None)
    context = getattr(error, "ctx", None)
    hint = ""
    if code == FAILED:
        hint = f"({type(error).__name__}; --debug shows where)"
    elif context is not None and not (
        isinstance(error, typer.BadParameter) and parameter is None
    ):
        hint = f"Try '{context.command_path} --help'."  # which errors of the library do not need
    line = Text.assemble(("Error: ", "bold red"), " ".join(f"{message} {hint}".split()))
    ui.stderr().print(line, soft_wrap=True)
    return code


app = typer.Typer(
    cls=Guard,
    help="Calibrated confidence for classifiers: fit, measure, guarantee, monitor.",
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
        option(
            "Show the version and exit.",
            "--version",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[
        bool, option("Show tracebacks of errors; allowed anywhere.", "--debug")
    ] = False,
    strict: Annotated[
        bool,
        option("Fail (exit code 1) after a warning; allowed anywhere.", "--strict"),
    ] = False,
) -> None:
    """Options of the command itself."""


for _command in (
    fit,
    certify,
    apply,
    evaluate,
    compare,
    shift,
    monitor,
    export,
    show,
    methods,
    demo,
):
    app.command(cls=Command, epilog=EXIT_CODES)(_command)
