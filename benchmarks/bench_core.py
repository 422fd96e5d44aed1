"""Stability and Hoki at 25,000 x 1000 float32: ratios to a softmax, to a plain loop, to
a peer.

python benchmarks/bench_core.py
"""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np

from hokical import Hoki, evaluate, label_stability, make
from hokical.stability.noise import Gaussian, Gumbel, Uniform

N, C = 25_000, 1000


def main() -> None:
    logits, labels = large_logits(N, C)
    label_stability(logits[:2000], Gaussian(2.0))
    label_stability(logits[:100], Uniform(-4, 4))
    compare_passes(logits)
    compare_probabilities(logits, labels)
    compare_sampling(logits)
    compare_fit(logits, labels)
    compare_memory(logits)
    growth()
    compare_evaluate()
    start_up()


def compare_passes(logits: np.ndarray) -> None:
    """Taking turns with the softmax, so that both see the same machine."""
    works: dict[str, Callable[[], object]] = {
        "NumPy softmax": lambda: numpy_softmax(logits)
    }
    for noise in (Gaussian(2.0), Uniform(-2, 2), Uniform(-6, 6), Gumbel(2.0)):
        works[f"exact {noise!r}"] = lambda noise=noise: label_stability(logits, noise)
    seconds = best_in_turns(works, times=7)
    floor = seconds["NumPy softmax"]
    print(f"one pass over {N} x {C} float32, in NumPy softmaxes of {floor:.3f} s")
    print("Gaussian bar: 2, target: 0.5 with two threads")
    for name, value in seconds.items():
        print(f"{name:36s} {value / floor:6.2f}")


