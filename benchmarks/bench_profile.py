"""The stability profile at 25,000 x 1000 float32: in stability passes, and in NumPy softmaxes.

python benchmarks/bench_profile.py
"""

from __future__ import annotations

import numpy as np

from bench_core import best_in_turns, large_logits, numpy_softmax
from hokical import label_stability
from hokical.calibrators._profile import StabilityProfile
from hokical.calibrators._temps import TemperatureScaling
from hokical.stability._noise import Gaussian

N, C = 25_000, 1000


def main() -> None:
    logits, labels = large_logits(N, C)
    fitted = StabilityProfile().fit(logits, labels)  # compiles what there is to compile
    print(f"fitted on {N} x {C}: {fitted.message_}")
    compare_large(logits, labels, fitted)
    print("\nmicroseconds per example, fit and predict_confidence")
    for n, c in ((1000, 10), (100_000, 10), (10_000, 100), (1000, 20_000)):
        compare_growth(*large_logits(n, c))
    compare_map()
    compare_module()


def compare_large(logits: np.ndarray, labels: np.ndarray, fitted: StabilityProfile) -> None:
    """Taking turns, so that all see the same machine."""
    seconds = best_in_turns(
        {
            "NumPy softmax": lambda: numpy_softmax(logits),
            "stability pass": lambda: label_stability(logits, Gaussian(2.0)),
            "temps fit": lambda: TemperatureScaling().fit(logits, labels),
            "profile fit": lambda: StabilityProfile().fit(logits, labels),
            "profile predict_confidence": lambda: fitted.predict_confidence(logits),
        },
        times=5,
    )
    print(f"{'':28s} {'seconds':>8s} {'passes':>8s} {'softmaxes':>10s}")
    for name, value in seconds.items():
        passes = value / seconds["stability pass"]
        softmaxes = value / seconds["NumPy softmax"]
        print(f"{name:28s} {value:8.3f} {passes:8.2f} {softmaxes:10.2f}")
    print("bars: a fit within 6 stability passes, a prediction within 5 softmaxes")


def compare_map() -> None:
    """A map of 0.55 megapixels and 19 classes, against temperature scaling."""
    logits, labels = large_logits(550_000, 19)
    temps, profile = (
        method.fit(logits[:20_000], labels[:20_000])
        for method in (TemperatureScaling(), StabilityProfile())
    )
    seconds = best_in_turns(
        {
            "temps": lambda: temps.predict_confidence(logits),
            "profile": lambda: profile.predict_confidence(logits),
        },
        times=3,
    )
    ratio = seconds["profile"] / seconds["temps"]
    print(f"\na map of 0.55 megapixels x 19 classes: {ratio:.1f} times temps (target: 5)")


def compare_module() -> None:
    """A row through the torch module on the CPU."""
    try:
        import torch

        from hokical.integrations.torch import as_module
    except ImportError:
        print("torch module: torch is not installed")
        return
    logits, labels = large_logits(5000, 10)
    module, row = as_module(StabilityProfile().fit(logits, labels)), torch.tensor(logits[:1])
    with torch.no_grad():
        module(row)
        seconds = best_in_turns({"row": lambda: module(row)}, times=50)["row"]
    print(f"a row through the torch module: {seconds * 1e3:.2f} ms (target: 1)")


def compare_growth(logits: np.ndarray, labels: np.ndarray) -> None:
    n, c = logits.shape
    fitted = StabilityProfile().fit(logits, labels)
    seconds = best_in_turns(
        {
            "fit": lambda: StabilityProfile().fit(logits, labels),
            "predict": lambda: fitted.predict_confidence(logits),
        },
        times=3,
    )
    print(f"{n:9d} x {c:6d}: {seconds['fit'] / n * 1e6:9.1f} {seconds['predict'] / n * 1e6:9.1f}")


if __name__ == "__main__":
    main()
