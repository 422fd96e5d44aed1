"""Which version computes: that of the package and, in a checkout, its commit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import hokical


@lru_cache
def made_by() -> str:
    """Such as "hokical 0.4.0 (d48939dc)"; "-dirty" if files were changed since the
    commit.
    """
    commit = _commit()
    return f"hokical {hokical.__version__}" + (f" ({commit})" if commit else "")


def made_note(versions: Iterable[str]) -> str:
    """The sentence that a table ends with.

    >>> made_note(["hokical 0.4.0 (d48939dc)"] * 2)
    'Computed by hokical 0.4.0 (d48939dc).'
    """
    names = sorted({text for text in versions if text})
    return f"Computed by {', '.join(names) or 'an unknown version'}."


def _commit() -> str:
    """The commit of the checkout that this file is part of; empty elsewhere."""
    git = ["git", "-C", str(Path(__file__).resolve().parent)]
    answers = [
        _run([*git, "ls-files", Path(__file__).name])
    ]  # empty if it is not part of a checkout
    answers.append(_run([*git, "describe", "--always", "--dirty", "--exclude", "*"]))
    return answers[1] if all(answers) else ""


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
