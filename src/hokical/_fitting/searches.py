"""Searches: Newton's method with safeguards, for convex functions of many numbers,
temperatures.

Of many numbers, a step is solved from the whole Hessian (`dense_step`) or by conjugate
gradients (`cg_steps`), or leads to the least quadratic on the simplex, where the
weights of an average lie (`least_quadratic`); and then it is shortened until the value
falls enough.

A temperature is fitted alone, with a floor for probabilities, or in an ensemble. With
margins d_i = top - z_i, the log loss is stationary in beta = 1/T where the mean margin
of the true class equals the mean margin that the softmax of beta z expects. The
expected one falls with beta, so there is one solution and its side is always known.
Newton's method runs on the log of both sides as a function of log beta, which is close
to a straight line.

Sums over classes are written once, for arrays of any library, and stay on the device of
the logits; sums over rows are made on the host, so that the number of threads changes
no result.

Ensemble temperature scaling has its authors' two steps: the temperature, then the
weights. The average is w_1 softmax(z / T) + w_2 softmax(z) + w_3 uniform. T minimises
the mean squared error of a = softmax(z / T) alone, |a - y|^2 = |a|^2 - 2 a_y + 1; that
of the average is then convex in the weights. With Z(b) = sum_k exp(-b d_k) over the
margins d_k of a row, a_k is exp(-d_k / T) over Z(1 / T), and the product of the
softmaxes at b and c = 1 / T is Z(b + c) / (Z(b) Z(c)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import combinations
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from hokical._core.arrays import Array, FloatArray, IntArray
from hokical._core.checks import LARGEST_TEMPERATURE, LEAST_TEMPERATURE
from hokical._core.logits import MAX_MARGIN, Logits, map_blocks, per_row
from hokical._core.special import FAR, exponential, row_dots, row_sums
from hokical._fitting.examples import ZEROS_BELOW, Examples, has_zeros, spaced_rows
from hokical.rules.base import LEAST, add_floor, log_probabilities

X = TypeVar("X")
#: Multiplies a vector by a matrix.
Product = Callable[[FloatArray], FloatArray]
#: The step from a point, and whether it is Newton's own.
NewtonStep = Callable[[Any], tuple[FloatArray, bool]]

#: The drop that is expected of the last step of a dense search. What is left is its
#: square.
TIGHT = 5e-13
#: Largest slope at a minimum: near a kink the curvature is so high that even a steep
#: way down is expected to gain nothing.
_FLAT = 1e-4
_ENOUGH_DROP = 1e-4
_MAX_HALVINGS = 40
#: What rounding may add to the value, relative: in any step, and in one that is not
#: shortened.
_RISE = 1e-14
_WHOLE_RISE = 1e-12
#: What is added to a Hessian of unit diagonal until it is positive (Levenberg,
#: Marquardt). Up to the second, it makes up for rounding.
_DAMPINGS = (0.0, *(10.0**k for k in range(-14, 3, 2)))
_ROUNDING = 1e-12
#: Most conjugate-gradient steps for one Newton step; a preconditioner is used for the
#: next Newton step too, unless it took more products than the second.
_MAX_CG_STEPS = 1000
_STALE = 10
#: A quadratic has several minima where its curvature is this small, relatively.
_SINGULAR = 1e-14


class StopReason(Enum):
    """Why a search ended, in words that may name the answer `x` and the iterations
    `n_iter`.
    """

    CONVERGED = "converged"
    MAX_ITER = "no answer in {n_iter} iterations. Check the logits for outliers."
    ROUNDING = (
        "rounding errors hide the optimum. Look for examples with extreme logits or "
        "hardly any differences between them."
    )
    LARGEST_TEMPERATURE = (
        "the loss still falls at the largest temperature allowed, {x:g}: the labels "
        "are hardly better than chance, or the logits are very large. Check that "
        "`labels` index the columns of `logits`."
    )
    SMALLEST_TEMPERATURE = (
        "the loss still falls at the smallest temperature allowed, {x:g}: mistakes "
        "have tiny margins, or the logits are very small. Multiply them by a constant."
    )
    NO_MISTAKES = (
        "every label has the top logit, so the log loss falls down to temperature 0; "
        "the smallest allowed, {x:g}, was taken. Use more examples, some of which are "
        "wrong."
    )
    EQUAL_LOGITS = (
        "the possible classes of each example have equal logits, so every temperature "
        "fits equally well and 1 was taken. Use examples on which the logits differ."
    )


@dataclass(frozen=True, eq=False)
class Solution(Generic[X]):
    """The minimiser `x`, the objective there, and why the search ended; `point` is
    its last one.
    """

    x: X
    value: float
    n_iter: int
    reason: StopReason
    point: Any = None

    @property
    def converged(self) -> bool:
        return self.reason is StopReason.CONVERGED

    def report(self, problem: str = "") -> dict[str, Any]:
        """How it ended, as entries of a fit's report; with a `problem`, it has not
        converged.

        The message has a remedy if it has not.
        """
        message = problem or self.reason.value.format(x=self.x, n_iter=self.n_iter)
        return {
            "n_iter": self.n_iter,
            "converged": message == "converged",
            "message": message,
        }


def minimize_newton(
    evaluate: Callable[[FloatArray], Any],
    start: FloatArray,
    newton_step: NewtonStep,
    *,
    tol: float,
    max_iter: int,
    units: FloatArray | None = None,
) -> Solution[FloatArray]:
    """The minimum from `start`; every value is one that was evaluated.

    `evaluate` makes a point of a place x, with the `value` and the `gradient` there.

    It has converged where a Newton step is expected to give a drop of at most `tol`; it
    is still taken. Given `units` in which parameters mean something, it must also end
    where all is flat in them, and a step that is expected to gain nothing may not raise
    the value: a real rise shows that all is rounding.
    """
    x = start
    point = evaluate(start)
    for iteration in range(1, max_iter + 1):
        step, exact = newton_step(point)
        expected = -0.5 * float(np.vdot(point.gradient, step))
        if not 0.0 <= expected < math.inf:  # uphill, or not a number
            return Solution(x, point.value, iteration, StopReason.ROUNDING, point)
        if expected > 0.0 or not exact:
            full_only = units is not None and expected <= TIGHT
            limit = point.value + (_WHOLE_RISE if full_only else _RISE) * max(
                1.0, abs(point.value)
            )
            for halvings in range(1 if full_only else _MAX_HALVINGS):
                length = 0.5**halvings
                trial = evaluate(x + length * step)
                if trial.value <= limit - _ENOUGH_DROP * length * expected:
                    break
                del trial  # before the next is there
            else:
                return Solution(x, point.value, iteration, StopReason.ROUNDING, point)
            x = x + length * step
            point = trial
        if expected <= (tol if exact else min(tol, TIGHT)):
            flat = units is None or bool(np.abs(units * point.gradient).max() <= _FLAT)
            reason = StopReason.CONVERGED if exact and flat else StopReason.ROUNDING
            return Solution(x, point.value, iteration, reason, point)
    return Solution(x, point.value, max_iter, StopReason.MAX_ITER, point)


def dense_step(gradient: FloatArray, hessian: FloatArray) -> tuple[FloatArray, bool]:
    """The step (p,) from a Hessian (p, p), which is overwritten; and whether it is
    positive.

    Parameters are measured in units in which the Hessian's diagonal is 1: their
    curvatures can differ by more than floats can hold. The step is nan where that
    diagonal is not positive.
    """
    from scipy.linalg.lapack import dposv

    diagonal = np.diagonal(hessian).copy()
    if np.isfinite(hessian.sum()) and diagonal.min() > 0.0:
        unit = 1.0 / np.sqrt(diagonal)
        hessian *= unit[:, None]
        hessian *= unit
        for damping in _DAMPINGS:
            hessian.flat[:: unit.size + 1] = 1.0 + damping
            _, step, error = dposv(hessian, unit * gradient, lower=1)
            if error == 0:  # else it is not positive beyond rounding
                return -unit * step, damping <= _ROUNDING
    return np.full(gradient.size, np.nan), False


class DensePoint(NamedTuple):
    """Value, gradient (p,) and Hessian (p, p) of a function at x (p,)."""

    value: float
    gradient: FloatArray
    hessian: FloatArray
    x: FloatArray


def minimize_dense(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray, FloatArray]],
    start: FloatArray,
    max_iter: int,
    tol: float = TIGHT,
) -> Solution[FloatArray]:
    """Minimise a function that gives its value, gradient (p,) and Hessian (p, p)."""
    return minimize_newton(
        lambda x: DensePoint(*evaluate(x), x),
        start,
        lambda point: dense_step(point.gradient, point.hessian),
        tol=tol,
        max_iter=max_iter,
        units=np.ones(start.size),
    )


def cg_steps(
    make_preconditioner: Callable[[Any], Product],
    *,
    tol: float,
    rough_start: bool = False,
) -> NewtonStep:
    """Newton steps by conjugate gradients, roughly at first and more exactly as the
    slope falls.

    Points have a method `curvature_along`, the Hessian times a direction. A
    preconditioner is about the inverse Hessian, symmetric and positive. That of a
    `rough_start` is used for the first step alone. The accuracy asked for is no more
    than a fit to `tol` can use.

    A step ends where the squared error, measured by the preconditioner as large and
    small penalties may stand side by side, has fallen far enough.
    """
    stored: Product | None = None

    def newton_step(point: Any) -> tuple[FloatArray, bool]:
        nonlocal stored, rough_start
        precondition = stored or make_preconditioner(point)
        residual = -point.gradient
        direction = np.zeros_like(residual)
        search = precondition(residual)
        size = max(float(np.vdot(residual, search)), 0.0)
        wanted = max(min(0.25, size**0.5) * size, 0.01 * tol)
        products = 0
        while size > wanted and products <= _MAX_CG_STEPS:
            product = point.curvature_along(search)
            length = size / float(np.vdot(search, product))
            direction += length * search
            residual = residual - length * product
            scaled = precondition(residual)
            before = size
            size = float(np.vdot(residual, scaled))
            search = scaled + (size / before) * search
            products += 1
        stored = None if products > _STALE or rough_start else precondition
        rough_start = False
        return direction, products <= _MAX_CG_STEPS

    return newton_step


def least_quadratic(linear: FloatArray, hessian: FloatArray) -> FloatArray:
    """The w >= 0 (k,) with sum 1 that minimises linear'w + w'hessian w/2.

    Where the only minimum of all w with sum 1 has no negative weight, it is that one;
    else one on a smaller face. So it is where there are several: a value that does not
    change along a line is found where the line leaves the simplex.
    """
    size = linear.size
    inner = _least_on_face(linear, hessian)
    if inner is not None:
        return inner
    ends = linear + 0.5 * np.diagonal(hessian)
    end = int(np.argmin(ends))
    best: FloatArray = np.eye(size)[end]
    least = float(ends[end])
    for n_parts in range(2, size):
        for face in map(list, combinations(range(size), n_parts)):
            inner = _least_on_face(linear[face], hessian[face][:, face])
            if inner is None:
                continue
            weights = np.zeros(size)
            weights[face] = inner
            value = float(linear @ weights + 0.5 * weights @ hessian @ weights)
            if value < least:
                best = weights
                least = value
    return best


def _least_on_face(linear: FloatArray, hessian: FloatArray) -> FloatArray | None:
    """The only w (k,) with sum 1, of any sign, that minimises linear'w + w'hessian w/2;
    None if there are several, or if it has a negative weight.
    """
    if linear.size == 1:
        return np.ones(1)
    if linear.size == 2:
        return _least_on_edge(linear, hessian)
    system = np.ones((linear.size + 1, linear.size + 1))
    system[:-1, :-1] = hessian
    system[-1, -1] = 0.0
    target = np.append(-linear, 1.0)
    solution, _, rank, _ = np.linalg.lstsq(system, target, rcond=_SINGULAR)
    weights = solution[:-1]
    if rank < target.size or weights.min() < 0.0:
        return None
    return np.asarray(weights / weights.sum())


def _least_on_edge(linear: FloatArray, hessian: FloatArray) -> FloatArray | None:
    """`_least_on_face` of two weights, t and 1 - t."""
    (a, b), (_, c) = hessian.tolist()
    first, second = linear.tolist()
    curvature = a - 2.0 * b + c
    if not curvature > _SINGULAR * max(abs(a), abs(c)):
        return None
    t = (c - b + second - first) / curvature
    return np.array([t, 1.0 - t]) if 0.0 <= t <= 1.0 else None


#: Temperatures are sought between these two unless others are given; those that fits of
#: more parameters start from, within these multiples of the spread of the logits, or of
#: 1.
BOUNDS = (1e-5, 1e5)
#: Most passes over the examples, of which a handful is enough as a rule.
MAX_ITER = 200
#: The last step's relative length. Newton squares the error, so what is left is about
#: 1e-13.
TEMPERATURE_TOLERANCE = 1e-6
#: Large fits start from the answer for evenly spaced rows, at least this many rows and
#: logits.
_COARSE_ROWS = 500
_COARSE_SIZE = 10_000
#: A mean margin of the true class from which logits are huge.
_HUGE = 100.0
#: Longest step in log temperature: far from the solution the slope is no guide.
_LONGEST_STEP = 4.0
#: A median is where this share is reached: the same one, whatever the rounding.
_BARELY_HALF = 0.5 - 1e-9


#: What may be added to probabilities where some are 0, largest first.
ZERO_FLOORS = (
    1e-2,
    3e-3,
    1e-3,
    1e-4,
    1e-5,
    1e-6,
    1e-8,
    1e-10,
    1e-12,
    1e-15,
    1e-20,
    1e-30,
    1e-60,
)
#: Where labels can be wrong as well: a share s of them at random is a floor of s / (1 -
#: s) / k.
FLOORS = (0.3, 0.1, 3e-2, *ZERO_FLOORS)
#: How much likelier, in log-likelihood, such a floor must make all labels: few agree at
#: random.
NOISE_EVIDENCE = 2.0
#: Where there are zeros, the largest floor within this of the least log loss is taken,
#: as more may turn up; elsewhere none, if that is as good, as it saves an exponential
#: and a logarithm a class.
LOSS_TOLERANCE = 1e-9
#: A floor that changes the log loss by no more than this is as good as any below it:
#: where there are zeros, and elsewhere.
UNCHANGED = 1e-11
HARDLY_CHANGED = 1e-6
#: Floors are compared on a part of the rows, at least this many rows or logits.
COMPARED_ROWS = 1000
COMPARED_SIZE = 1 << 14
#: Log losses need not be exact to be compared: the last step of each floor's
#: temperature.
ROUGH_TOLERANCE = 3e-2
#: The precision of the prior of log T for temperatures above 1, and below 1.
PRIOR = (1.0, 8.0)
#: Mean margins of logits outside of these shift the prior's centre.
USUAL_SPREADS = (0.1, 1000.0)
#: How much of an example the prior of a floor is.
ZERO_EXAMPLES = 0.05
#: The last step in log T of a temperature with a prior.
SHRUNK_TOLERANCE = 1e-3


def best_temperature(
    examples: Examples,
    *,
    bounds: tuple[float, float] = BOUNDS,
    tol: float = TEMPERATURE_TOLERANCE,
    start: float | None = None,
) -> Solution[float]:
    """The temperature of least log loss (nats); a search that did not converge is
    returned as such.

    The last step is at most `tol` long, relative to the temperature; as Newton's method
    squares the error, about a tenth of its square is left. The search begins at the
    temperature `start`; without one, at that of evenly spaced examples if there are
    many, else at 1.
    """
    if examples.mean_true_margin == 0.0:  # every label has the top logit
        temperature = bounds[0]
        reason = StopReason.NO_MISTAKES
        if not (per_row(_differ, examples.logits) & examples.counting).any():
            temperature = min(max(1.0, bounds[0]), bounds[1])
            reason = StopReason.EQUAL_LOGITS
        return Solution(
            temperature, softmax_moments(examples, 1.0 / temperature)[0], 2, reason
        )
    if start is None:
        size = examples.n_rows * examples.logits.n_columns
        start = 1.0
        step = min(examples.n_rows // _COARSE_ROWS, size // _COARSE_SIZE)
        if step >= 4:
            coarse = examples.take(spaced_rows(0, examples.n_rows, step))
            if coarse.counting.any() and coarse.mean_true_margin > 0.0:
                start = _search(coarse, start, bounds, tol).x
    solution = _search(examples, start, bounds, tol)
    scale = examples.mean_true_margin
    if solution.x < bounds[1] or bounds != BOUNDS or scale < _HUGE:
        return solution
    # Not degenerate labels, as a rule, but huge logits: the bound goes with their
    # scale.
    wide = bounds[0], min(bounds[1] * scale, LARGEST_TEMPERATURE)
    return _search(examples, solution.x, wide, tol)


def base_temperature(
    examples: Examples,
    spread: float,
    bounds: tuple[float, float],
    start: float | None = None,
) -> Solution[float]:
    """Where fits of more parameters start from and shrink to.

    Where the log loss falls down to temperature 0, as when every label has the top
    logit, it is 1, kept within a factor of 1000 of the `spread`, the typical difference
    of logits, and has not converged.
    """
    solution = best_temperature(examples, bounds=bounds, start=start)
    if solution.converged or solution.x == bounds[1]:
        return replace(solution, reason=StopReason.CONVERGED)
    neutral = min(max(1.0, spread / 1e3), spread * 1e3)
    return replace(solution, x=min(max(neutral, bounds[0]), bounds[1]))


def _search(
    examples: Examples | PairMargins,
    start: float,
    bounds: tuple[float, float],
    tol: float,
) -> Solution[float]:
    """Newton's steps in s = log(1 / temperature) inside a bracket, which every step
    narrows.
    """
    moments: Callable[[float], tuple[float, float, float]]
    if isinstance(examples, PairMargins):
        moments = examples.moments
    else:
        moments = partial(softmax_moments, examples)
    lowest = -math.log(bounds[1])
    highest = -math.log(bounds[0])
    low = -math.inf
    high = math.inf
    at = following = min(max(-math.log(start), lowest), highest)
    value = math.inf
    for iteration in range(1, MAX_ITER + 1):
        at = following
        beta = math.exp(following)
        log_sum, expected, variance = moments(beta)
        observed = beta * examples.mean_true_margin
        value = log_sum + observed
        step = math.inf  # much too flat if all has underflowed
        if observed > 0.0:
            step = -math.inf
            if expected > 0.0:
                # Their ratio might underflow.
                ahead = math.log(expected) - math.log(observed)
                step = math.copysign(math.inf, ahead)  # rounding leaves the side alone
                if variance > 0.0:
                    step = ahead * (expected / variance)
        step = min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
        if abs(step) <= tol:  # its effect is known to the third order
            slope = observed - expected
            value += step * (slope + 0.5 * step * (slope + variance))
            temperature = min(max(math.exp(-at - step), bounds[0]), bounds[1])
            return Solution(temperature, value, iteration, StopReason.CONVERGED)
        if step > 0.0 and at == highest:
            return Solution(
                bounds[0], value, iteration, StopReason.SMALLEST_TEMPERATURE
            )
        if step < 0.0 and at == lowest:
            return Solution(bounds[1], value, iteration, StopReason.LARGEST_TEMPERATURE)
        low, high = (at, high) if step > 0.0 else (low, at)
        following = min(max(at + step, lowest), highest)
        if not low < following < high:
            following = 0.5 * (low + high)
    return Solution(math.exp(-at), value, MAX_ITER, StopReason.MAX_ITER)


def sharpen_without_each(
    examples: Examples, temperature: float, row_share: float = 1.0, *, centre: float
) -> FloatArray:
    """The leave-one-out factor (n,) of 1 / temperature, for the temperature of
    `shrink_temperature`.

    It is one Newton step in log(1 / temperature). If the rows are only the share
    `row_share` of those fitted, each weighs that much less. The `centre` is that of the
    prior.
    """
    beta = 1.0 / temperature
    zeroth, first, second = moment_sums(examples.logits, beta)
    mean = first / zeroth
    moments = np.stack(
        [mean, examples.true_margins * beta, second / zeroth - mean * mean]
    )
    weighted = examples.share * moments
    remaining = weighted.sum(axis=1, keepdims=True) - row_share * weighted
    expected, observed, variance = np.maximum(remaining, 0.0)
    away = centre - math.log(temperature)
    pull = PRIOR[int(away > 0.0)] * row_share / examples.effective_size
    steps = (expected - observed - pull * away) / (variance + pull)
    return np.asarray(np.exp(np.clip(steps, -_LONGEST_STEP, _LONGEST_STEP)))


def _differ(logits: Logits) -> Array:
    """Whether the possible classes of a row have different logits, (n,)."""
    margins = logits.margins
    return logits.xp.any((margins > 0.0) & (margins < MAX_MARGIN), axis=1)


def typical_spread(examples: Examples) -> float:
    """Weighted median over examples of the mean margin of the possible classes, or 1 if
    all are 0.

    A median, so that a few examples with extreme logits do not set the units for all.
    """

    def mean_margins(block: Logits) -> Array:
        possible = block.xp.astype(block.possible, block.xp.float64)
        return row_dots(possible, block.margins, block.xp) / row_sums(
            possible, block.xp
        )

    row_spreads = per_row(mean_margins, examples.logits)
    rows = (row_spreads > 0.0) & examples.counting
    if not rows.any():
        return 1.0
    weights = examples.share[rows]
    median = np.quantile(
        row_spreads[rows], _BARELY_HALF, weights=weights, method="inverted_cdf"
    )
    return max(float(median), LEAST_TEMPERATURE)  # no temperature resolves less


def softmax_moments(examples: Examples, beta: float) -> tuple[float, float, float]:
    """Weighted means of three numbers per row, for the softmax of beta z.

    With scaled margins x_i = beta (top - z_i): the log of sum_i exp(-x_i), and the mean
    and the variance of x under the softmax.
    """
    zeroth, first, second = moment_sums(examples.logits, beta)
    mean = first / zeroth
    three = np.stack([np.log(zeroth), mean, second / zeroth - mean * mean])
    log_sum, expected, variance = np.sum(three * examples.share, axis=1).tolist()
    return log_sum, expected, variance


def moment_sums(logits: Logits, beta: FloatArray | float) -> FloatArray:
    """sum_i x_i^r exp(-x_i) for r = 0, 1, 2 of each row, (3, n) on the host, columns
    and tail.

    x_i are the margins times `beta`, a number or one for each row (n,).
    """

    def work(rows: slice, block: Logits) -> FloatArray:
        xp = block.xp
        tail = block.tail
        if xp is np and tail is None and block.n_columns == 2:
            return _pair_moments(block, beta if isinstance(beta, float) else beta[rows])
        by_row, by_entry = _factors(beta, rows, block)
        # Finite, and so is its product with exp(-x) = 0.
        minus_x = block.margins * -by_entry
        term = xp.exp(minus_x)
        zeroth = row_sums(term, xp)
        term *= minus_x
        first = -row_sums(term, xp)
        second = row_dots(term, minus_x, xp)
        if tail is not None:
            x = xp.clip(tail.margin * by_row, None, FAR)
            term = tail.count * xp.exp(-x)
            zeroth = zeroth + term
            first = first + x * term
            second = second + x * x * term
        return np.asarray(block.to_host(xp.stack([zeroth, first, second])))

    return np.concatenate(map_blocks(work, logits), axis=1)


def _factors(beta: FloatArray | float, rows: slice, block: Logits) -> tuple[Any, Any]:
    """`beta` for columns (rows,), and for tables (rows, columns), of a block."""
    if isinstance(beta, float):
        return beta, beta
    by_row = block.from_host(beta[rows])
    return by_row, by_row[:, None]


def _pair_moments(block: Logits, beta: FloatArray | float) -> FloatArray:
    """The `moment_sums` of two of NumPy's columns: one margin of each row is 0."""
    first, second = block.margins.T
    minus_x = (first + second) * -beta
    sums = np.empty((3, block.n_rows))
    np.exp(minus_x, out=sums[0])
    np.multiply(sums[0], -minus_x, out=sums[1])
    np.multiply(sums[1], -minus_x, out=sums[2])
    sums[0] += 1.0
    return sums


