"""One monitor for several threads, and one file for several processes."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hokical import CalibrationMonitor
from tests.monitoring.streams import exact_state, stream

_RUN = """
import sys
from hokical.monitoring import CalibrationMonitor
for _ in range(6):
    with CalibrationMonitor.lock(sys.argv[1]):
        CalibrationMonitor.load(sys.argv[1]).update([0.9] * 4, [True] * 4).save(sys.argv[1])
"""


@pytest.mark.slow
def test_threads_lose_no_counts() -> None:
    """Many short batches, so that rows are added while others look."""
    made = CalibrationMonitor(None, n_classes=5, window=8000)
    confidence, correct = stream(40, seed=1)
    predicted = np.arange(40) % 5

    def work(thread: int) -> None:
        for _ in range(15):
            made.update(confidence, correct, predicted=predicted, again=True)
            made.update(confidence, again=True)
            made.status()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    status = made.status()
    assert (status.n, status.n_observed) == (8 * 15 * 40, 8 * 15 * 80)
    assert status.n_window == 8 * 15 * 40
    assert sum(each.n for each in status.classes) == 8 * 15 * 40


def test_copies_are_separate() -> None:
    made = CalibrationMonitor(None).update(*stream(300, seed=1))
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert exact_state(other) == exact_state(made)
        assert other.update(0.5, True).n == made.n + 1


@pytest.mark.slow
def test_processes_share_a_file_under_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    CalibrationMonitor(None).save(path)
    command = [sys.executable, "-c", _RUN, str(path)]
    runs = [subprocess.Popen(command) for _ in range(2)]
    assert [run.wait(timeout=100) for run in runs] == [0, 0]
    assert CalibrationMonitor.load(path).n == 2 * 6 * 4
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.json", "m.json.lock"]
