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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Weight of mean((W_kk / t - 1)^2).
DIAGONAL_RIDGE = 1e-10
#: Most that stands for mu where a class has no examples: leaves it about 1e-4 in all examples.
ABSENT_MU = 1e-5
#: Weight that holds its row of W.
ABSENT_HOLD = 1e9
#: Penalties are kept where their products with anything else are finite and not 0.
PENALTY_RANGE = (1e-30, 1e30)

#: Rows are cut into at most this many blocks, each of at least that many numbers.
MAX_BLOCKS = 8
MIN_BLOCK_SIZE = 1 << 15


@dataclass(frozen=True, eq=False)
class Examples:
    """What a fit sees, and the sums over it that the solver asks for.

    `inputs` (n, classes + 1) scaled features and a column of ones, `masked` (n, classes) True for
    impossible classes or None without any, `labels` (n,), `weights` (n,) that sum to 1.

    Inputs, scores and probabilities may live elsewhere (a subclass has them on another device);
    what has (classes, classes + 1) numbers, or one per example, is NumPy.
    """

    inputs: Any
    masked: Any
    labels: IntArray
    weights: FloatArray

    @property
    def n_classes(self) -> int:
        return int(self.inputs.shape[1]) - 1

    @property
    def absent(self) -> BoolArray:
        """Which classes (classes,) have no example."""
        return np.asarray(np.bincount(self.labels, minlength=self.n_classes) == 0)

    def take(self, rows: BoolArray) -> Examples:
        """Some of the rows, with weights that sum to 1 again."""
        weights = self.weights[rows]
        masked = None if self.masked is None else self.masked[rows]
        return Examples(self.inputs[rows], masked, self.labels[rows], weights / weights.sum())

    def scores(self, coef: FloatArray) -> Any:
        """Scores (n, classes) of a `coef` (classes, classes + 1)."""
        out = np.empty((self.inputs.shape[0], self.n_classes))

        def work(rows: slice) -> None:
            np.matmul(self.inputs[rows], coef.T, out=out[rows])

        for_row_blocks(work, out.shape[0], block_rows(*out.shape))
        return out

    def probabilities(self, scores: Any) -> tuple[Any, FloatArray]:
        """Probabilities (n, classes) of scores, and the log loss (n,) of each row."""
        proba = scores.copy()
        return proba, log_loss_in_place(proba, self.masked, self.labels)

    def slope(self, proba: Any) -> FloatArray:
        """Derivative (classes, classes + 1) of the mean log loss: (P - Y)' X."""

        def work(rows: slice) -> FloatArray:
            residual = proba[rows].copy()
            residual[np.arange(residual.shape[0]), self.labels[rows]] -= 1.0
            residual *= self.weights[rows, None]
            return np.asarray(residual.T @ self.inputs[rows])

        return sum_over_blocks(self, work)

    def curvature(self, proba: Any, direction: FloatArray) -> FloatArray:
        """Its Hessian times `direction`, (classes, classes + 1), by two matrix products."""

        def work(rows: slice) -> FloatArray:
            chance = proba[rows]
            change = self.inputs[rows] @ direction.T
            change -= np.einsum("ij,ij->i", change, chance)[:, None]
            change *= chance
            change *= self.weights[rows, None]
            return np.asarray(change.T @ self.inputs[rows])

        return sum_over_blocks(self, work)

    def moments(self, proba: Any) -> FloatArray:
        """Sums of each class's variance times inputs, and times their squares, (2, C, C + 1)."""

        def work(rows: slice) -> FloatArray:
            inputs = self.inputs[rows]
            variance = proba[rows] * (1.0 - proba[rows])
            variance *= self.weights[rows, None]
            return np.stack([variance.T @ inputs, variance.T @ np.square(inputs)])

        return sum_over_blocks(self, work)

    def feature_size(self) -> float:
        """Weighted mean size of a feature."""
        return float((self.weights @ np.abs(self.inputs[:, :-1])).mean())

    def feature_losses(self, unit: float, size: float) -> FloatArray:
        """Log loss (n,) with features, divided by `unit` and multiplied by `size`, as scores."""
        scores = self.inputs[:, :-1] / unit  # first: the inverse of the unit may overflow
        scores *= size
        return log_loss_in_place(scores, self.masked, self.labels)

    def multiply_features(self, factor: float) -> None:
        """Change the units of the features, in place."""
        self.inputs[:, :-1] *= factor

    def all_right(self, diagonal: FloatArray) -> bool:
        """Whether a scale per class (classes,) alone gets every example right.

        The scores of classes without examples do not grow with the others: 0 stands for them.
        """
        scores = self.inputs[:, :-1] * diagonal
        scores[:, self.absent] = 0.0
        if self.masked is not None:
            scores[self.masked] = -np.inf
        rows = np.arange(scores.shape[0])
        own = scores[rows, self.labels]
        scores[rows, self.labels] = -np.inf
        return bool((own > scores.max(axis=1)).all())