class PairMargins(NamedTuple):
    """The margins (n,) of two classes, and what each counts, (n,): all that a search
    for a temperature needs.
    """

    margins: FloatArray
    share: FloatArray
    mean_true_margin: float

    @classmethod
    def of(cls, scores: FloatArray, sample: Examples) -> Self:
        """Of scores (n, 2) of examples."""
        odds = scores[:, 1] - scores[:, 0]
        true_margins = np.maximum(np.where(sample.labels == 1, -odds, odds), 0.0)
        mean = float(np.sum(sample.share * true_margins))
        return cls(np.abs(odds), sample.share, mean)

    def moments(self, beta: float) -> tuple[float, float, float]:
        """The `softmax_moments`."""
        x = self.margins * beta
        rest = np.exp(-x)
        total = 1.0 + rest
        first = x * rest / total
        three = np.array([np.log(total), first, first * (x / total)])
        log_sum, expected, variance = np.sum(three * self.share, axis=1).tolist()
        return log_sum, expected, variance


def odds_sums(logits: Logits, beta: FloatArray | float) -> FloatArray:
    """The first of the `moment_sums`, (n,)."""

    def work(rows: slice, block: Logits) -> FloatArray:
        xp = block.xp
        by_row, by_entry = _factors(beta, rows, block)
        total = row_sums(exponential(block.margins * -by_entry, xp), xp)
        tail = block.tail
        if tail is not None:
            x = xp.clip(tail.margin * by_row, None, FAR)
            total = total + tail.count * xp.exp(-x)
        return np.asarray(block.to_host(total))

    return np.concatenate(map_blocks(work, logits))


