"""Structured scaling: shape terms, class scales, biases and cross terms at a floor and temperature.

Scores are z + z * v + b + sum_i w_i x_i + z M', where z and the three shape terms x_i are
`structured_features`. With n examples and K classes the objective is

    mean log loss + strength / (2 n) * (|w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2).

v_k and M_kk multiply the same z_k, so their sum is fitted: with the penalty K - 1 that is left when
it is divided at the least price, 1/K to M_kk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from hokical._core.types import FloatArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.examples import Examples
from hokical._fitting.floor import Base
from hokical._fitting.newton import Product, Solution, cg_steps, minimize_newton
from hokical._fitting.softmax_objective import (
    FeatureBlock,
    SoftmaxObjective,
    SoftmaxPoint,
    class_preconditioner,
    make_blocks,
)
from hokical.rules._structured import StructuredRule, shape_features

#: Strength of the penalty, in examples.
STRENGTH = 0.3
#: Cross terms are used up to this many classes.
MAX_CROSS_CLASSES = 100
#: Up to this many coefficients the Hessian, by about so many rows, is inverted for the solver.
_MOST_DENSE, _DENSE_ROWS = 300, 2000


@dataclass(frozen=True, eq=False)
class StructuredFit:
    """The rule, its mean log loss, the floor and temperature, and the minimum."""

    rule: StructuredRule
    log_loss: float
    base: Base
    minimum: Solution[FloatArray]


def fit_structured(
    base: Base, *, cross_terms: bool, strength: float = STRENGTH, tol: float, max_iter: int
) -> StructuredFit:
    """Structured scaling on top of a floor and a temperature."""
    floored, temperature = base.examples, base.temperature.x
    n_examples = floored.effective_size
    objective = structured_objective(floored, temperature, cross_terms, strength / n_examples)
    small = cross_terms and objective.penalty.size <= _MOST_DENSE
    steps = cg_steps(partial(_precondition, small=small), tol=tol, rough_start=small)
    start = np.zeros(objective.penalty.size)
    with one_blas_thread():
        found = minimize_newton(objective.evaluate, start, steps, tol=tol, max_iter=max_iter)
    even = 1.0 / (n_examples + 1.0)
    rule = StructuredRule(base.floor, temperature, *_split(found.x, objective), even)
    return StructuredFit(rule, _log_loss(found.point, floored, even), base, found)


def structured_objective(
    examples: Examples, temperature: float, cross_terms: bool, strength: float
) -> SoftmaxObjective:
    """The objective of examples that have the floor in their logits; `strength` is divided by n."""
    size = examples.n_classes
    rows = np.full((size, size + 1 if cross_terms else 2), float(size))
    if cross_terms:
        rows[:, :-1] = size * (size - 1.0)
        np.fill_diagonal(rows, size - 1.0)
    blocks = make_blocks(
        examples,
        lambda block: shape_features(block.margins, block, temperature),
        cross_terms=cross_terms,
    )
    return SoftmaxObjective(blocks, strength * np.concatenate([np.ones(3), rows.ravel()]))


def hessian_step(objective: SoftmaxObjective) -> int:
    """One of how many rows each is enough for a Hessian."""
    return max(1, objective.n_rows // _DENSE_ROWS)


def _precondition(point: SoftmaxPoint, small: bool) -> Product:
    """Hessians are made whole if `small`; not at the start, which is too far from the end."""
    if small and point.penalty_gradient.any():
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        hessian = point.hessian(hessian_step(point.objective))
        try:
            factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)
            return partial(np.matmul, cho_solve(factor, np.eye(len(hessian)), check_finite=False))
        except LinAlgError:  # a penalty too small to be seen
            pass
    return class_preconditioner(point)


def _split(
    x: FloatArray, objective: SoftmaxObjective
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """w (3,), 1 + v and b (classes,), and M (classes, classes) or (0, 0)."""
    size = objective.n_classes
    rows = x[3:].reshape(size, -1)
    bias = rows[:, -1].copy()
    if not objective.blocks[0].cross_terms:
        return x[:3], 1.0 + rows[:, 0], bias, np.zeros((0, 0))
    cross = rows[:, :-1].copy()
    own = np.diagonal(cross) / size
    np.fill_diagonal(cross, own)
    return x[:3], 1.0 + own * (size - 1.0), bias, cross


def _log_loss(point: SoftmaxPoint, examples: Examples, even: float) -> float:
    """Mean log loss of probabilities mixed with a share `even` of the uniform ones."""
    logits = examples.logits
    parts = point.objective.map(FeatureBlock.at_true, point.proba)
    true = np.concatenate([logits.to_host(part) for part in parts])
    mixed = (1.0 - even) * true + even / logits.to_host(logits.possible_counts)
    return float(-examples.share @ np.log(np.maximum(mixed, 1e-300)))
