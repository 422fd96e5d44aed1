"""How cost grows with the work: rows, classes, members, groups.

    python benchmarks/bench_growth.py [--write]

Each work is measured at several sizes of one kind, all else alike, in CPU time of one
thread and in turns. The exponent is the slope of log time over log size between the two
largest: 1 where twice as much takes twice as long. The unit is a float64 softmax of
NumPy's at the largest size. `--write` renews the table in `benchmarks/README.md`.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench_core import best_in_turns, large_logits, numpy_softmax
from hokical import Ensemble, Gaussian, auto, evaluate, label_stability, make
from hokical._core.runtime import threads
from hokical.calibrators.calibrator import Calibrator
from peer_page import put_block

#: Sizes that grow, and what stays alike meanwhile.
ROWS = (2000, 8000, 32_000)
CLASSES = (3, 10, 30)
MANY_CLASSES = (40, 160, 640)
MEMBERS = (2, 4, 8, 16)
GROUPS = (20, 200, 2000)
N_ROWS = 4000
N_CLASSES = 10
#: Rows of each member of an ensemble.
ENSEMBLE_ROWS = 2000
#: How far members lie from each other.
NOISE = 2.0
#: Rounds in which the sizes take turns.
ROUNDS = 3
PAGE = Path(__file__).with_name("README.md")

Work = Callable[[], object]


class Growth(NamedTuple):
    """A work at rising sizes of a kind, and a softmax of the rows of the largest."""

    name: str
    kind: str
    works: Mapping[int, Work]
    softmax: Work


def main() -> None:
    with threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = "\n".join(lines())
    if "--write" in sys.argv[1:]:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(put_block(text, "growth", table), encoding="utf-8")


def lines() -> Iterator[str]:
    """The lines of the table, printed as they are ready."""
    titles = "| work | grows with | at | softmaxes | exponent |"
    for line in (titles, "|---|---|---|--:|--:|", *map(measure, growths())):
        print(line, flush=True)
        yield line


def measure(growth: Growth) -> str:
    """One line of the table."""
    works = {str(size): work for size, work in growth.works.items()}
    works["softmax"] = growth.softmax
    seconds = best_in_turns(works, ROUNDS, time.process_time)
    unit = seconds.pop("softmax")
    times = list(seconds.values())
    cells = ", ".join(f"{value / unit:.3g}" for value in times)
    sizes = ", ".join(f"{size:,}" for size in growth.works)
    slope = exponent(list(growth.works), times)
    return f"| {growth.name} | {growth.kind} | {sizes} | {cells} | {slope:.2f} |"


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log time over log size between the two largest sizes.

    >>> round(exponent([1, 10, 20], [5.0, 3.0, 12.0]), 6)
    2.0
    """
    return math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])


def growths() -> Iterator[Growth]:
    """All works of the table."""
    yield from by_rows()
    yield from by_classes()
    yield by_members()
    yield by_groups()


def by_rows() -> Iterator[Growth]:
    data = {n: uneven_logits(n, N_CLASSES) for n in ROWS}
    yield from grow("rows, 10 classes", data, ("auto", "temps", "hoki"))
    cal = auto(*data[ROWS[0]])
    works = {n: partial(evaluate, cal, *rows) for n, rows in data.items()}
    yield Growth("evaluate auto", "rows, 10 classes", works, softmax_of(data[ROWS[-1]]))


def by_classes() -> Iterator[Growth]:
    for sizes in (CLASSES, MANY_CLASSES):
        data = {size: uneven_logits(N_ROWS, size) for size in sizes}
        yield from grow("classes, 4,000 rows", data, ("auto", "temps"))
    noise = Gaussian(2.0)
    works = {size: partial(label_stability, z, noise) for size, (z, _) in data.items()}
    yield Growth(
        "label_stability, Gaussian",
        "classes, 4,000 rows",
        works,
        softmax_of(data[MANY_CLASSES[-1]]),
    )


def grow(
    kind: str,
    data: dict[int, tuple[np.ndarray, np.ndarray]],
    names: tuple[str, ...],
) -> Iterator[Growth]:
    """Fits and predictions of methods on examples of rising size."""
    softmax = softmax_of(data[max(data)])
    for name in names:
        fits = {size: partial(fit, name, *rows) for size, rows in data.items()}
        yield Growth(f"fit {name}", kind, fits, softmax)
        predictions = {
            size: partial(fit(name, z, labels).predict_proba, z)
            for size, (z, labels) in data.items()
        }
        yield Growth(f"predict_proba {name}", kind, predictions, softmax)


def fit(name: str, logits: np.ndarray, labels: np.ndarray) -> Calibrator:
    return make(name).fit(logits, labels)


def by_members() -> Growth:
    """Fits on ensembles of members that agree more or less."""
    logits, labels = uneven_logits(ENSEMBLE_ROWS, N_CLASSES)
    rng = np.random.default_rng(1)
    members = [
        logits + NOISE * rng.standard_normal(logits.shape, dtype=np.float32)
        for _ in range(max(MEMBERS))
    ]
    works = {size: partial(auto, Ensemble(members[:size]), labels) for size in MEMBERS}
    kind = "members, 2,000 x 10"
    return Growth("fit auto, ensemble", kind, works, softmax_of((logits, labels)))


def by_groups() -> Growth:
    """Fits with ids whose rows are easier or harder."""
    logits, labels = uneven_logits(N_ROWS, N_CLASSES)
    rng = np.random.default_rng(2)
    works = {}
    for size in GROUPS:
        ids = rng.integers(0, size, N_ROWS)
        scale = np.exp(0.5 * rng.normal(size=size))[ids]
        scaled = (logits * scale[:, None]).astype(np.float32)
        works[size] = partial(auto, scaled, labels, groups=ids.astype(str))
    kind = "groups, 4,000 x 10"
    return Growth("fit auto, groups", kind, works, softmax_of((logits, labels)))


def uneven_logits(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of which some rows are many times as sure as others, and labels: every
    part of the default is at work.
    """
    logits, labels = large_logits(n, n_classes)
    scale = np.random.default_rng(1).lognormal(0.0, 0.5, (n, 1))
    return logits * scale.astype(np.float32), labels


def softmax_of(rows: tuple[np.ndarray, np.ndarray]) -> Work:
    return partial(numpy_softmax, rows[0].astype(np.float64))


if __name__ == "__main__":
    main()
