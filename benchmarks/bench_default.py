"""What a fit of the default and an answer take, in those of temperature scaling.

    python benchmarks/bench_default.py

CPU time on one thread. What it loses on calibrated classifiers: `hokical paper study --calibrated`.
"""

from __future__ import annotations

import time
from functools import partial

from bench_core import best_in_turns, large_logits
from hokical._core.parallel import threads
from hokical.calibrators import make

#: Rows, classes, rounds, and how many of temperature scaling a fit and an answer may take.
COSTS = ((5000, 10, 7, 15, 6), (5000, 100, 3, 15, 6), (25_000, 1000, 1, 8, 4))
METHODS = ("temps", "profile", "structured", "auto")


def main() -> None:
    for n, n_classes, rounds, most_fits, most_answers in COSTS:
        logits, labels = large_logits(n, n_classes)
        fitted = {name: make(name).fit(logits, labels) for name in METHODS}  # compiles, too
        fits = {name: partial(make(name).fit, logits, labels) for name in METHODS}
        answers = {name: partial(fitted[name].predict_proba, logits) for name in METHODS}
        for what, works, wanted in (("fit", fits, most_fits), ("answer", answers, most_answers)):
            with threads(1):
                seconds = best_in_turns(works, rounds, time.process_time)
            base = seconds.pop("temps")
            ratios = ", ".join(f"{name} {value / base:.1f}" for name, value in seconds.items())
            size = f"{n} x {n_classes}"
            print(
                f"{what}, {size}, in temps of {base * 1e3:.1f} ms: {ratios} ({wanted})", flush=True
            )


if __name__ == "__main__":
    main()
