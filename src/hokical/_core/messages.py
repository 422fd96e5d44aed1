"""What a user sees besides results: warnings, and a progress bar that appears after a second.

Warnings point to the user's line, however deep in the package they are raised. Where scikit-learn
is loaded, its classes are raised in place of those of the same names here.
"""

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, TypeVar


class FitDataWarning(UserWarning):
    """Examples are not what they should be: too few to learn from, or tested on after a fit.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", FitDataWarning)  # or "ignore"
    """


class ConvergenceWarning(UserWarning):
    """A fit ended before it reached an optimum, or there is none."""


class NotFittedError(ValueError, AttributeError):
    """A calibrator was asked for predictions before it was fitted."""


#: Distributions of this project, whose own lines are not the user's.
_PACKAGES = ("hokical", "hokical_paper")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn with the first caller outside these packages as the location."""
    category = sklearn_class(category)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _package_of(frame) in _PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def sklearn_class(own: Any) -> Any:
    """scikit-learn's class of the same name where that library is loaded, so that it is caught."""
    return getattr(sys.modules.get("sklearn.exceptions"), own.__name__, own)


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
    # One bar at a time: nested work is part of the outer bar's step.
    if _busy.get() or not (sys.stderr.isatty() if show is None else show):
        yield lambda description=None, *, steps=1: None
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


def track(items: Iterable[Item], description: str, total: int, show: bool | None) -> Iterator[Item]:
    """Yield the items under a bar; `{}` in the description is the current item."""
    with progress_bar(description.format(""), total, show) as advance:
        for item in items:
            advance(description.format(item), steps=0)
            yield item
            advance()


def _new_progress(total: int | None) -> Any:
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn

    clock = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    columns = (*Progress.get_default_columns()[:3], clock)
    return Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True)
