"""Newton's method with safeguards, for convex functions of many numbers: the one solver.

A step is solved from the whole Hessian (`dense_step`) or by conjugate gradients (`cg_steps`), and
then shortened until the value falls enough. Weights of an average, which lie on the simplex, have a
search of their own (`least_on_simplex`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from hokical._core.arrays import FloatArray

X = TypeVar("X")
#: Multiplies a vector by a matrix.
Product = Callable[[FloatArray], FloatArray]

#: The drop that is expected of the last step of a dense search. What is left is its square.
TIGHT = 5e-13
#: Largest slope at a minimum: near a kink the curvature is so high that even a steep way down
#: is expected to gain nothing.
_FLAT = 1e-4
_ENOUGH_DROP = 1e-4
_MAX_HALVINGS = 40
#: What rounding may add to the value, relative: in any step, and in one that is not shortened.
_SLACK, _WHOLE_SLACK = 1e-14, 1e-12
#: What is added to a Hessian of unit diagonal until it is positive (Levenberg, Marquardt).
#: Up to the second, it makes up for rounding.
_DAMPINGS, _ROUNDING = (0.0, *(10.0**k for k in range(-14, 3, 2))), 1e-12
#: Most conjugate-gradient steps for one Newton step; a preconditioner is used for the next Newton
#: step too, unless it took more products than the second.
_MAX_CG_STEPS, _STALE = 1000, 10
#: A search for weights is over when its next step is expected to gain less than this; and more
#: steps than that convex problem ever takes.
_GAIN, _MAX_STEPS = 1e-13, 50


class StopReason(Enum):
    """Why a search ended, in words that may name the answer `x` and the iterations `n_iter`."""

    CONVERGED = "converged"
    MAX_ITER = "no answer in {n_iter} iterations. Check the logits for outliers."
    ROUNDING = (
        "rounding errors hide the optimum. Look for examples with extreme logits or hardly any "
        "differences between them."
    )
    LARGEST_TEMPERATURE = (
        "the loss still falls at the largest temperature allowed, {x:g}: the labels are hardly "
        "better than chance, or the logits are very large. Check that `labels` index the columns "
        "of `logits`."
    )
    SMALLEST_TEMPERATURE = (
        "the loss still falls at the smallest temperature allowed, {x:g}: mistakes have tiny "
        "margins, or the logits are very small. Multiply them by a constant."
    )
    NO_MISTAKES = (
        "every validation label has the top logit, so the log loss falls all the way to "
        "temperature 0; the smallest allowed, {x:g}, was taken. Use more validation examples, some "
        "of which are wrong."
    )
    EQUAL_LOGITS = (
        "the possible classes of each example have equal logits, so every temperature fits equally "
        "well and 1 was taken. Use examples on which the logits differ."
    )


@dataclass(frozen=True, eq=False)
class Solution(Generic[X]):
    """The minimiser `x`, the objective there, and why the search ended; `point` is its last one."""

    x: X
    value: float
    n_iter: int
    reason: StopReason
    point: Any = None

    @property
    def converged(self) -> bool:
        return self.reason is StopReason.CONVERGED

    @property
    def message(self) -> str:
        """The reason in words, with a remedy if the search did not converge."""
        return self.reason.value.format(x=self.x, n_iter=self.n_iter)


class Point(Protocol):
    """A function at one place x, an array of any shape."""

    @property
    def value(self) -> float: ...

    @property
    def gradient(self) -> FloatArray: ...


class SmoothPoint(Point, Protocol):
    """A function at one place, with what conjugate gradients ask for."""

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        """The Hessian times a direction."""


Place = TypeVar("Place", bound=Point)
Smooth = TypeVar("Smooth", bound=SmoothPoint)
#: The step from a point, and whether it is Newton's own.
NewtonStep = Callable[[Place], tuple[FloatArray, bool]]


def minimize_newton(
    evaluate: Callable[[FloatArray], Place],
    start: FloatArray,
    newton_step: NewtonStep[Place],
    *,
    tol: float,
    max_iter: int,
    units: FloatArray | None = None,
) -> Solution[FloatArray]:
    """The minimum from `start`; every value is one that was evaluated.

    It has converged where a Newton step is expected to give a drop of at most `tol`; it is still
    taken. Given `units` in which parameters mean something, it must also end where all is flat in
    them, and a step that is expected to gain nothing may not raise the value: a real rise shows
    that all is rounding.
    """
    x, point = start, evaluate(start)
    for iteration in range(1, max_iter + 1):
        step, exact = newton_step(point)
        expected = -0.5 * float(np.vdot(point.gradient, step))
        if not 0.0 <= expected < math.inf:  # uphill, or not a number
            return Solution(x, point.value, iteration, StopReason.ROUNDING, point)
        if expected > 0.0 or not exact:
            whole = units is not None and expected <= TIGHT
            found = _search_line(evaluate, x, step, point.value, expected, whole=whole)
            if found is None:
                return Solution(x, point.value, iteration, StopReason.ROUNDING, point)
            x, point = found
        if expected <= (tol if exact else min(tol, TIGHT)):
            flat = units is None or bool(np.abs(units * point.gradient).max() <= _FLAT)
            reason = StopReason.CONVERGED if exact and flat else StopReason.ROUNDING
            return Solution(x, point.value, iteration, reason, point)
    return Solution(x, point.value, max_iter, StopReason.MAX_ITER, point)


def _search_line(
    evaluate: Callable[[FloatArray], Place],
    x: FloatArray,
    step: FloatArray,
    value: float,
    expected: float,
    *,
    whole: bool,
) -> tuple[FloatArray, Place] | None:
    """The first of whole, half, quarter ... steps that lowers the value enough, evaluated."""
    limit = value + (_WHOLE_SLACK if whole else _SLACK) * max(1.0, abs(value))
    for halvings in range(1 if whole else _MAX_HALVINGS):
        length = 0.5**halvings
        found = evaluate(x + length * step)
        if found.value <= limit - _ENOUGH_DROP * length * expected:
            return x + length * step, found
        del found
    return None


def dense_step(gradient: FloatArray, hessian: FloatArray) -> tuple[FloatArray, bool]:
    """The step (p,) from a Hessian (p, p), which is overwritten; and whether it is positive.

    Parameters are measured in units in which the Hessian's diagonal is 1: their curvatures can
    differ by more than floats can hold. The step is nan where that diagonal is not positive.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    diagonal = np.diagonal(hessian).copy()
    if np.isfinite(hessian.sum()) and diagonal.min() > 0.0:
        unit = 1.0 / np.sqrt(diagonal)
        hessian *= unit[:, None]
        hessian *= unit
        for damping in _DAMPINGS:
            hessian.flat[:: unit.size + 1] = 1.0 + damping
            try:
                factor = cho_factor(hessian, lower=True, check_finite=False)
            except LinAlgError:  # not positive beyond rounding
                continue
            step = cho_solve(factor, unit * gradient, check_finite=False)
            return -unit * step, damping <= _ROUNDING
    return np.full(gradient.size, np.nan), False


