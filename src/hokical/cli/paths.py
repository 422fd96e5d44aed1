"""Paths of commands: outputs replace no input."""

import os
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

import hokical
from hokical.io._reading import is_pattern, labels_beside, list_files
from hokical.io._writing import check_output

#: Parameters of commands that name what is written; all other paths are read.
OUTPUTS = frozenset({"output", "report", "state"})


class ProtectingCommand(TyperCommand):
    """A command whose outputs take the place of none of its inputs, nor of each other.

    A report that cannot be written is refused before the work is done.
    """

    def invoke(self, ctx: Any) -> Any:
        self._protect(ctx)
        if (report := ctx.params.get("report")) is not None:
            check_output(report, suffix=(".html", ".htm"))
        return super().invoke(ctx)

    def _protect(self, ctx: Any) -> None:
        paths = {name: path for name, path in ctx.params.items() if isinstance(path, Path)}
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
