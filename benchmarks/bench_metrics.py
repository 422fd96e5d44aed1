"""How fast the metrics are, as ratios within one run; `--coverage` simulates the intervals.

    python benchmarks/bench_metrics.py [--coverage]

Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from hokical import metrics
from hokical._core.bins import bin_index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coverage", action="store_true", help="simulate interval coverage")
    if parser.parse_args().coverage:
        simulate_coverage()
        return
    compare_ece()
    compare_smooth()
    compare_summary()


def compare_ece(n: int = 10_000) -> None:
    confidence, correct = model(n)
    ours = best(lambda: metrics.ece(confidence, correct))
    print(f"ece of {n} examples: {1e3 * ours:.2f} ms")
    show("plain float sums", best(lambda: plain_ece(confidence, correct)), ours)
    torch = load("torch")
    functional = load("torchmetrics.functional.classification")
    if torch and functional:
        pair = torch.tensor(confidence), torch.tensor(correct.astype(int))
        show("torchmetrics", best(lambda: functional.binary_calibration_error(*pair)), ours)
    netcal = load("netcal.metrics")
    if netcal:
        whole = correct.astype(int)
        show("netcal", best(lambda: netcal.ECE(15).measure(confidence, whole)), ours)


def compare_smooth(n: int = 10_000) -> None:
    confidence, correct = model(n)
    ours = best(lambda: metrics.smooth_ece(confidence, correct))
    print(f"smooth_ece of {n} examples: {1e3 * ours:.2f} ms")
    relplot = load("relplot")
    if relplot:
        whole = correct.astype(float)
        show("relplot", best(lambda: relplot.smECE(confidence, whole)), ours)


def compare_summary(n: int = 10_000, n_resamples: int = 1000, tried: int = 20) -> None:
    confidence, correct = model(n)
    ours = best(lambda: metrics.summary(confidence, correct, n_resamples=n_resamples), repeats=3)
    print(f"summary of {n} examples, {n_resamples} resamples: {ours:.2f} s")
    loop = best(lambda: naive_resamples(confidence, correct, tried), repeats=1)
    show("a loop over the functions", loop * n_resamples / tried, ours)
    few = best(lambda: metrics.summary(confidence, correct, n_resamples=100), repeats=3)
    wide = model(10 * n)
    many = best(lambda: metrics.summary(*wide, n_resamples=100), repeats=1)
    show("ten times the examples (100 resamples)", many, few)


def plain_ece(confidence: np.ndarray, correct: np.ndarray, n_bins: int = 15) -> float:
    """The same number without exact sums or checks."""
    gap = np.bincount(bin_index(confidence, n_bins), correct - confidence, n_bins)
    return float(np.abs(gap).sum() / confidence.shape[0])


def naive_resamples(confidence: np.ndarray, correct: np.ndarray, tried: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(tried):
        rows = rng.integers(confidence.shape[0], size=confidence.shape[0])
        metrics.summary(confidence[rows], correct[rows], n_resamples=0)


def simulate_coverage(n: int = 2000, trials: int = 200, n_resamples: int = 300) -> None:
    """How often 95 % intervals hold the true ECE of a model that says `shift` too much."""
    print("true ECE   held")
    for shift in (0.0, 0.01, 0.03, 0.08):
        held = 0
        for trial in range(trials):
            rng = np.random.default_rng([trial, int(1000 * shift)])
            confidence = rng.beta(4.0, 1.0, size=n)
            correct = rng.uniform(size=n) < confidence - shift
            found = metrics.summary(
                confidence, correct, n_resamples=n_resamples, random_state=trial
            )["ece"]
            held += found.low <= shift <= found.high
        print(f"{shift:8.2f}   {held / trials:4.0%}")


def model(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    confidence = 1.0 - rng.beta(0.7, 4.0, size=n)
    return confidence, rng.uniform(size=n) < confidence**1.5


def load(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        return None


def best(work: Callable[[], object], repeats: int = 7) -> float:
    """Seconds of the fastest run, after one to warm up where runs are short."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def show(name: str, seconds: float, ours: float) -> None:
    print(f"  {name}: {seconds / ours:.2f} times ours")


if __name__ == "__main__":
    main()
