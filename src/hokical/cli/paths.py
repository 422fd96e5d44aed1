"""Paths of commands: `-` for stdin and stdout, and outputs that replace no input."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from typer.core import TyperCommand

import hokical
from hokical.cli.console import aliases, bad_option, results_to_stderr
from hokical.io._opening import is_pattern, list_files
from hokical.io._reading import labels_beside

#: Parameters of commands that name what is written; all other paths are read.
OUTPUTS = frozenset({"output", "report", "state"})
#: What a command writes to stdout if its output is `-`.
_SUFFIXES = {"apply": ".csv", "certify": ".json", "fit": ".json", "export": ".onnx"}


class ProtectingCommand(TyperCommand):
    """A command whose outputs take the place of none of its inputs, nor of each other."""

    def invoke(self, ctx: Any) -> Any:
        """`-` is stdin among the inputs; as --output it is stdout, and results go to stderr."""
        with ExitStack() as at_end:
            dashes = [name for name, path in ctx.params.items() if path == Path("-")]
            if dashes:
                folder = Path(at_end.enter_context(TemporaryDirectory()))
                _replace_dashes(ctx, dashes, folder, at_end)
            self._protect(ctx)
            return super().invoke(ctx)

    def _protect(self, ctx: Any) -> None:
        given = {name: path for name, path in ctx.params.items() if isinstance(path, Path)}
        more = ctx.params.get("more") or ()  # files of `compare`
        paths = given | {f"more {k}": path for k, path in enumerate(more)}
        if "state" in paths:  # which is removed in the end
            paths["lock of --state"] = Path(f"{paths['state']}.lock")
        for name in (*OUTPUTS, "lock of --state"):
            if name not in paths or paths[name].is_dir():  # which the command checks itself
                continue
            others = [path for other, path in paths.items() if other != name]
            files = [file for path in others for file in _files_read(path)]
            if any(_is_same(paths[name], file) for file in files):
                raise hokical.io.DataFileError(
                    paths[name],
                    f"cannot be the {name if ' ' in name else f'--{name}'}: it is an input too, or "
                    "another output, and would be lost.",
                    "Choose another name.",
                )


def _replace_dashes(ctx: Any, dashes: list[str], folder: Path, at_end: ExitStack) -> None:
    """Files in place of `-`: one with what stdin holds, one that goes to stdout in the end."""
    inputs = [name for name in dashes if name not in OUTPUTS]
    outputs = [name for name in dashes if name in OUTPUTS]
    if len(inputs) > 1 or outputs not in ([], ["output"]):
        raise typer.BadParameter("`-` can be one of the inputs, and the --output.")
    aliases.clear()
    for name in inputs:
        ctx.params[name] = folder / "stdin"
        aliases[str(folder / "stdin")] = "stdin"
        ctx.params[name].write_bytes(sys.stdin.buffer.read())
    for name in outputs:
        suffix = _SUFFIXES.get(ctx.info_name)
        if suffix is None:
            raise bad_option("--output", "cannot be stdout here.")
        target = ctx.params[name] = folder / f"stdout{suffix}"
        aliases[str(target)] = "stdout"
        at_end.callback(_copy_to_stdout, target)
        at_end.enter_context(results_to_stderr())


def _copy_to_stdout(path: Path) -> None:
    if path.exists():  # the command has not failed
        sys.stdout.flush()
        sys.stdout.buffer.write(path.read_bytes())
        sys.stdout.buffer.flush()


def _files_read(path: Path) -> list[Path]:
    """The files that are read where a path is given: those of a folder, labels beside logits."""
    if path.is_dir() or is_pattern(path):
        return list_files(path)
    return [path, labels_beside(path)]


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, which may not exist yet."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
