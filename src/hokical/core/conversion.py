"""Logits from binary scores and from probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hokical.core.reading import to_numpy
from hokical.core.types import FloatArray


def from_binary_scores(scores: ArrayLike, *, name: str = "scores") -> FloatArray:
    """Logits (n, 2) from the 1-D score (log-odds) of class 1 of a binary classifier.

    >>> from_binary_scores([-1.0, 2.0])
    array([[ 0., -1.],
           [ 0.,  2.]])
    """
    array = to_numpy(scores, name)
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` must be 1-D (n,); got shape {array.shape}. Scores (n, classes) are "
            "logits: use them as they are."
        )
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers; got dtype {array.dtype}.")
    column = array.astype(np.float64)
    if not np.isfinite(column).all():
        row = int(np.argmin(np.isfinite(column)))
        raise ValueError(
            f"`{name}` must be finite; got {column[row]} in row {row}. Fix or drop the row."
        )
    return np.stack([np.zeros_like(column), column], axis=1)


def from_probabilities(probabilities: ArrayLike, *, name: str = "probabilities") -> FloatArray:
    """Logits from probabilities: (n, classes) rows that sum to 1, or (n,) for class 1 of two.

    A probability of 0 becomes -inf, an impossible class.

    >>> from_probabilities([[0.5, 0.5, 0.0]])
    array([[-0.69314718, -0.69314718,        -inf]])
    """
    array = to_numpy(probabilities, name)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"`{name}` must be real numbers; got dtype {array.dtype}.")
    proba = array.astype(np.float64)
    if proba.ndim == 1:
        proba = np.stack([1.0 - proba, proba], axis=1)
    if proba.ndim != 2 or proba.shape[0] == 0 or proba.shape[1] < 2:
        raise ValueError(
            f"`{name}` must be (n, classes) with at least one row and two classes, or (n,) for "
            f"class 1 of two; got shape {array.shape}."
        )
    _check_probability_rows(proba, name)
    with np.errstate(divide="ignore"):
        return np.log(np.minimum(proba, 1.0))


def _check_probability_rows(proba: FloatArray, name: str) -> None:
    """Entries in [0, 1] up to rounding, row sums of 1 up to the precision of float16."""
    inside = (proba >= 0.0) & (proba <= 1.0 + 1e-6)
    if not inside.all():
        row, column = (int(i) for i in np.argwhere(~inside)[0])
        raise ValueError(
            f"`{name}` must lie in [0, 1]; got {proba[row, column]:g} in row {row}, column "
            f"{column}. If these are logits, use them as they are."
        )
    sums = proba.sum(axis=1)
    off = np.abs(sums - 1.0) > 1e-2
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"`{name}` rows must sum to 1; row {row} sums to {sums[row]:.6g}. Normalise the rows; "
            "if these are logits, use them as they are."
        )
