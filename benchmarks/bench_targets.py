"""The targets of speed on a CPU, each a ratio within this run.

    python benchmarks/bench_targets.py [--write] [--wall] [--only fit predict ...]

Fits of the default in those of probmetrics' structured scaling (SMS), predictions and
`evaluate` in float64 softmaxes of NumPy's of the same rows, what one row takes beyond a
row of temperature scaling, and a fresh process in imports of NumPy. In CPU time of one
thread, in turns: the ratio of the least times, and the median of the ratios of all
rounds. "plain" logits are calibrated by a temperature; of "uneven" ones, some rows are
many times as sure as others, and every part of the default is at work.

`--wall` takes the clock on the wall and all threads, for an idle machine; `--write`
renews the table in `benchmarks/README.md`.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench_core import large_logits, numpy_softmax
from bench_growth import uneven_logits
from bench_small import start_up_works
from hokical import Hoki, auto, evaluate, make
from hokical._core.runtime import threads
from hokical_paper.study.peers import PEERS
from peer_page import put_block
from peer_worker import log_loss

PAGE = Path(__file__).with_name("README.md")
KINDS = {"plain": large_logits, "uneven": uneven_logits}
#: Rows, classes, rounds and target.
FITS = ((1000, 2, 21, 0.7), (5000, 10, 11, 0.7), (5000, 100, 7, 0.7))
PREDICTIONS = ((5000, 10, 101, 2.0), (5000, 100, 41, 1.0), (25_000, 1000, 5, 0.6))
HOKI = ((5000, 10, 31, 8.0), (5000, 100, 15, 4.0), (25_000, 1000, 3, 4.0))
ROWS = ((10, 1001, 100.0), (100, 1001, 100.0))
EVALUATED = (50_000, 1000, 3, 12.0)
START = (7, 3.0)
#: Rows that the calibrator of `evaluate` is fitted on.
FEW = 5000
#: Bytes that are freed first: the allocator then keeps what either side frees, where
#: pages that the system hands out anew would take as long as the work.
KEPT = 1 << 25

Work = Callable[[], object]
Clock = Callable[[], float]


class Line(NamedTuple):
    """A line of the table: a ratio by least times, the median of ratios, the target."""

    work: str
    size: str
    kind: str
    best: float
    median: float
    target: float
    note: str = ""

    def __str__(self) -> str:
        best, median = (f"{value:.3g}" for value in (self.best, self.median))
        if self.best > self.target:
            best = f"**{best}**"
        cells = (self.work, self.size, self.kind, best, median, f"{self.target:g}")
        return f"| {' | '.join((*cells, self.note))} |"


def fits(clock: Clock) -> Iterator[Line]:
    for n, n_classes, rounds, target in FITS:
        for kind, make_logits in KINDS.items():
            logits, labels = make_logits(2 * n, n_classes)
            sms = PEERS["probmetrics:sms"]
            given, fresh = map(sms.to_input, (logits[:n], logits[n:]))
            works = {
                "auto": partial(auto, logits[:n], labels[:n]),
                "SMS": partial(sms.fit, given, labels[:n]),
            }
            ours = log_loss(works["auto"]().predict_proba(logits[n:]), labels[n:])
            theirs = log_loss(sms.proba(works["SMS"](), fresh), labels[n:])
            note = f"log loss {ours:.4f}, SMS {theirs:.4f}"
            ratios = in_turns(works, rounds, clock)
            yield Line("fit, in SMS", size(n, n_classes), kind, *ratios, target, note)


def predictions(clock: Clock) -> Iterator[Line]:
    for title, method, sizes in (
        ("`predict_proba` of `auto`", make("auto"), PREDICTIONS),
        ("`predict_proba` of `Hoki`", Hoki(), HOKI),
    ):
        for n, n_classes, rounds, target in sizes:
            for kind, make_logits in KINDS.items():
                logits, labels = make_logits(n, n_classes)
                works = {
                    "ours": partial(method.fit(logits, labels).predict_proba, logits),
                    "softmax": partial(numpy_softmax, logits.astype(np.float64)),
                }
                ratios = in_turns(works, rounds, clock)
                place = size(n, n_classes)
                yield Line(f"{title}, in softmaxes", place, kind, *ratios, target)


def single_rows(clock: Clock) -> Iterator[Line]:
    """Microseconds of one row of the default beyond one of temperature scaling."""
    for n_classes, rounds, target in ROWS:
        for kind, make_logits in KINDS.items():
            logits, labels = make_logits(5000, n_classes)
            works = {
                name: partial(make(name).fit(logits, labels).predict_proba, logits[:1])
                for name in ("auto", "temps")
            }
            auto_s, temps_s = 1e6 * seconds_in_turns(works, rounds, clock)
            extra = auto_s.min() - temps_s.min(), float(np.median(auto_s - temps_s))
            note = f"`temps` {temps_s.min():.0f}"
            title = "one row of `auto` beyond `temps`, µs"
            yield Line(title, size(1, n_classes), kind, *extra, target, note)


def evaluations(clock: Clock) -> Iterator[Line]:
    n, n_classes, rounds, target = EVALUATED
    for kind, make_logits in KINDS.items():
        logits, labels = make_logits(n + FEW, n_classes)
        cal = auto(logits[:FEW], labels[:FEW])
        logits = logits[FEW:].astype(np.float64)
        works = {
            "ours": partial(evaluate, cal, logits, labels[FEW:]),
            "softmax": partial(numpy_softmax, logits),
        }
        ratios = in_turns(works, rounds, clock)
        place = size(n, n_classes)
        yield Line("`evaluate` of `auto`, in softmaxes", place, kind, *ratios, target)


def fresh_processes(clock: Clock) -> Iterator[Line]:
    """Loading a file and answering, in a new process."""
    rounds, target = START
    children = children_time if clock is time.process_time else clock
    with tempfile.TemporaryDirectory() as folder:
        works = start_up_works(folder)
        base = works["import numpy"]
        for name in ("temps", "auto"):
            pair = {"load": works[name], "numpy": base}
            ratios = in_turns(pair, rounds, children)
            title = "fresh process, in imports of NumPy"
            yield Line(title, "500 x 10", f"`{name}`", *ratios, target)


PARTS: dict[str, Callable[[Clock], Iterator[Line]]] = {
    "fit": fits,
    "predict": predictions,
    "row": single_rows,
    "evaluate": evaluations,
    "start": fresh_processes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the README")
    parser.add_argument("--wall", action="store_true", help="all threads, wall clock")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    options = parser.parse_args()
    np.ones(KEPT, np.uint8)
    with ExitStack() as limits, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not options.wall:
            limit_threads(limits)
        clock = time.perf_counter if options.wall else time.process_time
        table = "\n".join(lines(options.only, clock))
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(put_block(text, "targets", table), encoding="utf-8")


def limit_threads(limits: ExitStack) -> None:
    """One thread here, in BLAS and in the peer's PyTorch."""
    import torch

    torch.set_num_threads(1)
    limits.enter_context(threads(1))
    limits.enter_context(threadpool_limits(1))


