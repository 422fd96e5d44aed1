"""Progress of trainings: a bar for each on a terminal, else one line per epoch."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from hokical_paper.making.recipes import Recipe


class Reporter:
    """Lines with the time of day, on stderr and, if there is one, in a log file."""

    def __init__(self, log_file: Path | None = None) -> None:
        self._log_file = log_file
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)

    def note(self, text: str) -> None:
        """Write a line."""
        line = f"{time.strftime('%H:%M:%S')} {text}"
        self._show(line)
        if self._log_file is not None:
            with open(self._log_file, "a", encoding="utf-8") as stream:
                stream.write(line + "\n")

    def epoch(self, recipe: Recipe, done: int, facts: str) -> None:
        """Report that an epoch has ended."""
        self.note(f"{recipe.name} epoch {done}/{recipe.epochs} {facts}")

    def close(self) -> None:
        """End the display, if there is one."""

    def _show(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class BarReporter(Reporter):
    """A progress bar for each training, with the notes above."""

    def __init__(self, log_file: Path | None = None) -> None:
        from rich.console import Console
        from rich.progress import Progress, TimeRemainingColumn

        super().__init__(log_file)
        columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._tasks: dict[str, Any] = {}
        self._progress.start()

    def epoch(self, recipe: Recipe, done: int, facts: str) -> None:
        if recipe.name not in self._tasks:
            self._tasks[recipe.name] = self._progress.add_task(
                recipe.name, total=recipe.epochs
            )
        self._progress.update(
            self._tasks[recipe.name],
            completed=done,
            description=f"{recipe.name} {facts}",
        )

    def close(self) -> None:
        self._progress.stop()

    def _show(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False)


def make_reporter(log_file: Path | None = None) -> Reporter:
    """Progress bars if stderr is a terminal, else lines."""
    return BarReporter(log_file) if sys.stderr.isatty() else Reporter(log_file)
