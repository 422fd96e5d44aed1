"""Newton's method by conjugate gradients, for functions whose Hessian is only ever multiplied.

Steps are solved roughly at first and more exactly as the slope falls.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from hokical._core.types import FloatArray
from hokical._fitting.newton import Slope, minimize_newton
from hokical._fitting.solution import Solution

#: Most conjugate-gradient steps for one Newton step.
MAX_CG_STEPS = 1000
#: A preconditioner is used for the next Newton step too, unless it took more products than this.
STALE = 10

Product = Callable[[FloatArray], FloatArray]


class SmoothPoint(Slope, Protocol):
    """A function at one place, with what conjugate gradients ask for."""

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        """The Hessian times a direction."""

    @property
    def precondition(self) -> Product:
        """About the inverse Hessian, to be multiplied with: symmetric and positive."""


Smooth = TypeVar("Smooth", bound=SmoothPoint)


def minimize_newton_cg(
    evaluate: Callable[[FloatArray], Smooth],
    start: FloatArray,
    *,
    tol: float,
    max_iter: int,
    precondition: Product | None = None,
    rough_start: bool = False,
) -> Solution[FloatArray]:
    """Minimise a function whose Hessian is multiplied with.

    It has also converged where, by the preconditioner, there is less than a hundredth of `tol` to
    gain. A `precondition` from elsewhere replaces the start's; that of a `rough_start` is used for
    the first step alone.
    """
    stale = False

    def newton_step(point: Smooth) -> tuple[FloatArray, bool]:
        nonlocal precondition, stale, rough_start
        if precondition is None or stale:
            precondition = point.precondition
        direction, products = newton_direction(point, precondition, tol)
        stale, rough_start = products > STALE or rough_start, False
        return direction, products <= MAX_CG_STEPS

    found = minimize_newton(evaluate, start, newton_step, tol=tol, max_iter=max_iter)
    return replace(found, precondition=precondition)


def newton_direction(
    point: SmoothPoint, precondition: Product, tol: float
) -> tuple[FloatArray, int]:
    """Minus inverse Hessian times gradient, and how many products it took, as by `solve_cg`.

    The accuracy asked for grows as the slope falls, which keeps Newton's fast ending, but not
    beyond what a fit to `tol` can use.
    """
    residual = -point.gradient
    first = float(np.vdot(residual, precondition(residual)))
    relative = max(min(0.25, first**0.5), 0.01 * tol / first) if first > 0.0 else 1.0
    return solve_cg(point.curvature_along, precondition, residual, relative=relative)


def solve_cg(
    product_with: Product, precondition: Product, residual: FloatArray, *, relative: float
) -> tuple[FloatArray, int]:
    """Inverse Hessian times `residual` by conjugate gradients, and the number of products.

    It ends where the squared error, measured by the preconditioner as large and small penalties may
    stand side by side, has fallen to a share `relative` of the first; or with MAX_CG_STEPS + 1.
    """
    direction = np.zeros_like(residual)
    search = precondition(residual)
    size = max(float(np.vdot(residual, search)), 0.0)
    wanted = relative * size
    for products in range(MAX_CG_STEPS + 1):
        if size <= wanted:
            return direction, products
        product = product_with(search)
        length = size / float(np.vdot(search, product))
        direction += length * search
        residual = residual - length * product
        scaled = precondition(residual)
        size, before = float(np.vdot(residual, scaled)), size
        search = scaled + (size / before) * search
    return direction, MAX_CG_STEPS + 1


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
