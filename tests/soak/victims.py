"""Processes that write until they are killed, until the disk is full, or against
each other.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from hokical import CalibrationMonitor, Gaussian, Hoki, load, make
from hokical.io import write_table
from hokical.streams import open_source, predict_to
from tests.conftest import synthetic_logits

GOLDEN = Path(__file__).parents[1] / "calibrators" / "golden"
ROWS, CHUNK, BATCH = 4000, 250, 50
LOGITS, LABELS = synthetic_logits(ROWS, 4, seed=3)


def pieces(pause: float = 0.0) -> Iterator[tuple[Any, Any]]:
    """The examples, a chunk at a time, each after a pause."""
    for start in range(0, ROWS, CHUNK):
        time.sleep(pause)
        yield LOGITS[start : start + CHUNK], LABELS[start : start + CHUNK]


def save(folder: Path) -> None:
    """Two calibrators, one after the other, under one name."""
    both = [load(GOLDEN / f"{name}.json") for name in ("temps", "hoki")]
    for turn in count():
        both[turn % 2].save(folder / "c.json")


def predict_in_parts(folder: Path, pause: float = 0.003) -> None:
    """Predictions into a file."""
    calibrator = load(GOLDEN / "uncalibrated.json").fit(LOGITS, LABELS)
    predict_to(calibrator, open_source(lambda: pieces(pause)), folder / "p.npy")


def new_monitor() -> CalibrationMonitor:
    return CalibrationMonitor(Hoki(noise=Gaussian(3.0)).fit(LOGITS[:500], LABELS[:500]))


def watch(folder: Path) -> None:
    """A monitor that keeps its state in a file."""
    monitor = new_monitor()
    for start in count(0, BATCH):
        rows = slice(start % ROWS, start % ROWS + BATCH)
        monitor.update_logits(LOGITS[rows], LABELS[rows], again=True)
        monitor.save(folder / "m.json")


def fill_disk(folder: Path, limit: int) -> None:
    """Every kind of output where no file may be longer than the limit."""
    calibrator = load(GOLDEN / "hoki.json")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    monitor = new_monitor()
    for write in (
        lambda: calibrator.save(folder / "c.json"),
        lambda: write_table(folder / "r.npz", {"labels": LABELS}),
        lambda: monitor.save(folder / "m.json"),
        lambda: predict_in_parts(folder, 0.0),
    ):
        try:
            write()
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise


def answer_in_threads_and_forks(folder: Path) -> None:
    """The same answers from threads at once and from 4 forks as from one thread."""
    calibrators = [
        load(GOLDEN / f"{name}.json")
        for name in ("hoki", "structured", "temps", "vecs")
    ]
    rows = LOGITS[:, :3]
    expected = [calibrator.predict_confidence(rows) for calibrator in calibrators]
    wrong: list[int] = []

    def answer() -> None:
        for calibrator, known in zip(calibrators, expected, strict=True):
            if not np.array_equal(calibrator.predict_confidence(rows), known):
                wrong.append(1)

    ask = ask_for_many_coverages(wrong)
    threads = [Thread(target=answer) for _ in range(8)] + [
        Thread(target=ask) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(4):
        child = os.fork()
        if child == 0:
            answer()
            os._exit(len(wrong))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, (
            "wrong answers from a fork"
        )
    assert not wrong, "wrong answers from threads"


def ask_for_many_coverages(wrong: list[int]) -> Callable[[], None]:
    """What each of many threads does: sets of more coverages than are remembered."""
    calibrator = make("temps").fit(LOGITS, LABELS)
    asked = [0.5 + 0.004 * k for k in range(100)]
    sizes = [
        calibrator.predict_set(LOGITS, coverage=share).sizes.sum() for share in asked
    ]

    def ask() -> None:
        for share, known in zip(asked, sizes, strict=True):
            try:
                found = calibrator.predict_set(LOGITS, coverage=share).sizes.sum()
            except Exception:
                wrong.append(1)
                raise
            if found != known:
                wrong.append(1)

    return ask
