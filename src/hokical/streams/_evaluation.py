"""Every metric of a calibrator on a source, in one pass."""

from dataclasses import replace
from functools import partial
from typing import Any

from hokical._core.arrays import to_host
from hokical._core.bins import check_count
from hokical.calibrators._calibrator import Calibrator
from hokical.io._chunks import block_rows, reblock
from hokical.io._opening import open_source
from hokical.metrics._by_class import ClassSums
from hokical.metrics._chunked import plus, sums_if_any
from hokical.metrics._summaries import Summary, summarize_sums
from hokical.metrics._sums import FullSums, MetricSums
from hokical.streams._partition import check_block, report_files


def evaluate(
    calibrator: Calibrator,
    source: Any,
    *,
    n_bins: int = 15,
    full: bool = False,
    coverage: float = 0.8,
    delta: float = 0.05,
) -> Summary:
    """All metrics and bounds of a calibrator on examples that do not fit into memory.

    `source` is as in `fit`; `full` also scores the probabilities of all classes; `n_bins`,
    `coverage` and `delta` are as in `hokical.metrics.summary`. There are no intervals. Binned
    metrics, accuracy and the Brier score are exact; what depends on the order of all confidences
    (AUROC, AURC, risk, equal-mass ECE, KS, smooth ECE) is read from counts at levels of confidence,
    fine near 0 and 1 (`hokical.metrics._sums`).

    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import evaluate, open_source
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=900)
    >>> logits = rng.normal(size=(900, 3)) + 2 * np.eye(3)[labels]
    >>> cal = make("temps").fit(logits[:300], labels[:300])
    >>> evaluate(cal, open_source(logits[300:], labels[300:])).n
    600
    """
    check_count(n_bins)
    calibrator._check_fitted()
    n_classes = calibrator.n_classes_
    sums: list[Any] = [None, None, None]  # of the top label, of all classes, by predicted label
    first = 0
    chunks = open_source(source)
    for chunk in reblock(chunks.chunks(), block_rows(n_classes)):
        with report_files(chunks):
            block = check_block(chunk, first, n_classes)
        predicted = to_host(calibrator.predict(block.logits))
        confidence = to_host(calibrator.predict_confidence(block.logits))
        rows = (confidence, predicted == block.labels, block.weights)
        by_class = partial(ClassSums.from_examples, predicted, n_classes=n_classes)
        more = [sums_if_any(partial(MetricSums.from_examples, n_bins=n_bins), *rows), None]
        if full:
            proba = to_host(calibrator.predict_proba(block.logits))
            every = partial(FullSums.from_predictions, n_bins=n_bins)
            more[1] = sums_if_any(every, proba, block.labels, block.weights)
        sums = list(map(plus, sums, [*more, sums_if_any(by_class, *rows)]))
        first += block.n_rows
    if sums[0] is None:
        raise ValueError("a source must have at least one row that counts; got none.")
    found = summarize_sums(*sums, coverage=coverage, delta=delta)
    return found if chunks.independent else replace(found, bounds={})
