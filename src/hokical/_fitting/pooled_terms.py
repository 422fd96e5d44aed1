"""Likelihoods for partial pooling: a binary outcome, and one of several classes.

Scores are linear in the coefficients of each example's cell. Each likelihood has

- `evaluate(coef, sums)`: the loss for coefficients (n, features) or (1, features), its gradient
  (cells, features), and a state that the others need; `sums` (cells, n) is a sparse matrix that
  sums examples, which are sorted by cell;
- `curvature(state, sums)`: the Hessian (cells, features, features);
- `scores_left_out(state, rows, covariances, cell)`: scores of some rows by one Newton step of the
  fit without each; `covariances` (cells, features, features) are those of the coefficients in the
  cells (rows,).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.special import expit

#: Cells of fewer rows than this on average are summed all at once.
_FEW_ROWS = 20
#: Halvings of the interval that a share lies in, and how many standard errors a gain is lowered by
#: before it is weighed against no fit at all.
_HALVINGS, _CAUTION = 14, 0.1


def binary_losses(eta: FloatArray, hits: BoolArray) -> FloatArray:
    """Log losses (n,) of log-odds."""
    return np.logaddexp(0.0, np.where(hits, -eta, eta))


def weigh_two(
    first: FloatArray, second: FloatArray, hits: BoolArray, weights: FloatArray, prior: float
) -> float:
    """The share of the second in the average of log-odds (n,) that has the least log loss.

    The prior, in examples for either, keeps the share between 0 and 1. The loss is convex in it.
    """
    low, high, gap = 0.0, 1.0, second - first
    for _ in range(_HALVINGS):
        share = 0.5 * (low + high)
        slope = (weights * (expit(first + share * gap, np) - hits)) @ gap
        rising = slope > prior / share - prior / (1.0 - share)
        low, high = (low, share) if rising else (share, high)
    return 0.5 * (low + high)


def uncalibrated_share(
    own: FloatArray, fitted: FloatArray, hits: BoolArray, weights: FloatArray, row: IntArray
) -> tuple[float, float]:
    """The share 1 / (1 + exp(g - c s)) of the log-odds before the fit in an average with it.

    `own` and the held-out `fitted` are log-odds (m,), `row` (m,) says which go together. The gain g
    is summed over the rows, as is its standard error s, which is returned for one row: the larger
    of the observed one and of the one that log-odds `own` would have if they were calibrated.
    """
    gains = binary_losses(own, hits) - binary_losses(fitted, hits)
    total, count = np.bincount(row, weights * gains), np.bincount(row, weights) > 0.0
    observed = float(np.sum((total - total.sum() / count.sum())[count] ** 2))
    proba: FloatArray = expit(own, np)
    expected = float(np.sum(weights * proba * (1.0 - proba) * (fitted - own) ** 2))
    error = float(np.sqrt(max(observed, expected)))
    exponent = np.clip(total.sum() - _CAUTION * error, -500.0, 500.0)
    return float(1.0 / (1.0 + np.exp(exponent))), error / float(count.sum())


def _sum_products(left: FloatArray, right: FloatArray, sums: Any) -> FloatArray:
    """Sums (cells, a, b) of the outer products of rows (n, a) and (n, b), sorted by cell."""
    if len(left) < _FEW_ROWS * sums.shape[0]:  # a product per cell would be mostly overhead
        outer = left[:, :, None] * right[:, None, :]
        found = sums @ outer.reshape(len(left), -1)
        return np.asarray(found.reshape(-1, *outer.shape[1:]))
    parts = (np.split(rows, sums.indptr[1:-1]) for rows in (left, right))
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

    def with_prior(self, rows: Any, offset: Any, weights: Any) -> BinaryTerms:
        """The same, with two more examples for each of the `rows` (m, c): a hit and a miss.

        They come last. A row of features whose scores are known to be near the offset is a prior.
        """
        parts = (
            np.repeat(np.asarray(each, np.float64), 2, axis=0) for each in (rows, offset, weights)
        )
        more, known, counts = parts
        return BinaryTerms(
            np.vstack([self.features, more]),
            np.append(self.hits, np.arange(known.size) % 2 == 0),
            np.append(self.offset, known),
            np.append(self.weights, counts),
        )

    def evaluate(self, coef: FloatArray, sums: Any) -> tuple[float, FloatArray, Any]:
        eta = self.offset + np.einsum("nf,nf->n", self.features, coef)
        slope = _sum_products(self.features, self._residuals(eta)[:, None], sums)[:, :, 0]
        return float(self.weights @ self.losses(eta)), slope, eta

    def curvature(self, state: Any, sums: Any) -> FloatArray:
        return _sum_products(self._bent(state), self.features, sums)

    def _residuals(self, eta: FloatArray) -> FloatArray:
        return np.asarray(self.weights * (expit(eta, np) - self.hits))

    def _bent(self, eta: FloatArray) -> FloatArray:
        """Features (n, c) times the second derivatives of the losses by the log-odds."""
        proba: FloatArray = expit(eta, np)
        return self.features * (self.weights * proba * (1.0 - proba))[:, None]

    def scores_left_out(
        self, state: Any, rows: Any, covariances: FloatArray, cell: IntArray
    ) -> FloatArray:
        eta, proba, features = state[rows], expit(state[rows], np), self.features[rows]
        if len(covariances) == 1:
            spread = features @ covariances[0]
        else:
            spread = (features[:, None, :] @ covariances[cell])[:, 0]
        lever = self.weights[rows] * np.einsum("nf,nf->n", spread, features)
        rest = np.maximum(1.0 - proba * (1.0 - proba) * lever, 1e-6)
        return np.asarray(eta + lever * (proba - self.hits[rows]) / rest)

    def ridge(self, coef: FloatArray, penalty: float) -> tuple[float, FloatArray, FloatArray]:
        """Without groups: the loss with a penalty per unit of weight, gradient and Hessian."""
        eta, total = self.offset + self.features @ coef, float(self.weights.sum())
        value = float(self.weights @ self.losses(eta)) + 0.5 * penalty * float(coef @ coef)
        slope = self._residuals(eta) @ self.features + penalty * coef
        hessian = self._bent(eta).T @ self.features + penalty * np.eye(coef.size)
        return value / total, slope / total, hessian / total


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

    def evaluate(self, coef: FloatArray, sums: Any) -> tuple[float, FloatArray, Any]:
        scores = self.offset + self._scores(coef)
        proba, losses = _softmax_loss(scores, self.labels)
        mean = self._sum_features(proba, self.log_proba)
        slope = sums @ ((mean - self._observed) * self.weights[:, None])
        return float(self.weights @ losses), slope, (scores, proba, mean)

    def curvature(self, state: Any, sums: Any) -> FloatArray:
        _, proba, mean = state
        found = self._second_moments(proba * self.weights[:, None], self.log_proba, sums)
        return found - _sum_products(mean * self.weights[:, None], mean, sums)

    def scores_left_out(
        self, state: Any, rows: Any, covariances: FloatArray, cell: IntArray
    ) -> FloatArray:
        # In terms of the scores: with their covariance M and the second derivatives W of a row's
        # loss by them, a step is M (I - W M)^-1 times its first derivatives.
        scores, proba, logs = state[0][rows], state[1][rows], self.log_proba[rows]
        spread, weights = covariances[cell], self.weights[rows, None, None]
        residual = proba - (np.arange(logs.shape[1]) == self.labels[rows, None])
        if not self.biased:
            along = (weights * spread)[:, 0, 0]
            bent = (proba * logs**2).sum(axis=1) - (proba * logs).sum(axis=1) ** 2
            step = along * (residual * logs).sum(axis=1) / (1.0 - along * bent)
            return np.asarray(scores + logs * step[:, None])
        across = logs[:, :, None] * spread[:, :1, 1:]
        both = spread[:, 1:, 1:] + across + across.swapaxes(1, 2)
        both += spread[:, :1, :1] * logs[:, :, None] * logs[:, None, :]
        both *= weights
        bent = (proba[:, None, :] @ both - both) * proba[:, :, None]
        bent[:, range(logs.shape[1]), range(logs.shape[1])] += 1.0
        step = both @ np.linalg.solve(bent, residual[:, :, None])
        return np.asarray(scores + step[:, :, 0])

    @cached_property
    def _observed(self) -> FloatArray:
        """What multiplies the coefficients, (n, features), at the true class."""
        truth = np.arange(self.log_proba.shape[1]) == self.labels[:, None]
        return self._sum_features(truth, self.log_proba)

    def _sum_features(self, proba: Any, logs: FloatArray) -> FloatArray:
        """Sums (n, features) of what multiplies the coefficients, over classes by `proba`."""
        scale = (proba * logs).sum(axis=1, keepdims=True)
        return np.hstack([scale, proba]) if self.biased else scale

    def _second_moments(self, proba: FloatArray, logs: FloatArray, sums: Any) -> FloatArray:
        """Sums (cells, features, features) of the products of the same."""
        parts = ((proba * logs * logs).sum(axis=1), proba * logs, proba)
        square, *biases = (sums @ part for part in (parts if self.biased else parts[:1]))
        found = np.zeros((len(square), self.n_features, self.n_features))
        found[:, 0, 0] = square
        if biases:
            found[:, 0, 1:] = found[:, 1:, 0] = biases[0]
            k = np.arange(1, self.n_features)
            found[:, k, k] = biases[1]
        return found

    def _scores(self, coef: FloatArray) -> FloatArray:
        """The change of scores by coefficients (n, features) or (1, features)."""
        change: FloatArray = self.log_proba * coef[:, :1]
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