@dataclass(frozen=True, eq=False)
class Point:
    """A `coef` (classes, classes + 1), its scores and probabilities (n, classes), its objective."""

    coef: FloatArray
    scores: Any
    value: float
    proba: Any


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


def block_rows(n_rows: int, n_classes: int) -> int:
    """Rows per block: few blocks, for each has a (classes, classes) sum, and none tiny."""
    return max(-(-n_rows // MAX_BLOCKS), MIN_BLOCK_SIZE // n_classes, 1)


def sum_over_blocks(examples: Examples, work: Callable[[slice], FloatArray]) -> FloatArray:
    """The sum of `work(rows)` over blocks of rows, in their order: threads change no bit of it."""
    n_rows = examples.inputs.shape[0]
    step = block_rows(n_rows, examples.n_classes)
    parts: dict[int, FloatArray] = {}

    def keep(rows: slice) -> None:
        parts[rows.start] = work(rows)

    for_row_blocks(keep, n_rows, step)
    total = parts[0]
    for start in range(step, n_rows, step):
        total += parts[start]
    return total


def softmax_in_place(scores: FloatArray, masked: BoolArray | None) -> None:
    """Turn scores (n, classes) into probabilities."""

    def work(rows: slice) -> None:
        part = scores[rows]
        _relative_to_top(part, None if masked is None else masked[rows])
        _normalised_exp(part)

    for_row_blocks(work, scores.shape[0], block_rows(*scores.shape))


def log_loss_in_place(scores: FloatArray, masked: BoolArray | None, labels: IntArray) -> FloatArray:
    """Turn scores (n, classes) into probabilities; returns the log loss (n,) of each row."""
    loss = np.empty(scores.shape[0])

    def work(rows: slice) -> None:
        part = scores[rows]
        _relative_to_top(part, None if masked is None else masked[rows])
        own = part[np.arange(part.shape[0]), labels[rows]]
        loss[rows] = np.log(_normalised_exp(part)) - own

    for_row_blocks(work, scores.shape[0], block_rows(*scores.shape))
    return loss


def _relative_to_top(part: FloatArray, masked: BoolArray | None) -> None:
    """Subtract each row's largest score; impossible classes get -inf."""
    if masked is not None:
        part[masked] = -np.inf
    part -= part.max(axis=1, keepdims=True)


def _normalised_exp(part: FloatArray) -> FloatArray:
    """Exponentials in place, divided by their row's sum (n,), which is returned."""
    np.exp(part, out=part)
    total = part.sum(axis=1)
    part /= total[:, None]
    return np.asarray(total)


def point_at(examples: Examples, penalty: FloatArray, coef: FloatArray, scores: Any) -> Point:
    """The objective, penalised mean log loss, at `coef` with its scores (n, classes)."""
    proba, loss = examples.probabilities(scores)
    away = coef - identity(examples.n_classes)
    value = float(examples.weights @ loss + 0.5 * np.vdot(penalty * away, away))
    return Point(coef, scores, value, proba)


def gradient(examples: Examples, penalty: FloatArray, coef: FloatArray, proba: Any) -> FloatArray:
    """Derivative (classes, classes + 1) of the objective: the log loss's and the penalty's."""
    slope = examples.slope(proba)
    slope += penalty * (coef - identity(examples.n_classes))
    return slope


def curvature_along(
    examples: Examples, penalty: FloatArray, proba: Any, direction: FloatArray
) -> FloatArray:
    """The Hessian times `direction`, (classes, classes + 1)."""
    product = examples.curvature(proba, direction)
    product += penalty * direction
    return product


class Preconditioner:
    """An easy stand-in for the Hessian: for each class a diagonal plus one outer product.

    The examples that matter to a class look alike, so their mean carries most of the curvature
    and the diagonal is left with the variance about it.
    """

    def __init__(self, examples: Examples, penalty: FloatArray, proba: Any) -> None:
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
