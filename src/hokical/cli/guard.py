"""Errors as one line on stderr and an exit code, for every command alike."""

from __future__ import annotations

import errno
import os
import traceback
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from hokical.cli.show import stderr

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130

#: Base of all complaints about the command line. Its home moved between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Guard(TyperGroup):
    """A group of commands that fail without tracebacks, unless `--debug` asks for them."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Exit code 0 where the reader of a pipe has had enough, as in `hokical methods | head`.

        Typer and rich end with 1 then, each from within the handling of the broken pipe.
        """
        try:
            return super().main(*args, **options)
        except SystemExit as ending:
            if not _is_broken_pipe(ending.__context__):
                raise
            _discard_output()
            raise SystemExit(0) from None

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        given = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _UsageError as error:
            if not given:  # `hokical` alone shows its help
                raise
            raise typer.Exit(_report(error, f"Try '{info_name} --help'.")) from None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`--debug` may stand anywhere, also after the command."""
        ctx.meta["debug"] = "--debug" in args
        return super().parse_args(ctx, [arg for arg in args if arg != "--debug"])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
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
            raise typer.Exit(_report(error, _usage_hint(error))) from None


def _is_broken_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _discard_output() -> None:
    """Nobody reads any more: what Python still flushes at its end must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _report(error: Exception, hint: str) -> int:
    """Say what went wrong in one line; the exit code that goes with it."""
    code = _exit_code(error)
    format_message = getattr(error, "format_message", None)
    message = str(format_message() if format_message else error) or type(error).__name__
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    if code == FAILED:
        hint = f"({type(error).__name__}; --debug shows where)"
    line = Text.assemble(("Error: ", "bold red"), " ".join(f"{message} {hint}".split()))
    stderr().print(line, soft_wrap=True)
    return code


def _exit_code(error: Exception) -> int:
    from hokical.files import DataFileError
    from hokical.storage import CalibratorFileError
    from hokical.streams.checkpoint import CheckpointError

    complaints = (_UsageError, DataFileError, CalibratorFileError, CheckpointError)
    bad_input = isinstance(error, complaints)
    return BAD_USAGE if bad_input else FAILED


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"Try '{context.command_path} --help'." if context is not None else ""
