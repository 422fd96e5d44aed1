"""The objective of structured scaling: a penalised conditional logit at a floor and temperature.

Scores are z + z * v + b + sum_i w_i x_i + z M', where z and the three shape terms x_i are
`structured_features`. With n examples and K classes the objective is

    mean log loss + strength / (2 n) * (|w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2).

v_k and M_kk multiply the same z_k, so their sum is fitted: with the penalty K - 1 that is left when
it is divided at the least price, 1/K to M_kk. The objective is convex in one vector: w, and for
each class its row of M + diag(v) (v_k alone without M) and b_k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from hokical._core.arrays import Array
from hokical._core.types import FloatArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.floor import choose_base
from hokical._fitting.likelihood import WeightedExamples, effective_size, spaced_rows
from hokical._fitting.linear_examples import LinearExamples
from hokical._fitting.linear_problem import LinearPoint, LinearProblem
from hokical._fitting.newton_cg import OuterProducts, Product, minimize_newton_cg
from hokical._fitting.solution import Solution
from hokical._fitting.structured_blocks import StructuredBlock, make_blocks
from hokical.rules._structured import StructuredRule

#: Strength of the penalty, in examples.
STRENGTH = 0.3
#: Cross terms are used up to this many classes.
MAX_CROSS_CLASSES = 100
#: Up to this many coefficients the Hessian, by so many rows or more, is inverted for the solver.
_MOST_DENSE, _DENSE_ROWS = 300, 2000


@dataclass(frozen=True, eq=False)
class StructuredProblem(LinearProblem):
    """The objective of one floor and temperature; the examples' weights sum to 1.

    `strength` is that of the penalty on w, already divided by n.
    """

    cross_terms: bool

    @classmethod
    def of(
        cls, examples: LinearExamples, *, cross_terms: bool, strength: float
    ) -> StructuredProblem:
        size = examples.n_classes
        rows = np.full((size, size + 1 if cross_terms else 2), float(size))
        if cross_terms:
            rows[:, :-1] = size * (size - 1.0)
            np.fill_diagonal(rows, size - 1.0)
        penalty = strength * np.concatenate([np.ones(3), rows.ravel()])
        return cls(examples, penalty, np.zeros(penalty.size), cross_terms)

    def split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """w (3,), v and b (classes,), and M (classes, classes) or (0, 0)."""
        size = self.examples.n_classes
        rows = x[3:].reshape(size, -1)
        bias = rows[:, -1].copy()
        if not self.cross_terms:
            return x[:3], rows[:, 0].copy(), bias, np.zeros((0, 0))
        cross = rows[:, :-1].copy()
        own = np.diagonal(cross) / size
        np.fill_diagonal(cross, own)
        return x[:3], own * (size - 1.0), bias, cross

    def rule(self, x: FloatArray, floor: float, temperature: float, even: float) -> StructuredRule:
        """The rule of coefficients, with a share `even` of uniform probabilities."""
        w, v, b, m = self.split(x)
        return StructuredRule(floor, temperature, w, 1.0 + v, b, m, even)

    @property
    def is_small(self) -> bool:
        """Whether Hessians are made whole; not at the start, which is too far from the end."""
        return self.cross_terms and self.penalty.size <= _MOST_DENSE

    def invert_hessian(self, point: LinearPoint) -> Product:
        if self.is_small and point.penalty_gradient.any():
            from scipy.linalg import LinAlgError, cho_factor, cho_solve

            hessian = self.hessian(point)
            try:
                factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)
                return partial(
                    np.matmul, cho_solve(factor, np.eye(self.penalty.size), check_finite=False)
                )
            except LinAlgError:  # a penalty too small to be seen
                pass
        return self._invert_by_class(*self.examples.moments(point.proba))

    def hessian(self, point: LinearPoint) -> FloatArray:
        """The Hessian (p, p) by a part of the rows, with cross terms."""
        step = max(1, self.examples.labels.size // _DENSE_ROWS)
        rows = [spaced_rows(own.start, own.stop - own.start, step) for own in self.examples.rows]
        parts = self.examples.map(StructuredBlock.hessian, point.proba, rows)
        found = step * np.sum(parts, axis=0)
        found.flat[:: self.penalty.size + 1] += self.penalty
        return np.asarray(found)

    def _invert_by_class(self, first: FloatArray, second: FloatArray) -> Product:
        """`OuterProducts` for what each class has of its own, and a diagonal for the shapes."""
        size = self.examples.n_classes
        rows = [part[3:].reshape(size, -1) for part in (first, second, self.penalty)]
        classes = OuterProducts(rows[0][:, -1:], *rows)
        shape = np.maximum(second[:3], 0.0) + self.penalty[:3]

        def solve(residual: FloatArray) -> FloatArray:
            own = classes.solve(residual[3:].reshape(size, -1))
            return np.concatenate([residual[:3] / shape, own.ravel()])

        return solve

    def log_loss(self, proba: list[Array], even: float) -> float:
        """Mean log loss of probabilities mixed with a share `even` of the uniform ones."""

        def work(block: StructuredBlock, part: Array) -> Array:
            xp = block.xp
            every = block.possible is None
            counts = (
                part.shape[1] if every else xp.sum(xp.astype(block.possible, xp.float64), axis=1)
            )
            own = (1.0 - even) * block.at_true(part) + even / counts
            return -xp.sum(block.weights[:, 0] * xp.log(xp.clip(own, 1e-300, None)))

        return float(self.examples.total(work, proba))


@dataclass(frozen=True, eq=False)
class StructuredFit:
    """The rule, its mean log loss, and the end."""

    rule: StructuredRule
    log_loss: float
    minimum: Solution[FloatArray]


def fit_structured(
    examples: WeightedExamples,
    n_examples: float,
    floor: float,
    temperature: float,
    *,
    cross_terms: bool,
    strength: float = STRENGTH,
    tol: float,
    max_iter: int,
) -> StructuredFit:
    """Minimise, from temperature scaling; the examples have the floor in their logits."""
    data = make_blocks(examples, temperature, cross_terms)
    problem = StructuredProblem.of(data, cross_terms=cross_terms, strength=strength / n_examples)
    with one_blas_thread():
        found = minimize_newton_cg(
            problem.evaluate,
            problem.centre,
            tol=tol,
            max_iter=max_iter,
            rough_start=problem.is_small,
        )
        even = 1.0 / (n_examples + 1.0)
        log_loss = problem.log_loss(found.point.proba, even)
    rule = problem.rule(found.x, floor, temperature, even)
    return StructuredFit(rule, log_loss, found)


def fit_structured_base(
    examples: WeightedExamples,
    *,
    cross_terms: bool,
    strength: float = STRENGTH,
    tol: Callable[[float], float],
    max_iter: int,
) -> tuple[Solution[float], StructuredFit]:
    """Temperature scaling, and structured scaling on top of it.

    `tol` is called with the log loss of temperature scaling.
    """
    floor, base, floored = choose_base(examples)
    found = fit_structured(
        floored,
        effective_size(floored.weights),
        floor,
        base.x,
        cross_terms=cross_terms,
        strength=strength,
        tol=tol(base.value),
        max_iter=max_iter,
    )
    return base, found
