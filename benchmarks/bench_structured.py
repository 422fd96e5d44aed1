"""Fit time of structured scaling against probmetrics' SMS (5000 x 100) and SVS (25,000 x 1000).

Ratios above 1 mean that `structured` is faster, by the clock and by CPU time, which a busy machine
changes less. Both fit the same synthetic logits, in one process after a small warm-up. probmetrics
is optional; without it our own times are printed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import softmax

from hokical import make

#: Peer, rows, classes, and the ratio to reach.
CASES = (("sms", 5000, 100, 3.0), ("svs", 25_000, 1000, 1.0))


def examples(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an overconfident classifier, and true classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(n_classes, size=n)
    logits = rng.normal(size=(n, n_classes))
    logits[np.arange(n), labels] += 4.0
    return 2.0 * logits, labels


def seconds(work: Callable[[], Any]) -> np.ndarray:
    """By the clock, and of CPU."""
    start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work()
    return np.array([time.perf_counter(), time.process_time()]) - start


def get_peer(name: str) -> Any:
    """A calibrator of probmetrics, or None if it is not installed."""
    try:
        from probmetrics.calibrators import get_calibrator
    except ImportError:
        return None
    return get_calibrator(name)


def measure(peer: str, n: int, n_classes: int, wanted: float) -> None:
    logits, labels = examples(n, n_classes)
    cross = peer == "sms"
    make("structured", cross=cross).fit(logits[:500], labels[:500])  # compiles what is compiled
    ours = seconds(lambda: make("structured", cross=cross).fit(logits, labels))
    line = f"{n} x {n_classes}, cross={cross}: structured {ours[0]:.2f} s ({ours[1]:.2f} s of CPU)"
    calibrator = get_peer(peer)
    if calibrator is None:
        print(f"{line}; probmetrics is not installed")
        return
    proba = softmax(logits, axis=1)
    theirs = seconds(lambda: calibrator.fit(proba, labels))
    clock, cpu = theirs / ours
    print(f"{line}, {peer} {theirs[0]:.2f} s ({theirs[1]:.2f} s of CPU)")
    verdict = "reached" if min(clock, cpu) >= wanted else "NOT reached"
    print(f"    {clock:.1f} x as fast, {cpu:.1f} x by CPU ({wanted:g} x {verdict})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1.0, help="share of the rows, to try it out")
    options = parser.parse_args()
    for peer, n, n_classes, wanted in CASES:
        measure(peer, max(500, int(n * options.rows)), n_classes, wanted)


if __name__ == "__main__":
    main()
