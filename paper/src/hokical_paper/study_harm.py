"""What methods lose on classifiers that are calibrated already: every change is for the worse.

Logits are three times a normal number, and labels are drawn from their softmax.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hokical._core.logits import Logits
from hokical._core.types import FloatArray, IntArray
from hokical.calibrators import make
from hokical.calibrators._catalog import load_estimator_class

#: Classes and examples.
CELLS = (
    (2, 50),
    (2, 200),
    (2, 1000),
    (3, 200),
    (5, 50),
    (5, 200),
    (10, 100),
    (10, 200),
    (10, 1000),
    (20, 200),
    (20, 1000),
    (30, 300),
    (30, 1000),
    (100, 400),
    (100, 1000),
    (300, 1000),
)
#: How far logits spread, and new examples that the loss is measured on.
SPREAD, N_NEW = 3.0, 2000


@dataclass(frozen=True)
class Harm:
    """Log loss in nats that a method adds to what is right, in the mean and in the worst sample."""

    n_classes: int
    n_examples: int
    method: str
    mean: float
    worst: float
    changed: float


def measure_harm(
    methods: Sequence[str], n_samples: int, report: Callable[[str], None] = lambda _: None
) -> list[Harm]:
    """Of every method in every cell that it suits."""
    found = []
    for n_classes, n in CELLS:
        suited = [name for name in methods if _suits(name, n_classes)]
        lost = np.array([_sample(suited, n_classes, n, seed) for seed in range(n_samples)])
        for name, column in zip(suited, lost.T, strict=True):
            changed = float(np.mean(column > 0.0))
            found.append(Harm(n_classes, n, name, column.mean(), column.max(), changed))
        report(f"{n_classes} classes, {n} examples")
    return found


def _suits(method: str, n_classes: int) -> bool:
    kind = load_estimator_class(method)
    return kind.logits_kind is Logits and (not kind.binary_only or n_classes == 2)


def _sample(methods: Sequence[str], n_classes: int, n: int, seed: int) -> list[float]:
    """The mean divergence of each method's answers from the truth, exact but for the new rows."""
    rng = np.random.default_rng([seed, n_classes, n])
    (logits, labels), (fresh, _) = (_draw(rows, n_classes, rng) for rows in (n, N_NEW))
    log_truth = fresh - np.logaddexp.reduce(fresh, axis=1, keepdims=True)
    lost = []
    for method in methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers = make(method).fit(logits, labels).predict_proba(fresh)
        gaps = np.sum(np.exp(log_truth) * (log_truth - np.log(answers)), axis=1)
        lost.append(0.0 if np.abs(gaps).max() < 1e-9 else float(gaps.mean()))
    return lost


def _draw(n: int, n_classes: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    logits = SPREAD * rng.normal(size=(n, n_classes))
    return logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def harm_table(found: Sequence[Harm]) -> str:
    """A row for every cell; mean, worst and share of changed samples of every method."""
    methods = list(dict.fromkeys(harm.method for harm in found))
    cells: dict[tuple[int, int], dict[str, Harm]] = {}
    for harm in found:
        cells.setdefault((harm.n_classes, harm.n_examples), {})[harm.method] = harm
    lines = [f"| classes | examples | {' | '.join(methods)} |", "|--:" * (2 + len(methods)) + "|"]
    for (n_classes, n), row in cells.items():
        texts = [_tell(row[name]) if name in row else "" for name in methods]
        lines.append(f"| {n_classes} | {n} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _tell(harm: Harm) -> str:
    return f"{harm.mean:.4f} ({harm.worst:.3f}, {harm.changed:.0%})"
