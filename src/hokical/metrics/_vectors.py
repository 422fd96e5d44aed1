"""Scores of the probabilities of all classes, and their sums, which add up over chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, sum_by
from hokical._core.blocks import row_slices
from hokical._core.types import FloatArray
from hokical.metrics._examples import Predictions
from hokical.metrics._intervals import MOST_LOSS, worst_mean

#: The values of a score for right and for wrong rows, by confidence.
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class VectorSums:
    """Sums over (proba, labels), of `total` weight. They add with `+`.

    `scores` sums by name the scores of rows, their squares and cubes, the scores of wrong labels,
    their number, and what all rows would score with a wrong one, (6,); `gaps` (classes * bins) sums
    1{label} - probability by class and bin of the probability.
    """

    total: float
    scores: dict[str, FloatArray]
    gaps: FloatArray
    n_classes: int

    @classmethod
    def from_rows(cls, rows: Predictions, n_bins: int, scores: Any = None) -> Self:
        """Sums of rows that were checked, whose `class_scores` may be known."""
        weight = rows.filled_weight()
        scores = scores or class_scores(rows)
        wrong = weight * (rows.proba.argmax(axis=1) != rows.labels)
        worst = worst_rows(rows, scores["brier"])
        sums = {
            name: np.array([*((weight * values**k).sum() for k in (1, 2, 3)),
                            np.where(wrong > 0.0, wrong * values, 0.0).sum(), wrong.sum(),
                            weight @ worst[name]])
            for name, values in scores.items()
        }  # fmt: skip
        return cls(float(weight.sum()), sums, class_gaps(rows, n_bins), rows.n_classes)

    def __add__(self, other: Self) -> Self:
        scores = {name: own + other.scores[name] for name, own in self.scores.items()}
        total, gaps = self.total + other.total, self.gaps + other.gaps
        return type(self)(total, scores, gaps, self.n_classes)

    def power_means(self, rows_per_weight: float) -> dict[str, tuple[FloatArray, float]]:
        """By name: means of a score, its square and its cube, and what a wrong row would score."""
        found = {}
        for name, sums in self.scores.items():
            seen, count = sums[3:5] * rows_per_weight
            found[name] = sums[:3] / self.total, worst_mean(count, seen, sums[5] / self.total)
        return found

    def classwise_ece(self) -> float:
        """See `hokical.metrics.classwise_ece`."""
        return float(np.abs(self.gaps).sum() / (self.n_classes * self.total))


def class_gaps(rows: Predictions, n_bins: int) -> FloatArray:
    """Weighted sums of 1{label} - probability by class and bin, (classes * bins,)."""
    n_classes, weight = rows.n_classes, rows.filled_weight()
    gaps = np.zeros(n_classes * n_bins)
    for part in row_slices(rows.n_rows, n_classes):
        proba = rows.proba[part].astype(np.float64, order="C")
        cell = n_bins * np.arange(n_classes) + bin_index(proba, n_bins)
        proba[np.arange(proba.shape[0]), rows.labels[part]] -= 1.0
        gaps -= sum_by(cell.ravel(), (proba * weight[part, None]).ravel(), gaps.size)
    return gaps


def class_scores(data: Predictions) -> dict[str, FloatArray]:
    """The scores (n,) whose means are metrics of all classes."""
    return {"brier": brier_rows(data), "log_loss": log_loss_rows(data)}


def worst_rows(data: Predictions, brier: FloatArray) -> dict[str, FloatArray]:
    """What rows would score with another class: of probability 0, or the mean of the others'."""
    known = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    rest = np.maximum(1.0 - data.proba.max(axis=1).astype(np.float64), math.exp(-MOST_LOSS))
    return {"brier": brier + 2.0 * known, "log_loss": math.log(data.n_classes - 1) - np.log(rest)}


def log_loss_rows(data: Predictions, clip: float = 0.0) -> FloatArray:
    """-log(probability of the true class) per example, (n,)."""
    likelihood = data.proba[np.arange(data.n_rows), data.labels].astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log(likelihood), loss_limit(clip))


def ranked_rows(data: Predictions) -> FloatArray:
    """Sum over k of (P(class <= k) - 1{label <= k})^2 per example, (n,)."""
    cumulative = np.cumsum(data.proba[:, :-1], axis=1, dtype=np.float64)
    reached = data.labels[:, None] <= np.arange(data.n_classes - 1)
    return np.asarray(((cumulative - reached) ** 2).sum(axis=1))


def brier_rows(data: Predictions) -> FloatArray:
    """Sum over classes of (proba - 1{label})^2 per example, (n,)."""
    out = np.empty(data.n_rows)
    for rows in row_slices(data.n_rows, data.n_classes):
        block = data.proba[rows].astype(np.float64, order="C")  # which decides the order of sums
        block[np.arange(block.shape[0]), data.labels[rows]] -= 1.0
        out[rows] = np.einsum("ij,ij->i", block, block)
    return out


def squared_errors(confidence: FloatArray) -> Pair:
    """(1{correct} - confidence)^2 of right and of wrong rows."""
    return (1.0 - confidence) ** 2, confidence**2


def log_losses(confidence: FloatArray, clip: float = 0.0) -> Pair:
    """-log(probability of what happened) of right and of wrong rows."""
    limit = loss_limit(clip)
    with np.errstate(divide="ignore"):
        # log1p keeps digits of 1 - confidence that a subtraction would round away.
        return np.minimum(-np.log(confidence), limit), np.minimum(-np.log1p(-confidence), limit)


def top_label_rows(confidence: FloatArray, correct: Any) -> dict[str, FloatArray]:
    """The scores (n,) of confidences whose means are metrics of the predicted label."""
    scores = {"brier": squared_errors(confidence), "log_loss": log_losses(confidence)}
    return {name: np.where(correct, *pair) for name, pair in scores.items()}


def loss_limit(clip: float) -> float:
    """The largest log loss of a row."""
    return math.inf if clip == 0.0 else -math.log(clip)
