"""Scores of structured scaling for every example as if it had been left out of the fit.

Nothing is fitted again. With H the Hessian of the whole fit, A the (classes, p) matrix that an
example multiplies the coefficients with, w its weight, r = p - y and W = diag(p) - p p', one Newton
step without the example changes its own scores by

    w S (I - w W S)^-1 r,    S = A H^-1 A'.

Long steps of few examples are repeated, as one is too short there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hokical._core.arrays import Array, Namespace
from hokical._core.parallel import cut_rows
from hokical._core.types import FloatArray
from hokical._fitting.linear_problem import LinearPoint
from hokical._fitting.repeated_steps import FewExamples
from hokical._fitting.structured import StructuredProblem
from hokical._fitting.structured_blocks import StructuredBlock

#: Numbers of the (classes, classes) matrices that are held at a time.
_HELD_SIZE = 1 << 18
#: Long steps are repeated with at most so many logits: beyond, no example counts for much.
FEW_LOGITS = 1 << 14
#: An example whose true class is missing no more than this, or so much per example, has no effect
#: on its own scores to speak of.
_SURE, _SURE_BY_EXAMPLE = 1e-2, 1e-6
#: The change (rows, classes) of a block's scores, from its probabilities and weights (rows, 1).
_Change = Callable[[StructuredBlock, Array, Array], Array]


def scores_left_out(
    problem: StructuredProblem, point: LinearPoint, coef: FloatArray, share: float
) -> list[Array]:
    """Scores (rows, classes) by blocks, of every row by the fit without it; with cross terms.

    `point` is that of `coef` (p,). If its rows are only some of those fitted, they are a `share`.
    """
    few = share == 1.0 and problem.examples.labels.size * problem.examples.n_classes <= FEW_LOGITS
    change = _by_hessian(problem, point, coef if few else None)

    def work(block: StructuredBlock, proba: Array) -> Array:
        own = block.scores(block.backend.from_host(coef, block.inputs))
        return own + change(block, proba, block.weights * share)

    return problem.examples.map(work, point.proba)


def _by_hessian(problem: StructuredProblem, point: LinearPoint, coef: FloatArray | None) -> _Change:
    """The change of a block's scores. Given the fit's `coef`, long steps are repeated."""
    size = problem.examples.n_classes
    sure = min(_SURE, _SURE_BY_EXAMPLE * problem.examples.labels.size)
    inverse = np.asarray(np.linalg.inv(problem.hessian(point)), np.float64)
    left, right = np.triu_indices(size + 1)
    pairs = inverse[3:, 3:].reshape(size, size + 1, size, size + 1)
    pairs = pairs[:, left, :, right] + pairs[:, right, :, left]
    pairs[left == right] *= 0.5
    border = np.ascontiguousarray(inverse[:3, 3:].reshape(3 * size, size + 1).T)
    tables = (
        left,
        right,
        pairs.reshape(left.size, -1),
        border,
        0.5 * inverse[:3, :3],
        np.eye(size),
    )

    def spread(inputs: Array, shapes: Array, here: Sequence[Array], xp: Namespace) -> Array:
        """S (rows, classes, classes) of inputs (rows, classes + 1), shapes (rows, classes, 3)."""
        squares = xp.take(inputs, here[0], axis=1) * xp.take(inputs, here[1], axis=1)
        found = xp.reshape(squares @ here[2], (-1, size, size))
        tilt = xp.reshape(inputs @ here[3], (-1, 3, size)) + here[4] @ xp.matrix_transpose(shapes)
        shaped = shapes @ tilt
        return found + shaped + xp.matrix_transpose(shaped)

    def change(block: StructuredBlock, proba: Array, weights: Array) -> Array:
        xp = block.xp
        here = [block.backend.from_host(table, block.inputs) for table in tables]
        shapes = xp.permute_dims(xp.reshape(block.shapes, (3, -1, size)), (1, 2, 0))
        residual = block.replace_true(proba, proba - 1.0)
        moved = np.flatnonzero(block.backend.to_host(xp.min(residual, axis=1)) < -sure)
        parts = [xp.zeros_like(proba[:1, :])]
        for part in cut_rows(moved.size, max(1, _HELD_SIZE // (size * size))):
            rows = block.backend.from_host(moved[part], block.inputs)
            given = (block.inputs, shapes, proba, weights, residual)
            x, shape, p, w, r = (xp.take(array, rows, axis=0) for array in given)
            own = spread(x, shape, here, xp) * w[:, :, None]
            lever = here[5] - p[:, :, None] * (own - p[:, None, :] @ own)
            parts.append((own @ xp.linalg.solve(lever, r[:, :, None]))[:, :, 0])
        place = np.zeros(proba.shape[0], np.int64)
        place[moved] = np.arange(1, moved.size + 1)
        found = xp.take(xp.concat(parts, axis=0), block.backend.from_host(place, proba), axis=0)
        if coef is None:
            return found
        to_host, scores = block.backend.to_host, block.scores(block.backend.from_host(coef, proba))
        held = (block.inputs, shapes, weights, block.mask(scores), proba, residual)
        few = FewExamples(problem.penalty, inverse, *(to_host(array) for array in held))
        repeated = few.repeat_long_steps(to_host(found), partial(spread, here=tables, xp=np))
        return block.backend.from_host(repeated, proba)

    return change
