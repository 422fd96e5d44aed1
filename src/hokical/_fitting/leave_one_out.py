"""Scores of structured scaling for every example as if it had been left out of the fit.

Nothing is fitted again. With H the Hessian of the whole fit, A the (classes, p) matrix that an
example multiplies the coefficients with, w its weight, r = p - y and W = diag(p) - p p', one Newton
step without the example changes its own scores by

    w S (I - w W S)^-1 r,    S = A H^-1 A'.

One step takes the slope of the others for a straight line. Left out, an example that matters
changes what the others say, and the step is too short: with 200 examples of ten classes the log
loss looks better by about 0.02 than it is. So long steps of few examples are repeated, each time
with the slope of the others where the last one led, and with the same Hessian, from which
Woodbury's formula takes the example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.arrays import Array, Namespace
from hokical._core.parallel import cut_rows
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.softmax_objective import FeatureBlock, SoftmaxPoint
from hokical._fitting.structured import hessian_step

#: Numbers of the (classes, classes) matrices that are held at a time.
_HELD_SIZE = 1 << 18
#: Long steps are repeated with at most so many logits: beyond, no example counts for much.
FEW_LOGITS = 1 << 14
#: They are repeated so often, for examples whose scores one step changes by more than this.
REPEATS, LONG_STEP = 4, 0.5
#: An example whose true class is missing no more than this, or so much per example, has no effect
#: on its own scores to speak of.
_SURE, _SURE_BY_EXAMPLE = 1e-2, 1e-6


def scores_left_out(point: SoftmaxPoint, coef: FloatArray, part: float) -> list[Array]:
    """Scores (rows, classes) by blocks, of every row by the fit without it; with cross terms.

    `point` is that of `coef` (p,). If its rows are only a `part` of those fitted, each weighs that
    much less.
    """
    objective = point.objective
    inverse = np.asarray(np.linalg.inv(point.hessian(hessian_step(objective))), np.float64)
    spread = _Spread.of(inverse, objective.n_classes)
    sure = min(_SURE, _SURE_BY_EXAMPLE * objective.n_rows)
    few = part == 1.0 and objective.n_rows * objective.n_classes <= FEW_LOGITS

    def work(block: FeatureBlock, proba: Array) -> Array:
        scores = block.scores(block.from_host(coef))
        found = _one_step(block, proba, block.weights * part, spread, sure)
        if few:
            to_host = block.backend.to_host
            others = _Others(
                objective.penalty,
                inverse,
                to_host(block.inputs),
                to_host(_shape_table(block)),
                to_host(block.weights),
                to_host(block.mask(scores)),
                to_host(proba),
                to_host(block.residual(proba)),
            )
            found = block.from_host(others.repeat_long_steps(to_host(found), spread))
        return scores + found

    return objective.map(work, point.proba)


@dataclass(frozen=True, eq=False)
class _Spread:
    """What S = A H^-1 A' is made of, from H^-1: pairs of inputs, and terms with shapes."""

    left: Array
    right: Array
    pairs: Array
    border: Array
    shapes: Array

    @classmethod
    def of(cls, inverse: FloatArray, size: int) -> _Spread:
        left, right = np.triu_indices(size + 1)
        pairs = inverse[3:, 3:].reshape(size, size + 1, size, size + 1)
        pairs = pairs[:, left, :, right] + pairs[:, right, :, left]
        pairs[left == right] *= 0.5
        border = np.ascontiguousarray(inverse[:3, 3:].reshape(3 * size, size + 1).T)
        return cls(left, right, pairs.reshape(left.size, -1), border, 0.5 * inverse[:3, :3])

    def beside(self, block: FeatureBlock) -> _Spread:
        """The same in the library of a block."""
        parts = (self.left, self.right, self.pairs, self.border, self.shapes)
        return _Spread(*(block.from_host(part) for part in parts))

    def __call__(self, inputs: Array, shapes: Array, xp: Namespace) -> Array:
        """S (rows, classes, classes) of inputs (rows, classes + 1), shapes (rows, classes, 3)."""
        size = shapes.shape[1]
        squares = xp.take(inputs, self.left, axis=1) * xp.take(inputs, self.right, axis=1)
        found = xp.reshape(squares @ self.pairs, (-1, size, size))
        tilt = xp.reshape(inputs @ self.border, (-1, 3, size))
        shaped = shapes @ (tilt + self.shapes @ xp.matrix_transpose(shapes))
        return found + shaped + xp.matrix_transpose(shaped)


def _shape_table(block: FeatureBlock) -> Array:
    """Shape terms (rows, classes, 3)."""
    xp = block.xp
    return xp.permute_dims(xp.reshape(block.shapes, (3, -1, block.z.shape[1])), (1, 2, 0))


