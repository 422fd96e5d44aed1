"""Log loss of methods on simulated classifiers that are hard to calibrate.

`measure_noisy`: true logits are those of `study_harm`, 30 % of the labels are replaced
by classes drawn at random, and the classifier's logits are three times the true ones.

`measure_repeated`: rows of few distinct values, as hard labels, votes of ten trees, and
a shallow tree of eight leaves have them, with the true class frequencies of every value
known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hokical import from_probabilities
from hokical_paper.core import LEAST, track
from hokical_paper.study.harm import SPREAD, fit_quietly, suits
from hokical_paper.types import FloatArray

N_CLASSES = 10
N_EXAMPLES = 1000
N_NEW = 5000
#: By how much the classifier stretches the true logits, and the share of random labels.
STRETCH = 3.0
NOISE = 0.3
#: The name under which the log loss of the true probabilities is listed.
TRUTH = "truth"


@dataclass(frozen=True)
class NoisyLoss:
    """Mean log loss over samples, and the standard error of its excess over the
    truth's.
    """

    method: str
    mean: float
    error: float


def measure_noisy(methods: Sequence[str], n_samples: int) -> list[NoisyLoss]:
    """Of every suited method on new examples with the same label noise, the truth's
    own last.
    """
    methods = [name for name in methods if suits(name, N_CLASSES)]
    seeds = track(range(n_samples), "Samples", n_samples, None)
    losses = np.array([_sample(methods, seed) for seed in seeds])
    excess = losses - losses[:, -1:]
    errors = [math.nan] * losses.shape[1]
    if n_samples > 1:
        errors = (excess.std(axis=0, ddof=1) / math.sqrt(n_samples)).tolist()
    rows = zip([*methods, TRUTH], losses.mean(axis=0).tolist(), errors, strict=True)
    return [NoisyLoss(*row) for row in rows]


def _sample(methods: Sequence[str], seed: int) -> list[float]:
    """Expected log losses over the labels of new rows."""
    rng = np.random.default_rng([seed, N_CLASSES, N_EXAMPLES])
    true = SPREAD * rng.normal(size=(N_EXAMPLES + N_NEW, N_CLASSES))
    odds = np.exp(true - true.max(axis=1, keepdims=True))
    proba = (1.0 - NOISE) * odds / odds.sum(axis=1, keepdims=True) + NOISE / N_CLASSES
    old = slice(0, N_EXAMPLES)
    new = slice(N_EXAMPLES, None)
    labels = np.argmax(np.log(proba[old]) + rng.gumbel(size=proba[old].shape), axis=1)
    fitted = [fit_quietly(method, STRETCH * true[old], labels) for method in methods]
    predicted = [cal.predict_proba(STRETCH * true[new]) for cal in fitted]
    return [_log_loss(proba[new], answer) for answer in (*predicted, proba[new])]


def _log_loss(truth: FloatArray, predicted: FloatArray) -> float:
    return float(-np.sum(truth * np.log(np.maximum(predicted, LEAST)), axis=1).mean())


def noisy_table(losses: Sequence[NoisyLoss]) -> str:
    """A row for every method: its log loss, and by how much it exceeds the truth's."""
    truth = next(loss.mean for loss in losses if loss.method == TRUTH)
    lines = ["| method | log loss | above the truth |", "|---|--:|--:|"]
    for loss in sorted(losses, key=lambda loss: loss.mean):
        error = "" if math.isnan(loss.error) else f" ± {loss.error:.4f}"
        excess = "" if loss.method == TRUTH else f"{loss.mean - truth:.4f}{error}"
        lines.append(f"| {loss.method} | {loss.mean:.4f} | {excess} |")
    return "\n".join(lines)


#: Classes, and examples, of each case of few distinct rows.
REPEATED_SIZES = ((2, 60), (2, 300), (5, 60), (5, 300), (5, 1000))
KINDS = ("hard labels", "votes", "shallow tree")


@dataclass(frozen=True)
class RepeatedLoss:
    """Mean log loss above that of the true probabilities, over samples, and its
    standard error.
    """

    kind: str
    n_classes: int
    n_examples: int
    method: str
    mean: float
    error: float


def measure_repeated(methods: Sequence[str], n_samples: int) -> list[RepeatedLoss]:
    """Of every suited method, by kind of classifier, classes and examples."""
    losses = []
    cases = list(itertools.product(KINDS, REPEATED_SIZES))
    for kind, (n_classes, n) in track(cases, "Kinds and sizes", len(cases), None):
        suited = [name for name in methods if suits(name, n_classes)]
        lost = np.array(
            [_repeat(suited, kind, n_classes, n, seed) for seed in range(n_samples)]
        )
        for index, method in enumerate(suited):
            error = (
                lost[:, index].std(ddof=1) / math.sqrt(n_samples)
                if n_samples > 1
                else math.nan
            )
            mean = float(lost[:, index].mean())
            losses.append(RepeatedLoss(kind, n_classes, n, method, mean, float(error)))
    return losses


def _repeat(
    methods: Sequence[str], kind: str, n_classes: int, n: int, seed: int
) -> list[float]:
    """Expected log losses above the truth's over new rows, of one sample."""
    rng = np.random.default_rng([seed, n_classes, n, KINDS.index(kind)])
    if kind == "hard labels":
        table = np.eye(n_classes)
        true = 0.6 * table + 0.4 * rng.dirichlet(np.ones(n_classes), n_classes)
    elif kind == "votes":
        table = rng.multinomial(10, rng.dirichlet(np.full(n_classes, 0.5), 40)) / 10.0
        true = 0.7 * table + 0.3 / n_classes
    else:
        table = rng.dirichlet(np.full(n_classes, 0.3), 8)
        true = 0.5 * table + 0.5 * rng.dirichlet(np.ones(n_classes), 8)
    rows = rng.integers(len(table), size=n)
    labels = np.argmax(np.log(true[rows]) + rng.gumbel(size=(n, n_classes)), axis=1)
    logits = from_probabilities(table)
    fitted = [
        fit_quietly(method, logits[rows], labels).predict_proba(logits)
        for method in methods
    ]
    return [_log_loss(true, proba) - _log_loss(true, true) for proba in fitted]


def repeated_table(losses: Sequence[RepeatedLoss]) -> str:
    """A row for every case: log loss above the truth's, with its standard error, by
    method.
    """
    methods = list(dict.fromkeys(loss.method for loss in losses))
    cases: dict[tuple[str, int, int], dict[str, RepeatedLoss]] = {}
    for loss in losses:
        cases.setdefault((loss.kind, loss.n_classes, loss.n_examples), {})[
            loss.method
        ] = loss
    lines = [
        f"| rows | classes | examples | {' | '.join(methods)} |",
        "|---|--:|--:" + "|--:" * len(methods) + "|",
    ]
    for (kind, n_classes, n), row in cases.items():
        cells = [
            f"{row[m].mean:.4f} ± {row[m].error:.4f}" if m in row else ""
            for m in methods
        ]
        lines.append(f"| {kind} | {n_classes} | {n} | {' | '.join(cells)} |")
    return "\n".join(lines)
