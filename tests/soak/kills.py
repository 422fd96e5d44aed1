"""Attacks on what is being written: kill -9 at any moment, full disks, two writers."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from hokical import CalibrationMonitor, CalibratorFileError, load
from hokical.calibrators import make
from tests.fitted import fingerprint
from tests.soak import victims

Generator = np.random.Generator

#: Children are forked from a process that has the library loaded and no threads.
_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.soak.victims"])


def _start(work: Callable[..., Any], *args: Any) -> Any:
    child = _processes.Process(target=work, args=args, daemon=True)
    child.start()
    return child


def _kill_after(
    rng: Generator, most: float, work: Callable[..., Any], folder: Path
) -> int | None:
    """The exit code of a victim that is killed within so many seconds, or ends before.

    Callers give one more time after every kill, or a busy machine would never let it
    begin.
    """
    child = _start(work, folder)
    child.join(float(rng.uniform(0.0, most)))
    child.kill()
    child.join()
    code: int | None = child.exitcode
    return code


def _leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*"))


def killed_saves(rng: Generator, folder: Path) -> str:
    known = {
        fingerprint(load(victims.GOLDEN / f"{name}.json")) for name in ("temps", "hoki")
    }
    _kill_after(rng, 0.4, victims.save, folder)
    there = (folder / "c.json").exists()
    if there:
        assert fingerprint(load(folder / "c.json")) in known, (
            "a file of neither calibrator"
        )
    assert len(_leftovers(folder)) <= 1, (
        "more than the file that was being written is left"
    )
    load(victims.GOLDEN / "temps.json").save(folder / "c.json")
    return "whole" if there else "killed before the first save"


def killed_predictions(rng: Generator, folder: Path) -> str:
    code = _kill_after(rng, 0.5, victims.predict_in_parts, folder)
    path = folder / "p.npy"
    assert path.exists() or code != 0, "no predictions"
    victims.predict_in_parts(folder, 0.0)
    expected = make("uncalibrated").fit(victims.LOGITS, victims.LABELS)
    right = expected.predict_confidence(victims.LOGITS)
    assert np.allclose(np.load(path), right, rtol=1e-12), "other rows"
    assert len(_leftovers(folder)) <= 1, (
        "more than the file that was being written is left"
    )
    return "whole file" if code == 0 else "no file, then a whole one"


def killed_monitors(rng: Generator, folder: Path) -> str:
    _kill_after(rng, 1.0, victims.watch, folder)
    if not (folder / "m.json").exists():
        return "killed before the first save"
    state = CalibrationMonitor.load(folder / "m.json", None)
    assert state.status().n % victims.BATCH == 0, "a part of an update"
    return "state whole"


def full_disk(rng: Generator, folder: Path) -> str:
    old = (victims.GOLDEN / "temps.json").read_bytes()
    (folder / "c.json").write_bytes(old)
    limit = int(2.0 ** rng.uniform(4, 17))
    child = _start(victims.fill_disk, folder, limit)
    child.join()
    assert child.exitcode == 0, "another error than that the disk is full"
    full = (folder / "c.json").read_bytes() == old
    if not full:
        load(folder / "c.json")
    for name in ("r.npz", "m.json"):
        whole = (folder / name).exists()
        if whole and name == "r.npz":
            np.load(folder / name)["labels"]
        elif whole:
            CalibrationMonitor.load(folder / name, None)
    assert not [name for name in _leftovers(folder) if not name.endswith("lock")], (
        "leftovers"
    )
    child = _start(victims.predict_in_parts, folder)  # with room on the disk again
    child.join()
    assert child.exitcode == 0, "predictions fail"
    return "old files kept" if full else "new files whole"


def two_writers(rng: Generator, folder: Path) -> str:
    load(victims.GOLDEN / "temps.json").save(folder / "c.json")
    both = [_start(victims.save, folder) for _ in range(2)]
    reads, end = 0, time.monotonic() + float(rng.uniform(0.2, 0.6))
    try:
        while time.monotonic() < end:
            load(folder / "c.json")
            reads += 1
    except CalibratorFileError as error:
        raise AssertionError(f"half a file: {error}") from error
    finally:
        for child in both:
            child.kill()
            child.join()
    assert len(_leftovers(folder)) <= 2, (
        "more than the files that were being written are left"
    )
    return "every read whole"


def threads_and_forks(rng: Generator, folder: Path) -> str:
    child = _start(victims.answer_in_threads_and_forks, folder)
    child.join()
    assert child.exitcode == 0, "other answers from threads or forks"
    return "same answers"


ATTACKS = {
    "kill -9, saves": killed_saves,
    "kill -9, predictions": killed_predictions,
    "kill -9, monitors": killed_monitors,
    "full disk": full_disk,
    "two writers": two_writers,
    "threads and forks": threads_and_forks,
}
