"""The objective of structured scaling: a penalised conditional logit at a floor and temperature.

Scores are z + z * v + b + sum_i w_i x_i + z M', where z and the three shape terms x_i are
`structured_features`. With n examples and K classes the objective is

    mean log loss + strength / (2 n) * (|w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2),

convex in one vector [w, v, b, M], M row by row or left out. Sums run over blocks of rows, in the
library and on the device of the logits, and are added in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hokical.core.arrays import Array
from hokical.core.logits import Logits
from hokical.core.types import FloatArray
from hokical.fitting.likelihood import CountedExamples, row_dots
from hokical.fitting.newton_cg import OuterProducts
from hokical.fitting.odir_sums import block_rows, map_in_order
from hokical.rules.structured import structured_features

#: Numbers per block without M; with it there are few blocks, for each has a (classes, classes) sum.
_BLOCK_SIZE = 1 << 16


@dataclass(frozen=True, eq=False)
class Terms:
    """Coefficients in the library of the blocks: w (3,), b (classes,), and v or M + diag(v)."""

    w: Array
    b: Array
    scale: Array


@dataclass(frozen=True, eq=False)
class StructuredBlock:
    """Some rows: checked logits, z (rows, classes), the shapes (3, rows * classes), true classes
    (rows,) and weights (rows, 1).
    """

    logits: Logits
    z: Array
    shapes: Array
    labels: Array
    weights: Array
    crossed: bool

    def scores(self, terms: Terms) -> Array:
        """Departures from z, (rows, classes)."""
        found = self.z @ terms.scale.T if self.crossed else self.z * terms.scale
        found += terms.b
        found += self.logits.xp.reshape(terms.w @ self.shapes, self.z.shape)
        return found

    def at_true(self, table: Array) -> Array:
        """The entry (rows,) of each row of a table (rows, classes) at its true class."""
        return self.logits.xp.take_along_axis(table, self.labels[:, None], axis=1)[:, 0]

    def probabilities(self, terms: Terms) -> tuple[Array, Array]:
        """Probabilities (rows, classes), and the sum of the weighted log losses, ()."""
        xp = self.logits.xp
        scores = xp.where(self.logits.possible, self.z + self.scores(terms), -xp.inf)
        below = scores - xp.max(scores, axis=1, keepdims=True)
        proba = xp.exp(below)
        total = xp.sum(proba, axis=1)
        loss = xp.sum(self.weights[:, 0] * (xp.log(total) - self.at_true(below)))
        return proba / total[:, None], loss

    def pull(self, table: Array) -> Array:
        """Sums of table (rows, classes) times what it is multiplied with in the scores.

        By w (3,), by b (classes,), and by `scale`, (classes,) or (classes, classes), in one array.
        """
        xp = self.logits.xp
        return self._join(self.shapes @ xp.reshape(table, (-1,)), table, self.z)

    def _join(self, shaped: Array, table: Array, z: Array) -> Array:
        xp = self.logits.xp
        scaled = xp.reshape(table.T @ z, (-1,)) if self.crossed else xp.sum(table * z, axis=0)
        return xp.concat([shaped, xp.sum(table, axis=0), scaled])

    def slope(self, proba: Array) -> Array:
        """Derivative of the log loss, in the order of `pull`."""
        is_true = self.logits.columns[None, :] == self.labels[:, None]
        return self.pull(self.logits.xp.where(is_true, proba - 1.0, proba) * self.weights)

    def curvature(self, proba: Array, terms: Terms) -> Array:
        """Its Hessian times a direction, in the order of `pull`."""
        change = self.scores(terms)
        change -= row_dots(change, proba, self.logits.xp)[:, None]
        change *= proba
        change *= self.weights
        return self.pull(change)

    def moments(self, proba: Array) -> Array:
        """Sums of each class's variance times inputs, and the Hessian's diagonal, in two rows."""
        xp = self.logits.xp
        variance = proba * (1.0 - proba) * self.weights
        spread = []
        for place in range(3):
            shape = xp.reshape(self.shapes[place, ...], self.z.shape)
            away = shape - row_dots(proba, shape, xp)[:, None]
            spread.append(xp.sum(proba * self.weights * shape * away))
        second = self._join(xp.stack(spread), variance, self.z * self.z)
        return xp.stack([self.pull(variance), second], axis=0)


class StructuredProblem:
    """The objective of one floor and temperature, as a function of [w, v, b, M].

    The examples' weights sum to 1; `strength` is that of the penalty on w, already divided by n.
    """

    def __init__(
        self,
        examples: CountedExamples,
        floor: float,
        temperature: float,
        *,
        crossed: bool,
        strength: float,
    ) -> None:
        logits, size = examples.logits, examples.n_classes
        n_rows = logits.n_rows
        self.n_classes, self.crossed, self._logits = size, crossed, logits
        step = block_rows(n_rows, size) if crossed else max(1, _BLOCK_SIZE // size)

        def make(rows: slice) -> StructuredBlock:
            part = logits.part(rows)
            z, *shapes = structured_features(part, floor, temperature)
            flat = part.xp.stack([part.xp.reshape(shape, (-1,)) for shape in shapes])
            labels, weights = part.beside(examples.labels[rows]), examples.weights[rows, None]
            return StructuredBlock(part, z, flat, labels, part.beside(weights), crossed)

        step = step if logits.is_numpy else n_rows
        cuts = [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
        self.blocks = map_in_order(make, cuts, logits.is_numpy)
        relative = [(3, 1), (2 * size, size), (size * size * crossed, size * (size - 1))]
        self.penalty = strength * np.concatenate([np.full(n, float(by)) for n, by in relative])

    @property
    def start(self) -> FloatArray:
        """No departure from temperature scaling, (p,)."""
        return np.zeros(self.penalty.size)

    def split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """w (3,), v and b (classes,), and M (classes, classes) or (0, 0)."""
        size = self.n_classes
        w, v, b, m = np.split(x, [3, 3 + size, 3 + 2 * size])
        return w, v, b, m.reshape(size, size) if self.crossed else np.zeros((0, 0))

    def evaluate(self, x: FloatArray) -> StructuredPoint:
        terms = self.terms(x)
        found = map_in_order(
            lambda block: block.probabilities(terms), self.blocks, self._logits.is_numpy
        )
        loss = sum(float(part) for _, part in found)
        value = loss + 0.5 * float(self.penalty @ (x * x))
        return StructuredPoint(self, x, value, [proba for proba, _ in found])

    def terms(self, x: FloatArray) -> Terms:
        """Coefficients beside the logits."""
        w, v, b, m = self.split(x)
        scale = m + np.diag(v) if self.crossed else v
        return Terms(*(self._logits.beside(np.ascontiguousarray(part)) for part in (w, b, scale)))

    def total(
        self, work: Callable[[StructuredBlock, Array], Array], proba: list[Any]
    ) -> FloatArray:
        """The sum of `work` over the blocks, on the host, in their order."""
        pairs = list(zip(self.blocks, proba, strict=True))
        found = map_in_order(lambda pair: work(*pair), pairs, self._logits.is_numpy)
        return np.asarray(np.sum([self._logits.on_host(part) for part in found], axis=0))

    def pulled(
        self, work: Callable[[StructuredBlock, Array], Array], proba: list[Any]
    ) -> FloatArray:
        """`total` of sums in the order of `pull`, (..., p) in the order of x."""
        size, sums = self.n_classes, self.total(work, proba)
        w, b, scaled = np.split(sums, [3, 3 + size], axis=-1)
        # v_k and M_kk multiply the same
        parts = [w, scaled[..., :: size + 1], b, scaled] if self.crossed else [w, scaled, b]
        return np.concatenate(parts, axis=-1)

    def log_loss(self, point: StructuredPoint, even: float) -> float:
        """Mean log loss of the probabilities mixed with a share `even` of the uniform ones."""

        def work(block: StructuredBlock, proba: Array) -> Array:
            xp = block.logits.xp
            own = (1.0 - even) * block.at_true(proba) + even / block.logits.possible_counts
            return -xp.sum(block.weights[:, 0] * xp.log(xp.clip(own, 1e-300, None)))

        return float(self.total(work, point.proba))


@dataclass(frozen=True, eq=False)
class StructuredPoint:
    """The objective at x (p,), for the solver: its value, and probabilities by blocks."""

    problem: StructuredProblem
    x: FloatArray
    value: float
    proba: list[Any]

    @cached_property
    def gradient(self) -> FloatArray:
        slope = self.problem.pulled(StructuredBlock.slope, self.proba)
        return slope + self.problem.penalty * self.x

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        terms = self.problem.terms(direction)
        found = self.problem.pulled(lambda block, part: block.curvature(part, terms), self.proba)
        return found + self.problem.penalty * direction

    @cached_property
    def _nearly(self) -> StructuredPreconditioner:
        first, second = self.problem.pulled(StructuredBlock.moments, self.proba)
        return StructuredPreconditioner(self.problem, first, second)

    def precondition(self, residual: FloatArray) -> FloatArray:
        return self._nearly.solve(residual)


class StructuredPreconditioner:
    """`OuterProducts` for what each class has of its own, and a diagonal for the shapes."""

    def __init__(self, problem: StructuredProblem, first: FloatArray, second: FloatArray) -> None:
        self._size = size = problem.n_classes
        total = first[3 + size : 3 + 2 * size, None]
        parts = (self._by_class(part) for part in (first, second, problem.penalty))
        self._classes = OuterProducts(total, *parts)
        self._shape = np.maximum(second[:3], 0.0) + problem.penalty[:3]

    def solve(self, residual: FloatArray) -> FloatArray:
        """The inverse times a residual (p,)."""
        rows = self._classes.solve(self._by_class(residual))
        return np.concatenate(
            [residual[:3] / self._shape, rows[:, 0], rows[:, 1], rows[:, 2:].ravel()]
        )

    def _by_class(self, x: FloatArray) -> FloatArray:
        """v_k, b_k and M_k of every class, (classes, 2 or 2 + classes)."""
        pair = x[3 : 3 + 2 * self._size].reshape(2, self._size).T
        return np.concatenate([pair, x[3 + 2 * self._size :].reshape(self._size, -1)], axis=1)
