"""The `hokical` command: its options and exit codes, and errors as one line on stderr.

Methods and their options, as words of the command line.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import traceback
import warnings
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

import hokical
from hokical.cli.console import bad_option, check_options, stderr, warn, warned
from hokical.cli.options import text
from hokical.stability.noise import parse_noise

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 bad usage or a bad file; 3 an alarm of `monitor` or "
    "`shift`; 130 after Ctrl-C. Results go to stdout, everything else to stderr."
)
FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130
#: Base of all errors of usage. Its module differs between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
#: Commands of other distributions, and the distribution to install.
_ADDED_BY = {"paper": "./paper (in a clone)"}


class Guard(TyperGroup):
    """A group of commands that fail without tracebacks, unless `--debug` asks for them."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Exit code 0 if the reader of a pipe closes it, as in `hokical methods | head`.

        Typer and rich exit with 1 then, while handling the broken pipe.
        """
        try:
            return super().main(*args, **options)
        except SystemExit as ending:
            if not _is_broken_pipe(ending.__context__):
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):  # what Python flushes at exit must not fail again
                os.dup2(nowhere, stream)
            raise SystemExit(0) from None

    def list_commands(self, ctx: Any) -> list[str]:
        """hokical's own commands, then those that other distributions add."""
        return [*super().list_commands(ctx), *_added_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Commands of other distributions are loaded when they are used."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        added = _added_commands().get(cmd_name)
        if added is not None:
            group = typer.main.get_group(added.load())
            group.name = cmd_name
            return group
        if cmd_name in _ADDED_BY:
            raise _UsageError(
                f"`hokical {cmd_name}` is not installed: pip install {_ADDED_BY[cmd_name]}."
            )
        return None

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _UsageError as error:
            if not given:  # `hokical` alone shows its help
                raise
            raise typer.Exit(_report(error, f"Try '{info_name} --help'.")) from None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`--debug` and `--strict` may be anywhere, also after the command."""
        ctx.meta.update({name: f"--{name}" in args for name in ("debug", "strict")})
        return super().parse_args(ctx, [arg for arg in args if arg not in ("--debug", "--strict")])

    def invoke(self, ctx: Any) -> Any:
        warned.clear()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)  # the fits' are such
                warnings.showwarning = lambda message, *_, **__: warn(str(message))
                found = super().invoke(ctx)
            if ctx.meta["strict"] and warned:
                raise typer.Exit(FAILED)
            return found
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            stderr().print("\nInterrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if _is_broken_pipe(error):
                raise  # to `main`
            if ctx.meta["debug"]:
                traceback.print_exc()
            context = getattr(error, "ctx", None)
            known = getattr(error, "param", None) or getattr(error, "param_hint", None)
            complete = isinstance(error, typer.BadParameter) and known is None  # of the library
            hint = "" if context is None or complete else f"Try '{context.command_path} --help'."
            raise typer.Exit(_report(error, hint)) from None


def _added_commands() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group="hokical.commands")}


def _is_broken_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _report(error: Exception, hint: str) -> int:
    """Report an error in one line, and return its exit code."""
    bad = (_UsageError, hokical.io.DataFileError, hokical.CalibratorFileError)
    code = BAD_USAGE if isinstance(error, bad) else FAILED
    format_message = getattr(error, "format_message", None)
    message = str(format_message() if format_message else error) or type(error).__name__
    message = re.sub("^Invalid value(: | for )", "", message)
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    if code == FAILED:
        hint = f"({type(error).__name__}; --debug shows where)"
    line = Text.assemble(("Error: ", "bold red"), " ".join(f"{message} {hint}".split()))
    stderr().print(line, soft_wrap=True)
    return code


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
        bool, text("Show the version and exit.", "--version", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, text("Show tracebacks of errors; allowed anywhere.", "--debug")] = False,
    strict: Annotated[
        bool, text("Fail (exit code 1) after a warning; allowed anywhere.", "--strict")
    ] = False,
) -> None:
    """Options of the command itself."""


def check_method(name: str) -> str:
    """The name, if the method needs only logits and labels."""
    known = [*hokical.calibrators.method_names(2), "auto"]
    name = hokical.calibrators.catalog.find_method(name)
    if name in known:
        return name
    if name in hokical.calibrators.method_names():
        raise typer.BadParameter(
            f"{name} needs more than logits, which cannot be given here; fit it in Python."
        )
    hint = hokical.calibrators.catalog.suggest(name)
    raise typer.BadParameter(f"no method {name!r}; there are {', '.join(known)}.{hint}")


def set_options(calibrator: Any, settings: Iterable[str]) -> Any:
    """The calibrator with options such as `n_bins=20`, of the types that its parameters have."""
    known, chosen = calibrator.get_params(deep=False), dict[str, Any]()
    for setting in settings:
        key, sign, value = (part.strip() for part in setting.partition("="))
        if not sign or key not in known:
            listed = ", ".join(f"{each}={default}" for each, default in known.items())
            listed = listed or "it has none"
            raise bad_option(
                "--set", f"must be an option of {calibrator.name}: {listed}; got {setting!r}."
            )
        chosen[key] = _read_value(setting, value, known[key])
    with check_options("--set"):
        if chosen.get("noise", "auto") != "auto":
            chosen["noise"] = parse_noise(str(chosen["noise"]))
        return calibrator.set_params(**chosen)


def _read_value(setting: str, text: str, default: Any) -> Any:
    """A number, true, false, none or several of them in brackets; else the text itself."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    try:
        value = words[text.lower()] if text.lower() in words else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    allowed = {
        bool: (isinstance(value, bool), "true or false"),
        int: (number and int(value) == value, "a whole number"),
        float: (number, "a number"),
    }
    fits, kind = allowed.get(type(default), (True, ""))
    if not fits:
        raise bad_option("--set", f"must be {kind}, as the default {default}; got {setting!r}.")
    return value
