"""Every metric of a calibrator on a source, in one pass."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from hokical.calibrators.calibrator import Calibrator
from hokical.core.arrays import to_host
from hokical.core.bins import check_count
from hokical.fitting.partitions import Block
from hokical.io.chunks import block_rows, reblock
from hokical.io.opening import as_source
from hokical.metrics.chunked import plus, sums_if_any
from hokical.metrics.classes import ClassSums
from hokical.metrics.summaries import Summary, summarize_sums
from hokical.metrics.sums import FullSums, MetricSums
from hokical.streams.blocks import check_block, report_files


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

    There are no intervals. Binned metrics, accuracy and the Brier score are exact; what depends on
    the order of all confidences (AUROC, AURC, risk, equal-mass ECE, KS, smooth ECE) is read from
    counts at levels of confidence, fine near 0 and 1 (`hokical.metrics.levels`).

    Parameters
    ----------
    source : ChunkSource, path, pyarrow Dataset or Table, or chunks with labels
    n_bins, coverage, delta
        As in `hokical.metrics.summary`.
    full : bool
        Also score the probabilities of all classes.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators import make
    >>> from hokical.streams import evaluate, from_arrays
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=900)
    >>> logits = rng.normal(size=(900, 3)) + 2 * np.eye(3)[labels]
    >>> cal = make("temps").fit(logits[:300], labels[:300])
    >>> evaluate(cal, from_arrays(logits[300:], labels[300:])).n
    600
    """
    check_count(n_bins)
    calibrator.check_fitted()
    n_classes = calibrator.n_classes_
    total: MetricSums | None = None
    every: FullSums | None = None
    classes: ClassSums | None = None
    first = 0
    chunks = as_source(source)
    for chunk in reblock(chunks.chunks(), block_rows(n_classes)):
        with report_files(chunks):
            block = check_block(chunk, first, n_classes)
        predicted = to_host(calibrator.predict(block.logits))
        confidence = to_host(calibrator.predict_confidence(block.logits))
        columns = (confidence, predicted == block.labels, block.weights)
        total = plus(total, sums_if_any(partial(MetricSums.from_examples, n_bins=n_bins), *columns))
        by_class = partial(ClassSums.from_examples, predicted, n_classes=n_classes)
        classes = plus(classes, sums_if_any(by_class, *columns))
        if full:
            every = plus(every, _full_sums(calibrator, block, n_bins))
        first += block.n_rows
    if total is None:
        raise ValueError("a source must have at least one row that counts; got none.")
    found = summarize_sums(total, every, classes, coverage=coverage, delta=delta)
    return found if chunks.independent else replace(found, bounds={})


def _full_sums(calibrator: Calibrator, block: Block, n_bins: int) -> FullSums | None:
    """Sums of a block's probabilities; None where no row counts."""
    proba = to_host(calibrator.predict_proba(block.logits))
    make = partial(FullSums.from_predictions, n_bins=n_bins)
    return cast("FullSums | None", sums_if_any(make, proba, block.labels, block.weights))