def compare_evaluate() -> None:
    """`evaluate`, which makes each prediction once, before and after calibration.

    In CPU time of all threads: it takes seconds, in which a busy machine's clock says
    little.
    """
    print("\n`evaluate`, in NumPy softmaxes of the same rows, CPU time")
    for n, classes, goal in ((1_000_000, 10, 25), (50_000, 1000, 12)):
        rng = np.random.default_rng(0)
        logits = rng.normal(0.0, 2.0, (n, classes))
        labels = (logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(axis=1)
        for name in ("temps", "auto"):
            cal = make(name).fit(logits[:5000], labels[:5000])
            works: dict[str, Callable[[], object]] = {
                "softmax": lambda z=logits: numpy_softmax(z[5000:]),
                "evaluate": lambda cal=cal, z=logits, y=labels: evaluate(
                    cal, z[5000:], y[5000:]
                ),
            }
            seconds = best_in_turns(works, times=2, clock=time.process_time)
            ratio = seconds["evaluate"] / seconds["softmax"]
            print(f"{n:,} x {classes}, {name:6} {ratio:6.1f} (goal {goal})")


def compare_probabilities(logits: np.ndarray, labels: np.ndarray) -> None:
    methods = {name: make(name) for name in ("temps", "irm", "irova_ts")}
    methods["hoki"] = Hoki(noise=Gaussian(2.0))
    fitted = {name: method.fit(logits, labels) for name, method in methods.items()}
    works: dict[str, Callable[[], object]] = {
        "NumPy softmax": lambda: numpy_softmax(logits)
    }
    for name, method in fitted.items():
        works[name] = lambda method=method: method.predict_proba(logits)
    fitted["temps, float32"] = fitted["temps"]
    works["temps, float32"] = lambda: fitted["temps"].predict_proba(
        logits, dtype="float32"
    )
    seconds = best_in_turns(works, times=3)
    print("\n`predict_proba`, in NumPy softmaxes (targets: temps 1, hoki 4, others 5)")
    for name in fitted:
        print(f"{name:36s} {seconds[name] / seconds['NumPy softmax']:6.2f}")


def compare_sampling(logits: np.ndarray) -> None:
    draws, timed = 1000, 20
    label_stability(logits[:50], Gaussian(2.0), draws=draws, random_state=0)
    sampled = {"draws": draws, "random_state": 0}
    seconds = best_in_turns(
        {
            "loop": lambda: plain_loop(logits, timed),
            "exact": lambda: label_stability(logits, Gaussian(2.0)),
            "sampled": lambda: label_stability(logits, Gaussian(2.0), **sampled),
        },
        times=2,
    )
    loop = seconds["loop"] * draws / timed
    print(f"\nplain NumPy loop over {draws} draws: {loop:.1f} s ({timed} draws timed)")
    print(f"exact is   {loop / seconds['exact']:6.0f} times faster (bar: 100)")
    print(f"sampled is {loop / seconds['sampled']:6.1f} times faster (bar: 5)")


def compare_fit(logits: np.ndarray, labels: np.ndarray) -> None:
    from sklearn.calibration import _TemperatureScaling

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = best_in_turns(
            {
                "peer": lambda: _TemperatureScaling().fit(logits, labels),
                "ours": lambda: Hoki().fit(logits, labels),
            },
            times=2,
        )
    peer = seconds["peer"]
    print(f"\nscikit-learn's temperature scaling: {peer:.2f} s")
    print(
        f"Hoki().fit with the noise choice takes {seconds['ours'] / peer:.2f} of that "
        "(bar: 0.25, target: 0.08)"
    )


def compare_memory(logits: np.ndarray) -> None:
    print()
    for noise in (Gaussian(2.0), Uniform(-4, 4)):
        for values in (logits, logits.astype(np.float16), np.asfortranarray(logits)):
            tracemalloc.start()
            label_stability(values, noise)
            extra = tracemalloc.get_traced_memory()[1] / values.nbytes
            tracemalloc.stop()
            kind = (
                f"{values.dtype} {'C' if values.flags.c_contiguous else 'Fortran'} "
                "order"
            )
            print(
                f"peak extra memory, {noise.family}, {kind}: {extra:.1%} of the input "
                "(bar: 20%)"
            )


def growth() -> None:
    print("\ncost of exact Gaussian stability, nanoseconds per logit (and per row)")
    for n, c in (
        (100_000, 10),
        (1_000_000, 10),
        (10_000, 1000),
        (40_000, 1000),
        (400, 100_000),
    ):
        logits = large_logits(n, c)[0]
        seconds = best_of(lambda logits=logits: label_stability(logits, Gaussian(2.0)))
        print(
            f"{n:9d} x {c:6d}: {seconds / n / c * 1e9:7.2f} ({seconds / n * 1e9:10.0f})"
        )


def start_up() -> None:
    print("\nseconds in a fresh process")
    small = (
        "import numpy as np, time; x = np.random.default_rng(0).normal(size=(1000, "
        "10));"
        "y = x.argmax(1); t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    )
    for title, code in {
        "import hokical (bar: 1)": "import hokical",
        "import and Hoki().fit on 1000 x 10 (bar: 3)": "import hokical; hokical.Hoki().fit(x, y)",
    }.items():
        command = [sys.executable, "-c", small.format(code)]
        runs = [
            subprocess.run(command, capture_output=True, text=True, check=True)
            for _ in "ab"
        ]
        print(f"{title}: {min(float(run.stdout) for run in runs):.2f}")


def plain_loop(logits: np.ndarray, draws: int) -> np.ndarray:
    """The obvious implementation."""
    noise = np.random.default_rng(0).normal(scale=2.0, size=(draws, logits.shape[1]))
    noise = noise.astype(np.float32)
    labels = logits.argmax(axis=1)
    kept = np.zeros(len(logits))
    for vector in noise:
        kept += (logits + vector).argmax(axis=1) == labels
    return kept / draws


def numpy_softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def large_logits(n: int, c: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Normal logits with a raised true class: about 60 % accuracy at 1000 classes."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, c), dtype=np.float32)
    logits *= 2.0
    labels = rng.integers(c, size=n)
    logits[np.arange(n), labels] += 7.0
    return logits, labels


def best_in_turns(
    works: dict[str, Callable[[], object]],
    times: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The best time of each, measured in turns."""
    rounds = [
        {name: best_of(work, 1, clock) for name, work in works.items()}
        for _ in range(times)
    ]
    return {name: min(one[name] for one in rounds) for name in works}


def best_of(
    work: Callable[[], object],
    times: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Smallest of several timings: the machine's noise only ever adds."""
    seconds = []
    for _ in range(times):
        begun = clock()
        work()
        seconds.append(clock() - begun)
    return min(seconds)


if __name__ == "__main__":
    main()
