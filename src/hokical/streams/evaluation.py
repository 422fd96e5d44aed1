"""Every metric of a calibrator on a source, in one pass."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sklearn.utils.validation import check_is_fitted

from hokical.bins import check_count
from hokical.metrics.streamed import plus, sums_if_any
from hokical.metrics.summaries import Summary, summarize_sums
from hokical.metrics.sums import FullSums, MetricSums
from hokical.streams.checking import Block, checked_block
from hokical.streams.chunks import block_rows, reblocked
from hokical.streams.dispatch import as_source
from hokical.streams.sources import from_chunks

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator


def evaluate(
    calibrator: BaseCalibrator,
    source: Any,
    *,
    n_bins: int = 15,
    full: bool = False,
    coverage: float = 0.8,
    delta: float = 0.05,
) -> Summary:
    """All metrics and bounds of a calibrator on examples that do not fit into memory.

    Parameters
    ----------
    calibrator : a fitted BaseCalibrator
    source : Source, path, or chunks with labels
    n_bins, coverage, delta
        As in `hokical.metrics.summary`.
    full : bool
        Also score the probabilities of all classes.

    Returns
    -------
    summary : Summary
        Without intervals. Binned metrics, accuracy and the Brier score are exact; what depends on
        the order of all confidences (AUROC, AURC, risk, equal-mass ECE, KS, smooth ECE) is read
        from counts at levels of confidence, fine near 0 and 1 (`hokical.metrics.levels`).

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
    check_is_fitted(calibrator, "n_classes_")
    known = as_source(source)
    rows = from_chunks(source) if known is None else known
    total: MetricSums | None = None
    every: FullSums | None = None
    first = 0
    for chunk in reblocked(rows.chunks(), block_rows(calibrator.n_classes_)):
        block = checked_block(chunk, first, calibrator.n_classes_)
        total = plus(total, top_sums(calibrator, block, n_bins))
        if full:
            every = plus(every, full_sums(calibrator, block, n_bins))
        first += block.n_rows
    if total is None:
        raise ValueError("a source must have at least one row that counts; got none.")
    return summarize_sums(total, every, coverage=coverage, delta=delta)


def top_sums(calibrator: BaseCalibrator, block: Block, n_bins: int) -> MetricSums | None:
    """Sums of a block's confidence; None where no row counts."""
    correct = calibrator.predict(block.logits) == block.labels
    confidence = calibrator.predict_confidence(block.logits)
    make = partial(MetricSums.from_examples, n_bins=n_bins)
    return cast("MetricSums | None", sums_if_any(make, confidence, correct, block.weights))


def full_sums(calibrator: BaseCalibrator, block: Block, n_bins: int) -> FullSums | None:
    """Sums of a block's probabilities; None where no row counts."""
    proba = calibrator.predict_proba(block.logits)
    make = partial(FullSums.from_predictions, n_bins=n_bins)
    return cast("FullSums | None", sums_if_any(make, proba, block.labels, block.weights))