def mean_loss(logits: Logits, examples: Examples, even: float = 0.0) -> float:
    """Mean log loss of scores, mixed with a share `even` of the uniform
    distribution.
    """
    losses = log_losses(logits, examples.labels)
    if even > 0.0:
        uniform = even / logits.to_host(logits.possible_counts)
        losses = -np.log((1.0 - even) * np.exp(-losses) + uniform)
    return float(examples.share @ losses)


def log_losses(logits: Logits, labels: IntArray) -> FloatArray:
    """-log p of the true class, (n,)."""
    sums = odds_sums(logits, 1.0)
    return np.asarray(
        np.log(sums) + logits.to_host(logits.top) - logits.of_class(labels)
    )


def choose_floor(examples: Examples) -> float:
    """The floor for zeros of least log loss; 0 if no label is below the top of its
    row.
    """
    sample = _sample(examples)
    if sample.mean_true_margin <= 0.0:
        return 0.0
    return _choose_floor(
        sample, _find_bounds(sample)[1:], ZERO_FLOORS, with_prior=False
    )[0]


def choose_floor_alone(examples: Examples) -> float:
    """The floor for zeros of least log loss of uncalibrated probabilities.

    Its prior is a part of an example whose true class has the probability 0.
    """
    sample = _sample(examples)
    losses = []
    for floor in ZERO_FLOORS:
        floored = with_floor(sample, floor)
        loss = softmax_moments(floored, 1.0)[0] + floored.mean_true_margin
        losses.append(loss + _floor_price(floor, sample))
    return ZERO_FLOORS[int(np.argmin(losses))]


