"""Intervals and bounds for which an item (an image, a sentence) is one example, not a position.

Positions of an item are right and wrong together, so the bootstrap draws items, and the bounds are
about a position drawn at random from a new item. Let G_nj be the sum of correct - confidence over
the positions of item n in bin j, divided by the number of its positions. Then sum_j |G_nj| <= 1,
which is all that the proofs of the bounds need (`docs/bounds.md`), with the mean of
(sum_j |G_nj|)^2 in place of the Brier score.
"""

import math
import operator
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import bin_index, sum_by
from hokical._core.labels import as_labels
from hokical._core.logits import as_logits
from hokical._core.types import FloatArray, IntArray
from hokical.calibrators._calibrator import Calibrator
from hokical.dense._positions import DenseBatch
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._row_sketch import margin_hashes
from hokical.metrics._calibration import gap_norm
from hokical.metrics._examples import Predictions
from hokical.metrics._groups import GroupTable, count_items
from hokical.metrics._levels import BinSums
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._summaries import Summary, estimate, proven_bounds
from hokical.metrics._vectors import class_scores, top_label_rows
from hokical.rules._base import Rule

#: Draws of items that are in memory at once.
_DRAWS = 4_000_000


def judge_items(
    summary: Summary,
    classes: GroupTable | None,
    batches: Iterable[DenseBatch],
    calibrator: Calibrator,
    options: SummaryOptions,
) -> tuple[Summary, GroupTable | None]:
    """The summary of all positions, with intervals and bounds by item, where there are items."""
    parts: list[FloatArray] = []
    weighted = False
    for batch in batches:
        if batch.layout.axis == 0:  # the first axis is that of the classes
            parts.clear()
            break
        parts.append(_sum_items(batch, calibrator, options.n_bins, summary.vectors))
        weighted = weighted or batch.weights is not None
    sums = np.concatenate(parts) if parts else np.zeros((0, 5, options.n_bins))
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


def _sum_items(batch: DenseBatch, calibrator: Calibrator, n_bins: int, vectors: bool) -> FloatArray:
    """Weight, correct, confidence, Brier score and log loss by item and bin, (items, 5, J).

    With `vectors` the scores are of all classes.
    """
    total = np.zeros((5, batch.n_items * n_bins))
    for index, keep in batch.slabs():
        chunk = batch.chunk(index, keep)
        if not chunk.n_rows:
            continue
        confidence = to_host(calibrator.predict_confidence(chunk.logits)).astype(np.float64)
        correct = to_host(calibrator.predict(chunk.logits)) == chunk.labels
        each = math.prod(part.stop - part.start for part in index[1:])
        item = np.repeat(np.arange(index[0].start, index[0].stop), each)
        item = item if keep is None else item[keep.reshape(-1)]
        weight = np.ones(item.shape) if chunk.weights is None else chunk.weights
        scores = top_label_rows(confidence, correct)
        if vectors:
            proba = to_host(calibrator.predict_proba(chunk.logits))
            labels = as_labels(chunk.labels, *proba.shape)
            scores = class_scores(Predictions(proba, labels, None), 0.0, ordered=False)
        cell = item * n_bins + bin_index(confidence, n_bins)
        for row, values in zip(total, (1.0, correct, confidence, *scores.values()), strict=True):
            row += sum_by(cell, weight * values, row.size)
    return total.reshape(5, batch.n_items, n_bins).swapaxes(0, 1)


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


def note_positions(rule: Rule, batches: Iterable[DenseBatch]) -> tuple[Conformity, FloatArray]:
    """What is said of the true classes of positions, those of an item together one example.

    Then the weighted share of missed positions is the mean share over items, and a threshold for
    it, with room for one item more, is that of conformal risk control. Also the rows' hashes (n,).
    """
    parts: list[Conformity] = []
    items: list[IntArray] = []
    hashes: list[FloatArray] = []
    for batch in batches:
        for index, keep in batch.slabs():
            chunk = batch.chunk(index, keep)
            if not chunk.n_rows:
                continue
            shape = [part.stop - part.start for part in index]
            there = np.nonzero(np.ones(shape, np.bool_) if keep is None else keep)[0]
            items.append(there + index[0].start + batch.first_item)
            rows = as_logits(chunk.logits)
            hashes.append(margin_hashes(rows))
            truth = as_labels(chunk.labels, rows.n_rows, rows.n_classes)
            parts.append(Conformity.from_rows(rule, [rows], truth))
    item = np.concatenate(items)
    found = reduce(operator.add, parts)
    return replace(found, weights=1.0 / np.bincount(item)[item]), np.concatenate(hashes)
