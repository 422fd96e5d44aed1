"""Class frequencies and accuracy of a source without labels."""

from typing import Any

import numpy as np

from hokical._core.types import AnyArray, FloatArray
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._shift import MOST_NUMBERS
from hokical.guarantees._row_sketch import row_draws
from hokical.guarantees._shift import ShiftEstimate
from hokical.io._chunks import check_row_count
from hokical.io._reading import open_source


def estimate_shift(calibrator: Calibrator, source: Any, *, delta: float = 0.05) -> ShiftEstimate:
    """`Calibrator.estimate_shift` for rows that do not fit into memory, in one pass.

    `source` is as in `fit`, but logits alone are enough. Of more than 2^24 / classes rows so many
    are kept, chosen by their numbers: the same as of an array, however the source is cut.

    >>> from hokical import make
    >>> from hokical.demo import demo_logits
    >>> from hokical.streams import estimate_shift, open_source
    >>> (val_logits, val_labels), (logits, _) = demo_logits()
    >>> cal = make("temps").fit(val_logits, val_labels)
    >>> estimate_shift(cal, open_source(logits)).verdict
    'no change'
    """
    calibrator._check_fitted()
    most, first = MOST_NUMBERS // calibrator.n_classes_, 0
    kept: list[tuple[FloatArray, AnyArray, FloatArray]] = []
    for chunk in open_source(source, fitted_by=calibrator):
        key = row_draws(first, chunk.n_rows)
        weights = np.ones(chunk.n_rows) if chunk.weights is None else np.asarray(chunk.weights)
        kept.append((key, chunk.logits, weights))
        first += chunk.n_rows
        if sum(len(part[0]) for part in kept) > 2 * most:
            kept = [_smallest(kept, most)]
    check_row_count(first, None)
    _, logits, weights = _smallest(kept, most)
    return calibrator.estimate_shift(logits, weights, delta=delta)


def _smallest(
    parts: list[tuple[FloatArray, AnyArray, FloatArray]], most: int
) -> tuple[FloatArray, AnyArray, FloatArray]:
    """Rows of the smallest keys, in their order."""
    key, logits, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = np.sort(np.argsort(key, kind="stable")[:most])
    return key[rows], logits[rows], weights[rows]
