"""What surrounds the computation: warnings, progress, threads, and what is loaded on
first use.

Warnings point to the user's line, however deep in the package they are raised. Where
scikit-learn is loaded, its classes are raised in place of those of the same names here.

Threads work on blocks of rows. Kernels release the GIL and every row is computed
independently, so results do not depend on the number of threads. Unlike a compiler's
parallel loops, a thread pool can be used from several Python threads at once and after
a fork.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from types import FrameType
from typing import Any, Self, TypeVar, cast

from hokical._core.checks import check_count

Item = TypeVar("Item")


class FitDataWarning(UserWarning):
    """Examples are not what they should be: too few to learn from, or tested on after a
    fit.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", FitDataWarning)  # or "ignore"
    """


class ConvergenceWarning(UserWarning):
    """A fit ended before it reached an optimum, or there is none."""


class NotFittedError(ValueError, AttributeError):
    """A calibrator was asked for predictions before it was fitted."""


#: Whose lines are not the user's: this project's distributions, and what decorates
#: their calls.
_PACKAGES = ("hokical", "hokical_paper", "contextlib")


class WarningLog:
    """The causes that an object has warned of: each is reported once.

    A fitted object has one log from its fit on, so that a prediction does not repeat
    what the fit said. Inside of `once` the log is active, and `warn_user` drops causes
    that are in it. Of nested logs the outermost is the active one: an ensemble speaks
    for its calibrators. Copies made by pickling start anew.

    >>> import warnings
    >>> log = WarningLog()
    >>> with warnings.catch_warnings(record=True) as caught, log.once():
    ...     warnings.simplefilter("always")
    ...     warn_user("3 rows are rounded", cause="rounded")
    ...     warn_user("5 rows are rounded", cause="rounded")
    >>> len(caught)
    1
    """

    def __init__(self) -> None:
        self._causes: set[str] = set()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def __contains__(self, cause: str) -> bool:
        return cause in self._causes

    def add(self, *causes: str) -> None:
        """Note causes as reported: of warnings that do not apply to the object."""
        self._causes.update(causes)

    @staticmethod
    def current() -> WarningLog:
        """The active log, or a new one."""
        return _active_log.get() or WarningLog()

    @contextmanager
    def once(self) -> Iterator[None]:
        """A context in which each cause is reported once."""
        if _active_log.get() is not None:
            yield
            return
        token = _active_log.set(self)
        try:
            yield
        finally:
            _active_log.reset(token)


#: A class of warnings or errors.
Raised = TypeVar("Raised", bound=Exception)

_active_log: ContextVar[WarningLog | None] = ContextVar(
    "hokical_warnings", default=None
)


def warn_user(
    message: str, category: type[Warning] = UserWarning, *, cause: str = ""
) -> None:
    """Warn with the first caller outside these packages as the location.

    An active `WarningLog` reports each `cause` once, by default each message. Messages
    hold no number that differs from batch to batch, so that Python's filters show them
    once where no log is active.
    """
    log = _active_log.get()
    cause = cause or message
    if log is not None and cause in log:
        return
    category = sklearn_class(category)
    level = 1
    frame = inspect.currentframe()
    while frame and frame.f_back and _is_ours(frame):
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)
    if log is not None:  # not where the warning was raised as an error
        log.add(cause)


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame is of a function of these packages."""
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] in _PACKAGES


def sklearn_class(substitute: type[Raised]) -> type[Raised]:
    """scikit-learn's class of the same name where that library is loaded, so that it
    is caught.
    """
    exceptions = sys.modules.get("sklearn.exceptions")
    return getattr(exceptions, substitute.__name__, substitute)


_SHOW_AFTER_SECONDS = 1.0
_busy: ContextVar[bool] = ContextVar("hokical_progress", default=False)


@contextmanager
def progress_bar(
    description: str, total: int | None, show: bool | None = None
) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each of about `total` steps; a bar on stderr shows
    them.

    `show=None` shows it if stderr is a terminal, `total=None` shows the time alone.
    Nothing is drawn before a second has passed, and the bar is removed when the work is
    done.
    """
    # One bar at a time: nested work is part of the outer bar's step.
    if _busy.get() or not (sys.stderr.isatty() if show is None else show):
        yield lambda description=None, *, steps=1: None
        return
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn

    clock = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    columns = (*Progress.get_default_columns()[:3], clock)
    console = Console(stderr=True, force_terminal=True)
    progress = Progress(*columns, console=console, transient=True)
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


def track(
    items: Iterable[Item], description: str, total: int, show: bool | None
) -> Iterator[Item]:
    """Yield the items under a bar; `{}` in the description is the current item."""
    with progress_bar(description.format(""), total, show) as advance:
        for item in items:
            advance(description.format(item), steps=0)
            yield item
            advance()


def install_command(extra: str) -> str:
    """How to install what an extra of hokical needs.

    hokical is not on a package index yet; tests/test_release.py compares this with the
    pages.

    >>> install_command("plot")
    "`pip install '.[plot]'` in a clone of hokical"
    """
    return f"`pip install '.[{extra}]'` in a clone of hokical"


def import_optional(name: str, extra: str) -> Any:
    """Import a module of an extra, or raise an error with the command that installs it.

    >>> import_optional("json", "none").__name__
    'json'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is required but not installed. Install it: "
            f"{install_command(extra)}."
        ) from error


