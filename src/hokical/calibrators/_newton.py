"""Newton's method with a safety belt: for convex functions of many numbers, and of one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

FloatArray = NDArray[np.float64]
Evaluation = tuple[float, FloatArray, FloatArray]

#: Twice the drop in value that the last step promises. What is left after it is the square.
_TOLERANCE = 1e-12
_ENOUGH_DROP = 1e-4
_MAX_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where the search ended, (p,), and how."""

    x: FloatArray
    value: float
    n_iterations: int
    converged: bool


def minimize_convex(
    evaluate: Callable[[FloatArray], Evaluation], start: FloatArray, max_iterations: int
) -> Minimum:
    """Minimise a function that gives its value, gradient (p,) and Hessian (p, p)."""
    x, here = start, evaluate(start)
    for iteration in range(1, max_iterations + 1):
        value, gradient, hessian = here
        step = -_solve(hessian, gradient)
        promise = -float(gradient @ step)
        if promise <= _TOLERANCE:
            return Minimum(x + step, value - 0.5 * max(promise, 0.0), iteration, True)
        length, found = _search_line(evaluate, x, step, value, promise)
        if found is None:
            return Minimum(x, value, iteration, False)
        x, here = x + length * step, found
    return Minimum(x, here[0], max_iterations, False)


def _search_line(
    evaluate: Callable[[FloatArray], Evaluation],
    x: FloatArray,
    step: FloatArray,
    value: float,
    promise: float,
) -> tuple[float, Evaluation | None]:
    """The first of 1, 1/2, 1/4, ... steps that lowers the value enough, evaluated."""
    length = 1.0
    for _ in range(_MAX_HALVINGS):
        found = evaluate(x + length * step)
        if found[0] <= value - _ENOUGH_DROP * length * promise:
            return length, found
        length *= 0.5
    return 0.0, None


def _solve(hessian: FloatArray, gradient: FloatArray) -> FloatArray:
    try:
        return np.asarray(cho_solve(cho_factor(hessian, lower=True), gradient))
    except LinAlgError:  # not positive beyond rounding: take the part that is
        return np.asarray(np.linalg.lstsq(hessian, gradient, rcond=1e-14)[0])


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
    n_iterations: int
    ending: Literal["converged", "low", "high", "limit"]


def descend(
    evaluate: Callable[[float], Point],
    start: float,
    ends: tuple[float, float],
    max_iterations: int,
) -> Descent:
    """A stationary point between two ends, by steps inside a bracket that every one narrows."""
    bracket = (-math.inf, math.inf)
    best: Point | None = None
    at = min(max(start, ends[0]), ends[1])
    for iteration in range(1, max_iterations + 1):
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
    return Descent(best, max_iterations, "limit")


def _is_beyond_a_hump(point: Point, best: Point) -> bool:
    """Whether a point is higher than the best one and does not lead back to it either.

    Never so for a convex function.
    """
    higher = point.value > best.value + 1e-12 * max(1.0, abs(best.value))
    return higher and (best.at - point.at) * point.step <= 0.0
