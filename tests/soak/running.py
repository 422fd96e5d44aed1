"""Rounds of attacks: each with its own seed, folder and time limit."""

from __future__ import annotations

import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children
from pathlib import Path

import numpy as np

Attack = Callable[[np.random.Generator, Path], str]

#: Seconds after which a round counts as hung.
LIMIT = 120


class Hung(AssertionError):
    """A round that takes too long."""


@dataclass
class Tally:
    """What came of the rounds of an attack, and the seeds of those that failed."""

    came: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def rounds(self) -> int:
        return self.came.total() + len(self.failures)


def run_round(attack: Attack, seed: int) -> str:
    """One round; whatever it raises is a failure."""
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        _limit(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        return attack(np.random.default_rng(seed), Path(folder))


def run_for(attack: Attack, seconds: float, first_seed: int) -> Tally:
    """Rounds until the time is up, at least one."""
    tally, start, seed = Tally(), time.monotonic(), first_seed
    while not tally.rounds or time.monotonic() - start < seconds:
        try:
            tally.came[run_round(attack, seed)] += 1
        except Exception as error:
            tally.failures[seed] = f"{type(error).__name__}: {error}"
        seed += 1
    tally.seconds = time.monotonic() - start
    return tally


@contextmanager
def _limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hung(f"no end after {LIMIT} seconds")

    workers = active_children()  # of others, as those that joblib keeps
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        for child in active_children():  # of a round that failed
            if child not in workers:
                child.kill()
        signal.signal(signal.SIGALRM, before)
