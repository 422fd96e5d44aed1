"""What a fit and a prediction of the default cost, relative to temperature scaling.

    python benchmarks/bench_default.py [--predictions] [--first] [--groups]

`--predictions` leaves out the fits; `softmax` is NumPy's. In "uneven" logits some rows
are many times as sure as others: no temperature fits them, so every part of the default
is at work. `--first` measures instead the CPU seconds of the first fit and prediction
of a process that has no compiled kernels on disk. `--groups` measures fits with
thousands of groups in fits without any.

CPU time on one thread. What it loses on calibrated classifiers: `hokical paper study
--calibrated`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from tempfile import TemporaryDirectory

import numpy as np

from bench_core import best_in_turns, large_logits, numpy_softmax
from hokical import auto, calibrate_confidence
from hokical._core.runtime import threads
from hokical.calibrators import make

#: Rows, classes, rounds, and how many of temperature scaling a fit and a prediction may
#: cost.
COSTS = ((5000, 10, 7, 12, 4), (5000, 100, 3, 10, 4), (25_000, 1000, 1, 6, 4))
METHODS = ("temps", "adaptive", "structured", "auto")
#: Predictions are quick, and other programs are about: the best of many.
PREDICTIONS = 10
#: Method, rows, classes, and the CPU seconds of a first fit and prediction.
FIRST = (("auto", 2000, 10, 2.5), ("auto", 2000, 100, 4.0), ("auto", 4000, 1000, 8.0))
FIRST += (("temps", 2000, 100, 3.0), ("hoki", 2000, 100, 3.0))


def main() -> None:
    if "--first" in sys.argv[1:]:
        report_first()
        return
    if "--groups" in sys.argv[1:]:
        report_groups()
        return
    only_predictions = "--predictions" in sys.argv[1:]
    for (n, n_classes, rounds, most_fits, most), uneven in product(
        COSTS, (False, True)
    ):
        logits, labels = large_logits(n, n_classes)
        if uneven:
            logits *= (
                np.random.default_rng(1).lognormal(0.0, 0.5, (n, 1)).astype(np.float32)
            )
        fitted = {
            name: make(name).fit(logits, labels) for name in METHODS
        }  # compiles, too
        size = f"{n} x {n_classes}" + ", uneven" * uneven
        if not only_predictions:
            fits = {name: partial(make(name).fit, logits, labels) for name in METHODS}
            report(f"fit, {size}", fits, rounds, most_fits)
        for what, rows in ((size, logits), (size.replace(str(n), "1", 1), logits[:1])):
            works = {
                name: partial(fitted[name].predict_proba, rows) for name in METHODS
            }
            works["softmax"] = partial(numpy_softmax, rows)
            turns = PREDICTIONS * (200 if len(rows) == 1 else rounds)
            report(f"predict_proba, {what}", works, turns, most)


def report(
    title: str, works: dict[str, Callable[[], object]], rounds: int, most: int
) -> None:
    """One line: each work relative to temperature scaling, and what the default may
    cost.
    """
    with threads(1):
        seconds = best_in_turns(works, rounds, time.process_time)
    base = seconds.pop("temps")
    ratios = ", ".join(f"{name} {value / base:.1f}" for name, value in seconds.items())
    print(f"{title}, in temps of {base * 1e3:.3g} ms: {ratios} ({most})", flush=True)


def report_groups() -> None:
    """CPU time of fits with ids, and with ids and 5 topics, in fits without groups."""
    for n, n_ids in product((10_000, 30_000), (600, 3000, 10_000)):
        rng = np.random.default_rng(0)
        ids, topics = rng.integers(0, n_ids, n), rng.integers(0, 5, n)
        effects = rng.normal(0.0, 0.7, n_ids)[ids] + rng.normal(0.0, 0.5, 5)[topics]
        one, two = ids.astype(str), {"id": ids.astype(str), "topic": topics.astype(str)}
        odds = rng.logistic(size=n)
        right = rng.logistic(size=n) < 0.5 * odds + effects
        stated = 1.0 / (1.0 + np.exp(-odds))
        logits, labels = large_logits(n, 10)
        fits: dict[str, dict[str, Callable[[], object]]] = {
            "confidences": {
                "without": partial(calibrate_confidence, stated, right),
                "ids": partial(calibrate_confidence, stated, right, groups=one),
                "ids and topics": partial(
                    calibrate_confidence, stated, right, groups=two
                ),
            },
            "rounded confidences": {
                "without": partial(calibrate_confidence, stated.round(1), right),
                "ids": partial(
                    calibrate_confidence, stated.round(1), right, groups=one
                ),
                "ids and topics": partial(
                    calibrate_confidence, stated.round(1), right, groups=two
                ),
            },
            "auto": {
                "without": partial(auto, logits, labels),
                "ids": partial(auto, logits, labels, groups=one),
                "ids and topics": partial(auto, logits, labels, groups=two),
            },
        }
        for name, works in fits.items():
            with threads(1):
                seconds = best_in_turns(works, 3, time.process_time)
            base = seconds.pop("without")
            ratios = ", ".join(
                f"{key} {value / base:.1f}" for key, value in seconds.items()
            )
            print(
                f"{name}, {n} rows, {n_ids} ids, in {base * 1e3:.3g} ms: {ratios} (3)",
                flush=True,
            )


def report_first() -> None:
    """CPU seconds of a first fit and prediction, each in a process without kernels
    on disk.
    """
    for method, n, n_classes, most in FIRST:
        with TemporaryDirectory() as empty:
            seconds = subprocess.run(
                [sys.executable, __file__, "--child", method, str(n), str(n_classes)],
                env=os.environ | {"NUMBA_CACHE_DIR": empty},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        print(
            f"first {method}, {n} x {n_classes}: {float(seconds):.2f} s of CPU ({most})"
        )


def run_first(method: str, n: int, n_classes: int) -> None:
    """Print the CPU seconds of a fit and a prediction in this process."""
    logits, labels = large_logits(n, n_classes)
    start = time.process_time()
    make(method).fit(logits, labels).predict_proba(logits)
    print(time.process_time() - start)


if __name__ == "__main__":
    if "--child" in sys.argv[1:]:
        run_first(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
