"""Chunks of a stream as checked blocks; errors say where in the stream a row is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Fitted, Logits, as_labels, as_logits, as_weights
from hokical.streams.chunks import Chunk

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Block:
    """Checked rows: `logits`, `labels` (n,), `weights` (n,) or None, and the first row's number."""

    logits: Logits
    labels: IntArray
    weights: FloatArray | None
    first_row: int

    @property
    def n_rows(self) -> int:
        return self.logits.n_rows

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the classifier's own label is right, (n,)."""
        return np.asarray(self.logits.labels == self.labels)

    @property
    def counting(self) -> NDArray[np.bool_]:
        """Rows of a weight above 0, (n,)."""
        return np.ones(self.n_rows, np.bool_) if self.weights is None else self.weights > 0.0


def checked_block(chunk: Chunk, first_row: int, n_classes: int) -> Block:
    """Check a chunk's rows; errors say where in the stream they are."""
    with row_reported(first_row):
        if chunk.labels is None:
            raise ValueError("a fit needs labels: give chunks of (logits, labels).")
        logits = as_logits(chunk.logits)
        if logits.n_classes != n_classes:
            raise ValueError(
                f"all chunks must have the same classes; got {logits.n_classes} columns after "
                f"{n_classes}."
            )
        labels = as_labels(chunk.labels, logits.n_rows, n_classes)
        return Block(logits, labels, _checked_weights(chunk.weights, logits.n_rows), first_row)


def checked_logits(chunk: Chunk, first_row: int, fitted_by: Fitted) -> Logits:
    """Check a chunk's logits alone, for a fitted calibrator."""
    with row_reported(first_row):
        return as_logits(chunk.logits, fitted_by=fitted_by)


def _checked_weights(weights: NDArray[Any] | None, n_rows: int) -> FloatArray | None:
    """Weights of a block, which may all be 0 as long as other blocks' are not."""
    if weights is None:
        return None
    if weights.dtype.kind in "fiub" and weights.shape == (n_rows,) and not weights.any():
        return np.zeros(n_rows)
    return as_weights(weights, n_rows)


@contextmanager
def row_reported(first_row: int) -> Iterator[None]:
    """Errors count rows within a block; say where it begins."""
    try:
        yield
    except (TypeError, ValueError) as error:
        where = f" (Rows are counted from row {first_row} of the source.)" if first_row else ""
        raise type(error)(f"{error}{where}") from error
