"""Threads over blocks of rows: every block once, errors whole, forks and nesting
harmless.
"""

from __future__ import annotations

import multiprocessing
import threading

import numpy as np
import pytest

from hokical import Gaussian, label_stability, threads
from hokical._core.runtime import map_slices, thread_count


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_row_is_worked_on_once(count: int) -> None:
    seen = np.zeros(1003, int)

    def work(rows: slice) -> None:
        seen[rows] += 1

    with threads(count):
        map_slices(work, 1003, 10)
    np.testing.assert_array_equal(seen, 1)


def test_an_error_ends_all_work_before_it_is_raised() -> None:
    running: set[int] = set()

    def work(rows: slice) -> None:
        running.add(rows.start)
        if rows.start == 0:
            raise ValueError("the first block")
        running.discard(rows.start)

    with threads(2), pytest.raises(ValueError, match="the first block"):
        map_slices(work, 500, 1)
    assert running == {0}


def test_work_inside_work_does_not_wait_for_itself() -> None:
    inner = np.zeros((8, 8), int)

    def outer(rows: slice) -> None:
        map_slices(lambda part: inner[rows.start].__setitem__(part, 1), 8, 1)

    with threads(2):
        map_slices(outer, 8, 1)
    assert inner.all()


def _in_child(values: np.ndarray, queue: object) -> None:
    with threads(2):
        queue.put(label_stability(values, Gaussian(1.0)))  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    values = np.random.default_rng(0).normal(size=(6000, 100))
    with threads(2):
        expected = label_stability(values, Gaussian(1.0))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(values, queue))
    child.start()
    np.testing.assert_array_equal(queue.get(timeout=60), expected)
    child.join(60)
    assert child.exitcode == 0


def test_several_callers_at_once() -> None:
    values = np.random.default_rng(0).normal(size=(6000, 100))
    expected = label_stability(values, Gaussian(1.0))
    answers: list[np.ndarray] = []

    def call() -> None:
        answers.append(label_stability(values, Gaussian(1.0)))

    callers = [threading.Thread(target=call) for _ in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)
    assert len(answers) == 5


@pytest.mark.parametrize("value", ["0", "-1", "many", "2.5"])
def test_bad_counts_are_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOKICAL_NUM_THREADS", value)
    with pytest.raises(ValueError, match="`HOKICAL_NUM_THREADS` must be an integer"):
        thread_count()
    for count in (0, True, 2.7):
        with (
            pytest.raises(ValueError, match="`count` must be an integer"),
            threads(count),
        ):
            pass
    monkeypatch.setenv("HOKICAL_NUM_THREADS", "3")
    assert thread_count() == 3
