"""Likelihoods for partial pooling: a binary outcome, and one of several classes.

Scores are linear in coefficients: common ones, to the first of which those of the cell that an
example lies in are added. `cells` (cells, n) is a sparse matrix that sums rows, which are sorted by
cell. Each likelihood has

- `evaluate(common, own, cells)`: the loss, its gradients (features,) and (cells, own) by both kinds
  of coefficients, and a state that the others need;
- `curvature(state, cells, n_own)`: the Hessian (features, features), and the part (cells, features,
  own) that each cell has in its first columns;
- `scores_left_out(state, rows, covariance)`: scores of some rows by one Newton step of the fit
  without each; `covariance` (rows, features, features) is that of the coefficients of its cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from hokical._core.special import expit
from hokical._core.types import BoolArray, FloatArray, IntArray

#: Cells of fewer rows than this on average are summed all at once.
_FEW_ROWS = 20


def binary_losses(eta: FloatArray, hits: BoolArray) -> FloatArray:
    """Log losses (n,) of log-odds."""
    return np.logaddexp(0.0, np.where(hits, -eta, eta))


def sum_cells(cell: IntArray) -> Any:
    """The sparse matrix (cells, n) for the cells (n,) of rows that are sorted by them."""
    from scipy.sparse import csr_array

    ends = np.append(np.flatnonzero(np.diff(cell, prepend=-1)), cell.size)
    return csr_array((np.ones(cell.size), np.arange(cell.size), ends))


def _per_row(coef: FloatArray, cells: Any) -> FloatArray:
    return np.repeat(coef, np.diff(cells.indptr), axis=0)


def _sum_products(left: FloatArray, right: FloatArray, cells: Any) -> FloatArray:
    """Sums (cells, a, b) of the outer products of rows (n, a) and (n, b)."""
    if len(left) < _FEW_ROWS * cells.shape[0]:  # a product per cell would be mostly overhead
        return np.stack([cells @ (left * one[:, None]) for one in right.T], axis=2)
    edges = cells.indptr[1:-1]
    parts = zip(np.split(left, edges), np.split(right, edges), strict=True)
    return np.stack([one.T @ other for one, other in parts])


class _Terms:
    """The base of both: dataclasses of one row per example."""

    weights: FloatArray

    @cached_property
    def total(self) -> float:
        return float(self.weights.sum())

    def take(self, rows: Any) -> Self:
        parts = (getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined]
        return type(self)(*(part[rows] if np.ndim(part) else part for part in parts))


@dataclass(frozen=True, eq=False)
class BinaryTerms(_Terms):
    """Log-odds `offset` (n,) + `features` (n, c) @ coefficients of `hits` (n,)."""

    features: FloatArray
    hits: BoolArray
    offset: FloatArray
    weights: FloatArray

    @property
    def n_features(self) -> int:
        return int(self.features.shape[1])

    def losses(self, scores: FloatArray) -> FloatArray:
        """Log losses (n,)."""
        return binary_losses(scores, self.hits)

    def evaluate(
        self, common: FloatArray, own: FloatArray, cells: Any
    ) -> tuple[float, FloatArray, FloatArray, Any]:
        features = self.features[:, : own.shape[1]]
        eta = self.offset + self.features @ common + (features * _per_row(own, cells)).sum(axis=1)
        residual = self.weights * (expit(eta, np) - self.hits)
        loss = float(self.weights @ self.losses(eta))
        return loss, residual @ self.features, cells @ (features * residual[:, None]), eta

    def curvature(self, state: Any, cells: Any, n_own: int) -> tuple[FloatArray, FloatArray]:
        proba = expit(state, np)
        bent = self.features * (self.weights * proba * (1.0 - proba))[:, None]
        return bent.T @ self.features, _sum_products(bent, self.features[:, :n_own], cells)

    def scores_left_out(self, state: Any, rows: slice, covariance: FloatArray) -> FloatArray:
        eta, features, hits = state[rows], self.features[rows], self.hits[rows]
        lever = (features[:, None, :] @ covariance @ features[:, :, None])[:, 0, 0]
        lever, proba = lever * self.weights[rows], expit(eta, np)
        step = lever * (proba - hits) / np.maximum(1.0 - proba * (1.0 - proba) * lever, 1e-6)
        return np.asarray(eta + step)

    def ridge(self, coef: FloatArray, penalty: float) -> tuple[float, FloatArray, FloatArray]:
        """Without groups: the loss with a penalty per unit of weight, gradient and Hessian."""
        cells, total = sum_cells(np.zeros(self.hits.size, np.int64)), self.total
        loss, slope, _, state = self.evaluate(coef, np.zeros((1, 0)), cells)
        hessian = self.curvature(state, cells, 1)[0] + penalty * np.eye(coef.size)
        value = loss + 0.5 * penalty * float(coef @ coef)
        return value / total, (slope + penalty * coef) / total, hessian / total


@dataclass(frozen=True, eq=False)
class SoftmaxTerms(_Terms):
    """Scores `offset` (n, K) + scale * `log_proba` (n, K) + bias (K,) of the classes `labels` (n,).

    The coefficients are the scale and, if `biased`, the biases. A masked class has an offset of
    -inf, and 0 in `log_proba`.
    """

    log_proba: FloatArray
    labels: IntArray
    offset: FloatArray
    weights: FloatArray
    biased: bool = True

    @property
    def n_features(self) -> int:
        return 1 + int(self.log_proba.shape[1]) if self.biased else 1

    def losses(self, scores: FloatArray) -> FloatArray:
        """Log losses (n,)."""
        return _softmax_loss(scores, self.labels)[1]

    def evaluate(
        self, common: FloatArray, own: FloatArray, cells: Any
    ) -> tuple[float, FloatArray, FloatArray, Any]:
        scores = self.offset + self._scores(_per_row(common + own, cells), slice(None))
        proba, losses = _softmax_loss(scores, self.labels)
        mean = self._sum_features(proba, self.log_proba)
        slope = (mean - self._observed) * self.weights[:, None]
        loss = float(self.weights @ losses)
        return loss, slope.sum(axis=0), cells @ slope, (scores, proba, mean)

    def curvature(self, state: Any, cells: Any, n_own: int) -> tuple[FloatArray, FloatArray]:
        _, proba, mean = state
        found = self._second_moments(proba * self.weights[:, None], self.log_proba, cells)
        found -= _sum_products(mean * self.weights[:, None], mean, cells)
        return found.sum(axis=0), found[:, :, :n_own]

    def scores_left_out(self, state: Any, rows: slice, covariance: FloatArray) -> FloatArray:
        scores, proba, mean = (part[rows] for part in state)
        logs, spread = self.log_proba[rows], covariance * self.weights[rows, None, None]
        bent = self._second_moments(proba, logs)
        bent -= mean[:, :, None] * mean[:, None, :]
        slope = spread @ (mean - self._observed[rows])[:, :, None]
        step = np.linalg.solve(np.eye(self.n_features) - spread @ bent, slope)[:, :, 0]
        return np.asarray(scores + self._scores(step, rows))

    @cached_property
    def _observed(self) -> FloatArray:
        """What multiplies the coefficients, (n, features), at the true class."""
        truth = np.arange(self.log_proba.shape[1]) == self.labels[:, None]
        return self._sum_features(truth, self.log_proba)

    def _sum_features(self, proba: Any, logs: FloatArray) -> FloatArray:
        """Sums (n, features) of what multiplies the coefficients, over classes by `proba`."""
        scale = (proba * logs).sum(axis=1, keepdims=True)
        return np.hstack([scale, proba]) if self.biased else scale

    def _second_moments(self, proba: FloatArray, logs: FloatArray, cells: Any = None) -> FloatArray:
        """Sums (n, features, features), or by cells, of the products of the same."""
        parts = ((proba * logs * logs).sum(axis=1), proba * logs, proba)
        square, *biases = parts if self.biased else parts[:1]
        square, *biases = (part if cells is None else cells @ part for part in (square, *biases))
        found = np.zeros((len(square), self.n_features, self.n_features))
        found[:, 0, 0] = square
        if biases:
            found[:, 0, 1:] = found[:, 1:, 0] = biases[0]
            k = np.arange(1, self.n_features)
            found[:, k, k] = biases[1]
        return found

    def _scores(self, coef: FloatArray, rows: slice) -> FloatArray:
        """The change of scores by coefficients (rows, features)."""
        change = self.log_proba[rows] * coef[:, :1]
        return change + coef[:, 1:] if self.biased else change


def _softmax_loss(scores: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities (n, K) and log losses (n,)."""
    top = scores.max(axis=1, keepdims=True)
    proba = np.exp(scores - top)
    total = proba.sum(axis=1)
    own = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return proba / total[:, None], np.log(total) + top[:, 0] - own


PooledTerms = BinaryTerms | SoftmaxTerms
