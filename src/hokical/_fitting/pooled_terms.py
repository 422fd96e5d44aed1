"""Likelihoods for partial pooling: a binary outcome, and one of several classes.

Scores are linear in coefficients: common ones, to the first of which those of the example's group
are added. Each likelihood has

- `evaluate(common, own)`: the loss, its gradients (features,) by the common coefficients and
  (n, own) by those of each example, and a state that the others need;
- `curvature(state, cells, n_own)`: the Hessian (features, features), and its first columns
  (cells, features, own) for the examples of each cell alone, where `cells` (cells, n) is a sparse
  matrix that sums examples, which are sorted by cell;
- `scores_left_out(state, rows, covariance)`: scores of some rows by one Newton step of the fit
  without each; `covariance` (rows, features, features) is that of its coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from hokical._core.special import expit
from hokical._core.types import BoolArray, FloatArray, IntArray

#: Cells of fewer rows than this on average are summed all at once.
_FEW_ROWS = 20


def binary_losses(eta: FloatArray, hits: BoolArray) -> FloatArray:
    """Log losses (n,) of log-odds."""
    return np.logaddexp(0.0, np.where(hits, -eta, eta))


def _sum_products(left: FloatArray, right: FloatArray, cells: Any) -> FloatArray:
    """Sums (cells, a, b) of the outer products of rows (n, a) and (n, b), sorted by cell."""
    places, ends = cells.indices, cells.indptr
    if len(left) < _FEW_ROWS * cells.shape[0]:  # a product per cell would be mostly overhead
        weighted = (type(cells)((one, places, ends), cells.shape) for one in right.T)
        return np.stack([each @ left for each in weighted], axis=2)
    parts = (np.split(rows, ends[1:-1]) for rows in (left, right))
    return np.stack([one.T @ other for one, other in zip(*parts, strict=True)])


@dataclass(frozen=True, eq=False)
class BinaryTerms:
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
        self, common: FloatArray, own: FloatArray
    ) -> tuple[float, FloatArray, FloatArray, Any]:
        features = self.features[:, : own.shape[1]]
        eta = self.offset + self.features @ common + np.einsum("nf,nf->n", features, own)
        residual = self.weights * (expit(eta, np) - self.hits)
        loss = float(self.weights @ self.losses(eta))
        return loss, residual @ self.features, features * residual[:, None], eta

    def curvature(self, state: Any, cells: Any, n_own: int) -> tuple[FloatArray, FloatArray]:
        bent = self._bent(state)
        return bent.T @ self.features, _sum_products(bent, self.features[:, :n_own], cells)

    def _bent(self, eta: FloatArray) -> FloatArray:
        """Features (n, c) times the second derivatives of the losses by the log-odds."""
        proba: FloatArray = expit(eta, np)
        return self.features * (self.weights * proba * (1.0 - proba))[:, None]

    def scores_left_out(self, state: Any, rows: Any, covariance: FloatArray) -> FloatArray:
        eta, features, hits = state[rows], self.features[rows], self.hits[rows]
        lever = (features[:, None, :] @ covariance @ features[:, :, None])[:, 0, 0]
        lever, proba = lever * self.weights[rows], expit(eta, np)
        step = lever * (proba - hits) / np.maximum(1.0 - proba * (1.0 - proba) * lever, 1e-6)
        return np.asarray(eta + step)

    def ridge(self, coef: FloatArray, penalty: float) -> tuple[float, FloatArray, FloatArray]:
        """Without groups: the loss with a penalty per unit of weight, gradient and Hessian."""
        loss, slope, _, eta = self.evaluate(coef, np.zeros((self.hits.size, 0)))
        hessian = self._bent(eta).T @ self.features + penalty * np.eye(coef.size)
        value, total = loss + 0.5 * penalty * float(coef @ coef), float(self.weights.sum())
        return value / total, (slope + penalty * coef) / total, hessian / total


@dataclass(frozen=True, eq=False)
class SoftmaxTerms:
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
        self, common: FloatArray, own: FloatArray
    ) -> tuple[float, FloatArray, FloatArray, Any]:
        scores = self.offset + self._scores(common + own, slice(None))
        proba, losses = _softmax_loss(scores, self.labels)
        mean = self._sum_features(proba, self.log_proba)
        slope = (mean - self._observed) * self.weights[:, None]
        return float(self.weights @ losses), slope.sum(axis=0), slope, (scores, proba, mean)

    def curvature(self, state: Any, cells: Any, n_own: int) -> tuple[FloatArray, FloatArray]:
        _, proba, mean = state
        found = self._second_moments(proba * self.weights[:, None], self.log_proba, cells)
        found -= _sum_products(mean * self.weights[:, None], mean, cells)
        return found.sum(axis=0), found[:, :, :n_own]

    def scores_left_out(self, state: Any, rows: Any, covariance: FloatArray) -> FloatArray:
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

    def _scores(self, coef: FloatArray, rows: Any) -> FloatArray:
        """The change of scores by coefficients (rows, features)."""
        change: FloatArray = self.log_proba[rows] * coef[:, :1]
        return change + coef[:, 1:] if self.biased else change


def _softmax_loss(scores: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities (n, K) and log losses (n,)."""
    top = scores.max(axis=1, keepdims=True)
    proba = np.exp(scores - top)
    total = proba.sum(axis=1)
    own = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return proba / total[:, None], np.log(total) + top[:, 0] - own


PooledTerms = BinaryTerms | SoftmaxTerms


def take_examples(terms: PooledTerms, rows: IntArray) -> PooledTerms:
    """The same likelihood for some of the examples, or for all of them in another order."""
    parts: dict[str, Any] = {each.name: getattr(terms, each.name) for each in fields(terms)}
    arrays = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
    kind: type[PooledTerms] = type(terms)
    return kind(**parts | {name: np.take(part, rows, axis=0) for name, part in arrays.items()})
