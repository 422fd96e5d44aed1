"""The objective of structured scaling: a penalised conditional logit at a floor and temperature.

Scores are z + z * v + b + sum_i w_i x_i + z M', where z and the three shape terms x_i are
`structured_features`. With n examples and K classes the objective is

    mean log loss + strength / (2 n) * (|w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2),

convex in one vector [w, v, b, M], M row by row or left out. Sums run over blocks of rows, in the
library and on the device of the logits, and are added in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from hokical.core.arrays import Array
from hokical.core.logits import Logits
from hokical.core.parallel import for_row_blocks
from hokical.core.types import FloatArray
from hokical.fitting.likelihood import CountedExamples, row_dots
from hokical.fitting.odir_sums import block_rows
from hokical.rules.structured import structured_features

Found = TypeVar("Found")

#: Numbers per block without M; with it there are few blocks, for each has a (classes, classes) sum.
_BLOCK_SIZE = 1 << 16


@dataclass(frozen=True, eq=False)
class Terms:
    """Coefficients in the library of the blocks: w (3,), v and b (classes,), M or None."""

    w: Array
    v: Array
    b: Array
    m: Array | None


@dataclass(frozen=True, eq=False)
class StructuredBlock:
    """Some rows: checked logits, their features, true classes (rows,) and weights (rows, 1)."""

    logits: Logits
    z: Array
    shapes: Sequence[Array]
    labels: Array
    weights: Array
    crossed: bool

    def scores(self, terms: Terms) -> Array:
        """Departures from z, (rows, classes)."""
        found = self.z * terms.v + terms.b
        for place, shape in enumerate(self.shapes):
            found = found + shape * terms.w[place]
        return found if terms.m is None else found + self.z @ terms.m.T

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
        """Sums of table (rows, classes) times what each coefficient multiplies, (p,)."""
        return self._sums(table, self.z, [table * shape for shape in self.shapes])

    def _sums(self, table: Array, z: Array, shaped: Sequence[Array]) -> Array:
        xp = self.logits.xp
        parts = [
            xp.stack([xp.sum(part) for part in shaped]),
            xp.sum(table * z, axis=0),
            xp.sum(table, axis=0),
        ]
        if self.crossed:
            parts.append(xp.reshape(table.T @ z, (-1,)))
        return xp.concat(parts)

    def slope(self, proba: Array) -> Array:
        """Derivative (p,) of the log loss."""
        is_true = self.logits.columns[None, :] == self.labels[:, None]
        return self.pull(self.logits.xp.where(is_true, proba - 1.0, proba) * self.weights)

    def curvature(self, proba: Array, terms: Terms) -> Array:
        """Its Hessian times a direction, (p,)."""
        change = self.scores(terms)
        change = change - row_dots(change, proba, self.logits.xp)[:, None]
        return self.pull(change * proba * self.weights)

    def moments(self, proba: Array) -> Array:
        """Sums of each class's variance times inputs, and the Hessian's diagonal, (2, p)."""
        xp = self.logits.xp
        variance = proba * (1.0 - proba) * self.weights
        spread = []
        for shape in self.shapes:
            seen = proba * self.weights * shape
            spread.append(seen * (shape - row_dots(proba, shape, xp)[:, None]))
        second = self._sums(variance, self.z * self.z, spread)
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
            labels, weights = part.beside(examples.labels[rows]), examples.weights[rows, None]
            return StructuredBlock(part, z, shapes, labels, part.beside(weights), crossed)

        step = step if logits.is_numpy else n_rows
        cuts = [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
        self.blocks = self._map(make, [(cut,) for cut in cuts])
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
        found = self._map(lambda block: block.probabilities(terms), [(b,) for b in self.blocks])
        loss = sum(float(part) for _, part in found)
        value = loss + 0.5 * float(self.penalty @ (x * x))
        return StructuredPoint(self, x, value, [proba for proba, _ in found])

    def terms(self, x: FloatArray) -> Terms:
        """Coefficients beside the logits."""
        w, v, b, m = (self._logits.beside(np.ascontiguousarray(part)) for part in self.split(x))
        return Terms(w, v, b, m if self.crossed else None)

    def total(
        self, work: Callable[[StructuredBlock, Array], Array], proba: list[Any]
    ) -> FloatArray:
        """The sum of `work` over the blocks, on the host, in their order."""
        found = self._map(work, list(zip(self.blocks, proba, strict=True)))
        return np.asarray(np.sum([self._logits.on_host(part) for part in found], axis=0))

    def log_loss(self, point: StructuredPoint, even: float) -> float:
        """Mean log loss of the probabilities mixed with a share `even` of the uniform ones."""

        def work(block: StructuredBlock, proba: Array) -> Array:
            xp = block.logits.xp
            own = (1.0 - even) * block.at_true(proba) + even / block.logits.possible_counts
            return -xp.sum(block.weights[:, 0] * xp.log(xp.clip(own, 1e-300, None)))

        return float(self.total(work, point.proba))

    def _map(self, work: Callable[..., Found], items: Sequence[tuple[Any, ...]]) -> list[Found]:
        """`work` of every item, in order; NumPy's on threads."""
        if not self._logits.is_numpy:
            return [work(*item) for item in items]
        found: list[Any] = [None] * len(items)

        def one(place: slice) -> None:
            found[place.start] = work(*items[place.start])

        for_row_blocks(one, len(items), 1)
        return found


