"""Threads over blocks of rows, and BLAS on one thread while they work.

Kernels release the GIL and every row is computed independently, so results do not depend on the
number of threads. Unlike a compiler's parallel loops, a thread pool can be used from several Python
threads at once and after a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from hokical._core.checks import check_count

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Found = TypeVar("Found")

_PREFIX = "hokical-worker"
_limit: ContextVar[int | None] = ContextVar("hokical_threads", default=None)
#: The limit of BLAS that is in force, once for every context that is open, in whatever thread.
_blas_limits: list[Any] = []
_lock = threading.Lock()


def thread_count() -> int:
    """Number of threads: `threads(...)`, else HOKICAL_NUM_THREADS, else the available CPUs."""
    limit = _limit.get()
    if limit is not None:
        return limit
    wanted = os.environ.get("HOKICAL_NUM_THREADS", "").strip()
    if wanted:
        count = int(wanted) if wanted.isdecimal() else wanted
        return check_count(count, name="HOKICAL_NUM_THREADS")
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads inside the block, overriding the environment.

    It holds for the current thread (context) only.

    >>> with threads(1):
    ...     thread_count()
    1
    """
    token = _limit.set(check_count(count, name="count"))
    try:
        yield
    finally:
        _limit.reset(token)


def cut_rows(n_rows: int, step: int) -> list[slice]:
    """Slices of consecutive rows, the last one possibly shorter."""
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def map_slices(
    work: Callable[[slice], Found], count: int, step: int, *, threads: bool = True
) -> list[Found]:
    """`work` of consecutive slices, in order; on several threads if wanted and available."""
    slices = cut_rows(count, max(1, step))
    workers = min(thread_count(), len(slices)) if threads else 1
    if workers <= 1 or threading.current_thread().name.startswith(_PREFIX):
        return [work(part) for part in slices]
    from concurrent.futures import wait  # loads `logging`, which one block does without

    pool = _pool(workers, os.getpid())
    futures = [pool.submit(work, part) for part in slices]
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)  # no thread may still write into arrays that the caller drops
        raise


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """A pool of that size: starting threads can take longer than a small pass.

    A forked child has none of its parent's threads, so pools are per process. Where two threads
    make one at once, that which is not kept ends with its work.
    """
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(workers, thread_name_prefix=_PREFIX)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which BLAS has one thread, until the last of those in it leaves.

    Blocks of rows run on our threads. BLAS threads would change the order of sums, and on a busy
    machine they mostly wait for each other.
    """
    with _lock:
        _blas_limits.append(
            _blas_limits[0] if _blas_limits else _find_blas().limit(limits=1, user_api="blas")
        )
    try:
        yield
    finally:
        with _lock:
            limit = _blas_limits.pop()
            if not _blas_limits:
                limit.restore_original_limits()


@cache
def _find_blas() -> Any:
    """The BLAS libraries of NumPy and SciPy; finding them takes as long as a small fit."""
    import scipy.linalg  # noqa: F401  (its BLAS is found once it is loaded)
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()
