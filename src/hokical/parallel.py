"""Threads over blocks of rows.

Kernels release the GIL and every row is computed by itself, so the number of threads can change
no result. A plain thread pool, unlike a compiler's parallel loops, may be used from several Python
threads at once and after a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar

_limit: ContextVar[int | None] = ContextVar("hokical_threads", default=None)


def thread_count() -> int:
    """The threads to use: `threads(...)`, else HOKICAL_NUM_THREADS, else the CPUs we may use."""
    limit = _limit.get()
    if limit is not None:
        return limit
    wanted = os.environ.get("HOKICAL_NUM_THREADS", "")
    if wanted:
        return _checked_count(wanted, "HOKICAL_NUM_THREADS")
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` threads inside the block, whatever the environment says.

    >>> with threads(1):
    ...     thread_count()
    1
    """
    token = _limit.set(_checked_count(count, "count"))
    try:
        yield
    finally:
        _limit.reset(token)


def for_row_blocks(work: Callable[[slice], None], n_rows: int, rows_per_block: int) -> None:
    """Call `work(rows)` for consecutive blocks of rows, on several threads if there are several."""
    starts = range(0, n_rows, max(1, rows_per_block))
    blocks = [slice(start, min(start + starts.step, n_rows)) for start in starts]
    workers = min(thread_count(), len(blocks))
    if workers <= 1:
        for block in blocks:
            work(block)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(work, blocks):
            pass


def _checked_count(value: int | str, name: str) -> int:
    whole = not isinstance(value, (bool, float))
    count = int(value) if whole and str(value).strip().isdecimal() else 0
    if count < 1:
        raise ValueError(f"`{name}` must be an integer of at least 1; got {value!r}.")
    return count