def _one_step(
    block: FeatureBlock, proba: Array, weights: Array, spread: _Spread, sure: float
) -> Array:
    """The change (rows, classes) of a block's scores by one Newton step."""
    xp, size, here = block.xp, proba.shape[1], spread.beside(block)
    residual, eye = block.residual(proba), block.from_host(np.eye(proba.shape[1]))
    moved = np.flatnonzero(block.backend.to_host(xp.min(residual, axis=1)) < -sure)
    given = (block.inputs, _shape_table(block), proba, weights, residual)
    parts = [xp.zeros_like(proba[:1, :])]
    for part in cut_rows(moved.size, max(1, _HELD_SIZE // (size * size))):
        rows = block.from_host(moved[part])
        x, shape, p, w, r = (xp.take(array, rows, axis=0) for array in given)
        own = here(x, shape, xp) * w[:, :, None]
        lever = eye - p[:, :, None] * (own - p[:, None, :] @ own)
        parts.append((own @ xp.linalg.solve(lever, r[:, :, None]))[:, :, 0])
    place = np.zeros(proba.shape[0], np.int64)
    place[moved] = np.arange(1, moved.size + 1)
    return xp.take(xp.concat(parts, axis=0), block.from_host(place), axis=0)


@dataclass(frozen=True, eq=False)
class _Others:
    """All examples on the host at the fit, for more steps without one of them.

    `inverse` (p, p) is H^-1, `inputs` (n, classes + 1), `shapes` (n, classes, 3), `weights` (n, 1),
    `scores`, `proba` and `residual` (n, classes), which is proba less the truth.
    """

    penalty: FloatArray
    inverse: FloatArray
    inputs: FloatArray
    shapes: FloatArray
    weights: FloatArray
    scores: FloatArray
    proba: FloatArray
    residual: FloatArray

    def repeat_long_steps(self, once: FloatArray, spread: _Spread) -> FloatArray:
        """The changes (n, classes) of scores after one step; after several where that is long."""
        found = once.copy()
        rows = np.flatnonzero(np.ptp(once, axis=1) > LONG_STEP)
        for part in cut_rows(rows.size, max(1, _HELD_SIZE // self.proba.size)):
            found[rows[part]] = self._leave_out(rows[part], spread)
        return found

    def _leave_out(self, rows: IntArray, spread: _Spread) -> FloatArray:
        """The changes (rows, classes)."""
        weights, own = self.weights[rows], self.proba[rows]
        spreads = weights[:, :, None] * spread(self.inputs[rows], self.shapes[rows], np)
        lever = np.eye(own.shape[1]) - own[:, :, None] * (spreads - own[:, None, :] @ spreads)

        def solve(slope: FloatArray) -> FloatArray:
            step = slope @ self.inverse
            tilt = self._multiply(rows, step)
            tilt = weights * own * (tilt - np.sum(own * tilt, axis=1, keepdims=True))
            tilt = np.linalg.solve(lever, tilt[:, :, None])[:, :, 0]
            return step + self._transpose_product(rows, tilt) @ self.inverse

        gone = self._transpose_product(rows, weights * self.residual[rows])
        away = solve(gone)
        for _ in range(REPEATS):
            away -= solve(self._change_of_slope(rows, away) - gone)
        return self._multiply(rows, away)

    def _multiply(self, rows: IntArray, away: FloatArray) -> FloatArray:
        """Scores (rows, classes) of each row by its own coefficients (rows, p)."""
        by_class = away[:, 3:].reshape(rows.size, -1, self.inputs.shape[1])
        found = self.shapes[rows] @ away[:, :3, None] + by_class @ self.inputs[rows][:, :, None]
        return np.asarray(found[:, :, 0])

    def _transpose_product(self, rows: IntArray, table: FloatArray) -> FloatArray:
        """A table (rows, classes) times what multiplies the coefficients, (rows, p)."""
        shaped = table[:, None, :] @ self.shapes[rows]
        own = table[:, :, None] * self.inputs[rows][:, None, :]
        return np.hstack([shaped[:, 0, :], own.reshape(rows.size, -1)])

    def _change_of_slope(self, rows: IntArray, away: FloatArray) -> FloatArray:
        """Of the objective without one of the rows, (rows, p), that far `away` from the fit."""
        by_class = away[:, 3:].reshape(rows.size, -1, self.inputs.shape[1])
        table = self.inputs @ by_class.transpose(0, 2, 1) + self.scores
        table += (away[:, :3] @ self.shapes.reshape(-1, 3).T).reshape(table.shape)
        table = np.exp(table - table.max(axis=2, keepdims=True))
        table /= table.sum(axis=2, keepdims=True)
        table = (table - self.proba) * self.weights
        table[np.arange(rows.size), rows] = 0.0
        shaped = table.reshape(rows.size, -1) @ self.shapes.reshape(-1, 3)
        own = table.transpose(0, 2, 1) @ self.inputs
        return np.hstack([shaped, own.reshape(rows.size, -1)]) + self.penalty * away