class _DensePoint(NamedTuple):
    """Value, gradient (p,) and Hessian (p, p)."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


def minimize_dense(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray, FloatArray]],
    start: FloatArray,
    max_iter: int,
    tol: float = TIGHT,
) -> Solution[FloatArray]:
    """Minimise a function that gives its value, gradient (p,) and Hessian (p, p)."""
    return minimize_newton(
        lambda x: _DensePoint(*evaluate(x)),
        start,
        lambda point: dense_step(point.gradient, point.hessian),
        tol=tol,
        max_iter=max_iter,
        units=np.ones(start.size),
    )


def cg_steps(
    make_preconditioner: Callable[[Smooth], Product], *, tol: float, rough_start: bool = False
) -> NewtonStep[Smooth]:
    """Newton steps by conjugate gradients, roughly at first and more exactly as the slope falls.

    A preconditioner is about the inverse Hessian, symmetric and positive. That of a `rough_start`
    is used for the first step alone. The accuracy asked for is no more than a fit to `tol` can use.
    """
    precondition: Product | None = None

    def newton_step(point: Smooth) -> tuple[FloatArray, bool]:
        nonlocal precondition, rough_start
        if precondition is None:
            precondition = make_preconditioner(point)
        residual = -point.gradient
        first = float(np.vdot(residual, precondition(residual)))
        relative = max(min(0.25, first**0.5), 0.01 * tol / first) if first > 0.0 else 1.0
        step, products = solve_cg(point.curvature_along, precondition, residual, relative=relative)
        if products > _STALE or rough_start:
            precondition, rough_start = None, False
        return step, products <= _MAX_CG_STEPS

    return newton_step


def solve_cg(
    product_with: Product, precondition: Product, residual: FloatArray, *, relative: float
) -> tuple[FloatArray, int]:
    """Inverse Hessian times `residual` by conjugate gradients, and the number of products.

    It ends where the squared error, measured by the preconditioner as large and small penalties may
    stand side by side, has fallen to a share `relative` of the first; or with _MAX_CG_STEPS + 1.
    """
    direction = np.zeros_like(residual)
    search = precondition(residual)
    size = max(float(np.vdot(residual, search)), 0.0)
    wanted = relative * size
    for products in range(_MAX_CG_STEPS + 1):
        if size <= wanted:
            return direction, products
        product = product_with(search)
        length = size / float(np.vdot(search, product))
        direction += length * search
        residual = residual - length * product
        scaled = precondition(residual)
        size, before = float(np.vdot(residual, scaled)), size
        search = scaled + (size / before) * search
    return direction, _MAX_CG_STEPS + 1


def least_on_simplex(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray, FloatArray]], size: int
) -> FloatArray:
    """The weights (k,) of least value, by Newton steps on the simplex.

    `evaluate` gives a convex function's value, gradient (k,) and Hessian (k, k). The steps start
    inside: where a weight is 0 and all else fails an example, a log loss is so steep that Newton's
    method only doubles the weight in a step.
    """
    weights = np.full(size, 1.0 / size)
    value, gradient, hessian = evaluate(weights)
    for _ in range(_MAX_STEPS):
        target = least_quadratic(gradient - hessian @ weights, hessian)
        step, length = target - weights, 1.0
        expected = -float(gradient @ step)
        if expected <= _GAIN:
            return target
        found = evaluate(target)
        while not found[0] <= value - 1e-4 * length * expected and length > 1e-9:
            length *= 0.5
            found = evaluate(weights + length * step)
        weights = target if length == 1.0 else weights + length * step
        value, gradient, hessian = found
    return weights


def least_quadratic(linear: FloatArray, hessian: FloatArray) -> FloatArray:
    """The w >= 0 (k,) with sum 1 that minimises linear'w + w'hessian w/2: every face is tried."""
    size = linear.size
    best, least = np.zeros(size), np.inf
    for n_parts in range(1, size + 1):
        for face in map(list, combinations(range(size), n_parts)):
            system = np.ones((n_parts + 1, n_parts + 1))
            system[:-1, :-1], system[-1, -1] = hessian[np.ix_(face, face)], 0.0
            found = np.linalg.lstsq(system, np.append(-linear[face], 1.0), rcond=1e-14)[0][:-1]
            if (found < 0.0).any():
                continue
            weights = np.zeros(size)
            weights[face] = found / found.sum()
            value = float(linear @ weights + 0.5 * weights @ hessian @ weights)
            if value < least:
                best, least = weights, value
    return best
