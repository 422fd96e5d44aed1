"""Evaluations of data that need not fit into memory: one pass, sums that add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import sum_by
from hokical._core.types import FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import make
from hokical.dense import Dense
from hokical.dense._items import judge_items
from hokical.io._chunks import block_rows, reblock
from hokical.io._opening import open_source
from hokical.metrics._groups import class_name, label_table
from hokical.metrics._metric import SummaryOptions
from hokical.metrics._summaries import SummarySums, summarize
from hokical.report._evaluation import Evaluation
from hokical.report._judging import Predicted
from hokical.report._provenance import DataFacts, Provenance
from hokical.streams._partition import check_block, report_files


@dataclass(frozen=True, eq=False)
class _Sums:
    """Of one method: sums of the summary, and by predicted label (5, classes)."""

    summary: SummarySums
    by_label: FloatArray

    @classmethod
    def from_rows(cls, rows: Predicted, n_classes: int, options: SummaryOptions) -> Self:
        """The sums of rows of weight above 0."""
        examples, w = rows.examples, rows.examples.filled_weight()
        columns = (np.ones(w.size), w, w**2, w * rows.confidence, w * rows.correct)
        assert rows.labels is not None
        by_label = np.stack([sum_by(rows.labels, column, n_classes) for column in columns])
        return cls(SummarySums.from_rows(examples, rows.vectors, options), by_label)

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
            rows = Predicted.of_logits(method, block.logits, block.labels, block.weights)
            found = _Sums.from_rows(rows.counted(), n_classes, options)
            sums[name] = sums[name] + found if name in sums else found
    if not sums:
        raise ValueError("a source must have at least one row that counts; got none.")
    origin = Provenance.collect(None, DataFacts(first, n_classes, dtype, right / first, data_name))
    labels = [class_name(k, names) for k in range(n_classes)]
    before: Evaluation | None = None
    for name, method in methods.items():
        summary = summarize(sums[name].summary, options)
        classes = label_table(labels, sums[name].by_label, options.delta)
        levels = sums[name].summary.levels.levels
        before = Evaluation(
            name, method, summary, levels, origin, before, classes, class_names=names
        )
    assert before is not None
    return before


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
    judged: Evaluation | None = None
    for each in found.both:
        items = () if once else cal._read(*given, None)
        summary, classes = judge_items(each.summary, each.classes, items, each.calibrator, options)
        judged = replace(each, summary=summary, classes=classes, before=judged)
    assert judged is not None
    return judged
