"""A progress bar that appears only after a second."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Item = TypeVar("Item")

_SHOW_AFTER_SECONDS = 1.0
_busy: ContextVar[bool] = ContextVar("hokical_progress", default=False)


@contextmanager
def progress_bar(
    description: str, total: int | None, show: bool | None = None
) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each of about `total` steps; a bar on stderr shows them.

    `show=None` shows it if stderr is a terminal, `total=None` shows the time alone. Nothing is
    drawn before a second has passed, and the bar is removed when the work is done.
    """
    bar = _Bar(description, total)
    # One bar at a time: nested work is part of the outer bar's step.
    if _busy.get() or not (sys.stderr.isatty() if show is None else show):
        yield bar.advance
        return
    token = _busy.set(True)
    # A timer, because the first step alone may take a minute.
    timer = threading.Timer(_SHOW_AFTER_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.advance
    finally:
        timer.cancel()
        timer.join()  # a bar that is just starting must have started before it is stopped
        bar.stop()
        _busy.reset(token)


def track(items: Iterable[Item], description: str, total: int, show: bool | None) -> Iterator[Item]:
    """Yield the items under a bar; `{}` in the description is the current item."""
    with progress_bar(description.format(""), total, show) as advance:
        for item in items:
            advance(description.format(item), steps=0)
            yield item
            advance()


class _Bar:
    """Counts from the beginning; draws once `start` is called, possibly on another thread."""

    def __init__(self, description: str, total: int | None) -> None:
        self.description, self.total, self.done = description, total, 0
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._progress: Any = None
        self._task: Any = None

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        rate = TextColumn("{task.fields[rate]}")
        clock = TimeElapsedColumn() if self.total is None else TimeRemainingColumn()
        columns = (*Progress.get_default_columns()[:3], rate, clock)
        console = Console(stderr=True, force_terminal=True)
        progress = Progress(*columns, console=console, transient=True)
        with self._lock:
            self._task = progress.add_task(
                self.description, total=self.total, completed=self.done, rate=self._rate
            )
            progress.start()
            self._progress = progress

    @property
    def _rate(self) -> str:
        """Steps per second, or seconds per step if these are longer."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        if not self.done:
            return ""
        per_second = self.done / seconds
        return f"{per_second:.3g}/s" if per_second >= 1.0 else f"{1.0 / per_second:.3g} s each"

    def advance(self, description: str | None = None, *, steps: int = 1) -> None:
        with self._lock:
            self.description, self.done = description or self.description, self.done + steps
            if self._progress is not None:
                self._progress.update(
                    self._task,
                    description=self.description,
                    completed=self.done,
                    total=None if self.total is None else max(self.total, self.done),
                    rate=self._rate,
                )

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
