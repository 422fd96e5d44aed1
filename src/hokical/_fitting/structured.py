"""Structured scaling (shape terms, class scales, biases, cross terms), and vector scaling.

Scores are z + z * v + b + sum_i w_i x_i + z M', where z and the two shape terms x_i are
`shape_features`. With n examples and K classes the objective is

    mean log loss + strength / (2 n) * (|w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2).

v_k and M_kk multiply the same z_k, so their sum is fitted: with the penalty K - 1 that is left when
it is divided at the least price, 1/K to M_kk.

The scores of every example as if it had been left out need no other fit. With H the Hessian of the
whole fit, A the (classes, p) matrix that an example multiplies the coefficients with, w its weight,
r = p - y and W = diag(p) - p p', one Newton step without the example changes its own scores by

    w S (I - w W S)^-1 r,    S = A H^-1 A'.

One step takes the slope of the others for a straight line. Left out, an example that matters
changes what the others say, and the step is too short: with 200 examples of ten classes the log
loss looks better by about 0.02 than it is. So long steps of few examples are repeated, each time
with the slope of the others where the last one led, and with the same Hessian, from which
Woodbury's formula takes the example.

Vector scaling has a scale and a bias for each class's log-probability, and a tiny ridge. Its
features are log-probabilities at the base temperature T, so the objective's v and b are
scale = (1 + v) / T and bias = b. The ridge is on unit (scale - 1 / T) and on the biases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hokical._core.arrays import Array, FloatArray, IntArray
from hokical._core.checks import LARGEST_TEMPERATURE
from hokical._core.parallel import cut_rows, one_blas_thread
from hokical._fitting.examples import Examples, spaced_rows
from hokical._fitting.newton import TIGHT, Product, Solution, cg_steps, dense_step, minimize_newton
from hokical._fitting.softmax_objective import (
    ClassBlocks,
    FeatureBlock,
    SoftmaxObjective,
    SoftmaxPoint,
    make_blocks,
)
from hokical._fitting.temperature import Base, base_temperature, typical_spread
from hokical.rules.base import log_probabilities
from hokical.rules.scaling import N_SHAPES, StructuredRule, shape_features

#: Strength of the penalty, in examples.
STRENGTH = 0.3
#: Fits of several ridges end with a Newton step that is expected to gain no more than this in mean
#: log loss; less where that is below the second, down to 1 %. About a hundredth of it is left.
TOLERANCE, SMALL_LOSS, MAX_ITER = 1e-4, 0.1, 200
#: The same for a scale and a bias of each class.
CLASS_TOLERANCE, MAX_CLASS_ITER = 3e-4, 20
#: Such scales stay above this, so that the order of a class's margins is kept.
LEAST_SCALE = 0.05
#: Cross terms are used up to this many classes.
MAX_CROSS_CLASSES = 100
#: Up to this many coefficients the Hessian, by about so many rows, is inverted for the solver.
_MOST_DENSE, _DENSE_ROWS = 300, 2000
#: Numbers of the (classes, classes) matrices that are held at a time.
_HELD_SIZE = 1 << 18
#: Long steps are repeated with at most so many logits: beyond, no example counts for much.
FEW_LOGITS = 1 << 14
#: They are repeated so often, for examples whose scores one step changes by more than this.
REPEATS, LONG_STEP = 4, 0.5
#: An example whose true class is missing no more than this, or so much per example, has no effect
#: on its own scores to speak of.
_SURE, _SURE_BY_EXAMPLE = 1e-2, 1e-6

#: S (rows, classes, classes) of a block's inputs (rows, classes + 1) and shapes (rows, classes, 2).
Spread = Callable[[FeatureBlock, Array, Array], Array]


@dataclass(frozen=True, eq=False)
class StructuredFit:
    """The rule, the floor and temperature, and the minimum."""

    rule: StructuredRule
    base: Base
    minimum: Solution[FloatArray]

    @property
    def log_loss(self) -> float:
        """The mean log loss, with the share of the uniform distribution."""
        point, examples, even = self.minimum.point, self.base.examples, self.rule.even
        logits = examples.logits
        parts = point.objective.map(FeatureBlock.at_true, point.proba)
        true = np.concatenate([logits.to_host(part) for part in parts])
        mixed = (1.0 - even) * true + even / logits.to_host(logits.possible_counts)
        return float(-examples.share @ np.log(np.maximum(mixed, 1e-300)))


@one_blas_thread()
def fit_structured(
    base: Base, *, cross_terms: bool, strength: float = STRENGTH, tol: float, max_iter: int
) -> StructuredFit:
    """Structured scaling on top of a floor and a temperature."""
    floored = base.examples
    strength = strength / floored.effective_size
    objective = structured_objective(floored, base.temperature.x, cross_terms, strength)
    found = _minimize(objective, np.zeros(objective.penalty.size), tol, max_iter)
    return StructuredFit(_rule(base, found.x, objective), base, found)


def _minimize(
    objective: SoftmaxObjective,
    start: FloatArray,
    tol: float,
    max_iter: int,
    inverse: FloatArray | None = None,
) -> Solution[FloatArray]:
    """The minimum from a start, near which an `inverse` (p, p) of the Hessian may be known."""
    small = objective.blocks[0].cross_terms and objective.penalty.size <= _MOST_DENSE
    known = [] if inverse is None else [partial(np.matmul, inverse)]

    def precondition(point: SoftmaxPoint) -> Product:
        return known.pop() if known else _precondition(point, small)

    steps = cg_steps(precondition, tol=tol, rough_start=small and not known)
    return minimize_newton(objective.evaluate, start, steps, tol=tol, max_iter=max_iter)


def _rule(base: Base, coef: FloatArray, objective: SoftmaxObjective) -> StructuredRule:
    even = 1.0 / (base.examples.effective_size + 1.0)
    return StructuredRule(base.floor, base.temperature.x, *_split(coef, objective), even)


@dataclass(frozen=True, eq=False)
class RidgeFits:
    """Rules by ridge, and the scores (n, classes) of some `examples` by each fit without them.

    `rows` (n,) are the places of these examples among all; they have the floor in their logits.
    """

    rules: list[StructuredRule]
    held_out: list[Array]
    examples: Examples
    rows: IntArray
    converged: bool


@one_blas_thread()
def fit_ridges(base: Base, ridges: Sequence[float], step: int) -> RidgeFits:
    """Structured scaling with cross terms at falling ridges, in examples.

    Of `step` rows, one is held out; where only some are, their curvature is taken for that of all.
    The floor, and the temperature inside structured scaling, stay those of the whole.
    """
    every, n_examples = base.examples, base.examples.effective_size
    tol = TOLERANCE * min(max(base.temperature.value / SMALL_LOSS, 0.01), 1.0)
    rows = spaced_rows(0, every.n_rows, max(step, 1))
    some = every if step < 2 else every.take(rows)
    part, rules, held_out, converged = some.n_rows / every.n_rows, [], [], True
    whole, sampled = (
        structured_objective(each, base.temperature.x, True, 1.0 / n_examples)
        for each in ((every, some) if step >= 2 else (every, every))
    )
    coef = np.zeros(whole.penalty.size)
    hessian: FloatArray | None = None
    for ridge in ridges:
        objective = replace(whole, penalty=ridge * whole.penalty)
        start = None if hessian is None else _invert(hessian, objective.penalty)
        found = _minimize(objective, coef, tol, MAX_ITER, start)
        point, coef = found.point, found.x
        if step >= 2:
            point = replace(sampled, penalty=objective.penalty).evaluate(coef)
        hessian = point.hessian(_DENSE_ROWS)
        inverse = _invert(hessian)
        hessian.flat[:: coef.size + 1] -= objective.penalty
        rules.append(_rule(base, coef, objective))
        held_out.append(some.logits.xp.concat(scores_left_out(point, coef, part, inverse), axis=0))
        converged = converged and found.converged
    return RidgeFits(rules, held_out, some, rows, converged)


@one_blas_thread()
def fit_class_ridges(base: Base, ridges: Sequence[float]) -> RidgeFits:
    """A scale and a bias for each of many classes, at falling ridges, in examples.

    With x = margins / temperature, the scores are -x (1 + v) + b. Newton steps have one (2, 2)
    block of the Hessian per class: what ties classes together fades as they become many. The same
    blocks give the scores of each example by a fit without it.
    """
    examples, none = base.examples, np.zeros(0)
    price = examples.n_classes / examples.effective_size
    unit = class_objective(examples, base.temperature.x, price)
    coef, rules, held_out, converged = np.zeros(unit.penalty.size), [], [], True
    for ridge in ridges:
        objective = replace(unit, penalty=ridge * unit.penalty)
        found = minimize_newton(
            objective.evaluate, coef, class_step, tol=CLASS_TOLERANCE, max_iter=MAX_CLASS_ITER
        )
        coef, converged = found.x, converged and found.converged
        v, bias = coef.reshape(-1, 2).T
        scale, cross = np.maximum(1.0 + v, LEAST_SCALE), none.reshape(0, 0)
        rules.append(
            StructuredRule(base.floor, base.temperature.x, none, scale, bias, cross, even=0.0)
        )
        scores = class_scores_left_out(found.point, coef)
        held_out.append(examples.logits.xp.concat(scores, axis=0))
    return RidgeFits(rules, held_out, examples, np.arange(examples.n_rows), converged)


def class_objective(examples: Examples, temperature: float, penalty: float) -> SoftmaxObjective:
    """The objective of (v_k, b_k) for each class k, (2 classes,)."""
    blocks = make_blocks(
        examples, lambda block: (block.margins * (-1.0 / temperature),), cross_terms=False
    )
    return SoftmaxObjective(blocks, np.full(2 * examples.n_classes, penalty))


def class_step(point: SoftmaxPoint) -> tuple[FloatArray, bool]:
    return -ClassBlocks(point).solve(point.gradient), True


def class_scores_left_out(point: SoftmaxPoint, coef: FloatArray) -> list[Array]:
    """Scores (rows, classes) by blocks, of each example by a fit without it."""
    about = ClassBlocks(point)
    square, cross, count = about.second[:, 0], about.first[:, 0], about.second[:, 1]
    inverse = np.stack([count, -2.0 * cross, square]) / (square * count - cross * cross)

    def work(block: FeatureBlock, proba: Array) -> Array:
        a, b, c = block.from_host(inverse)
        spread = ((block.z * a + b) * block.z + c) * block.weights
        change = spread * block.residual(proba) / (1.0 - spread * (proba - proba * proba))
        return block.scores(block.from_host(coef)) + change

    return point.objective.map(work, point.proba)


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
    return SoftmaxObjective(blocks, strength * np.concatenate([np.ones(N_SHAPES), rows.ravel()]))


def _precondition(point: SoftmaxPoint, small: bool) -> Product:
    """Hessians are made whole if `small`; not at the start, which is too far from the end."""
    if small and point.penalty_gradient.any():
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        hessian = point.hessian(_DENSE_ROWS)
        try:
            factor = cho_factor(hessian, lower=True, overwrite_a=True, check_finite=False)
            return partial(np.matmul, cho_solve(factor, np.eye(len(hessian)), check_finite=False))
        except LinAlgError:  # a penalty too small to be seen
            pass
    return ClassBlocks(point).solve


def _split(
    x: FloatArray, objective: SoftmaxObjective
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """w (2,), 1 + v and b (classes,), and M (classes, classes) or (0, 0)."""
    size = objective.n_classes
    w, rows = x[:N_SHAPES], x[N_SHAPES:].reshape(size, -1)
    bias = rows[:, -1].copy()
    if not objective.blocks[0].cross_terms:
        return w, 1.0 + rows[:, 0], bias, np.zeros((0, 0))
    cross = rows[:, :-1].copy()
    own = np.diagonal(cross) / size
    np.fill_diagonal(cross, own)
    return w, 1.0 + own * (size - 1.0), bias, cross


def _invert(hessian: FloatArray, penalty: FloatArray | float = 0.0) -> FloatArray:
    """The inverse of a Hessian (p, p), with a penalty (p,) added to its diagonal."""
    return np.asarray(np.linalg.inv(hessian + np.diag(penalty + np.zeros(len(hessian)))))


def scores_left_out(
    point: SoftmaxPoint, coef: FloatArray, part: float, inverse: FloatArray
) -> list[Array]:
    """Scores (rows, classes) by blocks, of every row by the fit without it; with cross terms.

    `point` is that of `coef` (p,), and `inverse` (p, p) that of the Hessian. If its rows are only a
    `part` of those fitted, each weighs that much less.
    """
    objective = point.objective
    spread = _spread_by(inverse, objective.n_classes)
    sure = min(_SURE, _SURE_BY_EXAMPLE * objective.n_rows)
    few = part == 1.0 and objective.n_rows * objective.n_classes <= FEW_LOGITS

    def work(block: FeatureBlock, proba: Array) -> Array:
        change = _one_step(block, proba, block.weights * part, spread, sure)
        if few:  # all are in this block
            once = block.backend.to_host(change).copy()
            rows = np.flatnonzero(np.ptp(once, axis=1) > LONG_STEP)
            given = (block.backend.to_host(proba), coef, objective.penalty, inverse, spread)
            if rows.size:
                once[rows] = _repeat_steps(rows, block.on_host(), *given)
            change = block.from_host(once)
        return block.scores(block.from_host(coef)) + change

    return objective.map(work, point.proba)


def _spread_by(inverse: FloatArray, size: int) -> Spread:
    """S = A H^-1 A' from H^-1 (p, p), by pairs of inputs, and terms with shapes."""
    left, right = np.triu_indices(size + 1)
    n = N_SHAPES
    pairs = inverse[n:, n:].reshape(size, size + 1, size, size + 1)
    pairs = pairs[:, left, :, right] + pairs[:, right, :, left]
    pairs[left == right] *= 0.5
    border = np.ascontiguousarray(inverse[:n, n:].reshape(n * size, size + 1).T)
    tables = (left, right, pairs.reshape(left.size, -1), border, 0.5 * inverse[:n, :n])

    def spread(block: FeatureBlock, inputs: Array, shapes: Array) -> Array:
        xp = block.xp
        one, other, by_pair, by_input, by_shape = map(block.from_host, tables)
        squares = xp.take(inputs, one, axis=1) * xp.take(inputs, other, axis=1)
        found = xp.reshape(squares @ by_pair, (-1, size, size))
        tilt = xp.reshape(inputs @ by_input, (-1, n, size))
        shaped = shapes @ (tilt + by_shape @ xp.matrix_transpose(shapes))
        return found + shaped + xp.matrix_transpose(shaped)

    return spread


