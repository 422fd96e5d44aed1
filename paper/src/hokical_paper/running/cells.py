"""All methods on all pairs, several at a time; every result is stored as soon as it
is computed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hokical import threads
from hokical_paper.core import progress_bar, thread_count
from hokical_paper.running.cache import Cache
from hokical_paper.running.devices import ON_DEVICE, move_to_fit
from hokical_paper.running.experiments import run_method
from hokical_paper.running.methods import METHODS, SAMPLED, why_absent
from hokical_paper.running.results import Result, Results
from hokical_paper.running.stamp import made_by
from hokical_paper.suite.manifest import Pair, Suite, open_suite
from hokical_paper.suite.pair_data import PairData

#: Rough cost of a method relative to the fast ones; expensive tasks are started first.
_WEIGHT = {"dir_odir": 9.0, "ms_odir": 8.0, SAMPLED: 6.0, "vecs": 3.0}


#: A pair, a method, and the number of a new division of the pair's examples or None.
Cell = tuple[Pair, str, int | None]


class Task(NamedTuple):
    """One method on one pair of a suite: all that a worker process needs to know."""

    suite: str
    pair: str
    method: str
    cache: str
    workers: int
    device: str | None
    division: int | None = None


def run_suite(
    suite: Suite,
    cache: Cache,
    *,
    methods: list[str] | None = None,
    slow: bool = False,
    jobs: int | None = None,
    device: str | None = None,
    progress: bool | None = None,
) -> Results:
    """Every method on every pair; results in the cache are not computed again.

    Parameters
    ----------
    suite : Suite
    cache : Cache
    methods : list of str, optional
        None runs all methods of the tables.
    slow : bool
        Also run what takes minutes: matrix methods on a thousand classes.
    jobs : int, optional
        Worker processes with one thread each. None uses one per CPU; 1 uses this
        process. It affects the measured times, but no other result.
    device : str, optional
        A device of PyTorch, such as "cuda", for the fits that are mostly matrix
        products.
    progress : bool, optional
        Show a progress bar; None shows one on a terminal once a second has passed.
    """
    names = list(METHODS) if methods is None else methods
    absent: dict[tuple[str, str], str] = {}
    cells: list[Cell] = []
    for pair, method in ((pair, method) for pair in suite.pairs for method in names):
        reason = why_absent(pair, method, slow=slow)
        if reason:
            absent[pair.name, method] = reason
        else:
            cells.append((pair, method, None))
    cells.sort(key=_expected_cost, reverse=True)
    done = run_cells(suite, cells, cache, jobs=jobs, device=device, progress=progress)
    by_cell = {(result.pair, result.method): result for result in done}
    return Results(suite, by_cell, absent, tuple(names))


def run_cells(
    suite: Suite,
    cells: list[Cell],
    cache: Cache,
    *,
    jobs: int | None = None,
    device: str | None = None,
    progress: bool | None = None,
    stored_only: bool = False,
) -> Iterator[Result]:
    """The result of each cell: those in the cache first, then the others as they are
    computed.

    With `stored_only` nothing is computed.
    """
    cache.prepare()
    missing: list[Cell] = []
    for pair, method, division in cells:
        stored = cache.get(pair, method, division)
        if stored is not None:
            yield stored
        elif not stored_only:
            missing.append((pair, method, division))
    workers = max(1, min(thread_count() if jobs is None else jobs, len(missing)))
    folders = (str(suite.folder.resolve()), str(cache.folder.resolve()))
    settings = (folders[1], workers, device)
    tasks = [
        Task(folders[0], pair.name, name, *settings, division)
        for pair, name, division in missing
    ]
    with progress_bar("The paper's experiments", len(tasks), progress) as advance:
        for result in (
            map(compute, tasks) if workers == 1 else _in_processes(tasks, workers)
        ):
            advance()
            yield result


def _expected_cost(cell: Cell) -> float:
    pair, method, _ = cell
    return pair.n_classes * _WEIGHT.get(method, 1.0)


def compute(task: Task) -> Result:
    """Run one task on one thread and store its result."""
    pair = _open(task.suite)[task.pair]
    with threads(1), threadpool_limits(1):
        data = _load(task.suite, task.pair, task.division)
        device = None
        if task.device is not None and task.method in ON_DEVICE:
            data, device = move_to_fit(data, task.device)
        result = run_method(pair, data, task.method)
    if device is not None:
        result = replace(result, facts={**result.facts, "device": device})
    result = replace(result, n_parallel=task.workers, made=made_by())
    Cache(task.cache).put(pair, result)
    return result


def _in_processes(tasks: list[Task], workers: int) -> Iterator[Result]:
    with _pool(workers) as pool:
        for future in as_completed([pool.submit(compute, task) for task in tasks]):
            yield future.result()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A process pool whose processes have ended when the block is left, also by an
    exception.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context(
        "spawn"
    )  # forks of a threaded process may hang
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        with _exit_on_sigterm():
            yield pool
            pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Turn a SIGTERM into SystemExit: the default action would leave the processes
    behind.
    """
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # only it may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start_worker() -> None:
    """End without a traceback at Ctrl-C, which reaches all processes, and whenever the
    parent ends.

    A parent that is killed cannot tell its workers, which would wait for tasks forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@lru_cache(maxsize=1)
def _open(folder: str) -> Suite:
    return open_suite(folder)


@lru_cache(maxsize=1)
def _load(folder: str, pair: str, division: int | None) -> PairData:
    data = _open(folder)[pair].load()
    return data if division is None else data.divide_anew(division)