Function = TypeVar("Function", bound=Callable[..., Any])


def memoize(function: Function) -> Function:
    """Cache a function of hashable values; two threads may both compute a value once.

    Torch can trace neither `functools.cached_property` nor `functools.cache`.

    >>> @memoize
    ... def square(x):
    ...     return x * x
    >>> square(3), square(3)
    (9, 9)
    """
    results: dict[tuple[Any, ...], Any] = {}

    @wraps(function)
    def ask(*args: Any) -> Any:
        if args not in results:
            results[args] = function(*args)
        return results[args]

    return cast(Function, ask)


#: Up to this many classes NumPy computes: it takes at most about twice as long as a
#: kernel, and a fresh process is done before numba would have been imported.
FEW_CLASSES = 16


@cache
def has_compiler() -> bool:
    """Whether numba is installed and can be imported, with this NumPy for example."""
    try:
        import_module("numba")
    except Exception:
        # Whatever is wrong with it or its dependencies, NumPy does as well.
        return False
    return True


def has_kernels(logits: Any) -> bool:
    """Whether compiled kernels compute these rows: NumPy's, with more than a few
    classes.
    """
    return logits.is_numpy and logits.n_columns > FEW_CLASSES and has_compiler()


_PREFIX = "hokical-worker"
_limit: ContextVar[int | None] = ContextVar("hokical_threads", default=None)
#: The limit of BLAS that is in force, once for every context that is open, in whatever
#: thread.
_blas_limits: list[Any] = []
_lock = threading.Lock()


def thread_count() -> int:
    """Number of threads: `threads(...)`, else HOKICAL_NUM_THREADS, else the
    available CPUs.
    """
    if (limit := _limit.get()) is not None:
        return limit
    if wanted := os.environ.get("HOKICAL_NUM_THREADS", "").strip():
        count = int(wanted) if wanted.isdecimal() else wanted
        return check_count("HOKICAL_NUM_THREADS", count)
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads inside the block, overriding the environment.

    It holds for the current thread (context) only.

    >>> with threads(1):
    ...     thread_count()
    1
    """
    token = _limit.set(check_count("count", count))
    try:
        yield
    finally:
        _limit.reset(token)


def cut_rows(n_rows: int, step: int) -> list[slice]:
    """Slices of consecutive rows, the last one possibly shorter."""
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def map_slices(
    work: Callable[[slice], Item], count: int, step: int, *, threads: bool = True
) -> list[Item]:
    """`work` of consecutive slices, in order; on several threads if wanted and
    available.
    """
    slices = cut_rows(count, max(1, step))
    workers = min(thread_count(), len(slices)) if threads else 1
    if workers <= 1 or threading.current_thread().name.startswith(_PREFIX):
        return [work(block) for block in slices]
    from concurrent.futures import wait  # loads `logging`, which one block does without

    pool = _pool(workers, os.getpid())
    futures = [pool.submit(work, block) for block in slices]
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)  # no thread may still write into arrays that the caller drops
        raise


@cache
def _pool(workers: int, process: int) -> Any:
    """A pool of that size: starting threads can take longer than a small pass.

    A forked child has none of its parent's threads, so pools are per process. Where two
    threads make one at once, that which is not kept ends with its work.
    """
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(workers, thread_name_prefix=_PREFIX)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which BLAS has one thread, until the last of those in it leaves.

    Blocks of rows run on our threads. BLAS threads would change the order of sums, and
    on a busy machine they mostly wait for each other.
    """
    with _lock:
        limits = _blas_limits[:1] or [_find_blas().limit(limits=1, user_api="blas")]
        _blas_limits.extend(limits)
    try:
        yield
    finally:
        with _lock:
            limit = _blas_limits.pop()
            if not _blas_limits:
                limit.restore_original_limits()


@cache
def _find_blas() -> Any:
    """The BLAS libraries of NumPy and SciPy; finding them takes as long as a small
    fit.
    """
    import scipy.linalg  # noqa: F401  (its BLAS is found once it is loaded)
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()
