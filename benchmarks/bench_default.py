"""How often the default changes a classifier that is calibrated already, and what a fit takes.

    python benchmarks/bench_default.py [seeds]
    python benchmarks/bench_default.py --cost

Labels are drawn from the softmax of the logits, so every change is for the worse. `--cost` gives
the CPU time of a fit on one thread, in fits of temperature scaling.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import numpy as np

from bench_core import best_in_turns, large_logits
from hokical import AutoCalibrator
from hokical._core.parallel import threads
from hokical.calibrators import make

SIZES = ((2, 50), (2, 200), (2, 1000), (5, 200), (10, 500))
N_TEST = 5000
#: Rows, classes, rounds, and the most fits of temperature scaling that a fit should take.
COSTS = ((5000, 10, 7, 20), (25_000, 1000, 1, 15))


def draw(n: int, n_classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    logits = 2.0 * rng.normal(size=(n, n_classes))
    return logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def main(seeds: int) -> None:
    print("| classes | examples | changed | mean harm, nats | worst |\n|--:|--:|--:|--:|--:|")
    for n_classes, n in SIZES:
        changed, harm = [], []
        for seed in range(seeds):
            rng = np.random.default_rng([seed, n_classes, n])
            cal = AutoCalibrator().fit(*draw(n, n_classes, rng))
            fresh, _ = draw(N_TEST, n_classes, rng)
            truth = make("uncalibrated").fit(fresh, np.zeros(N_TEST, int)).predict_proba(fresh)
            gap = np.sum(truth * np.log(truth / cal.predict_proba(fresh)), axis=1).mean()
            changed.append(cal.chosen_ != "uncalibrated")
            harm.append(gap)
        share, mean, worst = np.mean(changed), np.mean(harm), np.max(harm)
        print(f"| {n_classes} | {n} | {share:.0%} | {mean:.4f} | {worst:.4f} |", flush=True)


def tell_cost() -> None:
    for n, n_classes, rounds, wanted in COSTS:
        logits, labels = large_logits(n, n_classes)
        works = {
            name: partial(make(name).fit, logits, labels)
            for name in ("temps", "profile", "structured", "auto")
        }
        works["temps"]()  # compiles what is compiled
        with threads(1):
            seconds = best_in_turns(works, rounds, time.process_time)
        base = seconds.pop("temps")
        ratios = ", ".join(f"{name} {value / base:.1f}" for name, value in seconds.items())
        print(
            f"{n} x {n_classes}, in temps of {base * 1e3:.1f} ms: {ratios} ({wanted})", flush=True
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--cost"]:
        tell_cost()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
