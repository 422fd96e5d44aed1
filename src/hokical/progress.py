"""A progress bar that appears only when a wait is long enough to be noticed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

_SHOW_AFTER_SECONDS = 1.0


@contextmanager
def progress_bar(description: str, total: int, show: bool | None) -> Iterator[Callable[[], None]]:
    """Give a function to call after each of about `total` steps; a bar on stderr follows it.

    `show` None means: if stderr is a terminal. Nothing is drawn before a second has passed, and the
    bar goes away when the work is done.
    """
    bar = _Bar(description, total, sys.stderr.isatty() if show is None else show)
    try:
        yield bar.advance
    finally:
        bar.stop()


def track(items: Iterable[Item], description: str, total: int, show: bool | None) -> Iterator[Item]:
    """Yield the items under a `progress_bar`."""
    with progress_bar(description, total, show) as advance:
        for item in items:
            yield item
            advance()


class _Bar:
    def __init__(self, description: str, total: int, wanted: bool) -> None:
        self.description, self.total, self.wanted = description, total, wanted
        self.done, self.begun = 0, time.monotonic()
        self.stop: Callable[[], None] = lambda: None
        self._update: Callable[[], None] | None = None

    def advance(self) -> None:
        self.done += 1
        waited = time.monotonic() - self.begun
        if self.wanted and self._update is None and waited >= _SHOW_AFTER_SECONDS:
            self._start()
        if self._update is not None:
            self._update()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, TimeRemainingColumn

        columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn())
        console = Console(stderr=True, force_terminal=True)
        shown = Progress(*columns, console=console, transient=True)
        task = shown.add_task(self.description, total=self.total)
        self._update = lambda: shown.update(
            task, completed=self.done, total=max(self.total, self.done)
        )
        self.stop = shown.stop
        shown.start()
