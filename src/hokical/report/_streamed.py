"""Evaluations of data that need not fit into memory: one pass, sums that add up.

Of maps, an item (an image, a sentence) is one example, not a position: positions of an item are
right and wrong together. So intervals are those of sums by item, and the bounds are about a
position drawn at random from a new item. Let G_nj be the sum of correct - confidence over the
positions of item n in bin j, divided by the number of its positions. Then sum_j |G_nj| <= 1, which
is all that the proofs of the bounds need (`docs/theory.md`), with the mean of (sum_j |G_nj|)^2 in
place of the Brier score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy.special import stdtrit

from hokical._core.bins import bin_index, sum_by
from hokical._core.logits import as_logits
from hokical._core.types import FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import make
from hokical.dense import Dense
from hokical.dense._maps import Positions
from hokical.guarantees._row_sketch import warn_of_rows_of_fit
from hokical.io._reading import open_source
from hokical.metrics._chunked import plus
from hokical.metrics._groups import count_items, label_table
from hokical.metrics._metric import METRICS, SummaryOptions
from hokical.metrics._risk_models import summarize_event
from hokical.metrics._summaries import SummarySums, proven_bounds, summarize, with_ends
from hokical.report._evaluation import DataFacts, Evaluation, Predicted, Setting, check_names
from hokical.streams._passes import checked_blocks

#: Metrics with intervals: means over positions, in the order of the sums.
_MEANS = ("accuracy", "mean_confidence", "brier", "log_loss")


def _sums(
    rows: Predicted, n_classes: int, options: SummaryOptions
) -> tuple[SummarySums, FloatArray]:
    """Of rows of weight above 0: sums of the summary, and by predicted label, (5, classes)."""
    w = rows.filled_weight()
    columns = (np.ones(w.size), w, w**2, w * rows.confidence, w * rows.correct)
    assert rows.label is not None
    by_label = np.stack([sum_by(rows.label, column, n_classes) for column in columns])
    return SummarySums.from_rows(rows, rows.vectors, options), by_label


def evaluate_source(
    cal: Calibrator | None, source: Any, setting: Setting, positive: Any = None
) -> Evaluation:
    """The evaluation of a source of chunks."""
    options = setting.options
    chunks = open_source(source, fitted_by=cal)
    n_classes = chunks.n_classes if cal is None else cal.n_classes_
    setting = setting.with_event(positive, getattr(cal, "class_names", ()), n_classes)
    labels = check_names(setting.class_names, n_classes) or tuple(map(str, range(n_classes)))
    softmax = make("uncalibrated").fit(np.zeros((1, n_classes)), [0])
    methods = {"uncalibrated": softmax} | ({} if cal is None else {cal.name: cal})
    sums: dict[str, tuple[SummarySums, FloatArray]] = {}
    events: dict[str, Any] = {}
    first = 0
    for block in checked_blocks(chunks, n_classes):
        if not first:
            warn_of_rows_of_fit(cal is not None and cal._are_of_fit(block.logits))
        first += block.n_rows
        if block.weights is not None and not block.weights.any():
            continue
        for name, method in methods.items():
            rows = Predicted.of_logits(method, block.logits, block.labels, block.weights)
            rows = rows.counted()
            events[name] = plus(events.get(name), rows.event_sums(setting.positive))
            parts = _sums(rows, n_classes, options)
            known = sums.get(name)
            sums[name] = parts if known is None else (known[0] + parts[0], known[1] + parts[1])
    if not sums:
        raise ValueError("a source must have at least one row that counts; got none.")
    data = DataFacts(first, n_classes, setting.data_name)
    found: Any = None
    for name, (own, by_label) in sums.items():
        classes, summary = label_table(labels, by_label, options.delta), summarize(own, options)
        levels, event = own.levels.levels, events[name]
        binary = None if event is None else summarize_event(event, options.delta, setting.event)
        rest = (summary, levels, data, found, classes)
        found = Evaluation(name, methods[name], *rest, binary=binary)
    return cast(Evaluation, found)


def evaluate_dense(cal: Dense, given: tuple[Any, Any, Any, Any], setting: Setting) -> Evaluation:
    """The evaluation of maps: of all positions that count, intervals and bounds by item.

    Given are logits, labels, mask and weights, each as `cal` takes them.
    """

    found = evaluate_source(cal.fitted_calibrator(), cal._source(given), setting)
    judged: Any = None
    for each in found.both:
        # The items of an iterator cannot be looked at again.
        items = () if isinstance(given[0], Iterator) else cal._read(*given, None)
        judged = replace(_judge_items(each, items), before=judged, binary=None)
    return cast(Evaluation, judged)


def _judge_items(found: Evaluation, positions: Iterable[Positions]) -> Evaluation:
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
