"""Intervals and bounds for which an item (an image, a sentence) is one example, not a position.

Positions of an item are right and wrong together, so the bootstrap draws items, and the bounds are
about a position drawn at random from a new item. Let G_nj be the sum of correct - confidence over
the positions of item n in bin j, divided by the number of its positions. Then sum_j |G_nj| <= 1,
which is all that the proofs of the bounds need (`docs/theory.md`), with the mean of
(sum_j |G_nj|)^2 in place of the Brier score.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import bin_index, sum_by
from hokical._core.labels import as_labels
from hokical._core.types import FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.dense._maps import Positions
from hokical.metrics._calibration import gap_norm
from hokical.metrics._examples import Predictions
from hokical.metrics._groups import GroupTable, count_items
from hokical.metrics._levels import BinSums
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._summaries import Summary, estimate, proven_bounds
from hokical.metrics._vectors import class_scores, top_label_rows

#: Draws of items that are in memory at once.
_DRAWS = 4_000_000


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
        return replace(summary, bounds={}), None
    estimates = dict(summary.estimates)
    if options.n_resamples > 0:
        drawn = _resample(sums, options.n_resamples, options.seed)
        for name, values in drawn.items():
            estimates[name] = estimate(name, estimates[name].value, values, options)
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
            scores = class_scores(Predictions(proba, labels, None), 0.0, ordered=False)
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


def _resample(sums: FloatArray, n_resamples: int, seed: int) -> dict[str, FloatArray]:
    """Metrics of resamples of items, (n_resamples,) each."""
    n, rng = sums.shape[0], np.random.default_rng(seed)
    step = max(1, _DRAWS // n)
    drawn = [
        rng.multinomial(n, np.full(n, 1.0 / n), min(step, n_resamples - first))
        @ sums.reshape(n, -1)
        for first in range(0, n_resamples, step)
    ]
    totals = np.concatenate(drawn).reshape(-1, *sums.shape[1:])
    weight, correct, confidence = totals[:, 0], totals[:, 1], totals[:, 2]
    means = (totals.sum(axis=2) / weight.sum(axis=1, keepdims=True)).T
    return {
        **dict(zip(("accuracy", "mean_confidence", "brier", "log_loss"), means[1:], strict=True)),
        "ece": gap_norm(BinSums(correct - confidence, weight, correct)),
    }
