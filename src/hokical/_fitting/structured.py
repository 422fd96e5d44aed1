"""Structured scaling (shape terms, class scales, biases, cross terms), and vector
scaling.

Scores are z + z * v + b + sum_i w_i x_i + z M', where z and the shape terms x_i are
`shape_features`. With n examples and K classes the objective is

    mean log loss + strength / (2 n) * (|w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2).

v_k and M_kk multiply the same z_k, so their sum is fitted: with the penalty K - 1 that
is left when it is divided at the least price, 1/K to M_kk.

The scores of every example as if it had been left out need no other fit. With H the
Hessian of the whole fit, A the (classes, p) matrix that an example multiplies the
coefficients with, w its weight, r = p - y and W = diag(p) - p p', one Newton step
without the example changes its own scores by

    w S (I - w W S)^-1 r,    S = A H^-1 A'.

One step takes the slope of the others for a straight line. Left out, an example that
matters changes what the others say, and the step is too short: with 200 examples of ten
classes the log loss looks better by about 0.02 than it is. So long steps of few
examples are repeated, each time with the slope of the others where the last one led,
and with the same Hessian, from which Woodbury's formula takes the example.

Vector scaling has a scale and a bias for each class's log-probability, and a tiny
ridge. Its features are log-probabilities at the base temperature T, so the objective's
v and b are scale = (1 + v) / T and bias = b. The ridge is on unit (scale - 1 / T) and
on the biases.

All of them minimise the penalised log loss of scores that are linear in their
coefficients. With features z (n, K) of K classes and further shape terms x_i (n, K),
class k has the score

    z_k + sum_i w_i x_ik + v_k z_k + b_k,
    z_k + sum_i w_i x_ik + sum_j M_kj z_j + b_k    with cross terms,

and the objective is mean log loss + sum(penalty * coefficients^2) / 2. It is convex in
one vector: w, and for each class (v_k, b_k) or its row of M and b_k. Structured, vector
and class scaling minimise it; they differ in their features and penalties.

Features, scores and probabilities stay in the library and on the device of the logits;
sums come to the host. NumPy's blocks of rows run on our threads and are added in order,
so that the number of threads changes no result; a device has one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hokical._core.arrays import NUMPY, Array, Backend, FloatArray, IntArray, to_host
from hokical._core.checks import LARGEST_TEMPERATURE
from hokical._core.logits import Logits
from hokical._core.runtime import cut_rows, map_slices, one_blas_thread
from hokical._core.special import pick, plus, row_dots, row_sums
from hokical._fitting import searches
from hokical._fitting.examples import Examples, spaced_rows
from hokical._fitting.searches import (
    Base,
    Product,
    Solution,
    mean_loss,
    minimize_newton,
)
from hokical.rules.base import LEAST_SCALE, as_scores, log_probabilities
from hokical.rules.scaling import N_SHAPES, StructuredRule, VectorRule, shape_features

#: Numbers per block of NumPy's rows. With cross terms blocks are smaller and equal,
#: so that a fit of some thousand rows has several; and there are at most so many, as
#: each has a (classes, classes) sum.
BLOCK_SIZE = 1 << 16
CROSS_BLOCK_SIZE = 1 << 14
MAX_CROSS_BLOCKS = 8
#: A Hessian with cross terms is made by about so many rows.
_HESSIAN_ROWS = 2000


@dataclass(eq=False)
class FeatureBlock:
    """Some rows, all of one library.

    `inputs` (rows, classes) are z; with cross terms there is a last column of ones.
    `shapes` are (shape terms, rows * classes), `possible` (rows, classes) or None if no
    class is masked, `labels` (rows,) and `weights` (rows, 1).
    """

    inputs: Array
    shapes: Array
    possible: Array | None
    labels: Array
    weights: Array
    backend: Backend
    cross_terms: bool

    def __post_init__(self) -> None:
        self.xp: Any = self.backend.namespace(self.inputs)
        #: (rows, classes)
        self.z = self.inputs[:, :-1] if self.cross_terms else self.inputs
        self.n_shapes = int(self.shapes.shape[0])

    def from_host(self, array: Any) -> Array:
        return (
            array
            if self.backend is NUMPY
            else self.backend.from_host(array, self.inputs)
        )

    def replace_true(self, table: Array, elsewhere: Array | float) -> Array:
        """A table (rows, classes) at the label, and `elsewhere` in the other columns."""
        columns = self.from_host(np.arange(table.shape[1]))
        return self.xp.where(columns[None, :] == self.labels[:, None], elsewhere, table)

    def shape_table(self) -> Array:
        """Shape terms (rows, classes, shape terms)."""
        shapes = self.xp.reshape(self.shapes, (self.n_shapes, *self.z.shape))
        return self.xp.permute_dims(shapes, (1, 2, 0))

    def change(self, direction: Array) -> Array:
        """The change of the scores (rows, classes) by a change of the coefficients."""
        xp = self.xp
        shaped = self.n_shapes
        rows = xp.reshape(direction[shaped:], (self.z.shape[1], -1))
        change = (
            self.inputs @ rows.T
            if self.cross_terms
            else self.z * rows[:, 0] + rows[:, 1]
        )
        if shaped:
            change += xp.reshape(direction[:shaped] @ self.shapes, self.z.shape)
        return change

    def transpose_product(self, table: Array, inputs: Array = None) -> Array:
        """Sums over the rows of a table (rows, classes) times the features of the
        coefficients.

        Other `inputs`, such as their squares, can take the place of the block's own.
        """
        xp = self.xp
        inputs = self.inputs if inputs is None else inputs
        shaped = (
            self.shapes @ xp.reshape(table, (-1,))
            if self.n_shapes
            else self.shapes[:, 0]
        )
        if self.cross_terms:
            sums = table.T @ inputs
        else:
            sums = xp.stack(
                [xp.sum(table * inputs, axis=0), xp.sum(table, axis=0)], axis=1
            )
        return xp.concat([shaped, xp.reshape(sums, (-1,))])

    def probabilities(self, coef: Array) -> tuple[Array, Array]:
        """Probabilities (rows, classes), and the sum of the weighted log losses, ()."""
        xp = self.xp
        with np.errstate(all="ignore"):  # a trial step may go much too far
            scores = plus(self.change(coef), self.z, xp)
            if self.possible is not None:
                scores = xp.where(self.possible, scores, -xp.inf)
            below = plus(scores, -xp.max(scores, axis=1, keepdims=True), xp)
            true_scores = pick(below, self.labels, xp)
            proba = np.exp(below, out=below) if xp is np else xp.exp(below)
            total = row_sums(proba, xp)
            proba /= total[:, None]
            return proba, xp.sum(self.weights[:, 0] * (xp.log(total) - true_scores))

    def residual(self, proba: Array) -> Array:
        """p - y, (rows, classes)."""
        if not isinstance(proba, np.ndarray):
            return self.replace_true(proba, proba - 1.0)
        residual = proba.copy()
        residual[np.arange(len(proba)), self.labels] -= 1.0
        return residual

    def curvature(self, proba: Array, direction: Array) -> Array:
        """The log loss's Hessian times `direction`."""
        change = self.change(direction)
        change -= row_dots(change, proba, self.xp)[:, None]
        change *= proba
        change *= self.weights
        return self.transpose_product(change)

    def moments(self, proba: Array) -> Array:
        """The Hessian's diagonal for w; each class's variance times inputs, and
        their squares.
        """
        xp = self.xp
        variance = proba * (1.0 - proba) * self.weights
        shapes = xp.reshape(self.shapes, (self.n_shapes, *proba.shape))
        away = shapes - xp.sum(proba * shapes, axis=2, keepdims=True)
        shaped = xp.sum(proba * self.weights * shapes * away, axis=(1, 2))
        if xp is np and not self.cross_terms:
            first = variance * self.inputs
            second = np.einsum("nk,nk->k", first, self.inputs)
            count = variance.sum(axis=0)
            pairs = [first.sum(axis=0), count, second, count]
            return np.concatenate(
                [shaped, np.stack(pairs[:2], 1).ravel(), np.stack(pairs[2:], 1).ravel()]
            )
        powers = (self.inputs, self.inputs * self.inputs)
        sums = [
            self.transpose_product(variance, power)[self.n_shapes :] for power in powers
        ]
        return xp.concat([shaped, *sums])

    def class_hessian(self, proba: Array) -> FloatArray:
        """The Hessian (2 classes, 2 classes) without shape and cross terms."""
        xp = self.xp
        to_host = self.backend.to_host
        size = proba.shape[1]
        joined = xp.concat([proba * self.z, proba], axis=1)
        weights = self.weights[:, 0]
        first = to_host(weights @ joined)
        second = to_host(weights @ (joined[:, :size] * self.z))
        joined *= xp.sqrt(self.weights)
        hessian = (
            -to_host(joined.T @ joined).reshape(2, size, 2, size).transpose(1, 0, 3, 2)
        )
        k = np.arange(size)
        hessian[k, 0, k, 0] += second
        hessian[k, 0, k, 1] += first[:size]
        hessian[k, 1, k, 0] += first[:size]
        hessian[k, 1, k, 1] += first[size:]
        return np.asarray(hessian.reshape(2 * size, 2 * size))

    def cross_hessian(self, proba: Array, rows: IntArray) -> FloatArray:
        """The sum (p, p) over some rows of what each adds to the Hessian, with cross
        terms: the mean outer product of what multiplies the coefficients, less that of
        its mean.
        """
        xp = self.xp
        to_host = self.backend.to_host
        shaped = self.n_shapes
        tables = (self.inputs, proba, self.weights)
        row_index = self.from_host(rows)
        inputs, proba, weights = (xp.take(array, row_index, axis=0) for array in tables)
        n_rows, size = proba.shape
        width = inputs.shape[1]
        shapes = xp.take(xp.reshape(self.shapes, (shaped, -1, size)), row_index, axis=1)
        heavy = proba * weights
        drawn = shapes * heavy
        inner = xp.matmul(
            xp.reshape(shapes, (shaped, -1)), xp.reshape(drawn, (shaped, -1)).T
        )
        border = xp.matmul(xp.permute_dims(drawn, (0, 2, 1)), inputs)
        squares = xp.reshape(inputs[:, :, None] * inputs[:, None, :], (n_rows, -1))
        class_products = xp.reshape(xp.matmul(heavy.T, squares), (size, width, width))
        class_means = xp.reshape(proba[:, :, None] * inputs[:, None, :], (n_rows, -1))
        mean = xp.concat(
            [xp.sum(shapes * proba, axis=2).T, class_means], axis=1
        ) * xp.sqrt(weights)
        hessian = -to_host(xp.matmul(mean.T, mean))
        hessian[:shaped, :shaped] += to_host(inner)
        hessian[:shaped, shaped:] += to_host(border).reshape(shaped, -1)
        hessian[shaped:, :shaped] = hessian[:shaped, shaped:].T
        for k, block in enumerate(to_host(class_products)):
            class_rows = slice(shaped + k * width, shaped + (k + 1) * width)
            hessian[class_rows, class_rows] += block
        return hessian


