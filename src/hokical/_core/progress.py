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
_TELL_AFTER_SECONDS = 5.0
#: Whether steps are told in lines where stderr is no terminal; the command line sets it.
told_in_lines = False
_busy: ContextVar[bool] = ContextVar("hokical_progress", default=False)


@contextmanager
def progress_bar(
    description: str, total: int | None, show: bool | None = None
) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each of about `total` steps; a bar on stderr shows them.

    `show=None` shows it if stderr is a terminal, `total=None` shows the time alone. Nothing is
    drawn before a second has passed, and the bar is removed when the work is done. Commands whose
    stderr is no terminal write a line at a step once five seconds have passed.
    """
    # One bar at a time: nested work is part of the outer bar's step.
    if _busy.get() or not ((sys.stderr.isatty() or told_in_lines) if show is None else show):
        yield lambda description=None, *, steps=1: None
        return
    if show is None and not sys.stderr.isatty():
        token = _busy.set(True)
        try:
            yield _line_by_line(description, total)
        finally:
            _busy.reset(token)
        return
    progress = _new_progress(total)
    task = progress.add_task(description, total=total)

    def advance(description: str | None = None, *, steps: int = 1) -> None:
        done = progress.tasks[0].completed + steps
        most = None if total is None else max(total, done)
        progress.update(task, description=description, completed=done, total=most)

    token = _busy.set(True)
    # A timer, because the first step alone may take a minute.
    timer = threading.Timer(_SHOW_AFTER_SECONDS, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()  # a bar that is just starting must have started before it is stopped
        if progress.live.is_started:
            progress.stop()
        _busy.reset(token)


def _line_by_line(step: str, total: int | None) -> Callable[..., None]:
    """A function that writes a line at a step if the last one is long ago."""
    done, told = 0, time.monotonic()

    def advance(description: str | None = None, *, steps: int = 1) -> None:
        nonlocal done, told, step
        done, step = done + steps, description or step
        if time.monotonic() - told >= _TELL_AFTER_SECONDS:
            told = time.monotonic()
            count = f"{done} done" if total is None else f"{done} of {total} done"
            print(f"{step} ({count})", file=sys.stderr, flush=True)

    return advance


def track(items: Iterable[Item], description: str, total: int, show: bool | None) -> Iterator[Item]:
    """Yield the items under a bar; `{}` in the description is the current item."""
    with progress_bar(description.format(""), total, show) as advance:
        for item in items:
            advance(description.format(item), steps=0)
            yield item
            advance()


def _new_progress(total: int | None) -> Any:
    """Rich's bar, with steps per second, or seconds per step if these are longer."""
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TimeElapsedColumn, TimeRemainingColumn

    class Rate(ProgressColumn):
        def render(self, task: Any) -> str:
            if not task.completed or not task.elapsed:
                return ""
            rate = task.completed / task.elapsed
            return f"{rate:.3g}/s" if rate >= 1.0 else f"{1.0 / rate:.3g} s each"

    clock = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    columns = (*Progress.get_default_columns()[:3], Rate(), clock)
    return Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True)
