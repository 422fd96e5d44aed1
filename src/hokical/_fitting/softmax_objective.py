"""The penalised log loss of scores that are linear in their coefficients.

With features z (n, K) of K classes and further shape terms x_i (n, K), class k has the score

    z_k + sum_i w_i x_ik + v_k z_k + b_k,
    z_k + sum_i w_i x_ik + sum_j M_kj z_j + b_k    with cross terms,

and the objective is mean log loss + sum(penalty * coefficients^2) / 2. It is convex in one vector:
w, and for each class (v_k, b_k) or its row of M and b_k. Structured, vector and class scaling
minimise it; they differ in their features and penalties.

Features, scores and probabilities stay in the library and on the device of the logits; sums come to
the host. NumPy's blocks of rows run on our threads and are added in order, so that the number of
threads changes no result; a device has one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from hokical._core.arrays import (
    NUMPY,
    Array,
    Backend,
    FloatArray,
    IntArray,
    Namespace,
    ignore_overflow,
)
from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows, map_slices
from hokical._core.special import row_dots, row_sums
from hokical._fitting.examples import Examples, spaced_rows

Found = TypeVar("Found")
#: Features z and shape terms (n, classes) of logits.
Features = Callable[[Logits], tuple[Array, ...]]

#: Numbers per block of NumPy's rows. With cross terms there are at most so many blocks, as each has
#: a (classes, classes) sum.
BLOCK_SIZE, MAX_CROSS_BLOCKS = 1 << 16, 8
#: Rows of a Hessian with cross terms at a time: NumPy's products stay in the cache.
_HESSIAN_ROWS = 512


@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """Some rows, all of one library.

    `inputs` (rows, classes) are z; with cross terms there is a last column of ones. `shapes` are
    (shape terms, rows * classes), `possible` (rows, classes) or None if no class is masked,
    `labels` (rows,) and `weights` (rows, 1).
    """

    inputs: Array
    shapes: Array
    possible: Array | None
    labels: Array
    weights: Array
    backend: Backend
    cross_terms: bool

    @property
    def xp(self) -> Namespace:
        return self.backend.namespace(self.inputs)

    @property
    def z(self) -> Array:
        """(rows, classes)"""
        return self.inputs[:, :-1] if self.cross_terms else self.inputs

    @property
    def n_shapes(self) -> int:
        return int(self.shapes.shape[0])

    def from_host(self, array: Any) -> Array:
        return self.backend.from_host(array, self.inputs)

    def on_host(self) -> FeatureBlock:
        """The same block in NumPy."""
        found: dict[str, Any] = {}
        for name in ("inputs", "shapes", "possible", "labels", "weights"):
            part = getattr(self, name)
            found[name] = None if part is None else self.backend.to_host(part)
        return replace(self, backend=NUMPY, **found)

    def replace_true(self, table: Array, others: Array | float) -> Array:
        """A table (rows, classes) with `others` at the label."""
        columns = self.from_host(np.arange(table.shape[1]))
        return self.xp.where(columns[None, :] == self.labels[:, None], others, table)

    def at_true(self, table: Array) -> Array:
        """The entry (rows,) of each row of a table (rows, classes) at its label."""
        if isinstance(table, np.ndarray):
            return table[np.arange(len(table)), self.labels]
        return self.xp.take_along_axis(table, self.labels[:, None], axis=1)[:, 0]

    def mask(self, scores: Array) -> Array:
        """Scores (rows, classes), -inf where the class is masked."""
        every = self.possible is None
        return scores if every else self.xp.where(self.possible, scores, -self.xp.inf)

    def scores(self, coef: Array) -> Array:
        """Scores (rows, classes) by coefficients."""
        return self.z + self.change(coef)

    def change(self, direction: Array) -> Array:
        """What a change of the coefficients changes in the scores, (rows, classes)."""
        xp, shaped = self.xp, self.n_shapes
        rows = xp.reshape(direction[shaped:], (self.z.shape[1], -1))
        found = self.inputs @ rows.T if self.cross_terms else self.z * rows[:, 0] + rows[:, 1]
        if shaped:
            found += xp.reshape(direction[:shaped] @ self.shapes, self.z.shape)
        return found

    def transpose_product(self, table: Array) -> Array:
        """Sums of a table (rows, classes) times what the coefficients are multiplied with."""
        flat = self.xp.reshape(table, (-1,))
        shaped = self.shapes @ flat if self.n_shapes else self.shapes[:, 0]
        return self.xp.concat([shaped, self._class_sums(table, self.inputs)])

    def _class_sums(self, table: Array, inputs: Array) -> Array:
        """The same for the coefficients of the classes alone, by inputs or their squares."""
        xp = self.xp
        if self.cross_terms:
            return xp.reshape(table.T @ inputs, (-1,))
        sums = [xp.sum(table * inputs, axis=0), xp.sum(table, axis=0)]
        return xp.reshape(xp.stack(sums, axis=1), (-1,))

    def probabilities(self, coef: Array) -> tuple[Array, Array]:
        """Probabilities (rows, classes), and the sum of the weighted log losses, ()."""
        xp = self.xp
        with ignore_overflow():  # a trial step may go much too far
            scores = self.mask(self.scores(coef))
            below = scores - xp.max(scores, axis=1, keepdims=True)
            own = self.at_true(below)
            proba = np.exp(below, out=below) if xp is np else xp.exp(below)
            total = row_sums(proba, xp)
            proba /= total[:, None]
            return proba, xp.sum(self.weights[:, 0] * (xp.log(total) - own))

    def residual(self, proba: Array) -> Array:
        """p - y, (rows, classes)."""
        if not isinstance(proba, np.ndarray):
            return self.replace_true(proba, proba - 1.0)
        residual = proba.copy()
        residual[np.arange(len(proba)), self.labels] -= 1.0
        return residual

    def slope(self, proba: Array) -> Array:
        """Derivative of the log loss by the coefficients."""
        residual = self.residual(proba)
        residual *= self.weights
        return self.transpose_product(residual)

    def curvature(self, proba: Array, direction: Array) -> Array:
        """Its Hessian times `direction`."""
        change = self.change(direction)
        change -= row_dots(change, proba, self.xp)[:, None]
        change *= proba
        change *= self.weights
        return self.transpose_product(change)

    def moments(self, proba: Array) -> Array:
        """The Hessian's diagonal for w; each class's variance times inputs, and their squares."""
        xp = self.xp
        variance = proba * (1.0 - proba) * self.weights
        shaped = [self.shapes[:0, 0]]
        for place in range(self.n_shapes):
            shape = xp.reshape(self.shapes[place, ...], self.z.shape)
            away = shape - row_dots(proba, shape, xp)[:, None]
            shaped.append(xp.reshape(xp.sum(proba * self.weights * shape * away), (1,)))
        powers = (self.inputs, self.inputs * self.inputs)
        return xp.concat([*shaped, *(self._class_sums(variance, power) for power in powers)])

    def class_hessian(self, proba: Array) -> FloatArray:
        """The Hessian (2 classes, 2 classes) without shape and cross terms."""
        xp, to_host, size = self.xp, self.backend.to_host, proba.shape[1]
        joined = xp.concat([proba * self.z, proba], axis=1)
        weights = self.weights[:, 0]
        first, second = to_host(weights @ joined), to_host(weights @ (joined[:, :size] * self.z))
        joined *= xp.sqrt(self.weights)
        found = -to_host(joined.T @ joined).reshape(2, size, 2, size).transpose(1, 0, 3, 2)
        k = np.arange(size)
        found[k, 0, k, 0] += second
        found[k, 0, k, 1] += first[:size]
        found[k, 1, k, 0] += first[:size]
        found[k, 1, k, 1] += first[size:]
        return np.asarray(found.reshape(2 * size, 2 * size))

    def cross_hessian(self, proba: Array, rows: IntArray) -> FloatArray:
        """The sum (p, p) over some rows of what each adds to the Hessian, with cross terms."""
        size = self.n_shapes + proba.shape[1] * self.inputs.shape[1]
        found = np.zeros((size, size))
        step = _HESSIAN_ROWS if self.xp is np else rows.size
        for part in cut_rows(rows.size, step):
            found += self._cross_hessian(proba, self.from_host(rows[part]))
        return found

    def _cross_hessian(self, proba: Array, rows: Array) -> FloatArray:
        """The mean outer product of what multiplies the coefficients, less that of its mean."""
        xp, to_host, shaped = self.xp, self.backend.to_host, self.n_shapes
        given = (self.inputs, proba, self.weights)
        inputs, proba, weights = (xp.take(array, rows, axis=0) for array in given)
        (n_rows, size), width = proba.shape, inputs.shape[1]
        shapes = xp.take(xp.reshape(self.shapes, (shaped, -1, size)), rows, axis=1)
        heavy = proba * weights
        drawn = shapes * heavy
        inner = xp.matmul(xp.reshape(shapes, (shaped, -1)), xp.reshape(drawn, (shaped, -1)).T)
        border = xp.matmul(xp.permute_dims(drawn, (0, 2, 1)), inputs)
        squares = xp.reshape(inputs[:, :, None] * inputs[:, None, :], (n_rows, -1))
        own = xp.reshape(xp.matmul(heavy.T, squares), (size, width, width))
        each = xp.reshape(proba[:, :, None] * inputs[:, None, :], (n_rows, -1))
        mean = xp.concat([xp.sum(shapes * proba, axis=2).T, each], axis=1) * xp.sqrt(weights)
        found = -to_host(xp.matmul(mean.T, mean))
        found[:shaped, :shaped] += to_host(inner)
        found[:shaped, shaped:] += to_host(border).reshape(shaped, -1)
        found[shaped:, :shaped] = found[:shaped, shaped:].T
        for k, block in enumerate(to_host(own)):
            here = slice(shaped + k * width, shaped + (k + 1) * width)
            found[here, here] += block
        return found


def make_blocks(examples: Examples, features: Features, *, cross_terms: bool) -> list[FeatureBlock]:
    """The features of examples, in blocks of rows."""
    logits, n_rows = examples.logits, examples.n_rows
    step = n_rows
    if logits.is_numpy:  # with cross terms few blocks, as matrix products like many rows
        step = max(1, BLOCK_SIZE // logits.n_classes)
        step = max(step, -(-n_rows // MAX_CROSS_BLOCKS)) if cross_terms else step
    every = bool(logits.xp.min(logits.values) > -logits.xp.inf)

    def make(rows: slice) -> FeatureBlock:
        block = logits.take(rows)
        xp, (z, *shapes) = block.xp, features(block)
        if not (every or cross_terms):  # a masked class has no part in sums over the others
            z = xp.where(block.possible, z, xp.zeros_like(z))
        flat = [xp.reshape(shape, (-1,)) for shape in shapes]
        return FeatureBlock(
            xp.concat([z, xp.ones_like(z[:, :1])], axis=1) if cross_terms else z,
            xp.stack(flat) if flat else xp.reshape(z, (1, -1))[:0, :],
            None if every else block.possible,
            block.from_host(examples.labels[rows]),
            block.from_host(examples.share[rows][:, None]),
            block.backend,
            cross_terms,
        )

    return map_slices(make, n_rows, step, threads=logits.is_numpy)


@dataclass(frozen=True, eq=False)
class SoftmaxObjective:
    """Mean log loss + sum(penalty * coef^2) / 2 of coefficients (p,)."""

    blocks: Sequence[FeatureBlock]
    penalty: FloatArray

    @property
    def n_rows(self) -> int:
        return sum(int(block.inputs.shape[0]) for block in self.blocks)

    @property
    def n_classes(self) -> int:
        return int(self.blocks[0].z.shape[1])

    @property
    def n_shapes(self) -> int:
        return self.blocks[0].n_shapes

    def evaluate(self, coef: FloatArray) -> SoftmaxPoint:
        there = self.blocks[0].from_host(coef)
        found = self.map(lambda block: block.probabilities(there))
        loss, pull = sum(float(loss) for _, loss in found), self.penalty * coef
        value = loss + 0.5 * float(np.vdot(pull, coef))
        return SoftmaxPoint(self, value, loss, [proba for proba, _ in found], pull)

    def map(self, work: Callable[..., Found], *columns: Sequence[Any]) -> list[Found]:
        """`work(block, ...)` of every block and what goes with it."""
        items = list(zip(self.blocks, *columns, strict=True))
        numpy = isinstance(self.blocks[0].inputs, np.ndarray)
        return map_slices(lambda place: work(*items[place.start]), len(items), 1, threads=numpy)

    def total(self, work: Callable[..., Array], *columns: Sequence[Any]) -> FloatArray:
        """The sum of `work` over the blocks, on the host, in their order."""
        total, *rest = (
            part if isinstance(part, np.ndarray) else self.blocks[0].backend.to_host(part)
            for part in self.map(work, *columns)
        )
        for part in rest:
            total = total + part
        return np.asarray(total)


@dataclass(frozen=True, eq=False)
class SoftmaxPoint:
    """The objective at one place: value, log loss, probabilities by blocks, penalty's gradient."""

    objective: SoftmaxObjective
    value: float
    log_loss: float
    proba: list[Array]
    penalty_gradient: FloatArray

    @cached_property
    def gradient(self) -> FloatArray:
        return self.objective.total(FeatureBlock.slope, self.proba) + self.penalty_gradient

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        """The Hessian times a direction (p,)."""
        there = self.objective.blocks[0].from_host(direction)
        product = self.objective.total(lambda b, part: b.curvature(part, there), self.proba)
        return product + self.objective.penalty * direction

    def hessian(self, n_rows: int | None = None) -> FloatArray:
        """The Hessian (p, p); with cross terms by about `n_rows` of the rows."""
        objective = self.objective
        if objective.blocks[0].cross_terms:
            step = max(1, objective.n_rows // (n_rows or objective.n_rows))
            ends = np.cumsum([0] + [part.shape[0] for part in self.proba]).tolist()
            rows = [spaced_rows(a, b - a, step) for a, b in pairwise(ends)]
            found = step * objective.total(FeatureBlock.cross_hessian, self.proba, rows)
        else:
            found = objective.total(FeatureBlock.class_hessian, self.proba)
        found.flat[:: len(found) + 1] += objective.penalty
        return found


class ClassBlocks:
    """A stand-in for the Hessian at a point: for each class a diagonal plus one outer product.

    The examples that matter to a class look alike, so their mean carries most of the curvature of
    its coefficients, and the diagonal is left with the variance about it. Without cross terms the
    two coefficients of a class make it exact.

    `first` (classes, ...) are the sums of each class's variance times inputs, and `second` those by
    their squares with the penalty: without cross terms, (b, v) and (v, v), (b, b) of the Hessian.
    """

    def __init__(self, point: SoftmaxPoint) -> None:
        objective, penalty = point.objective, point.objective.penalty
        sums, shaped = objective.total(FeatureBlock.moments, point.proba), objective.n_shapes
        self.first, second = sums[shaped:].reshape(2, objective.n_classes, -1)
        mean = self.first / np.sqrt(np.maximum(self.first[:, -1:], np.finfo(np.float64).tiny))
        own = penalty[shaped:].reshape(second.shape)
        self.second, self._diagonal = second + own, np.maximum(second - mean * mean, 0.0) + own
        self._shapes = np.maximum(sums[:shaped], 0.0) + penalty[:shaped]
        self._mean = mean / self._diagonal
        self._share = 1.0 + np.einsum("ij,ij->i", mean, self._mean)[:, None]

    def solve(self, residual: FloatArray) -> FloatArray:
        """The inverse times a residual (p,), by the Sherman-Morrison formula."""
        shaped, rows = np.split(residual, [self._shapes.size])
        rows = rows.reshape(self._mean.shape)
        along = np.einsum("ij,ij->i", self._mean, rows)[:, None]
        own = rows / self._diagonal - self._mean * (along / self._share)
        return np.concatenate([shaped / self._shapes, own.ravel()])
