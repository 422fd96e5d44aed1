"""Newton's method with safeguards, for convex functions of many numbers, and of one number."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, TypeVar

import numpy as np

from hokical.core.types import FloatArray

Evaluation = tuple[float, FloatArray, FloatArray]
Found = TypeVar("Found")

#: Twice the drop in value that the last step promises. What is left after it is the square.
_TOLERANCE = 1e-12
#: Largest slope at a minimum, by parameters in units that mean something.
_FLAT = 1e-4
_ENOUGH_DROP = 1e-4
_MAX_HALVINGS = 40
#: What is added to a Hessian of unit diagonal until it is positive (Levenberg, Marquardt).
_DAMPINGS = (0.0, *(10.0**k for k in range(-14, 3, 2)))


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where the search ended, (p,), and how; what was known there, and a preconditioner, if any."""

    x: FloatArray
    value: float
    n_iter: int
    converged: bool
    point: Any = None
    precondition: Any = None


def minimize_convex(
    evaluate: Callable[[FloatArray], Evaluation],
    start: FloatArray,
    max_iter: int,
    tol: float = _TOLERANCE,
) -> Minimum:
    """Minimise a function that gives its value, gradient (p,) and Hessian (p, p).

    Every value is one that was evaluated. The Hessian is overwritten, and let go before the next.
    It has converged where the Hessian was factorised as it is and promises next to nothing.
    """
    x, here = start, evaluate(start)
    for iteration in range(1, max_iter + 1):
        value, gradient, hessian = here
        step, damped = _solve(hessian, gradient)
        del here, hessian
        promise = -float(gradient @ step)
        if not 0.0 <= promise < math.inf:  # uphill, or not a number
            return Minimum(x, value, iteration, False)
        if promise <= tol:
            last, gradient, _ = evaluate(x + step)
            # Rounding may hide what little the step gains; a real rise shows that all is rounding.
            if not last <= value + _TOLERANCE * max(1.0, abs(value)):
                return Minimum(x, value, iteration, False)
            # Near a kink the curvature is so high that even a steep way down promises nothing.
            flat = bool(np.abs(gradient).max() <= _FLAT)
            return Minimum(x + step, last, iteration, flat and not damped)
        found = search_line(evaluate, itemgetter(0), x, step, (value, promise))
        if found is None:
            return Minimum(x, value, iteration, False)
        x, here = found
        del found
    return Minimum(x, here[0], max_iter, False)


def search_line(
    evaluate: Callable[[FloatArray], Found],
    value_of: Callable[[Found], float],
    x: FloatArray,
    step: FloatArray,
    enough: tuple[float, float],
) -> tuple[FloatArray, Found] | None:
    """The first of whole, half, quarter ... steps that lowers the value enough, evaluated.

    `enough` is the value that a step of length 0 must not exceed, and what a whole one promises.
    """
    limit, promise = enough
    for halvings in range(_MAX_HALVINGS):
        length = 0.5**halvings
        found = evaluate(x + length * step)
        if value_of(found) <= limit - _ENOUGH_DROP * length * promise:
            return x + length * step, found
    return None


def _solve(hessian: FloatArray, gradient: FloatArray) -> tuple[FloatArray, bool]:
    """Newton's step (p,), and whether the Hessian had to be damped to be positive.

    Parameters are measured in units in which the Hessian's diagonal is 1: their curvatures can
    differ by more than floats can hold. The Hessian is overwritten; the step is nan if it has no
    positive diagonal.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    diagonal = np.diagonal(hessian).copy()
    if not (np.isfinite(hessian.sum()) and diagonal.min() > 0.0):
        return np.full(gradient.size, np.nan), True
    unit = 1.0 / np.sqrt(diagonal)
    hessian *= unit[:, None]
    hessian *= unit
    for damping in _DAMPINGS:
        hessian.flat[:: unit.size + 1] = 1.0 + damping
        try:
            factor = cho_factor(hessian, lower=True, check_finite=False)
        except LinAlgError:  # not positive beyond rounding
            continue
        return -unit * cho_solve(factor, unit * gradient, check_finite=False), damping > 0.0
    return np.full(gradient.size, np.nan), True


@dataclass(frozen=True)
class Point:
    """A function of one number at `at`, with Newton's step from there, which goes downhill."""

    at: float
    value: float
    slope: float
    curvature: float
    step: float
    done: bool  # the step is so short that no other need follow

    @property
    def value_after_step(self) -> float:
        """The value where the step leads, to the third order of a step that is tiny."""
        return self.value + self.step * (self.slope + 0.5 * self.step * self.curvature)


@dataclass(frozen=True)
class Descent:
    """The last point of a search, and whether it stopped there, at an end, or for lack of time."""

    point: Point
    n_iter: int
    ending: Literal["converged", "low", "high", "limit"]


def descend(
    evaluate: Callable[[float], Point],
    start: float,
    ends: tuple[float, float],
    max_iter: int,
) -> Descent:
    """A stationary point between two ends, by steps inside a bracket that every one narrows."""
    bracket = (-math.inf, math.inf)
    best: Point | None = None
    at = min(max(start, ends[0]), ends[1])
    for iteration in range(1, max_iter + 1):
        point = evaluate(at)
        if best is not None and _is_beyond_a_hump(point, best):
            bracket = (bracket[0], at) if at > best.at else (at, bracket[1])
            at = 0.5 * (best.at + at)
            continue
        best = point
        up = point.step > 0.0
        if point.done:
            return Descent(point, iteration, "converged")
        if at == ends[up]:
            return Descent(point, iteration, "high" if up else "low")
        bracket = (at, bracket[1]) if up else (bracket[0], at)
        at = min(max(at + point.step, ends[0]), ends[1])
        if not bracket[0] < at < bracket[1]:
            at = 0.5 * (bracket[0] + bracket[1])
    assert best is not None
    return Descent(best, max_iter, "limit")


def _is_beyond_a_hump(point: Point, best: Point) -> bool:
    """Whether a point is higher than the best one and does not lead back to it either.

    Never so for a convex function.
    """
    higher = point.value > best.value + 1e-12 * max(1.0, abs(best.value))
    return higher and (best.at - point.at) * point.step <= 0.0