def lines(parts: list[str], clock: Clock) -> Iterator[str]:
    """The lines of the table, printed as they are ready."""
    titles = "| what | size | logits | ratio | median | target | |"
    measured = (str(line) for part in parts for line in PARTS[part](clock))
    for line in chain((titles, "|---|---|---|--:|--:|--:|---|"), measured):
        print(line, flush=True)
        yield line


def in_turns(works: dict[str, Work], rounds: int, clock: Clock) -> tuple[float, float]:
    """The first work in units of the second: the ratio of the least times, and the
    median of the ratios of all rounds.
    """
    first, second = seconds_in_turns(works, rounds, clock)
    return float(first.min() / second.min()), float(np.median(first / second))


def seconds_in_turns(works: dict[str, Work], rounds: int, clock: Clock) -> np.ndarray:
    """Seconds (works, rounds) of works in turns, after one round that loads."""
    seconds = np.empty((len(works), rounds + 1))
    for turn in range(rounds + 1):
        for place, work in enumerate(works.values()):
            begun = clock()
            work()
            seconds[place, turn] = clock() - begun
    return seconds[:, 1:]


def children_time() -> float:
    """CPU seconds of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size(n: int, n_classes: int) -> str:
    return f"{n:,} x {n_classes:,}"


if __name__ == "__main__":
    main()
