"""What a fit of the default and an answer take, in those of temperature scaling.

    python benchmarks/bench_default.py [--answers]

The second leaves out the fits; `softmax` is NumPy's. Of "uneven" logits some rows are many times
as sure as others: no temperature fits them, so the default has structured scaling in its answers,
which takes longest.

CPU time on one thread. What it loses on calibrated classifiers: `hokical paper study --calibrated`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from bench_core import best_in_turns, large_logits, numpy_softmax
from hokical._core.parallel import threads
from hokical.calibrators import make

#: Rows, classes, rounds, and how many of temperature scaling a fit and an answer may take.
COSTS = ((5000, 10, 7, 15, 6), (5000, 100, 3, 15, 6), (25_000, 1000, 1, 8, 4))
METHODS = ("temps", "structured", "auto")
#: Answers are quick, and other programs are about: the best of many.
ANSWERS = 10


def main() -> None:
    only_answers = "--answers" in sys.argv[1:]
    for (n, n_classes, rounds, most_fits, most_answers), uneven in product(COSTS, (False, True)):
        logits, labels = large_logits(n, n_classes)
        if uneven:
            logits *= np.random.default_rng(1).lognormal(0.0, 0.5, (n, 1)).astype(np.float32)
        fitted = {name: make(name).fit(logits, labels) for name in METHODS}  # compiles, too
        size = f"{n} x {n_classes}" + ", uneven" * uneven
        if not only_answers:
            fits = {name: partial(make(name).fit, logits, labels) for name in METHODS}
            report(f"fit, {size}", fits, rounds, most_fits)
        for what, rows in ((size, logits), (size.replace(str(n), "1", 1), logits[:1])):
            answers = {name: partial(fitted[name].predict_proba, rows) for name in METHODS}
            answers["softmax"] = partial(numpy_softmax, rows)
            turns = ANSWERS * (200 if len(rows) == 1 else rounds)
            report(f"answer, {what}", answers, turns, 5 if len(rows) == 1 else most_answers)


def report(title: str, works: dict[str, Callable[[], object]], rounds: int, most: int) -> None:
    """One line: each work in those of temperature scaling, and what the default may take."""
    with threads(1):
        seconds = best_in_turns(works, rounds, time.process_time)
    base = seconds.pop("temps")
    ratios = ", ".join(f"{name} {value / base:.1f}" for name, value in seconds.items())
    print(f"{title}, in temps of {base * 1e3:.3g} ms: {ratios} ({most})", flush=True)


if __name__ == "__main__":
    main()