def make_blocks(
    examples: Examples,
    features: Callable[[Logits], tuple[Array, ...]],
    cross_terms: bool = False,
) -> list[FeatureBlock]:
    """The features of examples, z and shape terms (n, classes), in blocks of rows."""
    logits = examples.logits
    n_rows = examples.n_rows
    step = n_rows
    if logits.is_numpy and cross_terms:
        n_blocks = -(-n_rows * logits.n_classes // CROSS_BLOCK_SIZE)
        step = -(-n_rows // min(n_blocks, MAX_CROSS_BLOCKS))
    elif logits.is_numpy:
        step = max(1, BLOCK_SIZE // logits.n_classes)
    every = bool(logits.xp.min(logits.values) > -logits.xp.inf)

    def make(rows: slice) -> FeatureBlock:
        block = logits.take(rows)
        xp = block.xp
        z, *shapes = features(block)
        # A masked class has no part in sums over the others.
        if not (every or cross_terms):
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


@dataclass(eq=False)
class SoftmaxObjective:
    """Mean log loss + sum(penalty * coef^2) / 2 of coefficients (p,)."""

    blocks: Sequence[FeatureBlock]
    penalty: FloatArray

    def __post_init__(self) -> None:
        self.n_rows = sum(int(block.inputs.shape[0]) for block in self.blocks)
        self.n_classes = int(self.blocks[0].z.shape[1])

    def evaluate(self, coef: FloatArray) -> SoftmaxPoint:
        device_coef = self.blocks[0].from_host(coef)
        results = self.map(lambda block: block.probabilities(device_coef))
        loss = sum(float(loss) for _, loss in results)
        pull = self.penalty * coef
        value = loss + 0.5 * float(np.vdot(pull, coef))
        return SoftmaxPoint(self, value, loss, [proba for proba, _ in results], pull)

    def map(self, work: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """`work(block, ...)` of every block and what goes with it."""
        items = list(zip(self.blocks, *columns, strict=True))
        numpy = self.blocks[0].backend is NUMPY
        return map_slices(
            lambda item: work(*items[item.start]), len(items), 1, threads=numpy
        )


def _total(block_sums: Sequence[Array]) -> FloatArray:
    """The sum over blocks, on the host, in their order."""
    return np.asarray(sum(map(to_host, block_sums)))


@dataclass(frozen=True, eq=False)
class SoftmaxPoint:
    """The objective at one vector of coefficients: value, log loss, probabilities by
    blocks, and the gradient of the penalty.
    """

    objective: SoftmaxObjective
    value: float
    log_loss: float
    proba: list[Array]
    penalty_gradient: FloatArray

    @cached_property
    def gradient(self) -> FloatArray:
        slopes = self.objective.map(
            lambda b, proba: b.transpose_product(b.residual(proba) * b.weights),
            self.proba,
        )
        return _total(slopes) + self.penalty_gradient

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        """The Hessian times a direction (p,)."""
        device_direction = self.objective.blocks[0].from_host(direction)
        products = self.objective.map(
            lambda b, proba: b.curvature(proba, device_direction), self.proba
        )
        return _total(products) + self.objective.penalty * direction

    def hessian(self) -> FloatArray:
        """The Hessian (p, p); with cross terms by some of the rows."""
        objective = self.objective
        if objective.blocks[0].cross_terms:
            step = max(1, objective.n_rows // _HESSIAN_ROWS)
            block_starts = np.cumsum(
                [0] + [proba.shape[0] for proba in self.proba]
            ).tolist()
            rows = [spaced_rows(a, b - a, step) for a, b in pairwise(block_starts)]
            hessian = step * _total(
                objective.map(FeatureBlock.cross_hessian, self.proba, rows)
            )
        else:
            hessian = _total(objective.map(FeatureBlock.class_hessian, self.proba))
        hessian.flat[:: len(hessian) + 1] += objective.penalty
        return hessian


class ClassBlocks:
    """A stand-in for the Hessian at a point: for each class a diagonal plus one outer
    product.

    The examples that matter to a class look alike, so their mean carries most of the
    curvature of its coefficients, and the diagonal is left with the variance about it.
    Without cross terms the two coefficients of a class make it exact.

    `first` (classes, ...) are the sums of each class's variance times inputs, and
    `second` those by their squares with the penalty: without cross terms, (b, v) and
    (v, v), (b, b) of the Hessian.
    """

    def __init__(self, point: SoftmaxPoint) -> None:
        objective = point.objective
        penalty = point.objective.penalty
        sums = _total(objective.map(FeatureBlock.moments, point.proba))
        shaped = objective.blocks[0].n_shapes
        self.first, second = sums[shaped:].reshape(2, objective.n_classes, -1)
        mean = self.first / np.sqrt(
            np.maximum(self.first[:, -1:], np.finfo(np.float64).tiny)
        )
        class_penalty = penalty[shaped:].reshape(second.shape)
        self.second = second + class_penalty
        self._diagonal = np.maximum(second - mean * mean, 0.0) + class_penalty
        self._shapes = np.maximum(sums[:shaped], 0.0) + penalty[:shaped]
        self._mean = mean / self._diagonal
        self._share = 1.0 + np.einsum("ij,ij->i", mean, self._mean)[:, None]

    def solve(self, residual: FloatArray) -> FloatArray:
        """The inverse times a residual (p,), by the Sherman-Morrison formula."""
        shaped, rows = np.split(residual, [self._shapes.size])
        rows = rows.reshape(self._mean.shape)
        along = np.einsum("ij,ij->i", self._mean, rows)[:, None]
        solved = rows / self._diagonal - self._mean * (along / self._share)
        return np.concatenate([shaped / self._shapes, solved.ravel()])


#: Strength of the penalty, in examples.
STRENGTH = 0.3
#: Fits of several ridges end with a Newton step that is expected to gain no more than
#: this in mean log loss; less where that is below the second, down to 1 %. About a
#: hundredth of it is left. No fit takes more steps than the third.
RIDGE_TOLERANCE = 1e-4
SMALL_LOSS = 0.1
MAX_ITER = 200
#: A fit of one ridge alone ends where no more than this is expected.
ALONE_TOLERANCE = 1e-8
#: The same for a scale and a bias of each class.
CLASS_TOLERANCE = 3e-4
MAX_CLASS_ITER = 20
#: Cross terms are used up to this many classes.
MAX_CROSS_CLASSES = 100
#: Up to this many coefficients the Hessian is inverted for the solver.
_MOST_DENSE = 300
#: Numbers of the (classes, classes) matrices that are held at a time.
_HELD_SIZE = 1 << 18
#: The same of NumPy's, which fit into the cache.
_CACHED_SIZE = 1 << 16
#: Long steps are repeated with at most so many logits, which are one block: above this
#: size a single example has negligible influence.
FEW_LOGITS = CROSS_BLOCK_SIZE
#: They are repeated so often, for examples whose scores one step changes by more than
#: this.
REPEATS = 4
LONG_STEP = 0.5
#: An example whose true class is missing no more than this, or so much per example, has
#: no effect on its own scores to speak of.
_SURE = 1e-2
_SURE_BY_EXAMPLE = 1e-6

#: Rows whose trace of W S is larger are solved by elimination; for others the series ends
#: with a term below the second, which takes no more than so many terms.
_SMALL_TRACE = 0.1
_LAST_TERM = 1e-11
_MAX_TERMS = 12


@one_blas_thread()
def fit_structured(
    base: Base,
    *,
    cross_terms: bool,
    strength: float = STRENGTH,
    tol: float = ALONE_TOLERANCE,
) -> tuple[StructuredRule, float, Solution[FloatArray]]:
    """Structured scaling on top of a floor and a temperature: the rule, its mean log
    loss with the share of the uniform distribution, and the minimum.
    """
    floored = base.examples
    logits = base.examples.logits
    objective = _objective(base, floored, cross_terms, strength)
    solution = _minimize(objective, np.zeros(objective.penalty.size), tol)
    rule = make_rule(base, solution.x, logits.n_classes, crossed=cross_terms)
    device_coef = objective.blocks[0].from_host(solution.x)
    scores = logits.xp.concat(
        objective.map(lambda block: block.z + block.change(device_coef)), axis=0
    )
    return rule, mean_loss(as_scores(scores, logits), floored, rule.even), solution


class Penalties(NamedTuple):
    """Penalties on squared coefficients of some classes, at the strength 1."""

    n_classes: int
    shape: float
    scale: float
    bias: float
    cross: float

    @classmethod
    def of(cls, n_classes: int) -> Penalties:
        size = float(n_classes)
        return cls(n_classes, shape=1.0, scale=size, bias=size, cross=size * (size - 1))

    @property
    def cross_share(self) -> float:
        """The share of v_k + M_kk that M_kk has where the sum costs least."""
        return self.scale / (self.scale + self.cross)

    def of_coefficients(self, crossed: bool) -> FloatArray:
        """(p,): of w, and of each class's v and b, or row of M and b."""
        n_scales = self.n_classes if crossed else 1
        rows = np.full((self.n_classes, n_scales + 1), self.scale)
        if crossed:
            rows[:] = self.cross
            np.fill_diagonal(rows, self.cross_share * self.cross)
        rows[:, -1] = self.bias
        return np.concatenate([np.full(N_SHAPES, self.shape), rows.ravel()])


def _objective(
    base: Base, examples: Examples, crossed: bool, strength: float
) -> SoftmaxObjective:
    """The objective of all or some of the base's examples; `crossed` with terms
    between classes.
    """
    row_strength = strength / base.examples.effective_size
    blocks = make_blocks(
        examples,
        lambda block: shape_features(
            block.margins * (-1.0 / base.temperature.x), block
        ),
        crossed,
    )
    penalties = Penalties.of(examples.n_classes)
    return SoftmaxObjective(blocks, row_strength * penalties.of_coefficients(crossed))


def _minimize(
    objective: SoftmaxObjective,
    start: FloatArray,
    tol: float,
    inverse: FloatArray | None = None,
) -> Solution[FloatArray]:
    """The minimum from a start, near which an `inverse` (p, p) of the Hessian may be
    known.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    small = objective.blocks[0].cross_terms and objective.penalty.size <= _MOST_DENSE
    preconditioners = [] if inverse is None else [partial(np.matmul, inverse)]

    def precondition(point: SoftmaxPoint) -> Product:
        if preconditioners:
            return preconditioners.pop()
        # Not at the start, too far from the end.
        if small and point.penalty_gradient.any():
            hessian = point.hessian()
            try:
                factor = cho_factor(
                    hessian, lower=True, overwrite_a=True, check_finite=False
                )
                dense_inverse = cho_solve(
                    factor, np.eye(len(hessian)), check_finite=False
                )
                return partial(np.matmul, dense_inverse)
            except LinAlgError:  # a penalty too small to be seen
                pass
        return ClassBlocks(point).solve

    steps = searches.cg_steps(
        precondition, tol=tol, rough_start=small and not preconditioners
    )
    return minimize_newton(objective.evaluate, start, steps, tol=tol, max_iter=MAX_ITER)


def make_rule(
    base: Base, coef: FloatArray, size: int, *, crossed: bool
) -> StructuredRule:
    """With w (shape terms,), 1 + v and b (classes,), and M (classes, classes) or
    (0, 0).
    """
    even = 1.0 / (base.examples.effective_size + 1.0)
    w = coef[:N_SHAPES]
    rows = coef[N_SHAPES:].reshape(size, -1)
    scale = 1.0 + rows[:, 0]
    bias = rows[:, -1].copy()
    cross = np.zeros((0, 0))
    if crossed:
        cross = rows[:, :-1].copy()
        cross_share = Penalties.of(size).cross_share
        scale = 1.0 + (1.0 - cross_share) * np.diagonal(cross)
        np.fill_diagonal(cross, cross_share * np.diagonal(cross))
    return StructuredRule(base.floor, base.temperature.x, w, scale, bias, cross, even)


#: Rules by ridge; the scores (rows, classes) of some rows by each fit without them;
#: their numbers (rows,); and whether all fits have converged.
RidgeFits = tuple[list[StructuredRule], list[Array], IntArray, bool]


@one_blas_thread()
def fit_ridges(
    base: Base, ridges: Sequence[float], step: int, bias_factor: float = 1.0
) -> RidgeFits:
    """Structured scaling with cross terms at falling ridges, in examples.

    Those on the biases are multiplied by `bias_factor`.

    Of `step` rows, one is held out; where only some are, their curvature is taken for
    that of all. The floor, and the temperature inside structured scaling, stay those of
    the whole.
    """
    every = base.examples
    rules = []
    held_out = []
    converged = True
    tol = RIDGE_TOLERANCE * min(max(base.temperature.value / SMALL_LOSS, 0.01), 1.0)
    rows = spaced_rows(0, every.n_rows, max(step, 1))
    objective = sampled = _objective(base, every, True, 1.0)
    biases = objective.penalty[N_SHAPES:].reshape(every.n_classes, -1)[:, -1]
    biases *= bias_factor
    if step >= 2:
        sampled = _objective(base, every.take(rows), True, 1.0)
    coef = np.zeros(objective.penalty.size)
    hessian: Any = None
    for ridge in ridges:
        penalty = ridge * objective.penalty
        start: Any = (
            None if hessian is None else np.linalg.inv(hessian + np.diag(penalty))
        )
        solution = _minimize(replace(objective, penalty=penalty), coef, tol, start)
        point = solution.point
        coef = solution.x
        if step >= 2:
            point = replace(sampled, penalty=penalty).evaluate(coef)
        hessian = point.hessian()
        scores = scores_left_out(
            point, coef, rows.size / every.n_rows, np.linalg.inv(hessian)
        )
        hessian.flat[:: coef.size + 1] -= penalty
        rules.append(make_rule(base, coef, every.n_classes, crossed=True))
        held_out.append(every.logits.xp.concat(scores, axis=0))
        converged &= solution.converged
    return rules, held_out, rows, converged


@one_blas_thread()
def fit_classes(base: Base, ridge: float, tol: float = CLASS_TOLERANCE) -> RidgeFits:
    """A scale and a bias for each of many classes, with a ridge, in examples.

    With x = margins / temperature, the scores are -x (1 + v) + b. Newton steps have one
    (2, 2) block of the Hessian per class: what ties classes together fades as they
    become many. The same blocks give the scores of each example by a fit without it.
    """
    examples = base.examples
    none = np.zeros(0)
    temperature = base.temperature.x
    coefficient_penalty = ridge * (examples.n_classes / examples.effective_size)
    penalty = np.full(2 * examples.n_classes, coefficient_penalty)
    blocks = make_blocks(
        examples, lambda block: (block.margins * (-1.0 / temperature),)
    )
    objective = SoftmaxObjective(blocks, penalty)
    start = np.zeros(penalty.size)

    def step(point: SoftmaxPoint) -> tuple[FloatArray, bool]:
        return -ClassBlocks(point).solve(point.gradient), True

    solution = minimize_newton(
        objective.evaluate, start, step, tol=tol, max_iter=MAX_CLASS_ITER
    )
    class_blocks = ClassBlocks(solution.point)
    square = class_blocks.second[:, 0]
    cross = class_blocks.first[:, 0]
    count = class_blocks.second[:, 1]
    inverse = np.stack([count, -2.0 * cross, square]) / (square * count - cross * cross)

    def leave_out(block: FeatureBlock, proba: Array) -> Array:
        a, b, c = block.from_host(inverse)
        spread = ((block.z * a + b) * block.z + c) * block.weights
        change = (
            spread * block.residual(proba) / (1.0 - spread * (proba - proba * proba))
        )
        return block.z + block.change(block.from_host(solution.x)) + change

    scores = examples.logits.xp.concat(
        objective.map(leave_out, solution.point.proba), axis=0
    )
    v, bias = solution.x.reshape(-1, 2).T
    scale = np.maximum(1.0 + v, LEAST_SCALE)
    rule = StructuredRule(
        base.floor, temperature, none, scale, bias, none.reshape(0, 0), even=0.0
    )
    return [rule], [scores], np.arange(examples.n_rows), solution.converged


def scores_left_out(
    point: SoftmaxPoint, coef: FloatArray, row_share: float, inverse: FloatArray
) -> list[Array]:
    """Scores (rows, classes) by blocks, of every row by the fit without it; with cross
    terms.

    `point` is that of `coef` (p,), and `inverse` (p, p) that of the Hessian. If its
    rows are only the share `row_share` of those fitted, each weighs that much less.
    """
    objective = point.objective
    spreads = Spreads.of(inverse, point.objective.n_classes)
    sure = min(_SURE, _SURE_BY_EXAMPLE * objective.n_rows)
    few = row_share == 1.0 and objective.n_rows * objective.n_classes <= FEW_LOGITS

    def work(block: FeatureBlock, proba: Array) -> Array:
        step = _step_by_columns if block.backend is NUMPY else _step
        change = step(block, proba, block.weights * row_share, spreads, sure)
        if few:  # all are in this block
            change = _repeat_steps(change, point, coef, inverse, spreads)
        return block.z + block.change(block.from_host(coef)) + change

    return objective.map(work, point.proba)


class Spreads(NamedTuple):
    """What makes S = A H^-1 A' of rows: by pairs of inputs, whose numbers are `left` and
    `right`, by inputs, and by shapes.
    """

    left: IntArray
    right: IntArray
    by_pair: FloatArray
    by_input: FloatArray
    by_shape: FloatArray

    @classmethod
    def of(cls, inverse: FloatArray, size: int) -> Spreads:
        """From H^-1 (p, p) of some classes."""
        left, right = np.triu_indices(size + 1)
        n = N_SHAPES
        pairs = inverse[n:, n:].reshape(size, size + 1, size, size + 1)
        pairs = pairs[:, left, :, right] + pairs[:, right, :, left]
        pairs[left == right] *= 0.5
        border = np.ascontiguousarray(inverse[:n, n:].reshape(n * size, size + 1).T)
        by_pair = pairs.reshape(left.size, -1)
        return cls(left, right, by_pair, border, 0.5 * inverse[:n, :n])

    def of_rows(self, block: FeatureBlock, inputs: Array, shapes: Array) -> Array:
        """S (rows, classes, classes) of a block's inputs (rows, classes + 1) and shapes
        (rows, classes, shape terms).
        """
        xp = block.xp
        size = shapes.shape[1]
        left, right, by_pair, by_input, by_shape = map(block.from_host, self)
        squares = xp.take(inputs, left, axis=1) * xp.take(inputs, right, axis=1)
        spreads = xp.reshape(squares @ by_pair, (-1, size, size))
        tilt = xp.reshape(inputs @ by_input, (-1, N_SHAPES, size))
        shaped = shapes @ (tilt + by_shape @ xp.matrix_transpose(shapes))
        return spreads + shaped + xp.matrix_transpose(shaped)

    def of_columns(self, inputs: FloatArray, shapes: FloatArray) -> FloatArray:
        """The same of NumPy's, (classes, classes, rows), from inputs (classes + 1,
        rows) and shapes (shape terms, classes, rows).
        """
        size, n_rows = shapes.shape[1:]
        squares = inputs[self.left] * inputs[self.right]
        spreads = (self.by_pair.T @ squares).reshape(size, size, n_rows)
        tilt = (self.by_input.T @ inputs).reshape(N_SHAPES, size, n_rows)
        tilt += np.einsum("ab,bkn->akn", self.by_shape, shapes)
        shaped = np.einsum("ain,ajn->ijn", shapes, tilt)
        spreads += shaped
        spreads += shaped.swapaxes(0, 1)
        return spreads


def _step(
    block: FeatureBlock, proba: Array, weights: Array, spreads: Spreads, sure: float
) -> Array:
    """The change (rows, classes) of a block's scores by one Newton step."""
    xp = block.xp
    size = proba.shape[1]
    residual = block.residual(proba)
    eye = block.from_host(np.eye(size))
    moved = np.flatnonzero(block.backend.to_host(xp.min(residual, axis=1)) < -sure)
    tables = (block.inputs, block.shape_table(), proba, weights, residual)
    changes = [xp.zeros_like(proba[:1, :])]
    for block_rows in cut_rows(moved.size, max(1, _HELD_SIZE // (size * size))):
        rows = block.from_host(moved[block_rows])
        x, shape, p, w, r = (xp.take(array, rows, axis=0) for array in tables)
        row_spread = spreads.of_rows(block, x, shape) * w[:, :, None]
        lever = eye - p[:, :, None] * (row_spread - p[:, None, :] @ row_spread)
        changes.append((row_spread @ xp.linalg.solve(lever, r[:, :, None]))[:, :, 0])
    change_row = np.zeros(proba.shape[0], np.int64)
    change_row[moved] = np.arange(1, moved.size + 1)
    return xp.take(xp.concat(changes, axis=0), block.from_host(change_row), axis=0)


def _step_by_columns(
    block: FeatureBlock,
    proba: FloatArray,
    weights: FloatArray,
    spreads: Spreads,
    sure: float,
) -> FloatArray:
    """`_step` of NumPy's tables.

    Rows are innermost: loops over ten classes would be little but overhead.
    """
    size = proba.shape[1]
    residual = block.residual(proba)
    changes = np.zeros_like(proba)
    moved = np.flatnonzero(residual.min(axis=1) < -sure)
    shapes = block.shapes.reshape(-1, *proba.shape)
    for block_rows in cut_rows(moved.size, max(1, _CACHED_SIZE // (size * size))):
        rows = moved[block_rows]
        x, p, r = (
            np.ascontiguousarray(table[rows].T)
            for table in (block.inputs, proba, residual)
        )
        row_shapes = np.ascontiguousarray(shapes[:, rows].transpose(0, 2, 1))
        row_spreads = spreads.of_columns(x, row_shapes)
        row_spreads *= weights[rows, 0]
        changes[rows] = leave_out_changes(row_spreads, p, r).T
    return changes


def leave_out_changes(
    spreads: FloatArray, proba: FloatArray, residual: FloatArray
) -> FloatArray:
    """S (I - W S)^-1 r (classes, rows), S being `spreads` (classes, classes, rows).

    W S has eigenvalues from 0 to its trace. Where that is small, a few terms of the
    geometric series are exact to rounding, and quicker than an elimination.
    """
    expected = _times_rows(spreads, proba)
    diagonals = np.einsum("iin->in", spreads)
    traces = np.einsum("in,in->n", proba, diagonals - expected)
    is_small = traces <= _SMALL_TRACE
    solved = residual.copy()
    for _ in range(_MAX_TERMS):
        moved = _times_rows(spreads, solved)
        moved -= np.einsum("in,in->n", proba, moved)
        moved *= proba
        moved += residual
        change = np.abs(moved - solved)[:, is_small].max(initial=0.0)
        solved = moved
        if change <= _LAST_TERM:
            break
    rows = np.flatnonzero(~is_small)
    if rows.size:
        centred = spreads[:, :, rows] - expected[None, :, rows]
        levers = np.eye(len(proba))[:, :, None] - proba[:, None, rows] * centred
        systems = levers.transpose(2, 0, 1)
        targets = residual[:, rows].T[:, :, None]
        solved[:, rows] = np.linalg.solve(systems, targets)[:, :, 0].T
    return _times_rows(spreads, solved)


def _times_rows(tables: FloatArray, vectors: FloatArray) -> FloatArray:
    """Each row's table (classes, classes, rows) times its vector (classes, rows)."""
    return np.asarray(np.einsum("ijn,jn->in", tables, vectors))


def _repeat_steps(
    first_changes: Array,
    point: SoftmaxPoint,
    coef: FloatArray,
    inverse: FloatArray,
    spread_tables: Spreads,
) -> Array:
    """The changes (n, classes) of the only block's scores, those by long steps by
    several.

    All is done on the host.
    """
    device_block = point.objective.blocks[0]
    penalty = point.objective.penalty
    changes = to_host(first_changes)
    proba = to_host(point.proba[0])
    rows = np.flatnonzero(np.ptp(changes, axis=1) > LONG_STEP)
    if not rows.size:
        return first_changes
    device_fields = (
        device_block.inputs,
        device_block.shapes,
        device_block.possible,
        device_block.labels,
        device_block.weights,
    )
    host_fields: Any = (
        field if field is None else to_host(field) for field in device_fields
    )
    block = FeatureBlock(*(*host_fields, NUMPY, device_block.cross_terms))
    inputs = block.inputs[rows]
    shapes = block.shape_table()[rows]
    row_proba = proba[rows]
    weights = block.weights[rows]
    residual = block.residual(proba)[rows]
    spreads = weights[:, :, None] * spread_tables.of_rows(block, inputs, shapes)
    lever = np.eye(row_proba.shape[1]) - row_proba[:, :, None] * (
        spreads - row_proba[:, None, :] @ spreads
    )

    def multiply(away: FloatArray) -> FloatArray:
        """Scores (rows, classes) of each row by its own coefficients (rows, p)."""
        by_class = away[:, N_SHAPES:].reshape(*row_proba.shape, -1)
        scores = shapes @ away[:, :N_SHAPES, None] + by_class @ inputs[:, :, None]
        return np.asarray(scores[:, :, 0])

    def transpose_product(table: FloatArray) -> FloatArray:
        by_class = (table[:, :, None] * inputs[:, None, :]).reshape(rows.size, -1)
        return np.hstack([(table[:, None, :] @ shapes)[:, 0, :], by_class])

    def solve(slope: FloatArray) -> FloatArray:
        step = slope @ inverse
        tilt = multiply(step)
        tilt = (
            weights
            * row_proba
            * (tilt - np.sum(row_proba * tilt, axis=1, keepdims=True))
        )
        tilt = np.linalg.solve(lever, tilt[:, :, None])[:, :, 0]
        return step + transpose_product(tilt) @ inverse

    def change_of_slope(row: Any, away: FloatArray) -> FloatArray:
        """Of the objective without the row, that far away from the fit, (p,)."""
        change = (block.probabilities(coef + away)[0] - proba) * block.weights
        change[row] = 0.0
        return np.asarray(block.transpose_product(change) + penalty * away)

    gone = transpose_product(weights * residual)
    away = solve(gone)
    for _ in range(REPEATS):
        slopes = [
            change_of_slope(*row_and_change)
            for row_and_change in zip(rows, away, strict=True)
        ]
        away -= solve(np.array(slopes) - gone)
    changes = changes.copy()
    changes[rows] = multiply(away)
    return device_block.from_host(changes)


#: Above this many classes, conjugate gradients cost less than the Hessian; the last
#: step then is expected to gain no more than this.
DENSE_CLASSES = 300
_MANY_CLASSES_TOLERANCE = 1e-9
#: Spreads of log-probabilities below the first are near their rounding errors; those
#: above the second leave no room for temperatures.
_SPREADS = (1e-6, 1e100)
#: The base temperature is sought between these multiples of the spread: a wild example
#: or two can ask for a very high one.
_BASE_BOUNDS = (1e-5, 1e30)
#: Probabilities this close to 1 are cut, so that the log of the rest is finite.
_ALMOST_ONE = 1.0 - 1e-16


def dense_steps(point: Any) -> Any:
    """The Newton step of a point with its whole Hessian."""
    return searches.dense_step(point.gradient, point.hessian())


def fit_vector(
    examples: Examples, ridge: float
) -> tuple[VectorRule, IntArray, Solution[FloatArray]]:
    """The rule, the classes that are perfectly separated from all others, and how it
    ended.
    """
    spread = min(max(searches.typical_spread(examples), _SPREADS[0]), _SPREADS[1])
    bounds = (
        _BASE_BOUNDS[0] * spread,
        min(_BASE_BOUNDS[1] * spread, LARGEST_TEMPERATURE),
    )
    temperature = searches.base_temperature(examples, spread, bounds).x
    unit = min(temperature, spread)
    n_classes = examples.n_classes
    blocks = make_blocks(
        examples, lambda block: (log_probabilities(block) / temperature,)
    )
    penalty = ridge * np.tile([(unit / temperature) ** 2, 1.0], n_classes)
    objective = SoftmaxObjective(blocks, penalty)
    if n_classes > DENSE_CLASSES:
        tol = _MANY_CLASSES_TOLERANCE
        steps = searches.cg_steps(lambda point: ClassBlocks(point).solve, tol=tol)
    else:
        tol = searches.TIGHT
        steps = dense_steps
    start = np.zeros(penalty.size)
    units = np.sqrt(ridge / penalty)
    with one_blas_thread():
        solution = minimize_newton(
            objective.evaluate, start, steps, tol=tol, max_iter=MAX_ITER, units=units
        )
    v, bias = solution.x.reshape(-1, 2).T

    def against_others(block: FeatureBlock, proba: Array) -> Array:
        xp = block.xp
        p = block.xp.clip(proba, 1e-300, _ALMOST_ONE)
        losses = block.replace_true(-xp.log1p(-p), -xp.log(p))
        return xp.sum(block.weights * losses, axis=0)

    class_losses = _total(objective.map(against_others, solution.point.proba))
    price = 0.5 * (penalty * solution.x**2).reshape(-1, 2).sum(axis=1)
    present = np.bincount(examples.labels, minlength=n_classes) > 0
    separated = np.flatnonzero((price >= class_losses) & present)
    # A constant added to all biases has no effect.
    return VectorRule((1.0 + v) / temperature, bias - bias.mean()), separated, solution
