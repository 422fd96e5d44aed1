"""How often the default changes a classifier that is calibrated already, and what that costs.

    python benchmarks/bench_default.py [seeds]

Labels are drawn from the softmax of the logits, so every change is for the worse.
"""

from __future__ import annotations

import sys

import numpy as np

from hokical import AutoCalibrator
from hokical.calibrators import make

SIZES = ((2, 50), (2, 200), (2, 1000), (5, 200), (10, 500))
N_TEST = 5000


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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
