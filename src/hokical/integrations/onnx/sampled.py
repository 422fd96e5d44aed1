"""Sampled stability in a graph: the noise of the fit is stored in it."""

from __future__ import annotations

import numpy as np

from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Rows
from hokical.stability.sampled import Draws

#: Most numbers of noise (draws times classes) that are stored: 64 MB in float32.
MOST_NUMBERS = 1 << 24
#: Noise is applied in so many parts at most, so that a batch meets some of the draws at a time.
_MOST_PARTS = 64


def survivals(rows: Rows, draws: Draws) -> Value:
    """How many of the draws keep the label of each row, (n, 1), as the core counts them.

    Sums of logit and noise are in float64 for float64 logits, else in float32.
    """
    check_size(draws)
    noise = draws.values.astype(rows.dtype)
    below_top = (-rows.margins).cast(rows.dtype)
    spread = rows.graph.op("Unsqueeze", below_top, np.array([1]))
    kept = []
    for part in np.array_split(noise, min(_MOST_PARTS, draws.n_draws)):
        winners = (spread + rows.graph.constant(part[None], rows.dtype)).argmax(axis=2)
        same = rows.graph.op("Squeeze", winners, np.array([2])).equals(rows.labels)
        kept.append(same.count())
    return rows.graph.concat(*kept).sum().as_float()


def check_size(draws: Draws) -> None:
    """Refuse noise that would make the file huge."""
    size = draws.n_draws * draws.n_classes
    if size > MOST_NUMBERS:
        raise ValueError(
            f"`draws` times classes must be at most {MOST_NUMBERS:,} to be stored in a graph; got "
            f"{draws.n_draws:,} draws of {draws.n_classes:,} classes, {size:,} numbers. Fit with "
            "fewer draws, or with exact stability, `Hoki(draws=None)`, which stores none."
        )
