"""IRM and IROvA-TS as their authors publish them (Zhang, Kailkhura, Han: Mix-n-Match,
2020).

This is how the paper ran them. Unlike `irm` and `irova_ts` of hokical, which give
probabilities: rows are not normalised, so that the confidence is the fitted value of
the top class itself; values can be 0 and 1; between two steps the function is linear in
the probability. The temperature of IROvA-TS is that of least squared error, the
authors' default.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.isotonic import IsotonicRegression

from hokical.calibrators import EnsembleTemperatureScaling
from hokical_paper.types import AnyArray, FloatArray, IntArray

#: Share of the probability added to each value, so that classes on one step keep their
#: order.
_TRACE = 1e-9

#: From logits (n, classes) to values (n, classes) in [0, 1 + 1e-9], which need not sum
#: to 1.
Fitted = Callable[[AnyArray], FloatArray]


def fit_irm(logits: AnyArray, labels: IntArray) -> Fitted:
    """One isotonic regression for the probabilities of all classes, pooled.

    >>> logits = np.log([[0.7, 0.3], [0.6, 0.4], [0.8, 0.2]])
    >>> fit_irm(logits, np.array([0, 1, 0]))(logits[:2]).round(3).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    proba = _softmax(logits)
    hits = np.arange(proba.shape[1]) == labels[:, None]
    curve = _fit_curve(proba.ravel(), hits.ravel())

    def values(new: AnyArray) -> FloatArray:
        rows = _softmax(new)
        return np.asarray(
            curve.predict(rows.ravel()).reshape(rows.shape) + _TRACE * rows
        )

    return values


def fit_irova_ts(logits: AnyArray, labels: IntArray) -> Fitted:
    """An isotonic regression for each class, of its temperature-scaled
    probabilities.
    """
    temperature = EnsembleTemperatureScaling().fit(logits, labels).temperature_
    proba = _softmax(logits, temperature)
    curves = [_fit_curve(column, labels == k) for k, column in enumerate(proba.T)]

    def values(new: AnyArray) -> FloatArray:
        rows = _softmax(new, temperature)
        columns = [
            curve.predict(column) for curve, column in zip(curves, rows.T, strict=True)
        ]
        return np.asarray(np.stack(columns, axis=1) + _TRACE * rows)

    return values


def _fit_curve(proba: FloatArray, hits: AnyArray) -> IsotonicRegression:
    return IsotonicRegression(out_of_bounds="clip").fit(proba, hits.astype(np.float64))


def _softmax(logits: AnyArray, temperature: float = 1.0) -> FloatArray:
    scaled = np.asarray(logits, np.float64) / temperature
    shares = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
