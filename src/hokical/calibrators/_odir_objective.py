"""The penalised log loss of `ms_odir` and `dir_odir`: value, gradient, curvature, preconditioner.

Both give softmax(W x + b) and minimise

    mean log loss + lambda * mean(squared off-diagonals of W) + mu * mean(squared b)

(Kull et al., 2019). In here the features carry a last column of ones and are multiplied by the
inverse temperature that suits them, so W and b are one matrix `coef` (classes, classes + 1) whose
natural value is the identity, and the penalty is a matrix of the same shape.

The diagonal of W is not penalised in the paper, so a class nobody has, or examples that are all
right, would send it to infinity. A ridge of DIAGONAL_RIDGE around the temperature-scaled identity
makes the optimum exist and be unique; it is far too small to show where the data say anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Weight of mean((diagonal - temperature-scaled 1)^2), in units of that 1.
DIAGONAL_RIDGE = 1e-6

#: Rows are cut into at most this many blocks, each of at least that many numbers.
MAX_BLOCKS = 8
MIN_BLOCK_SIZE = 1 << 15


@dataclass(frozen=True, eq=False)
class Examples:
    """What a fit sees.

    `inputs` (n, classes + 1) scaled features and a column of ones, `masked` (n, classes) True for
    impossible classes or None without any, `labels` (n,), `weights` (n,) that sum to 1.
    """

    inputs: FloatArray
    masked: BoolArray | None
    labels: IntArray
    weights: FloatArray

    @property
    def n_classes(self) -> int:
        return int(self.inputs.shape[1]) - 1

    def take(self, rows: BoolArray) -> Examples:
        """Some of the rows, with weights that sum to 1 again."""
        weights = self.weights[rows]
        masked = None if self.masked is None else self.masked[rows]
        return Examples(self.inputs[rows], masked, self.labels[rows], weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Point:
    """A `coef` (classes, classes + 1), its scores and probabilities (n, classes), its objective."""

    coef: FloatArray
    scores: FloatArray
    value: float
    proba: FloatArray


def identity(n_classes: int) -> FloatArray:
    """The `coef` (classes, classes + 1) of temperature scaling: W = 1, b = 0."""
    return np.eye(n_classes, n_classes + 1)


def penalty_matrix(n_classes: int, strength: tuple[float, float], scale: float) -> FloatArray:
    """R (classes, classes + 1) with penalty = sum(R * (coef - identity)^2) / 2.

    `strength` is (lambda, mu) for the user's W = scale * coef, so lambda is multiplied by scale^2.
    """
    off_diagonal, bias = strength
    matrix = np.empty((n_classes, n_classes + 1))
    matrix[:] = 2.0 * off_diagonal * scale**2 / (n_classes * (n_classes - 1))
    np.fill_diagonal(matrix, 2.0 * DIAGONAL_RIDGE / n_classes)
    matrix[:, -1] = 2.0 * bias / n_classes
    return matrix


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


def linear_scores(examples: Examples, coef: FloatArray) -> FloatArray:
    """Scores (n, classes) of a `coef` (classes, classes + 1)."""
    out = np.empty((examples.inputs.shape[0], examples.n_classes))

    def work(rows: slice) -> None:
        np.matmul(examples.inputs[rows], coef.T, out=out[rows])

    for_row_blocks(work, out.shape[0], block_rows(*out.shape))
    return out


def softmax_in_place(scores: FloatArray, masked: BoolArray | None, labels: IntArray) -> FloatArray:
    """Turn scores (n, classes) into probabilities; returns the log loss (n,) of each row."""
    loss = np.empty(scores.shape[0])

    def work(rows: slice) -> None:
        part = scores[rows]
        if masked is not None:
            part[masked[rows]] = -np.inf
        part -= part.max(axis=1, keepdims=True)
        own = part[np.arange(part.shape[0]), labels[rows]]
        np.exp(part, out=part)
        total = part.sum(axis=1)
        part /= total[:, None]
        loss[rows] = np.log(total) - own

    for_row_blocks(work, scores.shape[0], block_rows(*scores.shape))
    return loss


def point_at(
    examples: Examples, penalty: FloatArray, coef: FloatArray, scores: FloatArray
) -> Point:
    """The objective, penalised mean log loss, at `coef` with its scores (n, classes)."""
    proba = scores.copy()
    loss = softmax_in_place(proba, examples.masked, examples.labels)
    away = coef - identity(examples.n_classes)
    value = float(examples.weights @ loss + 0.5 * np.vdot(penalty * away, away))
    return Point(coef, scores, value, proba)


def gradient(
    examples: Examples, penalty: FloatArray, coef: FloatArray, proba: FloatArray
) -> FloatArray:
    """Derivative (classes, classes + 1) of the objective: (P - Y)' X and the penalty's."""

    def work(rows: slice) -> FloatArray:
        residual = proba[rows].copy()
        residual[np.arange(residual.shape[0]), examples.labels[rows]] -= 1.0
        residual *= examples.weights[rows, None]
        return np.asarray(residual.T @ examples.inputs[rows])

    slope = sum_over_blocks(examples, work)
    slope += penalty * (coef - identity(examples.n_classes))
    return slope


def curvature_along(
    examples: Examples, penalty: FloatArray, proba: FloatArray, direction: FloatArray
) -> FloatArray:
    """The Hessian times `direction`, (classes, classes + 1), by two matrix products."""

    def work(rows: slice) -> FloatArray:
        chance = proba[rows]
        change = examples.inputs[rows] @ direction.T
        change -= np.einsum("ij,ij->i", change, chance)[:, None]
        change *= chance
        change *= examples.weights[rows, None]
        return np.asarray(change.T @ examples.inputs[rows])

    product = sum_over_blocks(examples, work)
    product += penalty * direction
    return product


class Preconditioner:
    """An easy stand-in for the Hessian: for each class a diagonal plus one outer product.

    The examples that matter to a class look alike, so their mean carries most of the curvature
    and the diagonal is left with the variance about it.
    """

    def __init__(self, examples: Examples, penalty: FloatArray, proba: FloatArray) -> None:
        def moments(rows: slice) -> FloatArray:
            inputs = examples.inputs[rows]
            variance = proba[rows] * (1.0 - proba[rows])
            variance *= examples.weights[rows, None]
            return np.stack([variance.T @ inputs, variance.T @ np.square(inputs)])

        first, second = sum_over_blocks(examples, moments)
        total = np.maximum(first[:, -1:], np.finfo(np.float64).tiny)  # the last input is 1
        self._diagonal = np.maximum(second - first**2 / total, 0.0) + penalty
        mean = first / np.sqrt(total)
        self._mean = mean / self._diagonal
        self._share = 1.0 + np.einsum("ij,ij->i", mean, self._mean)[:, None]

    def solve(self, slope: FloatArray) -> FloatArray:
        """The inverse times `slope` (classes, classes + 1), by the Sherman-Morrison formula."""
        along = np.einsum("ij,ij->i", self._mean, slope)[:, None]
        return np.asarray(slope / self._diagonal - self._mean * (along / self._share))
