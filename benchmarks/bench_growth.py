"""Time and memory of every method against rows and classes, and where growth stops being linear.

    python benchmarks/bench_growth.py             # up to 1e5 rows and 1000 classes: minutes
    python benchmarks/bench_growth.py --large     # up to 1e7 rows and 128,000 classes
    python benchmarks/bench_growth.py hoki temps  # some methods

A cell is seconds of CPU time on one thread, which a busy machine changes little, and in brackets
the peak megabytes beyond the input. `*` marks a step that costs over 1.5 times what linear growth
would. A size that would take longer than the limit is left out: `-`. `x` marks a size that the
method refuses, as binary methods refuse many classes; by rows, these are given two.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np

from hokical import make, threads
from hokical.calibrators import method_names

ROWS, MANY_ROWS = (1000, 10_000, 100_000), (1000, 10_000, 100_000, 1_000_000, 10_000_000)
CLASSES, MANY_CLASSES = (2, 10, 100, 1000), (2, 10, 100, 1000, 10_000, 128_000)
FEW_ROWS, FEW_CLASSES = 1000, 10
NOT_LINEAR = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=[])
    parser.add_argument("--large", action="store_true", help="larger sizes, a minute a cell")
    options = parser.parse_args()
    methods = options.methods or [name for name in method_names(2) if name != "uncalibrated"]
    limit = 60.0 if options.large else 2.0
    warnings.simplefilter("ignore")
    many = MANY_ROWS if options.large else ROWS
    with threads(1):
        table(methods, [(n, FEW_CLASSES) for n in many], f"rows of {FEW_CLASSES} classes", 0, limit)
        many = MANY_CLASSES if options.large else CLASSES
        table(methods, [(FEW_ROWS, c) for c in many], f"classes, {FEW_ROWS} rows", 1, limit)


def table(
    methods: list[str], sizes: list[tuple[int, int]], title: str, axis: int, limit: float
) -> None:
    heads = "".join(f" {size[axis]:,} |" for size in sizes)
    print(f"\n| method, by {title} |{heads}\n|---|{'--:|' * len(sizes)}")
    for name in methods:
        binary = axis == 0 and make(name).method.binary_only
        fits, answers = measure(name, [(n, 2 if binary else c) for n, c in sizes], limit)
        print(
            f"| {name}, fit |{''.join(fits)}\n| {name}, predict_proba |{''.join(answers)}",
            flush=True,
        )


def measure(name: str, sizes: list[tuple[int, int]], limit: float) -> tuple[list[str], list[str]]:
    """Cells of a fit and of its probabilities for growing sizes."""
    steps: dict[str, list[tuple[int, float]]] = {"fit": [], "predict": []}
    cells: dict[str, list[str]] = {"fit": [], "predict": []}
    for n, c in sizes:
        known = steps["fit"] + steps["predict"]
        if known and max(s * n * c / size for size, s in known[-2:] + steps["fit"][-1:]) > limit:
            for row in cells.values():
                row.append(" - |")
            continue
        logits, labels = make_examples(n, c)
        try:
            calibrator = make(name).fit(logits, labels)
        except (ValueError, TypeError):
            for row in cells.values():
                row.append(" x |")
            continue
        works = {
            "fit": partial(lambda data: make(name).fit(*data), (logits, labels)),
            "predict": partial(calibrator.predict_proba, logits),
        }
        for kind, work in works.items():
            seconds, extra = cost(work)
            steps[kind].append((n * c, seconds))
            cells[kind].append(f" {seconds:.2g} s{mark(steps[kind])} ({extra / 1e6:.1f}) |")
    return cells["fit"], cells["predict"]


def mark(steps: list[tuple[int, float]]) -> str:
    """A star where the last step costs clearly more than linear growth, beyond a millisecond."""
    if len(steps) < 2 or steps[-1][1] < 0.005:
        return ""
    (small, before), (large, after) = steps[-2:]
    return "*" if after / before > NOT_LINEAR * large / small else ""


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, the better of two, and peak bytes, in a run of its own as counting takes time."""
    seconds: list[float] = []
    while len(seconds) < 2 and sum(seconds) < 5.0:
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    tracemalloc.start()
    work()
    extra = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), extra


def make_examples(n: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident float32 logits."""
    rng = np.random.default_rng(0)
    labels = rng.integers(c, size=n)
    logits = 2.0 * rng.standard_normal((n, c), dtype=np.float32)
    logits[np.arange(n), labels] += 5.0
    return logits, labels


if __name__ == "__main__":
    main()
