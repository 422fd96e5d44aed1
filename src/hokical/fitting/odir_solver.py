"""Newton's method with conjugate gradients for the penalised log loss of the ODIR methods.

The Hessian is only ever multiplied, by two products of (n, classes) with (classes, classes).
Nothing is larger than about seven (n, classes) and a dozen (classes, classes) float64 arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical.core.arrays import Array
from hokical.core.types import FloatArray, IntArray
from hokical.fitting.odir_objective import (
    DIAGONAL_RIDGE,
    LinearPoint,
    Preconditioner,
    curvature_along,
    gradient,
    point_at,
)
from hokical.fitting.odir_sums import LinearExamples

#: Most conjugate-gradient steps for one Newton step.
MAX_CG_STEPS = 1000
#: The ridge is reported where it is more than this much of the objective.
RIDGE_TO_REPORT = 1e-5


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A minimum: `coef` (classes, classes + 1) and how the solver got there."""

    coef: FloatArray
    n_iter: int
    converged: bool


def minimize_penalised(
    examples: LinearExamples, penalty: FloatArray, start: FloatArray, *, tol: float, max_iter: int
) -> LinearFit:
    """The minimum of the objective from `start`, by Newton steps with a line search.

    Converged means that a Newton step, solved to its accuracy, promised less than `tol`.
    """
    point = point_at(examples, penalty, start, examples.scores(start))
    for step in range(1, max_iter + 1):
        slope = gradient(examples, penalty, point.coef, point.proba)
        direction, solved = newton_direction(examples, penalty, point.proba, slope, tol)
        promise = -0.5 * float(np.vdot(slope, direction))
        lower = lower_point(examples, penalty, point, direction, promise)
        if lower is None:
            return LinearFit(point.coef, step, False)
        if solved and promise <= tol:
            return LinearFit(lower.coef, step, True)
        point = lower
    return LinearFit(point.coef, max_iter, False)


def lower_point(
    examples: LinearExamples,
    penalty: FloatArray,
    point: LinearPoint,
    direction: FloatArray,
    promise: float,
) -> LinearPoint | None:
    """The first of whole, half, quarter ... steps that lowers the objective enough, if any."""
    change = examples.scores(direction)
    # What rounding may add when there is hardly anything left to gain.
    slack = 1e-14 * max(1.0, abs(point.value))
    for halvings in range(40):
        length = 0.5**halvings
        coef = point.coef + length * direction
        scores = [part + length * more for part, more in zip(point.scores, change, strict=True)]
        trial = point_at(examples, penalty, coef, scores)
        if trial.value <= point.value - 1e-4 * length * promise + slack:
            return trial
    return None


def newton_direction(
    examples: LinearExamples, penalty: FloatArray, proba: list[Array], slope: FloatArray, tol: float
) -> tuple[FloatArray, bool]:
    """Minus inverse Hessian times `slope` by conjugate gradients, and whether they got there.

    The accuracy asked for grows as the slope falls, which keeps Newton's fast ending, but not
    beyond what a fit to `tol` can use. Sizes are measured by the preconditioner: large and tiny
    penalties stand side by side here.
    """
    nearly = Preconditioner(examples, penalty, proba)
    direction = np.zeros_like(slope)
    residual = -slope
    search = nearly.solve(residual)
    size = first = float(np.vdot(residual, search))
    wanted = max(first * min(0.25, first**0.5), tol**1.5)
    for _ in range(MAX_CG_STEPS):
        if size <= wanted:
            return direction, True
        product = curvature_along(examples, penalty, proba, search)
        length = size / float(np.vdot(search, product))
        direction += length * search
        residual -= length * product
        scaled = nearly.solve(residual)
        size, before = float(np.vdot(residual, scaled)), size
        search = scaled + (size / before) * search
    return direction, size <= wanted


def has_no_finite_minimum(examples: LinearExamples, coef: FloatArray) -> bool:
    """Whether the diagonal alone gets every example right, so that a larger one is always better.

    True proves that only DIAGONAL_RIDGE holds the fit.
    """
    return examples.all_right(np.diag(coef))


def held_by_ridge(coef: FloatArray) -> IntArray:
    """The classes whose diagonals DIAGONAL_RIDGE holds at a price that shows; mostly none."""
    price = DIAGONAL_RIDGE * np.square(np.diag(coef) - 1.0) / coef.shape[0]
    total = float(price.sum())
    return np.flatnonzero(price > 0.1 * total) if total > RIDGE_TO_REPORT else np.empty(0, np.int64)


def describe_problem(examples: LinearExamples, fit: LinearFit, max_iter: int) -> str | None:
    """Why the fit is not the minimum that it should be, and the remedy; None where it is."""
    if has_no_finite_minimum(examples, fit.coef):
        return (
            "has no finite optimum on these examples: scaling alone gets every one of them right, "
            "so confidence would keep growing, and only a tiny ridge holds it. Fit on more "
            "examples, on some that the classifier gets wrong."
        )
    if not fit.converged:
        return (
            f"did not converge in {max_iter} iterations: its log loss is higher than it need "
            "be. Raise `max_iter` or `tol`, or use larger `lambdas`."
        )
    held = held_by_ridge(fit.coef)
    if held.size:
        names = ", ".join(str(name) for name in held[:10]) + (", ..." if held.size > 10 else "")
        return (
            f"found no optimum within reach for the diagonal of class {names}: a tiny ridge holds "
            "it, at a price that shows in the log loss. Fit on more examples of it, or use smaller "
            "`mus`."
        )
    return None
