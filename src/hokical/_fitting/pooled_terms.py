"""Likelihoods for partial pooling: a binary outcome, and one of several classes.

Scores are linear in the coefficients of the cell that an example lies in. Each likelihood has

- `evaluate(coef, starts)`: the loss, its gradient (cells, features) and a state that the others
  need, for coefficients (cells, features) of cells whose rows begin at `starts` (cells + 1,);
- `curvature(state, starts)`: the Hessians (cells, features, features) of some cells;
- `losses_left_out(state, starts, covariance)`: the loss of each row of some cells by one Newton
  step of the fit without it; `covariance` (cells, features, features) is that of coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from hokical._core.parallel import cut_rows
from hokical._core.special import expit
from hokical._core.types import BoolArray, FloatArray, IntArray

#: Cells of fewer rows than this are summed all at once.
_FEW_ROWS = 100
#: Numbers of the (classes, classes) matrices that are held at a time.
_HELD = 1 << 18


class _Rows:
    """Arrays with one row per example, as a frozen dataclass."""

    def take(self, rows: IntArray) -> Self:
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))  # type: ignore[arg-type]


def _ranges(starts: IntArray) -> Iterator[tuple[int, slice]]:
    """The rows of each cell."""
    edges = starts.tolist()
    return ((k, slice(*edges[k : k + 2])) for k in range(len(edges) - 1))


def binary_losses(eta: FloatArray, hits: BoolArray) -> FloatArray:
    """Log losses (n,) of log-odds."""
    return np.logaddexp(0.0, np.where(hits, -eta, eta))


@dataclass(frozen=True, eq=False)
class BinaryTerms(_Rows):
    """Log-odds `offset` (n,) + `features` (n, c) @ coefficients of `hits` (n,)."""

    features: FloatArray
    hits: BoolArray
    offset: FloatArray
    weights: FloatArray

    @property
    def n_features(self) -> int:
        return int(self.features.shape[1])

    def evaluate(self, coef: FloatArray, starts: IntArray) -> tuple[float, FloatArray, Any]:
        eta = self.offset + (self.features * np.repeat(coef, np.diff(starts), axis=0)).sum(axis=1)
        loss = float(self.weights @ binary_losses(eta, self.hits))
        residual = self.weights * (expit(eta, np) - self.hits)
        return loss, np.add.reduceat(self.features * residual[:, None], starts[:-1]), eta

    def curvature(self, state: Any, starts: IntArray) -> FloatArray:
        rows = slice(starts[0], starts[-1])
        proba, features = expit(state[rows], np), self.features[rows]
        bent = features * (self.weights[rows] * proba * (1.0 - proba))[:, None]
        starts = starts - starts[0]
        if len(features) < _FEW_ROWS * len(starts):  # a product per cell would be mostly overhead
            columns = [np.add.reduceat(bent * one[:, None], starts[:-1]) for one in features.T]
            return np.stack(columns, axis=1)
        return np.stack([bent[rows].T @ features[rows] for _, rows in _ranges(starts)])

    def losses_left_out(self, state: Any, starts: IntArray, covariance: FloatArray) -> FloatArray:
        rows = slice(starts[0], starts[-1])
        eta, features, hits = state[rows], self.features[rows], self.hits[rows]
        lever = np.empty(eta.size)
        for cell, part in _ranges(starts - starts[0]):
            lever[part] = ((features[part] @ covariance[cell]) * features[part]).sum(axis=1)
        lever, proba = lever * self.weights[rows], expit(eta, np)
        eta = eta + lever * (proba - hits) / np.maximum(1.0 - proba * (1.0 - proba) * lever, 1e-6)
        return binary_losses(eta, hits)

    def ridge(self, coef: FloatArray, penalty: float) -> tuple[float, FloatArray, FloatArray]:
        """Without groups: the loss with a penalty per unit of weight, gradient and Hessian."""
        starts, total = np.array([0, self.hits.size]), float(self.weights.sum())
        loss, slope, state = self.evaluate(coef[None, :], starts)
        hessian = self.curvature(state, starts)[0] + penalty * np.eye(coef.size)
        value = loss + 0.5 * penalty * float(coef @ coef)
        return value / total, (slope[0] + penalty * coef) / total, hessian / total


@dataclass(frozen=True, eq=False)
class SoftmaxTerms(_Rows):
    """Scores `offset` (n, K) + scale * `log_proba` (n, K) + bias (K,) of the classes `labels` (n,).

    The coefficients are the scale and then the biases, 1 + K. A class that cannot be has an offset
    of -inf, and 0 in `log_proba`.
    """

    log_proba: FloatArray
    labels: IntArray
    offset: FloatArray
    weights: FloatArray

    @property
    def n_features(self) -> int:
        return 1 + int(self.log_proba.shape[1])

    def evaluate(self, coef: FloatArray, starts: IntArray) -> tuple[float, FloatArray, Any]:
        scores = np.empty_like(self.offset)
        for cell, rows in _ranges(starts):
            scores[rows] = self.log_proba[rows] * coef[cell, 0] + coef[cell, 1:]
        scores += self.offset
        proba, losses = _softmax_loss(scores, self.labels)
        residual = proba.copy()
        residual[np.arange(self.labels.size), self.labels] -= 1.0
        residual *= self.weights[:, None]
        scale = (residual * self.log_proba).sum(axis=1)
        parts = [
            np.append(scale[rows].sum(), residual[rows].sum(axis=0)) for _, rows in _ranges(starts)
        ]
        return float(self.weights @ losses), np.stack(parts), (scores, proba)

    def curvature(self, state: Any, starts: IntArray) -> FloatArray:
        found = np.empty((len(starts) - 1, self.n_features, self.n_features))
        for cell, rows in _ranges(starts):
            proba, logs = state[1][rows], self.log_proba[rows]
            weighed = proba * self.weights[rows, None]
            spread = logs - (proba * logs).sum(axis=1, keepdims=True)
            tilt = weighed * spread
            found[cell, 0, 0] = (tilt * spread).sum()
            found[cell, 0, 1:] = found[cell, 1:, 0] = tilt.sum(axis=0)
            found[cell, 1:, 1:] = np.diag(weighed.sum(axis=0)) - weighed.T @ proba
        return found

    def losses_left_out(self, state: Any, starts: IntArray, covariance: FloatArray) -> FloatArray:
        size = self.log_proba.shape[1]
        parts = []
        for cell, rows in _ranges(starts):
            for part in cut_rows(rows.stop - rows.start, max(1, _HELD // (size * size))):
                here = slice(rows.start + part.start, rows.start + part.stop)
                moved = state[0][here] + self._change(state[1][here], here, covariance[cell])
                parts.append(_softmax_loss(moved, self.labels[here])[1])
        return np.concatenate(parts)

    def _change(self, proba: FloatArray, rows: slice, covariance: FloatArray) -> FloatArray:
        """How scores (rows, K) move without their own example."""
        logs, residual = self.log_proba[rows], proba.copy()
        residual[np.arange(len(residual)), self.labels[rows]] -= 1.0
        tilt = 0.5 * covariance[0, 0] * logs + covariance[0, 1:]
        own = logs[:, :, None] * tilt[:, None, :]
        own = (own + np.swapaxes(own, 1, 2) + covariance[1:, 1:]) * self.weights[rows, None, None]
        lever = np.eye(proba.shape[1]) - proba[:, :, None] * (own - proba[:, None, :] @ own)
        return np.asarray((own @ np.linalg.solve(lever, residual[:, :, None]))[:, :, 0])


@dataclass(frozen=True, eq=False)
class ScaleTerms(_Rows):
    """Scores `offset` (n, K) + scale * `log_proba` (n, K): `SoftmaxTerms` without biases."""

    log_proba: FloatArray
    labels: IntArray
    offset: FloatArray
    weights: FloatArray

    n_features: ClassVar[int] = 1

    def evaluate(self, coef: FloatArray, starts: IntArray) -> tuple[float, FloatArray, Any]:
        scores = self.offset + np.repeat(coef[:, 0], np.diff(starts))[:, None] * self.log_proba
        proba, losses = _softmax_loss(scores, self.labels)
        mean = (proba * self.log_proba).sum(axis=1)
        residual = self.weights * (mean - self.log_proba[np.arange(self.labels.size), self.labels])
        spread = (proba * (self.log_proba - mean[:, None]) ** 2).sum(axis=1) * self.weights
        gradient = np.add.reduceat(residual, starts[:-1])[:, None]
        return float(self.weights @ losses), gradient, (scores, residual, spread)

    def curvature(self, state: Any, starts: IntArray) -> FloatArray:
        rows = slice(starts[0], starts[-1])
        return np.asarray(np.add.reduceat(state[2][rows], starts[:-1] - starts[0])[:, None, None])

    def losses_left_out(self, state: Any, starts: IntArray, covariance: FloatArray) -> FloatArray:
        rows = slice(starts[0], starts[-1])
        own = np.repeat(covariance[:, 0, 0], np.diff(starts))
        step = own * state[1][rows] / np.maximum(1.0 - own * state[2][rows], 1e-3)
        moved = state[0][rows] + step[:, None] * self.log_proba[rows]
        return _softmax_loss(moved, self.labels[rows])[1]


def _softmax_loss(scores: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities (n, K) and log losses (n,)."""
    top = scores.max(axis=1, keepdims=True)
    proba = np.exp(scores - top)
    total = proba.sum(axis=1)
    own = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return proba / total[:, None], np.log(total) + top[:, 0] - own


PooledTerms = BinaryTerms | SoftmaxTerms | ScaleTerms