def _shape_table(block: FeatureBlock) -> Array:
    """Shape terms (rows, classes, 2)."""
    xp = block.xp
    return xp.permute_dims(xp.reshape(block.shapes, (N_SHAPES, -1, block.z.shape[1])), (1, 2, 0))


def _one_step(
    block: FeatureBlock, proba: Array, weights: Array, spread: Spread, sure: float
) -> Array:
    """The change (rows, classes) of a block's scores by one Newton step."""
    xp, size = block.xp, proba.shape[1]
    residual, eye = block.residual(proba), block.from_host(np.eye(size))
    moved = np.flatnonzero(block.backend.to_host(xp.min(residual, axis=1)) < -sure)
    given = (block.inputs, _shape_table(block), proba, weights, residual)
    parts = [xp.zeros_like(proba[:1, :])]
    for part in cut_rows(moved.size, max(1, _HELD_SIZE // (size * size))):
        rows = block.from_host(moved[part])
        x, shape, p, w, r = (xp.take(array, rows, axis=0) for array in given)
        own = spread(block, x, shape) * w[:, :, None]
        lever = eye - p[:, :, None] * (own - p[:, None, :] @ own)
        parts.append((own @ xp.linalg.solve(lever, r[:, :, None]))[:, :, 0])
    place = np.zeros(proba.shape[0], np.int64)
    place[moved] = np.arange(1, moved.size + 1)
    return xp.take(xp.concat(parts, axis=0), block.from_host(place), axis=0)


def _repeat_steps(
    rows: IntArray,
    block: FeatureBlock,
    proba: FloatArray,
    coef: FloatArray,
    penalty: FloatArray,
    inverse: FloatArray,
    spread: Spread,
) -> FloatArray:
    """The changes (rows, classes) of some rows' scores by several steps, all on the host."""
    inputs, shapes, own = block.inputs[rows], _shape_table(block)[rows], proba[rows]
    weights, residual = block.weights[rows], block.residual(proba)[rows]
    spreads = weights[:, :, None] * spread(block, inputs, shapes)
    lever = np.eye(own.shape[1]) - own[:, :, None] * (spreads - own[:, None, :] @ spreads)

    def multiply(away: FloatArray) -> FloatArray:
        """Scores (rows, classes) of each row by its own coefficients (rows, p)."""
        by_class = away[:, N_SHAPES:].reshape(*own.shape, -1)
        return np.asarray(
            (shapes @ away[:, :N_SHAPES, None] + by_class @ inputs[:, :, None])[:, :, 0]
        )

    def transpose_product(table: FloatArray) -> FloatArray:
        by_class = (table[:, :, None] * inputs[:, None, :]).reshape(rows.size, -1)
        return np.hstack([(table[:, None, :] @ shapes)[:, 0, :], by_class])

    def solve(slope: FloatArray) -> FloatArray:
        step = slope @ inverse
        tilt = multiply(step)
        tilt = weights * own * (tilt - np.sum(own * tilt, axis=1, keepdims=True))
        tilt = np.linalg.solve(lever, tilt[:, :, None])[:, :, 0]
        return step + transpose_product(tilt) @ inverse

    def change_of_slope(row: int, away: FloatArray) -> FloatArray:
        """Of the objective without the row, that far away from the fit, (p,)."""
        change = (block.probabilities(coef + away)[0] - proba) * block.weights
        change[row] = 0.0
        return np.asarray(block.transpose_product(change) + penalty * away)

    gone = transpose_product(weights * residual)
    away = solve(gone)
    for _ in range(REPEATS):
        slopes = [change_of_slope(*each) for each in zip(rows, away, strict=True)]
        away -= solve(np.array(slopes) - gone)
    return multiply(away)


#: Above this many classes, conjugate gradients cost less than the Hessian; the last step then
#: is expected to gain no more than this.
DENSE_CLASSES, _MANY_CLASSES_TOLERANCE = 300, 1e-9
#: Spreads of log-probabilities below the first are near their rounding errors; those above the
#: second leave no room for temperatures.
_SPREADS = (1e-6, 1e100)
#: The base temperature is sought between these multiples of the spread: a wild example or two can
#: ask for a very high one.
_REACH = (1e-5, 1e30)
#: Probabilities this close to 1 are cut, so that the log of the rest is finite.
_ALMOST_ONE = 1.0 - 1e-16


@dataclass(frozen=True, eq=False)
class VectorFit:
    """Scales and biases (classes,), the mean log loss, the classes that are perfectly separated
    from all others, and how the search ended.
    """

    scale: FloatArray
    bias: FloatArray
    log_loss: float
    separated: IntArray
    solution: Solution[FloatArray]


def fit_vector(examples: Examples, ridge: float, max_iter: int) -> VectorFit:
    spread = min(max(typical_spread(examples), _SPREADS[0]), _SPREADS[1])
    bounds = _REACH[0] * spread, min(_REACH[1] * spread, LARGEST_TEMPERATURE)
    temperature = base_temperature(examples, spread, bounds).x
    unit, n_classes = min(temperature, spread), examples.n_classes
    blocks = make_blocks(
        examples, lambda block: (log_probabilities(block) / temperature,), cross_terms=False
    )
    penalty = ridge * np.tile([(unit / temperature) ** 2, 1.0], n_classes)
    objective = SoftmaxObjective(blocks, penalty)
    tol, steps = TIGHT, lambda point: dense_step(point.gradient, point.hessian())
    if n_classes > DENSE_CLASSES:
        tol = _MANY_CLASSES_TOLERANCE
        steps = cg_steps(lambda point: ClassBlocks(point).solve, tol=tol)
    start, units = np.zeros(penalty.size), np.sqrt(ridge / penalty)
    with one_blas_thread():
        found = minimize_newton(
            objective.evaluate, start, steps, tol=tol, max_iter=max_iter, units=units
        )
    v, bias = found.x.reshape(-1, 2).T
    losses = objective.total(_class_losses, found.point.proba)
    price = 0.5 * (penalty * found.x**2).reshape(-1, 2).sum(axis=1)
    present = np.bincount(examples.labels, minlength=n_classes) > 0
    separated = np.flatnonzero((price >= losses) & present)
    # A constant added to all biases has no effect.
    return VectorFit(
        (1.0 + v) / temperature, bias - bias.mean(), found.point.log_loss, separated, found
    )


def _class_losses(block: FeatureBlock, proba: Array) -> Array:
    """The sum (classes,) of each class's log loss against all others."""
    xp = block.xp
    against = -xp.log1p(-xp.clip(proba, None, _ALMOST_ONE))
    own = -xp.log(xp.clip(proba, 1e-300, None))
    return xp.sum(block.weights * block.replace_true(against, own), axis=0)