def _floor_price(floor: float, examples: Examples) -> float:
    """Mean log loss that the prior of a floor adds."""
    share = max(floor, LEAST) / (1.0 + floor * examples.n_classes)
    return -ZERO_EXAMPLES / examples.effective_size * math.log(share)


class Base(NamedTuple):
    """A floor and its temperature, and the examples with that floor in their logits.

    `optimism` is what the mean log loss would rise by if each example had no say in the
    floor, and `centre` that of the prior of log T.
    """

    floor: float
    temperature: Solution[float]
    examples: Examples
    optimism: float = 0.0
    centre: float = 0.0


def choose_base(
    examples: Examples, *, for_noise: bool = True, with_prior: bool = False
) -> Base:
    """The floor and its temperature of least log loss.

    Floors are meant for zeros and, unless `for_noise` is False, for labels that can be
    wrong. Both can have the priors of `shrink_temperature` and of `choose_floor_alone`.
    """
    sample = _sample(examples)
    zeros = has_zeros(examples.logits)
    spread, low, high = _find_bounds(sample)
    floor = 0.0
    start = None
    optimism = 0.0
    if (zeros and with_prior) or (
        sample.mean_true_margin > 0.0 and (zeros or for_noise)
    ):
        floor, start, optimism = _choose_floor(
            sample, (low, high), FLOORS, zeros and with_prior
        )
    floored = with_floor(examples, floor)
    if with_prior:
        centre = _prior_centre(spread)
        return Base(
            floor, shrink_temperature(floored, start, centre), floored, optimism, centre
        )
    return Base(floor, base_temperature(floored, spread, (low, high), start), floored)


