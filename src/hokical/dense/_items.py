"""Intervals and bounds for which an item (an image, a sentence) is one example, not a position.

Positions of an item are right and wrong together, so intervals are those of sums by item, and the
bounds are about a position drawn at random from a new item. Let G_nj be the sum of correct -
confidence over the positions of item n in bin j, divided by the number of its positions. Then
sum_j |G_nj| <= 1, which is all that the proofs of the bounds need (`docs/theory.md`), with the mean
of (sum_j |G_nj|)^2 in place of the Brier score.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from hokical._core.arrays import to_host
from hokical._core.bins import bin_index, sum_by
from hokical._core.labels import as_labels
from hokical._core.types import FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.dense._maps import Positions
from hokical.metrics._examples import Predictions
from hokical.metrics._groups import GroupTable, count_items
from hokical.metrics._metric import METRICS, SummaryOptions
from hokical.metrics._summaries import Summary, proven_bounds, with_ends
from hokical.metrics._vectors import class_scores, top_label_rows

#: Metrics with intervals: means over positions, in the order of the sums.
_MEANS = ("accuracy", "mean_confidence", "brier", "log_loss")


def judge_items(
    summary: Summary,
    classes: GroupTable | None,
    positions: Iterable[Positions],
    calibrator: Calibrator,
    options: SummaryOptions,
) -> tuple[Summary, GroupTable | None]:
    """The summary of all positions, with intervals and bounds by item, where there are items."""
    sums, weighted = _sum_items(positions, calibrator, options.n_bins, summary.vectors)
    sums = sums[sums[:, 0].sum(axis=1) > 0.0]
    if not sums.shape[0]:
        return summary.values_alone(), None
    estimates = summary.values_alone().estimates
    columns = sums.sum(axis=2).T
    for name, scores in zip(_MEANS, columns[1:], strict=True):
        if columns.shape[1] > 1 and np.isfinite(scores).all():
            ends = _interval(columns[0], scores, options.delta)
            estimates[name] = with_ends(METRICS[name], estimates[name].value, ends)
    gap = (sums[:, 1] - sums[:, 2]) / sums[:, 0].sum(axis=1, keepdims=True)
    shares = {
        "ece": float(np.abs(gap.mean(axis=0)).sum()),
        "brier": float((np.abs(gap).sum(axis=1) ** 2).mean()),
    }
    bounds = {} if weighted else proven_bounds(shares, gap.shape[0], options)
    table = None if classes is None else count_items(classes, gap.shape[0])
    return replace(summary, estimates=estimates, bounds=bounds, options=options), table


def _sum_items(
    positions: Iterable[Positions], calibrator: Calibrator, n_bins: int, vectors: bool
) -> tuple[FloatArray, bool]:
    """Weight, correct, confidence, Brier score and log loss by item and bin, (items, 5, J).

    With `vectors` the scores are of all classes. Also whether there were weights.
    """
    sums, weighted = np.zeros((0, 5, n_bins)), False
    for part in positions:
        confidence = to_host(calibrator.predict_confidence(part.logits)).astype(np.float64)
        correct = to_host(calibrator.predict(part.logits)) == part.labels
        scores = top_label_rows(confidence, correct)
        if vectors:
            proba = to_host(calibrator.predict_proba(part.logits))
            labels = as_labels(part.labels, *proba.shape)
            scores = class_scores(Predictions(proba, labels, None))
        first, end = int(part.items.min()), int(part.items.max()) + 1
        more = max(0, end - len(sums))
        sums = np.concatenate([sums, np.zeros((more, 5, n_bins))]) if more else sums
        cell = (part.items - first) * n_bins + bin_index(confidence, n_bins)
        weight = np.ones(cell.size) if part.weights is None else part.weights
        weighted |= part.weights is not None
        for k, values in enumerate((1.0, correct, confidence, *scores.values())):
            found = sum_by(cell, weight * values, (end - first) * n_bins)
            sums[first:end, k] += found.reshape(-1, n_bins)
    return sums, weighted


def _interval(weight: FloatArray, scores: FloatArray, delta: float) -> tuple[float, float]:
    """Student's interval of a mean over positions, from sums by item, (items,) each."""
    n, total = weight.size, weight.sum()
    mean = scores.sum() / total
    error = np.sqrt(n / (n - 1.0) * ((scores - mean * weight) ** 2).sum()) / total
    width = -stdtrit(n - 1.0, 0.5 * delta) * error
    return float(mean - width), float(mean + width)
