"""The command line as tests run it: in this process, or in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from hokical.cli import app


@dataclass
class Result:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=pytest.fail)

    @property
    def methods(self) -> dict[str, Any]:
        """The numbers of `evaluate` and `compare`, by method."""
        return {found["method"]: found for found in self.json["methods"]}

    @property
    def words(self) -> str:
        """All that was printed, whatever the lines."""
        return " ".join((self.out + self.err).split())


def hokical_command(*arguments: object, columns: int = 120) -> Result:
    words = [str(argument) for argument in arguments]
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(
        app, words, prog_name="hokical"
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Result(done.exit_code, done.stdout, done.stderr)


def run(*arguments: object, code: int = 0) -> str:
    """All that a command printed, which ended in this exit code."""
    found = hokical_command(*arguments)
    assert found.code == code, found.err
    return found.out + found.err


def process(*arguments: object, code: str | None = None, **options: Any) -> Result:
    """The real entry point in a process of its own; `code` runs before it."""
    script = f"{code or ''}\nfrom hokical.cli import main\nmain()"
    words = [sys.executable, "-c", script, *(str(argument) for argument in arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, **options)
    return Result(done.returncode, done.stdout, done.stderr)


def one_line(result: Result) -> str:
    """The error of a command that ended in exit code 2: one line, no traceback, no
    result.
    """
    assert result.code == 2, result.err
    assert result.out == ""
    errors = [
        line for line in result.err.splitlines() if not line.startswith("Using the")
    ]
    assert len(errors) == 1, result.err
    assert errors[0].startswith("Error: ")
    return errors[0]
