"""Newton's method with conjugate gradients for the penalised log loss of the ODIR methods.

The Hessian is only ever multiplied, by two products of (n, classes) with (classes, classes).
Nothing is larger than about seven (n, classes) and a dozen (classes, classes) float64 arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from hokical.calibrators._odir_objective import (
    DIAGONAL_RIDGE,
    Examples,
    Point,
    Preconditioner,
    curvature_along,
    gradient,
    point_at,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Most conjugate-gradient steps for one Newton step.
MAX_CG_STEPS = 1000
#: Weight of the mean squared score, in its own units, while the inverse temperature is sought.
TEMPERATURE_RIDGE = 1e-6
#: The largest inverse temperature, for logits too small to be divided by.
MAX_SCALE = 1e300
#: The ridge is reported where it is more than this much of the objective.
RIDGE_TO_REPORT = 1e-5


@dataclass(frozen=True, eq=False)
class Fit:
    """A minimum: `coef` (classes, classes + 1) and how the solver got there."""

    coef: FloatArray
    n_iterations: int
    converged: bool


def minimise(
    examples: Examples, penalty: FloatArray, start: FloatArray, *, tol: float, max_iterations: int
) -> Fit:
    """The minimum of the objective from `start`, by Newton steps with a line search.

    Converged means that a Newton step, solved to its accuracy, promised less than `tol`.
    """
    point = point_at(examples, penalty, start, examples.scores(start))
    for step in range(1, max_iterations + 1):
        slope = gradient(examples, penalty, point.coef, point.proba)
        direction, solved = newton_direction(examples, penalty, point.proba, slope, tol)
        promise = -0.5 * float(np.vdot(slope, direction))
        lower = lower_point(examples, penalty, point, direction, promise)
        if lower is None:
            return Fit(point.coef, step, False)
        if solved and promise <= tol:
            return Fit(lower.coef, step, True)
        point = lower
    return Fit(point.coef, max_iterations, False)


def lower_point(
    examples: Examples, penalty: FloatArray, point: Point, direction: FloatArray, promise: float
) -> Point | None:
    """The first of whole, half, quarter ... steps that lowers the objective enough, if any."""
    change = examples.scores(direction)
    # What rounding may add when there is hardly anything left to gain.
    slack = 1e-14 * max(1.0, abs(point.value))
    for halvings in range(40):
        length = 0.5**halvings
        coef = point.coef + length * direction
        trial = point_at(examples, penalty, coef, point.scores + length * change)
        if trial.value <= point.value - 1e-4 * length * promise + slack:
            return trial
    return None


def newton_direction(
    examples: Examples, penalty: FloatArray, proba: Any, slope: FloatArray, tol: float
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


def inverse_temperature(examples: Examples) -> float:
    """The multiplier of the features with the least log loss; the place to start from.

    A ridge on the size of the scores keeps it finite where every example is right.
    """
    unit = examples.feature_size()  # weights equal repetition
    if unit == 0.0:
        return 1.0

    def loss(log_size: float) -> float:
        rows = examples.feature_losses(unit, float(np.exp(log_size)))
        return float(examples.weights @ rows) + TEMPERATURE_RIDGE * float(np.exp(2 * log_size))

    found = minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded", options={"xatol": 1e-7})
    return float(np.exp(found.x)) / max(unit, float(np.exp(found.x)) / MAX_SCALE)


def has_no_finite_minimum(examples: Examples, coef: FloatArray) -> bool:
    """Whether the diagonal alone gets every example right, so that a larger one is always better.

    True proves that only DIAGONAL_RIDGE holds the fit.
    """
    return examples.all_right(np.diag(coef))


def held_by_ridge(coef: FloatArray) -> IntArray:
    """The classes whose diagonals DIAGONAL_RIDGE holds at a price that shows; mostly none."""
    price = DIAGONAL_RIDGE * np.square(np.diag(coef) - 1.0) / coef.shape[0]
    total = float(price.sum())
    return np.flatnonzero(price > 0.1 * total) if total > RIDGE_TO_REPORT else np.empty(0, np.int64)
