"""Newton's method for convex functions of many numbers, whose Hessian is only ever multiplied.

Each Newton step is solved by conjugate gradients, roughly at first and more exactly as the slope
falls, and shortened until the value falls enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hokical.core.types import FloatArray
from hokical.fitting.newton import Minimum

#: Most conjugate-gradient steps for one Newton step.
MAX_CG_STEPS = 1000
_ENOUGH_DROP = 1e-4
_MAX_HALVINGS = 40
#: What rounding may add, relative, when there is hardly anything left to gain.
_SLACK = 1e-14


class SmoothPoint(Protocol):
    """A function at one place x, an array of any shape, with what the solver may ask there."""

    @property
    def value(self) -> float:
        """The function's value."""

    @property
    def gradient(self) -> FloatArray:
        """Its slope, of the shape of x."""

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        """The Hessian times a direction."""

    def precondition(self, residual: FloatArray) -> FloatArray:
        """About the inverse Hessian times a residual: symmetric and positive."""


def minimize_newton_cg(
    evaluate: Callable[[FloatArray], SmoothPoint], start: FloatArray, *, tol: float, max_iter: int
) -> Minimum:
    """The minimum from `start`, by Newton steps with a line search.

    Converged means that a Newton step, solved to its accuracy, promised a drop of at most `tol`;
    that step is still taken. Otherwise `converged` is False: after `max_iter` steps, or where no
    step lowers the value.
    """
    x, point = start, evaluate(start)
    for step in range(1, max_iter + 1):
        direction, solved = newton_direction(point, tol)
        promise = -0.5 * float(np.vdot(point.gradient, direction))
        found = _lower_point(evaluate, x, point.value, direction, promise)
        if found is None:
            return Minimum(x, point.value, step, False)
        x, point = found
        if solved and promise <= tol:
            return Minimum(x, point.value, step, True)
    return Minimum(x, point.value, max_iter, False)


def newton_direction(point: SmoothPoint, tol: float) -> tuple[FloatArray, bool]:
    """Minus inverse Hessian times gradient, and whether it is accurate enough.

    Errors are measured by the preconditioner, as large and small penalties may stand side by side.
    The accuracy asked for grows as the slope falls, which keeps Newton's fast ending, but not
    beyond what a fit to `tol` can use.
    """
    residual = -point.gradient
    direction = np.zeros_like(residual)
    search = point.precondition(residual)
    size = first = max(float(np.vdot(residual, search)), 0.0)
    wanted = max(first * min(0.25, first**0.5), 0.01 * tol)
    for _ in range(MAX_CG_STEPS):
        if size <= wanted:
            return direction, True
        product = point.curvature_along(search)
        length = size / float(np.vdot(search, product))
        direction += length * search
        residual = residual - length * product
        scaled = point.precondition(residual)
        size, before = float(np.vdot(residual, scaled)), size
        search = scaled + (size / before) * search
    return direction, size <= wanted


def _lower_point(
    evaluate: Callable[[FloatArray], SmoothPoint],
    x: FloatArray,
    value: float,
    direction: FloatArray,
    promise: float,
) -> tuple[FloatArray, SmoothPoint] | None:
    """The first of whole, half, quarter ... steps that lowers the value enough, if any."""
    slack = _SLACK * max(1.0, abs(value))
    for halvings in range(_MAX_HALVINGS):
        length = 0.5**halvings
        trial = x + length * direction
        point = evaluate(trial)
        if point.value <= value - _ENOUGH_DROP * length * promise + slack:
            return trial, point
    return None


class OuterProducts:
    """An easy stand-in for a Hessian: for each class a diagonal plus one outer product.

    The examples that matter to a class look alike, so their mean carries most of the curvature of
    its coefficients, and the diagonal is left with the variance about it.

    Parameters
    ----------
    total : (classes, 1)
        Sum of the variances of a class's probability.
    first, second : (classes, q)
        Sums of these variances times inputs, and times their squares.
    penalty : (classes, q)
    """

    def __init__(
        self, total: FloatArray, first: FloatArray, second: FloatArray, penalty: FloatArray
    ) -> None:
        mean = first / np.sqrt(np.maximum(total, np.finfo(np.float64).tiny))
        self._diagonal = np.maximum(second - mean * mean, 0.0) + penalty
        self._mean = mean / self._diagonal
        self._share = 1.0 + np.einsum("ij,ij->i", mean, self._mean)[:, None]

    def solve(self, residual: FloatArray) -> FloatArray:
        """The inverse times a residual (classes, q), by the Sherman-Morrison formula."""
        along = np.einsum("ij,ij->i", self._mean, residual)[:, None]
        return np.asarray(residual / self._diagonal - self._mean * (along / self._share))
