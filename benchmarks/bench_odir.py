"""Matrix scaling and Dirichlet calibration: time, memory, and what they are worth.

    python benchmarks/bench_odir.py [logits.npz] [--paper]

The file holds val_logits, val_labels, test_logits and test_labels; without one, 5000 x 100
examples are drawn. Each method runs in a process of its own, so that peak memory is its own. A
line gives seconds of a fit with cross-validation, that over the seconds of one softmax of the
input, peak memory in MB before and after, the penalties chosen, and log loss and accuracy on the
test examples. For 5000 x 100 on 2 cores the limits of the default search are printed beside.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from hokical_paper.odir import DirichletODIR, MatrixScalingODIR

METHODS = {kind.name: kind for kind in (MatrixScalingODIR, DirichletODIR)}
#: Seconds and MB that a default fit to 5000 x 100 on 2 cores may take.
MAX_SECONDS, MAX_MEGABYTES = 60.0, 2048.0
Data = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def drawn_examples(n: int = 5000, n_classes: int = 100) -> Data:
    """Overconfident logits that mix up some pairs of classes, and labels drawn for them."""
    rng = np.random.default_rng(0)
    logits = (
        rng.normal(size=(2 * n, n_classes))
        + 6.0 * np.eye(n_classes)[rng.integers(n_classes, size=2 * n)]
    )
    mixed = logits @ (np.eye(n_classes) + 0.1 * rng.normal(size=(n_classes, n_classes)))
    labels = np.argmax(mixed + rng.gumbel(size=mixed.shape), axis=1)
    logits = (2.0 * logits).astype(np.float32)
    return logits[:n], labels[:n], logits[n:], labels[n:]


def read_examples(path: str | None) -> Data:
    if path is None:
        return drawn_examples()
    with np.load(path) as file:
        names = ("val_logits", "val_labels", "test_logits", "test_labels")
        return tuple(file[name] for name in names)  # type: ignore[return-value]


def softmax_seconds(logits: NDArray[Any]) -> float:
    """Best of five: the least work that any calibrator has to do."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        softmax(logits.astype(np.float64), axis=1)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def score(proba: NDArray[np.float64], labels: NDArray[Any]) -> str:
    own = proba[np.arange(len(labels)), labels]
    return f"log loss {-np.log(own).mean():.4f}  accuracy {(proba.argmax(1) == labels).mean():.4f}"


def measure(name: str, lambdas: str, path: str | None) -> None:
    logits, labels, test_logits, test_labels = read_examples(path)
    floor, before = softmax_seconds(logits), peak_megabytes()
    calibrator = METHODS[name](lambdas=lambdas)
    start, cpu = time.perf_counter(), time.process_time()
    calibrator.fit(logits, labels)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = peak_megabytes()
    print(
        f"{name:9s} {lambdas:6s} {seconds:7.1f} s ({cpu:.1f} s of CPU), {seconds / floor:6.0f} x "
        f"softmax, {before:.0f} -> {peak:.0f} MB, lambda {calibrator.lambda_:.3g} mu "
        f"{calibrator.mu_:.3g}, {score(calibrator.predict_proba(test_logits), test_labels)}"
    )
    if lambdas == "quick" and logits.shape == (5000, 100):
        print(
            f"{'':16s} {'within' if seconds <= MAX_SECONDS else 'ABOVE'} {MAX_SECONDS:.0f} s, "
            f"{'within' if peak <= MAX_MEGABYTES else 'ABOVE'} {MAX_MEGABYTES:.0f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logits", nargs="?", help="an .npz file of validation and test logits")
    parser.add_argument("--paper", action="store_true", help="the paper's grid as well")
    options = parser.parse_args()
    _, _, test_logits, test_labels = read_examples(options.logits)
    print(f"uncalibrated: {score(softmax(test_logits.astype(np.float64), axis=1), test_labels)}")
    fresh = multiprocessing.get_context("spawn")
    for lambdas in ("quick", "paper") if options.paper else ("quick",):
        for name in METHODS:
            process = fresh.Process(target=measure, args=(name, lambdas, options.logits))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{name} failed.")


if __name__ == "__main__":
    main()
