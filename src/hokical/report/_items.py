"""Intervals and bounds for which an item (an image, a sentence) is one example, not a position.

Positions of an item are right and wrong together, so intervals are those of sums by item, and the
bounds are about a position drawn at random from a new item. Let G_nj be the sum of correct -
confidence over the positions of item n in bin j, divided by the number of its positions. Then
sum_j |G_nj| <= 1, which is all that the proofs of the bounds need (`docs/theory.md`), with the mean
of (sum_j |G_nj|)^2 in place of the Brier score.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from hokical._core.bins import bin_index, sum_by
from hokical._core.logits import as_logits
from hokical._core.types import FloatArray
from hokical.dense._maps import Positions
from hokical.metrics._groups import count_items
from hokical.metrics._metric import METRICS
from hokical.metrics._summaries import proven_bounds, with_ends
from hokical.report._evaluation import Evaluation
from hokical.report._judging import Predicted

#: Metrics with intervals: means over positions, in the order of the sums.
_MEANS = ("accuracy", "mean_confidence", "brier", "log_loss")


def judge_items(found: Evaluation, positions: Iterable[Positions]) -> Evaluation:
    """The evaluation of all positions, with intervals and bounds by item, where there are items."""
    options, plain = found.summary.options, found.summary.values_alone()
    sums, weighted = _sum_items(positions, found.calibrator, options.n_bins)
    if not len(sums):
        return replace(found, summary=plain, classes=None)
    n_items, columns = len(sums), sums.sum(axis=2).T
    for name, scores in zip(_MEANS, columns[1:], strict=True):
        if n_items > 1 and np.isfinite(scores).all():
            ends = _interval(columns[0], scores, options.delta)
            plain.estimates[name] = with_ends(METRICS[name], plain[name].value, ends)
    gap = (sums[:, 1] - sums[:, 2]) / columns[0][:, None]
    shares = {
        "ece": float(np.abs(gap.mean(axis=0)).sum()),
        "brier": float((np.abs(gap).sum(axis=1) ** 2).mean()),
    }
    bounds = {} if weighted else proven_bounds(shares, n_items, options)
    classes = None if found.classes is None else count_items(found.classes, n_items)
    return replace(found, summary=replace(plain, bounds=bounds), classes=classes)


def _sum_items(
    positions: Iterable[Positions], calibrator: Any, n_bins: int
) -> tuple[FloatArray, bool]:
    """Weight, correct, confidence, Brier score and log loss by item and bin, (items, 5, J).

    Also whether there were weights.
    """
    parts, weighted = [np.zeros((0, 5, n_bins))], False
    for part in positions:  # of whole items
        assert part.labels is not None
        rows = Predicted.of_logits(calibrator, as_logits(part.logits), part.labels, part.weights)
        weighted |= part.weights is not None
        item = part.items - part.items[0]
        cell = item * n_bins + bin_index(rows.confidence, n_bins)
        values: tuple[Any, ...] = (1.0, rows.correct, rows.confidence, *rows.scores.values())
        sums = [sum_by(cell, rows.filled_weight() * v, (item[-1] + 1) * n_bins) for v in values]
        parts.append(np.stack([each.reshape(-1, n_bins) for each in sums], axis=1))
    found = np.concatenate(parts)
    return found[found[:, 0].any(axis=1)], weighted


def _interval(weight: FloatArray, scores: FloatArray, delta: float) -> tuple[float, float]:
    """Student's interval of a mean over positions, from sums by item, (items,) each."""
    n, total = weight.size, weight.sum()
    mean = scores.sum() / total
    error = np.sqrt(n / (n - 1.0) * ((scores - mean * weight) ** 2).sum()) / total
    width = -stdtrit(n - 1.0, 0.5 * delta) * error
    return float(mean - width), float(mean + width)
