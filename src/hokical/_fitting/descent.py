"""A search downhill over one number, the temperature, by Newton's steps inside a bracket.

It runs on s = log(1/temperature), in which losses are smooth and steps have a sensible length.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from hokical._fitting.solution import Solution, StopReason


@dataclass(frozen=True)
class Point:
    """A loss at s = `at`, with Newton's step from there, which goes downhill."""

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


def descend(
    evaluate: Callable[[float], Point], start: float, bounds: tuple[float, float], max_iter: int
) -> Solution[float]:
    """A stationary temperature between two bounds, from a `start`; every step narrows the bracket.

    `point` is the last one that was evaluated.
    """
    ends = (-math.log(bounds[1]), -math.log(bounds[0]))
    bracket = (-math.inf, math.inf)
    best: Point | None = None
    at = min(max(-math.log(start), ends[0]), ends[1])
    for iteration in range(1, max_iter + 1):
        point = evaluate(at)
        if best is not None and _is_beyond_a_hump(point, best):
            bracket = (bracket[0], at) if at > best.at else (at, bracket[1])
            at = 0.5 * (best.at + at)
            continue
        best = point
        up = point.step > 0.0
        if point.done:
            return Solution(math.exp(-at), point.value, iteration, StopReason.CONVERGED, point)
        if at == ends[up]:
            reason = StopReason.SMALLEST_TEMPERATURE if up else StopReason.LARGEST_TEMPERATURE
            return Solution(bounds[not up], point.value, iteration, reason, point)
        bracket = (at, bracket[1]) if up else (bracket[0], at)
        at = min(max(at + point.step, ends[0]), ends[1])
        if not bracket[0] < at < bracket[1]:
            at = 0.5 * (bracket[0] + bracket[1])
    assert best is not None
    return Solution(math.exp(-best.at), best.value, max_iter, StopReason.MAX_ITER, best)


def _is_beyond_a_hump(point: Point, best: Point) -> bool:
    """Whether a point is higher than the best one and does not lead back to it either.

    Never so for a convex function.
    """
    higher = point.value > best.value + 1e-12 * max(1.0, abs(best.value))
    return higher and (best.at - point.at) * point.step <= 0.0
