"""Log loss that methods add on classifiers that are already calibrated.

Logits are three times a normal number, and labels are drawn from their softmax, so any
change of the probabilities is for the worse. In masked cells, 40 % of the classes other
than the most likely one have a logit of -inf, at random.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hokical import make
from hokical.calibrators import Calibrator, method_names
from hokical_paper.core import track
from hokical_paper.types import FloatArray, IntArray


class HarmCell(NamedTuple):
    """Classes, examples, and the share of the other classes that is masked."""

    n_classes: int
    n_examples: int
    masked: float = 0.0


CELLS = (
    HarmCell(2, 50),
    HarmCell(2, 200),
    HarmCell(2, 1000),
    HarmCell(3, 200),
    HarmCell(5, 50),
    HarmCell(5, 200),
    HarmCell(10, 30, masked=0.4),
    HarmCell(10, 100),
    HarmCell(10, 200),
    HarmCell(10, 1000),
    HarmCell(20, 200),
    HarmCell(20, 1000),
    HarmCell(30, 300),
    HarmCell(30, 1000),
    HarmCell(50, 40, masked=0.4),
    HarmCell(100, 400),
    HarmCell(100, 1000),
    HarmCell(300, 1000),
)
#: Standard deviation of the logits, and new examples on which the loss is measured.
SPREAD = 3.0
N_NEW = 2000


@dataclass(frozen=True)
class Harm:
    """Log loss in nats that a method adds to that of the truth, over samples of one
    cell.

    `error` is the standard error of `mean`, NaN of a single sample; `worst` is the
    largest loss, `changed` the share of samples in which any probability was changed.
    """

    n_classes: int
    n_examples: int
    masked: float
    method: str
    mean: float
    error: float
    worst: float
    changed: float


def measure_harm(methods: Sequence[str], n_samples: int) -> list[Harm]:
    """Of every method in every cell that it suits."""
    harms = []
    for cell in track(CELLS, "Classes and examples", len(CELLS), None):
        suited = [name for name in methods if suits(name, cell.n_classes)]
        lost = np.array([_sample(suited, cell, seed) for seed in range(n_samples)])
        harms += [_summarise(cell, n, x) for n, x in zip(suited, lost.T, strict=True)]
    return harms


def _summarise(cell: HarmCell, method: str, lost: FloatArray) -> Harm:
    error = (
        float(lost.std(ddof=1)) / math.sqrt(lost.size) if lost.size > 1 else math.nan
    )
    changed = float(np.mean(lost > 0.0))
    return Harm(*cell, method, float(lost.mean()), error, float(lost.max()), changed)


def suits(method: str, n_classes: int) -> bool:
    """Whether a method can be fitted on logits of so many classes."""
    return method in [*method_names(n_classes), "auto"]


def _sample(methods: Sequence[str], cell: HarmCell, seed: int) -> list[float]:
    """The mean divergence of each method's probabilities from the truth on new rows."""
    rng = np.random.default_rng([seed, cell.n_classes, cell.n_examples])
    logits, labels = _draw(cell.n_examples, cell, rng)
    fresh, _ = _draw(N_NEW, cell, rng)
    log_truth = fresh - np.logaddexp.reduce(fresh, axis=1, keepdims=True)
    possible = np.isfinite(fresh)
    truth = np.exp(log_truth)
    log_truth = np.where(possible, log_truth, 0.0)
    lost = []
    for method in methods:
        proba = fit_quietly(method, logits, labels).predict_proba(fresh)
        gaps = np.sum(
            truth * (log_truth - np.log(np.where(possible, proba, 1.0))), axis=1
        )
        lost.append(0.0 if np.abs(gaps).max() < 1e-9 else float(gaps.mean()))
    return lost


def fit_quietly(method: str, logits: FloatArray, labels: IntArray) -> Calibrator:
    """A fitted method; its warnings about few examples or convergence are expected
    here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(method).fit(logits, labels)


def _draw(
    n: int, cell: HarmCell, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    logits = SPREAD * rng.normal(size=(n, cell.n_classes))
    if cell.masked > 0.0:
        masked = rng.random(logits.shape) < cell.masked
        masked[np.arange(n), logits.argmax(axis=1)] = False
        logits[masked] = -np.inf
    return logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def harm_table(harms: Sequence[Harm]) -> str:
    """A row for every cell: mean with standard error, worst, and share of changed
    samples.
    """
    methods = list(dict.fromkeys(harm.method for harm in harms))
    cells: dict[HarmCell, dict[str, Harm]] = {}
    for harm in harms:
        cell = HarmCell(harm.n_classes, harm.n_examples, harm.masked)
        cells.setdefault(cell, {})[harm.method] = harm
    lines = [
        f"| classes | examples | {' | '.join(methods)} |",
        "|--:" * (2 + len(methods)) + "|",
    ]
    for cell, row in cells.items():
        texts = [_describe(row[name]) if name in row else "" for name in methods]
        lines.append(
            f"| {_classes_of(cell)} | {cell.n_examples} | {' | '.join(texts)} |"
        )
    return "\n".join(lines)


def _classes_of(cell: HarmCell) -> str:
    return f"{cell.n_classes}" + (f" ({cell.masked:.0%} masked)" if cell.masked else "")


def _describe(harm: Harm) -> str:
    error = "" if math.isnan(harm.error) else f" ± {harm.error:.4f}"
    return f"{harm.mean:.4f}{error} ({harm.worst:.3f}, {harm.changed:.0%})"
