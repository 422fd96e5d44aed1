"""What pooling the members of an ensemble costs.

    python benchmarks/bench_ensembles.py

Fits relative to `auto` on one row of logits, predictions in float64 softmaxes of one
member beyond `auto`'s own, for each member; and the memory that a fit allocates, in
sizes of its input, with what `auto` alone takes on one row. Below some 10 MB of input
that and tables of a fixed size decide. CPU time on one thread.
"""

from __future__ import annotations

import time
import tracemalloc
from functools import partial

import numpy as np

from bench_core import best_in_turns, large_logits, numpy_softmax
from hokical import Ensemble, auto
from hokical._core.runtime import threads

#: Members, rows and classes.
SIZES = ((5, 1000, 2), (16, 5000, 10), (16, 5000, 100), (4, 5000, 1000))
#: A fit costs at most so many of one row, a prediction so many softmaxes a member.
MOST_FITS = 3.0
MOST_SOFTMAXES = 1.0
#: What pooling allocates beyond the calibrator, in sizes of the input.
MOST_MEMORY = 2.0
ROUNDS = 3
NOISE = 2.0


def main() -> None:
    print(
        "| members x rows x classes | fit / auto | softmaxes a member | memory / input "
        "| of `auto` on one row |"
    )
    print("|---|--:|--:|--:|--:|")
    for n_members, n, n_classes in SIZES:
        ensemble, labels = noisy_members(n_members, n, n_classes)
        single = ensemble.members[0]
        fitted = {"one": auto(single, labels), "all": auto(ensemble, labels)}
        fits = best_in_turns(
            {
                "one": partial(auto, single, labels),
                "all": partial(auto, ensemble, labels),
            },
            ROUNDS,
            time.process_time,
        )
        works = {
            "one": partial(fitted["one"].predict_proba, single),
            "all": partial(fitted["all"].predict_proba, ensemble),
            "softmax": partial(numpy_softmax, single.astype(np.float64)),
        }
        times = best_in_turns(works, 5 * ROUNDS, time.process_time)
        softmaxes = (times["all"] - times["one"]) / times["softmax"] / n_members
        memory = [
            allocated(partial(auto, logits, labels)) / (n_members * single.nbytes)
            for logits in (ensemble, single)
        ]
        cells = (fits["all"] / fits["one"], softmaxes, *memory)
        size = f"{n_members} x {n} x {n_classes}"
        print(f"| {size} | {' | '.join(f'{cell:.1f}' for cell in cells)} |", flush=True)
    print(
        f"\nAt most: {MOST_FITS:g} fits, {MOST_SOFTMAXES:g} softmax; memory below "
        f"{MOST_MEMORY:g} inputs, or that of `auto`."
    )


def noisy_members(
    n_members: int, n: int, n_classes: int
) -> tuple[Ensemble, np.ndarray]:
    logits, labels = large_logits(n, n_classes)
    rng = np.random.default_rng(1)
    members = [
        logits + NOISE * rng.standard_normal(logits.shape, dtype=np.float32)
        for _ in range(n_members)
    ]
    return Ensemble(members), labels


def allocated(work: partial[object]) -> int:
    """The largest number of bytes that were allocated at once."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    with threads(1):
        main()
