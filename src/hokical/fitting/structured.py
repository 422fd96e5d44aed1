"""The objective of structured scaling: a penalised conditional logit at a floor and temperature.

Scores are z + z * v + b + sum_i w_i x_i + z M', where z and the three shape terms x_i are
`structured_features`. With n examples and K classes the objective is

    mean log loss + strength / (2 n) * (|w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2).

v_k and M_kk multiply the same z_k, so their sum is fitted: with the penalty K - 1 that is left when
it is divided at the least price, 1/K to M_kk. The objective is convex in one vector: w, and for
each class its row of M + diag(v) (v_k alone without M) and b_k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from hokical.core.arrays import Array
from hokical.core.types import FloatArray
from hokical.fitting.likelihood import CountedExamples, row_dots
from hokical.fitting.linear_problem import InverseHessian, LinearProblem
from hokical.fitting.newton_cg import OuterProducts
from hokical.fitting.odir_sums import LinearBlock, LinearExamples, block_rows, map_in_order
from hokical.rules.structured import StructuredRule, structured_features

#: Numbers per block without M; with it there are few blocks, for each has a (classes, classes) sum.
_BLOCK_SIZE = 1 << 16
#: Up to this many coefficients the Hessian of about this many rows is inverted for the solver.
_MOST_DENSE, _DENSE_ROWS = 300, 2000


@dataclass(frozen=True, eq=False)
class StructuredBlock(LinearBlock):
    """Some rows, with z (rows, classes) and the shape terms (3, rows * classes)."""

    z: Array
    shapes: Array
    crossed: bool

    def scores(self, coef: Array) -> Array:
        return self.z + self.change(coef)

    def change(self, direction: Array) -> Array:
        xp, size = self.xp, self.z.shape[1]
        rows = xp.reshape(direction[3:], (size, -1))
        found = self.inputs @ rows.T if self.crossed else self.z * rows[:, 0] + rows[:, 1]
        found += xp.reshape(direction[:3] @ self.shapes, self.z.shape)
        return found

    def pull(self, table: Array) -> Array:
        shaped = self.shapes @ self.xp.reshape(table, (-1,))
        return self._join(shaped, table, self.inputs)

    def _join(self, shaped: Array, table: Array, inputs: Array) -> Array:
        xp = self.xp
        if self.crossed:
            rows = table.T @ inputs
        else:
            rows = xp.stack([xp.sum(table * inputs, axis=0), xp.sum(table, axis=0)], axis=1)
        return xp.concat([shaped, xp.reshape(rows, (-1,))])

    def moments(self, proba: Array) -> Array:
        """Sums of each class's variance times inputs, and the Hessian's diagonal, in two rows."""
        xp = self.xp
        variance = proba * (1.0 - proba) * self.weights
        spread = []
        for place in range(3):
            shape = xp.reshape(self.shapes[place, ...], self.z.shape)
            away = shape - row_dots(proba, shape, xp)[:, None]
            spread.append(xp.sum(proba * self.weights * shape * away))
        second = self._join(xp.stack(spread), variance, self.inputs * self.inputs)
        return xp.stack([self.pull(variance), second], axis=0)

    def margin_moments(self) -> Array:
        """Margins of z, expected and of the true class, and the variance, (3, rows)."""
        xp, z = self.xp, self.z
        p = xp.reshape(self.shapes[1, ...], z.shape)
        p = p if self.possible is None else xp.where(self.possible, p, xp.zeros_like(p))
        mean, top = row_dots(p, z, xp), xp.max(z, axis=1)
        variance = row_dots(p * z, z, xp) - mean * mean
        return xp.stack([top - mean, top - self.at_true(z), variance], axis=0)

    def hessian(self, proba: Array, rows: slice) -> FloatArray:
        """The Hessian (p, p) by some of the rows, with cross terms, on the host.

        The mean outer product of what multiplies the coefficients, less that of its mean.
        """
        xp, to_host = self.xp, self.backend.to_host
        inputs, proba = self.inputs[rows, :], proba[rows, :]
        weights = rows.step * self.weights[rows, :]
        (n_rows, size), width = proba.shape, inputs.shape[1]
        shapes = xp.reshape(self.shapes, (3, -1, size))[:, rows, :]
        heavy = proba * weights
        drawn = shapes * heavy
        inner = xp.matmul(xp.reshape(shapes, (3, -1)), xp.reshape(drawn, (3, -1)).T)
        border = xp.matmul(xp.permute_dims(drawn, (0, 2, 1)), inputs)
        squares = xp.reshape(inputs[:, :, None] * inputs[:, None, :], (n_rows, -1))
        own = xp.reshape(xp.matmul(heavy.T, squares), (size, width, width))
        each = xp.reshape(proba[:, :, None] * inputs[:, None, :], (n_rows, -1))
        mean = xp.concat([xp.sum(shapes * proba, axis=2).T, each], axis=1) * xp.sqrt(weights)
        found = -to_host(xp.matmul(mean.T, mean))
        found[:3, :3] += to_host(inner)
        found[:3, 3:] += to_host(border).reshape(3, -1)
        found[3:, :3] = found[:3, 3:].T
        for k, block in enumerate(to_host(own)):
            here = slice(3 + k * width, 3 + (k + 1) * width)
            found[here, here] += block
        return found


@dataclass(frozen=True, eq=False)
class StructuredProblem(LinearProblem):
    """The objective of one floor and temperature; the examples' weights sum to 1.

    `strength` is that of the penalty on w, already divided by n.
    """

    crossed: bool

    @classmethod
    def of(
        cls,
        examples: CountedExamples,
        floor: float,
        temperature: float,
        *,
        crossed: bool,
        strength: float,
    ) -> StructuredProblem:
        size = examples.n_classes
        rows = np.full((size, size + 1 if crossed else 2), float(size))
        if crossed:
            rows[:, :-1] = size * (size - 1.0)
            np.fill_diagonal(rows, size - 1.0)
        penalty = strength * np.concatenate([np.ones(3), rows.ravel()])
        blocks = _make_blocks(examples, floor, temperature, crossed)
        data = LinearExamples(blocks, examples.labels, examples.weights, size)
        return cls(data, penalty, np.zeros(penalty.size), crossed)

    def on_others(self, examples: CountedExamples, rule: StructuredRule) -> StructuredProblem:
        """The same objective of other examples, at the floor and temperature of a rule."""
        blocks = _make_blocks(examples, rule.floor, rule.temperature, self.crossed)
        data = replace(
            self.examples, blocks=blocks, labels=examples.labels, weights=examples.weights
        )
        return replace(self, examples=data)

    def split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """w (3,), v and b (classes,), and M (classes, classes) or (0, 0)."""
        size = self.examples.n_classes
        rows = x[3:].reshape(size, -1)
        bias = rows[:, -1].copy()
        if not self.crossed:
            return x[:3], rows[:, 0].copy(), bias, np.zeros((0, 0))
        cross = rows[:, :-1].copy()
        own = np.diagonal(cross) / size
        np.fill_diagonal(cross, own)
        return x[:3], own * (size - 1.0), bias, cross

    def inverse_hessian(self, proba: list[Array]) -> InverseHessian:
        if self.crossed and self.penalty.size <= _MOST_DENSE:
            step = max(1, self.examples.labels.size // _DENSE_ROWS)
            rows = [slice(-own.start % step, None, step) for own in self.examples.rows]
            hessian = np.sum(self.examples.map(StructuredBlock.hessian, proba, rows), axis=0)
            hessian.flat[:: self.penalty.size + 1] += self.penalty
            try:
                return DenseInverse(hessian)
            except LinAlgError:  # a penalty too small to be seen
                pass
        return ByClassInverse(self, *self.examples.moments(proba))

    def log_loss(self, proba: list[Array], even: float) -> float:
        """Mean log loss of probabilities mixed with a share `even` of the uniform ones."""

        def work(block: StructuredBlock, part: Array) -> Array:
            xp = block.xp
            counts = (
                block.z.shape[1]
                if block.possible is None
                else xp.sum(xp.astype(block.possible, xp.float64), axis=1)
            )
            own = (1.0 - even) * block.at_true(part) + even / counts
            return -xp.sum(block.weights[:, 0] * xp.log(xp.clip(own, 1e-300, None)))

        return float(self.examples.total(work, proba))


def _make_blocks(
    examples: CountedExamples, floor: float, temperature: float, crossed: bool
) -> list[StructuredBlock]:
    logits = examples.logits
    n_rows, size = logits.n_rows, logits.n_classes
    step = block_rows(n_rows, size) if crossed else max(1, _BLOCK_SIZE // size)
    step = step if logits.is_numpy else n_rows

    def make(rows: slice) -> StructuredBlock:
        part = logits.part(rows)
        xp = part.xp
        z, *shapes = structured_features(part, floor, temperature)
        inputs = xp.concat([z, xp.ones_like(z[:, :1])], axis=1) if crossed else z
        return StructuredBlock(
            inputs,
            None if bool(xp.all(part.possible)) else part.possible,
            part.beside(examples.labels[rows]),
            part.beside(examples.weights[rows, None]),
            part.backend,
            inputs[:, :size],
            xp.stack([xp.reshape(shape, (-1,)) for shape in shapes]),
            crossed,
        )

    cuts = [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
    return map_in_order(make, cuts, logits.is_numpy)


class DenseInverse:
    """The inverse of a Hessian (p, p), by its Cholesky factor."""

    def __init__(self, hessian: FloatArray) -> None:
        self._factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)

    def solve(self, residual: FloatArray) -> FloatArray:
        return np.asarray(cho_solve(self._factor, residual, check_finite=False))


class ByClassInverse:
    """`OuterProducts` for what each class has of its own, and a diagonal for the shapes."""

    def __init__(self, problem: StructuredProblem, first: FloatArray, second: FloatArray) -> None:
        self._size = size = problem.examples.n_classes
        rows = [part[3:].reshape(size, -1) for part in (first, second, problem.penalty)]
        self._classes = OuterProducts(rows[0][:, -1:], *rows)
        self._shape = np.maximum(second[:3], 0.0) + problem.penalty[:3]

    def solve(self, residual: FloatArray) -> FloatArray:
        rows = residual[3:].reshape(self._size, -1)
        return np.concatenate([residual[:3] / self._shape, self._classes.solve(rows).ravel()])
