"""Measuring a contender in a process of its own, which can be stopped and whose memory
is counted.

The processes of one comparison take turns: none works while another is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import re
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hokical_paper.study.peers import LEAST, Contender
from peer_methods import LIBRARIES, METHODS

#: Most calls, and about the most seconds, behind one figure for one row.
ROW_CALLS, ROW_SECONDS = 50, 0.3
#: Least rows, and about the logits, of a fit before all others: at a million, kernels
#: are loaded.
FEW_ROWS, FEW_LOGITS = 300, 1_200_000
#: Variables that hold the libraries to a number of threads.
THREADS = (
    "HOKICAL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
Clock = Callable[[], float]
Answer = dict[str, Any]


def make_examples(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident float32 logits with a skew per class, and labels drawn for them."""
    skew = np.random.default_rng(0)
    scale, shift = skew.uniform(0.8, 1.2, n_classes), 0.5 * skew.normal(size=n_classes)
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.standard_normal((n, n_classes), dtype=np.float32)
    labels = np.argmax(logits * scale + shift + rng.gumbel(size=(n, n_classes)), axis=1)
    return 2.0 * logits, labels


def log_loss(proba: np.ndarray, labels: np.ndarray) -> float:
    """Mean log loss in nats; probabilities of 0 count as 1e-12."""
    return float(
        -np.log(np.maximum(proba[np.arange(len(labels)), labels], LEAST)).mean()
    )


class Trial:
    """A contender with its data, and the works that are measured."""

    def __init__(
        self,
        contender: Contender,
        n: int,
        n_classes: int,
        clock: Clock = time.process_time,
    ) -> None:
        self.contender, self.clock = contender, clock
        logits, self.labels = make_examples(n, n_classes, seed=1)
        self.given = contender.to_input(logits)
        fresh, self.fresh_labels = make_examples(n, n_classes, seed=2)
        self.fresh = contender.to_input(fresh)
        self.row = contender.to_input(fresh[:1])
        self.model: Any = None
        with contextlib.suppress(
            Exception
        ):  # loads what is loaded late; some classes may be missing
            few = min(n // 4, max(FEW_ROWS, FEW_LOGITS // n_classes))
            some = contender.to_input(logits[:few])
            contender.proba(contender.fit(some, self.labels[:few]), some)

    def fit(self) -> Answer:
        self.model = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            seconds, extra = cost(self._fit, self.clock)
        told = [
            str(one.message) for one in caught if "converge" in str(one.message).lower()
        ]
        return {"seconds": seconds, "megabytes": extra} | (
            {"note": "not converged"} if told else {}
        )

    def _fit(self) -> None:
        self.model = self.contender.fit(self.given, self.labels)

    def predict(self) -> Answer:
        proba: Any = None

        def answer() -> None:
            nonlocal proba
            proba = self.contender.proba(self.model, self.fresh)

        seconds, extra = cost(answer, self.clock)
        loss = None if proba is None else log_loss(np.asarray(proba), self.fresh_labels)
        return {"seconds": seconds, "megabytes": extra, "log_loss": loss}

    def one_row(self) -> Answer:
        """The median of several calls, and so not a lucky one."""
        seconds: list[float] = []
        while len(seconds) < ROW_CALLS and sum(seconds) < ROW_SECONDS:
            begun = self.clock()
            self.contender.proba(self.model, self.row)
            seconds.append(self.clock() - begun)
        return {"seconds": median(seconds)}


def cost(work: Callable[[], object], clock: Clock) -> tuple[float, float | None]:
    """Seconds, and by how many megabytes the process grew meanwhile at most."""
    gc.collect()
    before = reset_peak()
    begun = clock()
    work()
    seconds = clock() - begun
    return seconds, None if before is None else (memory("VmHWM") - before) / 1e6


def reset_peak() -> int | None:
    """Return freed memory to the system and forget the peak; the bytes in use. Linux
    only.
    """
    # Elsewhere there is no such function, and memory that was freed may hide some
    # growth.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return memory("VmRSS")
    except OSError:
        return None


def memory(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def serve(library: str, pipe: Any, wall: bool) -> None:
    """Answer tasks until the other side closes: ("open", method, n, classes),
    ("fit",), ...
    """
    warnings.simplefilter("ignore")
    with contextlib.suppress(Exception):  # the first fit will say what is wrong
        import_module(LIBRARIES[library][1])
    trial: Any = None
    while True:
        try:
            task, *given = pipe.recv()
        except EOFError:
            return
        try:
            if task == "open":
                trial = None
                method, n, n_classes = given
                clock = time.perf_counter if wall else time.process_time
                trial = Trial(METHODS[method][library], n, n_classes, clock)
                pipe.send({})
            else:
                pipe.send(getattr(trial, task)())
        except Exception as error:
            pipe.send(
                {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
            )


class Worker:
    """The other end: a process per library, started when it is asked and after it was
    stopped.

    It is stopped after `limit` seconds of CPU time, or with `wall` of the clock, for
    one task.
    """

    def __init__(self, library: str, limit: float, wall: bool = False) -> None:
        self.library, self.limit, self.wall = library, limit, wall
        self._process: Any = None
        self._pipe: Any = None

    def ask(self, *task: Any) -> Answer:
        """What came back, or {"failed": why}."""
        if self._process is None:
            self._start()
        self._pipe.send(task)
        begun = self._used()
        try:
            while not self._pipe.poll(0.2):
                if self._used() - begun > self.limit:
                    self.stop()
                    return {"failed": f"over {self.limit:.0f} s"}
            answer: Answer = self._pipe.recv()
            return answer
        except (EOFError, ConnectionResetError):
            self.stop()
            return {"failed": "the process died"}

    def _used(self) -> float:
        """Seconds of the clock that counts, the process's own where the system tells
        them.
        """
        path = Path(f"/proc/{self._process.pid}/stat")
        if self.wall or not path.exists():
            return time.perf_counter()
        fields = path.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        given = (self.library, theirs, self.wall)
        self._process = context.Process(target=serve, args=given, daemon=True)
        self._process.start()
        theirs.close()

    def stop(self) -> None:
        """End the process; the next task gets a new one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
