"""Exact stability under Gumbel noise: the softmax at temperature `scale`, in closed form."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]


@singledispatch
def stability(logits: Logits, scale: float) -> FloatArray:
    """gamma of every row, (n,): 1 / sum_i exp(-d_i), over the columns and the tail."""
    out = np.empty(logits.n_rows)
    tail = logits.tail

    def work(rows: slice) -> None:
        total = np.exp(logits.margins(rows) / -scale).sum(axis=1)
        if tail is not None:
            total += tail.count[rows] * np.exp(tail.margin[rows] / -scale)
        out[rows] = 1.0 / total

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_columns))
    return out


@singledispatch
def distribution(logits: Logits, scale: float) -> FloatArray:
    """pi of every row and class, (n, classes)."""
    out = np.empty(logits.values.shape)

    def work(rows: slice) -> None:
        weights = np.exp(logits.margins(rows) / -scale)
        out[rows] = weights / weights.sum(axis=1, keepdims=True)

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
    return out
