"""Evaluations of data that need not fit into memory: one pass, sums that add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import sum_by
from hokical._core.topk import TopK
from hokical._core.types import FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import make
from hokical.dense import Dense
from hokical.dense._items import judge_items
from hokical.io._chunks import block_rows, reblock
from hokical.io._opening import open_source
from hokical.metrics._examples import Examples, Predictions
from hokical.metrics._groups import class_name, label_table
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._summaries import SummarySums, summarize_sums
from hokical.report._evaluation import Evaluation
from hokical.report._provenance import DataFacts, Provenance
from hokical.streams._partition import check_block, report_files


@dataclass(frozen=True, eq=False)
class _Sums:
    """Of one method: sums of the summary, and by predicted label (5, classes)."""

    summary: SummarySums
    by_label: FloatArray

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(self.summary + other.summary, self.by_label + other.by_label)


def evaluate_source(
    cal: Calibrator | None,
    source: Any,
    options: SummaryOptions,
    names: tuple[str, ...],
    data_name: str | None,
) -> Evaluation:
    """The evaluation of a source of chunks."""
    chunks = open_source(source)
    options = replace(options, n_resamples=0)
    if cal is not None:
        cal._check_fitted()
    n_classes = chunks.n_classes if cal is None else cal.n_classes_
    methods: dict[str, Any] = {}
    sums: dict[str, _Sums] = {}
    first, dtype, right = 0, "", 0
    for chunk in reblock(chunks.chunks(), block_rows(n_classes)):
        with report_files(chunks):
            block = check_block(chunk, first, n_classes)
        if not methods:
            methods["uncalibrated"] = make("uncalibrated").fit(block.logits, block.labels)
            methods |= {} if cal is None else {cal.name: cal}
            dtype = str(block.logits.values.dtype)
        right += int((to_host(block.logits.labels) == block.labels).sum())
        first += block.n_rows
        if block.weights is not None and not block.weights.any():
            continue
        for name, method in methods.items():
            found = _sum_block(method, block, options)
            sums[name] = sums[name] + found if name in sums else found
    if not sums:
        raise ValueError("a source must have at least one row that counts; got none.")
    facts = DataFacts(first, n_classes, dtype, right / first, data_name)
    origin = Provenance.collect(None, facts, options.seed)
    labels = [class_name(k, names) for k in range(n_classes)]
    before: Evaluation | None = None
    for name, method in methods.items():
        summary = summarize_sums(sums[name].summary, options)
        classes = label_table(labels, sums[name].by_label, options.delta)
        levels = sums[name].summary.levels.levels
        before = Evaluation(
            name, method, summary, levels, origin, before, classes, class_names=names
        )
    assert before is not None
    return before


def _sum_block(method: Calibrator, block: Any, options: SummaryOptions) -> _Sums:
    """The sums of a checked block."""
    labels, weight = block.labels, block.weights
    predicted = to_host(method.predict(block.logits))
    confidence = to_host(method.predict_confidence(block.logits)).astype(np.float64)
    kept: Any = slice(None) if weight is None else np.flatnonzero(weight)
    weight = None if weight is None else weight[kept]
    rows = Examples(confidence[kept], (predicted == labels)[kept], weight)
    vectors = None
    if not isinstance(block.logits, TopK):
        proba = to_host(method.predict_proba(block.logits))
        vectors = Predictions(proba[kept], labels[kept], weight)
    w = rows.filled_weight()
    columns = (np.ones(w.size), w, w**2, w * rows.confidence, w * rows.correct)
    by_label = np.stack([sum_by(predicted[kept], c, method.n_classes_) for c in columns])
    return _Sums(SummarySums.from_rows(rows, vectors, options), by_label)


def evaluate_dense(
    cal: Dense,
    logits: Any,
    labels: Any,
    mask: Any,
    sample_weight: Any,
    options: SummaryOptions,
    names: tuple[str, ...],
    data_name: str | None,
) -> Evaluation:
    """The evaluation of maps: of all positions that count, intervals and bounds by item."""
    given = (logits, labels, mask, sample_weight)

    def chunks() -> Iterator[tuple[Any, ...]]:
        return (part[:3] for part in cal._read(*given, None))

    once = isinstance(logits, Iterator)  # whose items cannot be looked at again
    source = chunks() if once else chunks
    found = evaluate_source(cal.fitted_calibrator(), source, options, names, data_name)
    both = [each for each in (found.before, found) if each is not None]
    judged: Evaluation | None = None
    for each in both:
        items = () if once else cal._read(*given, None)
        summary, classes = judge_items(each.summary, each.classes, items, each.calibrator, options)
        judged = replace(each, summary=summary, classes=classes, before=judged)
    assert judged is not None
    return judged