def _prior_centre(spread: float) -> float:
    """Of log T: 0, but for scores in other units, as similarities or huge ones."""
    least, largest = USUAL_SPREADS
    return min(0.0, math.log(spread / least)) + max(0.0, math.log(spread / largest))


def shrink_temperature(
    examples: Examples, start: float | None = None, centre: float | None = None
) -> Solution[float]:
    """The temperature of least log loss, with a normal prior of log T about a centre.

    From the temperature without a prior, if there is one: by Fisher scoring in s = -log
    T, within a bracket. The centre follows from the spread of the logits by default.
    """
    centre = _prior_centre(typical_spread(examples)) if centre is None else centre
    solution = best_temperature(examples, start=start)
    n_examples = examples.effective_size
    at = -math.log(solution.x) if solution.converged else -centre
    low = -math.log(LARGEST_TEMPERATURE)
    high = -math.log(LEAST_TEMPERATURE)
    n_iter = solution.n_iter
    step = math.inf
    while abs(step) > SHRUNK_TOLERANCE and n_iter < solution.n_iter + MAX_ITER:
        n_iter += 1
        log_sum, expected, variance = softmax_moments(examples, math.exp(at))
        observed = math.exp(at) * examples.mean_true_margin
        away = at + centre
        pull = PRIOR[int(away > 0.0)] / n_examples
        value = log_sum + observed
        slope = observed - expected + pull * away
        low, high = (low, at) if slope > 0.0 else (at, high)
        step = min(
            max(-slope / (max(variance, 0.0) + pull), -_LONGEST_STEP), _LONGEST_STEP
        )
        following = at + step if low < at + step < high else 0.5 * (low + high)
        step = following - at
        at = following
    reason = (
        StopReason.CONVERGED if abs(step) <= SHRUNK_TOLERANCE else StopReason.MAX_ITER
    )
    temperature = min(max(math.exp(-at), LEAST_TEMPERATURE), LARGEST_TEMPERATURE)
    return Solution(temperature, value, n_iter, reason)