@dataclass(frozen=True, eq=False)
class StructuredPoint:
    """The objective at x (p,), for the solver: its value, and probabilities by blocks."""

    problem: StructuredProblem
    x: FloatArray
    value: float
    proba: list[Any]

    @cached_property
    def gradient(self) -> FloatArray:
        slope = self.problem.total(StructuredBlock.slope, self.proba)
        return slope + self.problem.penalty * self.x

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        terms = self.problem.terms(direction)
        found = self.problem.total(lambda block, part: block.curvature(part, terms), self.proba)
        return found + self.problem.penalty * direction

    @cached_property
    def _nearly(self) -> StructuredPreconditioner:
        first, second = self.problem.total(StructuredBlock.moments, self.proba)
        return StructuredPreconditioner(self.problem, first, second)

    def precondition(self, residual: FloatArray) -> FloatArray:
        return self._nearly.solve(residual)


class StructuredPreconditioner:
    """An easy stand-in for the Hessian: a diagonal, plus one outer product for each class.

    The examples that matter to a class look alike, so their mean carries most of the curvature
    of its coefficients, and the diagonal is left with the variance about it.
    """

    def __init__(self, problem: StructuredProblem, first: FloatArray, second: FloatArray) -> None:
        self._size = size = problem.n_classes
        total = np.maximum(first[3 + size : 3 + 2 * size], np.finfo(np.float64).tiny)
        mean = self._by_class(first) / np.sqrt(total)[:, None]
        curved = self._by_class(second) - mean * mean
        self._diagonal = np.maximum(curved, 0.0) + self._by_class(problem.penalty)
        self._mean = mean / self._diagonal
        self._share = 1.0 + np.einsum("ij,ij->i", mean, self._mean)[:, None]
        self._shape = np.maximum(second[:3], 0.0) + problem.penalty[:3]

    def solve(self, residual: FloatArray) -> FloatArray:
        """The inverse times a residual (p,), by the Sherman-Morrison formula."""
        rows = self._by_class(residual)
        along = np.einsum("ij,ij->i", self._mean, rows)[:, None]
        rows = rows / self._diagonal - self._mean * (along / self._share)
        return np.concatenate(
            [residual[:3] / self._shape, rows[:, 0], rows[:, 1], rows[:, 2:].ravel()]
        )

    def _by_class(self, x: FloatArray) -> FloatArray:
        """v_k, b_k and M_k of every class, (classes, 2 or 2 + classes)."""
        pair = x[3 : 3 + 2 * self._size].reshape(2, self._size).T
        return np.concatenate([pair, x[3 + 2 * self._size :].reshape(self._size, -1)], axis=1)
