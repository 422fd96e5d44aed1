"""The penalised log loss of `ms_odir` and `dir_odir`: value, gradient, curvature, preconditioner.

Both give softmax(W x + b) and minimise

    mean log loss + lambda * mean(squared off-diagonals of W) + mu * mean(squared b)

(Kull et al., 2019). In here the features carry a last column of ones and are multiplied by the
inverse temperature t that suits them, so W and b are one matrix `coef` (classes, classes + 1) whose
natural value is the identity, and the penalty is a matrix of the same shape.

The diagonal of W is not penalised in the paper, so its optimum can be infinite. Two additions make
it exist and be unique:

- DIAGONAL_RIDGE * mean((W_kk / t - 1)^2), which shows only where W_kk is thousands of times t.
- A class without examples would want its probability gone at any price, and on log-probabilities,
  which are all negative, its W_kk infinite: useless for the examples of it that are still to come,
  those of a left-out fold among them. Its row of W is held at t times the identity's, and its bias,
  with a penalty of at most ABSENT_MU instead of mu, takes the probability away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical.core.arrays import Array
from hokical.core.types import BoolArray, FloatArray
from hokical.fitting.odir_sums import LinearExamples

#: Weight of mean((W_kk / t - 1)^2).
DIAGONAL_RIDGE = 1e-10
#: Most that stands for mu where a class has no examples: leaves it about 1e-4 in all examples.
ABSENT_MU = 1e-5
#: Weight that holds its row of W.
ABSENT_HOLD = 1e9
#: Penalties are kept where their products with anything else are finite and not 0.
PENALTY_RANGE = (1e-30, 1e30)


@dataclass(frozen=True, eq=False)
class LinearPoint:
    """A `coef` (classes, classes + 1), its scores and probabilities by blocks, its objective."""

    coef: FloatArray
    scores: list[Array]
    value: float
    proba: list[Array]


def identity(n_classes: int) -> FloatArray:
    """The `coef` (classes, classes + 1) of temperature scaling: W = 1, b = 0."""
    return np.eye(n_classes, n_classes + 1)


def penalty_matrix(absent: BoolArray, strength: tuple[float, float], scale: float) -> FloatArray:
    """R (classes, classes + 1) with penalty = sum(R * (coef - identity)^2) / 2.

    `absent` (classes,) says which classes have no example. `strength` is (lambda, mu) for the
    user's W = scale * coef, so lambda is multiplied by scale^2.
    """
    n_classes = absent.size
    lambda_, mu = strength
    matrix = np.empty((n_classes, n_classes + 1))
    matrix[:] = 2.0 * lambda_ * scale * scale / (n_classes * (n_classes - 1))
    np.fill_diagonal(matrix, 2.0 * DIAGONAL_RIDGE / n_classes)
    matrix[absent, :-1] = 2.0 * ABSENT_HOLD / n_classes
    matrix[:, -1] = 2.0 * np.where(absent, min(mu, ABSENT_MU), mu) / n_classes
    return np.clip(matrix, *PENALTY_RANGE)


def point_at(
    examples: LinearExamples, penalty: FloatArray, coef: FloatArray, scores: list[Array]
) -> LinearPoint:
    """The objective, penalised mean log loss, at `coef` with its scores."""
    proba, loss = examples.probabilities(scores)
    away = coef - identity(examples.n_classes)
    return LinearPoint(coef, scores, loss + 0.5 * float(np.vdot(penalty * away, away)), proba)


def gradient(
    examples: LinearExamples, penalty: FloatArray, coef: FloatArray, proba: list[Array]
) -> FloatArray:
    """Derivative (classes, classes + 1) of the objective: the log loss's and the penalty's."""
    return examples.slope(proba) + penalty * (coef - identity(examples.n_classes))


def curvature_along(
    examples: LinearExamples, penalty: FloatArray, proba: list[Array], direction: FloatArray
) -> FloatArray:
    """The Hessian times `direction`, (classes, classes + 1)."""
    return examples.curvature(proba, direction) + penalty * direction


class Preconditioner:
    """An easy stand-in for the Hessian: for each class a diagonal plus one outer product.

    The examples that matter to a class look alike, so their mean carries most of the curvature
    and the diagonal is left with the variance about it.
    """

    def __init__(self, examples: LinearExamples, penalty: FloatArray, proba: list[Array]) -> None:
        first, second = examples.moments(proba)
        total = np.maximum(first[:, -1:], np.finfo(np.float64).tiny)  # the last input is 1
        self._diagonal = np.maximum(second - first**2 / total, 0.0) + penalty
        mean = first / np.sqrt(total)
        self._mean = mean / self._diagonal
        self._share = 1.0 + np.einsum("ij,ij->i", mean, self._mean)[:, None]

    def solve(self, slope: FloatArray) -> FloatArray:
        """The inverse times `slope` (classes, classes + 1), by the Sherman-Morrison formula."""
        along = np.einsum("ij,ij->i", self._mean, slope)[:, None]
        return np.asarray(slope / self._diagonal - self._mean * (along / self._share))