def _find_bounds(examples: Examples) -> tuple[float, float, float]:
    """The spread of the logits, and the least and the greatest temperature."""
    spread = typical_spread(examples)
    low = BOUNDS[0] * min(spread, 1.0)
    high = BOUNDS[1] * max(spread, 1.0)
    return spread, max(low, LEAST_TEMPERATURE), min(high, LARGEST_TEMPERATURE)


class _Floor(NamedTuple):
    """A floor that was tried: mean log loss alone and with what the floor costs,
    temperature, losses (n,).
    """

    floor: float
    value: float
    loss: float
    temperature: float
    rows: FloatArray


def _choose_floor(
    sample: Examples,
    bounds: tuple[float, float],
    floors: tuple[float, ...],
    with_prior: bool,
) -> tuple[float, float, float]:
    """The floor, about its temperature, and its optimism where it has a prior.

    0 is tried first, and then floors as long as they change something; each temperature
    is sought from the one before.
    """
    logits = sample.logits
    n_examples = sample.effective_size
    zeros = has_zeros(logits)
    log_p = log_probabilities(logits)
    p = logits.xp.exp(log_p)
    no_prior = _pair_temperature if _are_whole_pairs(logits) else _floored_temperature

    def try_floor(floor: float, start: float) -> _Floor:
        for_labels = floor > (ZERO_FLOORS[0] if zeros else 0.0)
        price = NOISE_EVIDENCE / n_examples if for_labels else 0.0
        rows = np.zeros(0)
        scores = logits.xp.log(p + floor) if floor > 0.0 else log_p
        if with_prior:
            floored = _with_scores(sample, scores)
            solution = shrink_temperature(floored, start, 0.0)
            rows = np.log(moment_sums(floored.logits, 1.0 / solution.x)[0])
            rows += floored.true_margins / solution.x
            price += _floor_price(floor, sample)
        else:
            solution = no_prior(sample, scores, bounds, start)
        return _Floor(floor, solution.value, solution.value + price, solution.x, rows)

    none = trial = try_floor(0.0, 1.0)
    tried = list[_Floor]()
    unchanged = UNCHANGED if zeros else HARDLY_CHANGED
    for floor in floors:
        trial = try_floor(floor, trial.temperature)
        loss = trial.loss if zeros else trial.value
        if abs(loss - none.loss) <= unchanged:  # and so are all below
            tried.append(none._replace(floor=floor))
            break
        tried.append(trial)
    else:
        tried.append(none)
    losses = np.array([trial.loss for trial in tried])
    best = tried[int(np.flatnonzero(losses <= losses.min() + LOSS_TOLERANCE)[0])]
    if not zeros and none.loss <= best.loss + LOSS_TOLERANCE:
        best = none
    optimism = 0.0
    if with_prior:
        rows = np.array([trial.rows for trial in tried])
        best_without = np.argmin(losses[:, None] - sample.share * rows, axis=0)
        optimism = float(
            sample.share @ (rows[best_without, np.arange(sample.n_rows)] - best.rows)
        )
    return best.floor, best.temperature, optimism


