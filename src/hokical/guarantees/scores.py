"""What a threshold is put on: log-odds that the label is right, on levels fixed in advance.

Levels are equally spaced in asinh(log-odds): evenly around 0, by a fixed share (0.4 %) far from it,
so the same levels suit logits of every scale. That they do not depend on data is what makes tests
at them valid, and tables of them add up.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_PER_UNIT = 256
_LOWEST = -4 * _PER_UNIT
#: Number of levels: log-odds from -27 to 1490, farther than a softmax in float64 can go.
LEVELS = 12 * _PER_UNIT


def score_levels(log_odds: Any) -> IntArray:
    """Level of each of the log-odds, 0 ... LEVELS - 1; what lies outside counts with the ends."""
    place = np.floor(np.arcsinh(np.asarray(log_odds, np.float64)) * _PER_UNIT) - _LOWEST
    return np.asarray(np.clip(place, 0, LEVELS - 1), np.int64)


def level_log_odds(level: int) -> float:
    """The smallest log-odds on a level, -inf for the lowest."""
    return float(np.sinh((level + _LOWEST) / _PER_UNIT)) if level > 0 else -np.inf


def confidence_log_odds(confidence: FloatArray) -> FloatArray:
    """log(p / (1 - p)), infinite at 0 and 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(confidence) - np.log1p(-confidence))


@singledispatch
def label_log_odds(logits: Logits) -> FloatArray:
    """Softmax log-odds of the classifier's own label, (n,): -log sum_{i != label} exp(-d_i).

    The sum leaves the label out instead of taking it off, so nothing cancels however sure it is.
    """
    rest = np.empty(logits.n_rows)

    def work(rows: slice) -> None:
        block = logits.block(rows)
        with np.errstate(over="ignore"):  # 1e38 above -1e38: as good as impossible
            terms = block - logits.top[rows, None].astype(block.dtype)
        rest[rows] = _sum_without_label(logits, rows, terms)
        lost = rows.start + np.flatnonzero(rest[rows] < np.finfo(np.float32).tiny)
        if lost.size:  # so sure that float32 could not hold the others
            part = logits.take(lost)
            every = slice(0, lost.size)
            rest[lost] = _sum_without_label(part, every, -part.margins(every))

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_columns))
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(rest))


def _sum_without_label(logits: Logits, rows: slice, terms: NDArray[Any]) -> FloatArray:
    """Sum of exp(-d) over all classes but the label, (rows,); overwrites `terms`, which are -d."""
    tail = logits.tail
    column = logits.labels[rows] if tail is None else np.argmax(terms, axis=1)
    np.exp(terms, out=terms)
    terms[np.arange(column.size), column] = 0.0
    total = np.asarray(terms.sum(axis=1, dtype=np.float64))
    return total if tail is None else total + tail.count[rows] * np.exp(-tail.margin[rows])
