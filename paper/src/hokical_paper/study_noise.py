"""Log loss of methods where logits are overconfident and some labels are random.

True logits are those of `study_harm`, 30 % of the labels are replaced by classes drawn at random,
and the classifier's logits are three times the true ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hokical_paper.core import LEAST
from hokical_paper.study_harm import SPREAD, fit_quietly, suits
from hokical_paper.types import FloatArray

N_CLASSES, N_EXAMPLES, N_NEW = 10, 1000, 5000
#: By how much the classifier stretches the true logits, and the share of random labels.
STRETCH, NOISE = 3.0, 0.3
#: The name under which the log loss of the true probabilities is listed.
TRUTH = "truth"


@dataclass(frozen=True)
class NoisyLoss:
    """Mean log loss over samples, and the standard error of its excess over the truth's."""

    method: str
    mean: float
    error: float


def measure_noisy(methods: Sequence[str], n_samples: int) -> list[NoisyLoss]:
    """Of every suited method on new examples with the same label noise, the truth's own last."""
    methods = [name for name in methods if suits(name, N_CLASSES)]
    losses = np.array([_sample(methods, seed) for seed in range(n_samples)])
    excess = losses - losses[:, -1:]
    errors = [math.nan] * losses.shape[1]
    if n_samples > 1:
        errors = (excess.std(axis=0, ddof=1) / math.sqrt(n_samples)).tolist()
    found = zip([*methods, TRUTH], losses.mean(axis=0).tolist(), errors, strict=True)
    return [NoisyLoss(*each) for each in found]


def _sample(methods: Sequence[str], seed: int) -> list[float]:
    """Expected log losses over the labels of new rows."""
    rng = np.random.default_rng([seed, N_CLASSES, N_EXAMPLES])
    true = SPREAD * rng.normal(size=(N_EXAMPLES + N_NEW, N_CLASSES))
    odds = np.exp(true - true.max(axis=1, keepdims=True))
    proba = (1.0 - NOISE) * odds / odds.sum(axis=1, keepdims=True) + NOISE / N_CLASSES
    old, new = slice(0, N_EXAMPLES), slice(N_EXAMPLES, None)
    labels = np.argmax(np.log(proba[old]) + rng.gumbel(size=proba[old].shape), axis=1)
    fitted = [fit_quietly(method, STRETCH * true[old], labels) for method in methods]
    predicted = [cal.predict_proba(STRETCH * true[new]) for cal in fitted]
    return [_log_loss(proba[new], found) for found in (*predicted, proba[new])]


def _log_loss(truth: FloatArray, found: FloatArray) -> float:
    return float(-np.sum(truth * np.log(np.maximum(found, LEAST)), axis=1).mean())


def noisy_table(found: Sequence[NoisyLoss]) -> str:
    """A row for every method: its log loss, and by how much it exceeds the truth's."""
    truth = next(loss.mean for loss in found if loss.method == TRUTH)
    lines = ["| method | log loss | above the truth |", "|---|--:|--:|"]
    for loss in sorted(found, key=lambda loss: loss.mean):
        error = "" if math.isnan(loss.error) else f" ± {loss.error:.4f}"
        excess = "" if loss.method == TRUTH else f"{loss.mean - truth:.4f}{error}"
        lines.append(f"| {loss.method} | {loss.mean:.4f} | {excess} |")
    return "\n".join(lines)