def _with_scores(sample: Examples, scores: Array) -> Examples:
    """The examples with other scores (n, classes) of possible classes."""
    logits = sample.logits
    xp = logits.xp
    values = xp.where(logits.possible, scores, -xp.inf)
    return replace(
        sample, logits=Logits(values, xp.max(values, axis=1), logits.backend)
    )


def _floored_temperature(
    sample: Examples, scores: Array, bounds: tuple[float, float], start: float
) -> Solution[float]:
    """The temperature of scores (n, classes), roughly."""
    floored = _with_scores(sample, scores)
    return best_temperature(floored, bounds=bounds, tol=ROUGH_TOLERANCE, start=start)


def _pair_temperature(
    sample: Examples, scores: FloatArray, bounds: tuple[float, float], start: float
) -> Solution[float]:
    """The same of NumPy's scores (n, 2), none of which is masked."""
    pairs = PairMargins.of(scores, sample)
    if pairs.mean_true_margin == 0.0:
        return _floored_temperature(sample, scores, bounds, start)
    return _search(pairs, start, bounds, ROUGH_TOLERANCE)


def _are_whole_pairs(logits: Logits) -> bool:
    return logits.is_numpy and logits.n_columns == 2 and logits.all_possible


def _sample(examples: Examples) -> Examples:
    """Evenly spaced rows, and all whose true class has a probability of 0: those are
    expensive.
    """
    n_rows = examples.logits.n_rows
    step = min(n_rows // COMPARED_ROWS, n_rows * examples.n_classes // COMPARED_SIZE)
    if step < 2:
        return examples
    costly = examples.true_margins >= ZEROS_BELOW[0]
    taken = costly.copy()
    taken[spaced_rows(0, n_rows, step)] = True
    rows = np.flatnonzero(taken)
    weights = examples.counts[rows] * np.where(costly[rows], 1.0, float(step))
    return replace(examples.take(rows), weights=weights)


def with_floor(examples: Examples, floor: float) -> Examples:
    """The same examples with log(p + floor) for logits; themselves where the floor
    is 0.
    """
    if floor == 0.0:
        return examples
    return replace(examples, logits=add_floor(examples.logits, floor))


#: Distances, in log temperature, from that of least log loss at which the squared error
#: is looked at until its nearest minimum is bracketed; and the width of differences
#: that give its slope.
_DISTANCES = (0.1, 0.3, 1.0, 3.0)
_WIDTH = 1e-4


def fit_ensemble(examples: Examples) -> tuple[Solution[float], FloatArray]:
    """The temperature, with the squared error of the average as its value, and the
    weights (3,).
    """
    from scipy.optimize import brentq

    solution = best_temperature(examples)
    # The squared error may have a minimum next to it; if it falls for long, that of
    # least log loss is kept. `_slope` has arguments, not a closure: SciPy's wrapper of
    # a function is freed only by collection.
    options = {"args": (examples,), "xtol": 1e-10, "full_output": True}
    start = math.log(solution.x)
    slope = _slope(start, examples) if solution.converged else 0.0
    for distance in _DISTANCES:
        bound = start - math.copysign(distance, slope)
        if slope != 0.0 and _slope(bound, examples) * slope < 0.0:
            root, report = brentq(_slope, start, bound, **options)
            solution = replace(
                solution,
                x=math.exp(root),
                n_iter=solution.n_iter + report.function_calls,
            )
            break
    # The scaled, the plain and the uniform distribution: their probabilities of the
    # true classes (n, 3), and their mean inner products (3, 3).
    margins = examples.true_margins
    beta = 1.0 / solution.x
    betas = (beta, 1.0, 2.0 * beta, beta + 1.0, 2.0)
    a, b, aa, ab, bb = (
        moment_sums(examples.logits, beta_value)[0] for beta_value in betas
    )
    even = 1.0 / per_row(lambda block: block.possible_counts, examples.logits)
    true = np.stack([np.exp(-margins * beta) / a, np.exp(-margins) / b, even], axis=1)
    rows = (aa / a**2, ab / (a * b), bb / b**2, even)
    first, mixed, second, uniform = (float(examples.share @ row) for row in rows)
    # Any distribution over the possible classes has the same product with the uniform
    # one.
    gram = np.array([[first, mixed, uniform], [mixed, second, uniform], [uniform] * 3])
    mean = examples.share @ np.maximum(true, LEAST)
    weights = np.eye(3)[0]
    if examples.mean_true_margin > 0.0:  # else the sharpest softmax is best
        weights = least_quadratic(-2.0 * mean, 2.0 * gram)
    value = float(1.0 + weights @ gram @ weights - 2.0 * mean @ weights)
    return replace(solution, value=value), weights


def _slope(log_temperature: float, examples: Examples) -> float:
    """The difference of the softmax's mean squared errors at two temperatures close
    by.
    """
    errors = []
    for step in (_WIDTH, -_WIDTH):
        beta = math.exp(-(log_temperature + step))
        total, square = (moment_sums(examples.logits, b)[0] for b in (beta, 2.0 * beta))
        true = np.exp(-beta * examples.true_margins) / total
        errors.append(float(examples.share @ (square / total**2 - 2.0 * true)))
    return errors[0] - errors[1]
