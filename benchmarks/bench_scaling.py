"""Scaling methods against their peers, side by side in one run.

    python benchmarks/bench_scaling.py

Prints one line per case: our best time, the peer's best time, and the ratio. Peers that are not
installed are named and skipped.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators._ets import EnsembleTemperatureScaling
from hokical.calibrators._temps import TemperatureScaling
from hokical.calibrators._vecs import VectorScaling

Fit = Callable[[NDArray[Any], NDArray[Any]], Any]


@dataclass(frozen=True)
class Case:
    """A method on logits of a shape, against a peer, and the ratio that it promises."""

    name: str
    shape: tuple[int, int]
    ours: Fit
    peer: Fit
    from_probabilities: bool
    wanted: float
    repeats: int = 3


def examples(shape: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Overconfident float32 logits with a skew per class, and labels drawn for them."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=shape).astype(np.float32) * 2.0
    skewed = logits * rng.uniform(0.8, 1.2, shape[1]) + 0.5 * rng.normal(size=shape[1])
    labels = np.argmax(skewed + rng.gumbel(size=shape), axis=1)
    return 2.0 * logits, labels


def best_times(case: Case) -> tuple[float, float]:
    """Best wall time of each, taking turns so that both see the same machine."""
    logits, labels = examples(case.shape)
    theirs: NDArray[Any] = logits
    if case.from_probabilities:
        theirs = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        theirs /= theirs.sum(axis=1, keepdims=True)
    case.ours(logits, labels)  # compiles, and fills caches
    ours_s, peer_s = [], []
    for _ in range(case.repeats):
        ours_s.append(_seconds(case.ours, logits, labels))
        peer_s.append(_seconds(case.peer, theirs, labels))
    return min(ours_s), min(peer_s)


def cases() -> list[Case]:
    """All cases whose peers are installed."""
    found: list[Case] = []
    try:
        from sklearn.calibration import _TemperatureScaling
    except ImportError:
        print("scikit-learn's temperature scaling (1.8 and later): not installed, skipped")
    else:

        def sklearn_temps(x: Any, y: Any) -> Any:
            return _TemperatureScaling().fit(x, y)

        found += [
            Case("temps", (25_000, 1000), TemperatureScaling().fit, sklearn_temps, False, 5.0, 2),
            Case("temps", (5000, 100), TemperatureScaling().fit, sklearn_temps, False, 1.0),
            Case("temps", (5000, 10), TemperatureScaling().fit, sklearn_temps, False, 1.0, 9),
        ]
    try:
        from probmetrics.calibrators.logistic import VectorScalingCalibrator
        from probmetrics.calibrators.temperature_scaling import ETSCalibrator
    except ImportError:
        print("probmetrics: not installed, skipped")
        return found
    size = (5000, 100)
    return [
        *found,
        Case("vecs", size, VectorScaling().fit, VectorScalingCalibrator().fit, True, 3.0),
        Case(
            "ets",
            size,
            EnsembleTemperatureScaling().fit,
            ETSCalibrator(loss="mse").fit,
            True,
            3.0,
            5,
        ),
    ]


def main() -> None:
    warnings.simplefilter("ignore")
    print(f"{'method':<9}{'shape':>14}{'ours s':>10}{'peer s':>10}{'ratio':>8}{'wanted':>8}")
    for case in cases():
        ours, peer = best_times(case)
        shape = f"{case.shape[0]}x{case.shape[1]}"
        print(
            f"{case.name:<9}{shape:>14}{ours:>10.4f}{peer:>10.4f}{peer / ours:>8.1f}"
            f"{case.wanted:>8.1f}"
        )


def _seconds(fit: Fit, logits: NDArray[Any], labels: NDArray[Any]) -> float:
    start = time.perf_counter()
    fit(logits, labels)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
