"""The monitor's drift test by simulation: how often it is wrong, and how soon it is right.

Confidences come from Beta(6, 1); labels are right less often than they say, by a gap.
"""

from __future__ import annotations

import time

import numpy as np

from hokical._core.bins import bin_index
from hokical.monitoring._e_process import EProcess

N_BINS, TOLERANCE = 15, 0.01


def stream(n: int, seed: int, gap: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Confidences and whether each label was right, (n,) both."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(6.0, 1.0, size=n)
    return confidence, rng.uniform(size=n) < np.clip(confidence - gap, 0.0, 1.0)


def alarm_at(confidence: np.ndarray, correct: np.ndarray, delta: float) -> float:
    """After how many examples the alarm is raised; inf if never."""
    test = EProcess.start(np.full((2, 1 + N_BINS), TOLERANCE), delta)
    test.add(confidence, correct, bin_index(confidence, N_BINS))
    return float("inf") if test.alarm is None else float(test.alarm.n)


def false_alarms(gap: float, streams: int = 300) -> float:
    return float(np.mean([alarm_at(*stream(20_000, k, gap), 0.1) < np.inf for k in range(streams)]))


def labels_needed(gap: float, calm: int, streams: int = 60) -> float:
    """Median number of labels after `calm` good ones until the gap is found."""
    found = []
    for k in range(streams):
        before, after = stream(calm, k), stream(8000, 1000 + k, gap)
        joined = (np.concatenate(parts) for parts in zip(before, after, strict=True))
        found.append(alarm_at(*joined, 0.01) - calm)
    return float(np.median(found))


def main() -> None:
    print("streams of 20,000 with a false alarm at delta 0.1, and seconds per 1e6 examples")
    for gap in (TOLERANCE, 0.0):
        begun = time.perf_counter()
        share = false_alarms(gap)
        seconds = (time.perf_counter() - begun) / (300 * 20_000) * 1e6
        print(f"gap {gap:.2f}: {share:.1%}  {seconds:.2f} s")
    print("median labels until found at delta 0.01, after 0, 5000 and 50,000 good ones")
    for gap in (0.05, 0.1):
        counts = [f"{labels_needed(gap, calm):7.0f}" for calm in (0, 5000, 50_000)]
        print(f"gap {gap:.2f}: {' '.join(counts)}")


if __name__ == "__main__":
    main()
