"""Evaluations of data that need not fit into memory: one pass, sums that add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.types import FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import make
from hokical.dense import Dense
from hokical.io._chunks import block_rows, reblock
from hokical.io._reading import open_source
from hokical.metrics._groups import label_table
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._summaries import SummarySums, summarize
from hokical.report._evaluation import DataFacts, Evaluation
from hokical.report._items import judge_items
from hokical.report._judging import Predicted, Setting, check_names
from hokical.streams._partition import check_block


def _sums(
    rows: Predicted, n_classes: int, options: SummaryOptions
) -> tuple[SummarySums, FloatArray]:
    """Of rows of weight above 0: sums of the summary, and by predicted label, (5, classes)."""
    w = rows.filled_weight()
    columns = (np.ones(w.size), w, w**2, w * rows.confidence, w * rows.correct)
    assert rows.label is not None
    by_label = np.stack([sum_by(rows.label, column, n_classes) for column in columns])
    return SummarySums.from_rows(rows, rows.vectors, options), by_label


def evaluate_source(cal: Calibrator | None, source: Any, setting: Setting) -> Evaluation:
    """The evaluation of a source of chunks."""
    options = setting.options
    chunks = open_source(source)
    n_classes = chunks.n_classes if cal is None else cal.n_classes_
    labels = check_names(setting.class_names, n_classes) or tuple(map(str, range(n_classes)))
    softmax = make("uncalibrated").fit(np.zeros((1, n_classes)), [0])
    methods = {"uncalibrated": softmax} | ({} if cal is None else {cal.name: cal})
    sums: dict[str, tuple[SummarySums, FloatArray]] = {}
    first = 0
    for chunk in reblock(chunks, block_rows(n_classes)):
        block = check_block(chunk, first, n_classes, chunks.path)
        first += block.n_rows
        if block.weights is not None and not block.weights.any():
            continue
        for name, method in methods.items():
            rows = Predicted.of_logits(method, block.logits, block.labels, block.weights)
            parts = _sums(rows.counted(), n_classes, options)
            known = sums.get(name)
            sums[name] = parts if known is None else (known[0] + parts[0], known[1] + parts[1])
    if not sums:
        raise ValueError("a source must have at least one row that counts; got none.")
    data = DataFacts(first, n_classes, setting.data_name)
    found: Any = None
    for name, (own, by_label) in sums.items():
        classes, summary = label_table(labels, by_label, options.delta), summarize(own, options)
        levels, known_as = own.levels.levels, methods[name]
        found = Evaluation(name, known_as, summary, levels, data, found, classes)
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
        judged = replace(judge_items(each, items), before=judged)
    return cast(Evaluation, judged)
