"""The one fit of a temperature: by maximum likelihood, Newton's method with safeguards.

With margins d_i = top - z_i, the log loss is stationary in beta = 1/T where the mean margin of the
true class equals the mean margin that the softmax of beta z expects. The expected one falls with
beta, so there is one solution and its side is always known. Newton's method runs on the log of both
sides as a function of log beta, which is close to a straight line.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.types import FloatArray
from hokical._fitting.descent import Point, descend
from hokical._fitting.likelihood import WeightedExamples, softmax_moments
from hokical._fitting.solution import Solution, StopReason
from hokical.rules._checks import LARGEST_TEMPERATURE, LEAST_TEMPERATURE

#: Temperatures are sought between these two unless others are given.
BOUNDS = (1e-5, 1e5)
#: Most passes over the examples unless told otherwise.
MAX_ITER = 200
#: The last step's relative length. Newton squares the error, so what is left is about 1e-13.
TOLERANCE = 1e-6
#: A mean margin of the true class from which logits are huge.
_HUGE = 100.0
#: Longest step in log temperature: far from the solution the slope says little.
_LONGEST_STEP = 4.0


def best_temperature(
    examples: WeightedExamples,
    *,
    bounds: tuple[float, float] = BOUNDS,
    max_iter: int = MAX_ITER,
    tol: float = TOLERANCE,
    start: float | None = None,
) -> Solution[float]:
    """The temperature of least log loss (nats); a search that did not converge is returned as such.

    The last step is at most `tol` long, relative to the temperature; as Newton's method squares
    the error, about a tenth of its square is left. The search begins at the temperature `start`;
    without one, at that of evenly spaced examples if there are many, else at 1.
    """
    if examples.mean_true_margin == 0.0:
        return _fit_without_mistakes(examples, bounds)
    if start is None:
        start, coarse = 1.0, examples.coarse()
        if coarse is not None and coarse.mean_true_margin > 0.0:
            start = _search(coarse, start, bounds, max_iter, tol).x
    found = _search(examples, start, bounds, max_iter, tol)
    scale = examples.mean_true_margin
    if found.x < bounds[1] or bounds != BOUNDS or scale < _HUGE:
        return found
    # Not hopeless labels, as a rule, but huge logits: the bound goes with their scale.
    wide = bounds[0], min(bounds[1] * scale, LARGEST_TEMPERATURE)
    return _search(examples, found.x, wide, max_iter, tol)


def base_temperature(
    examples: WeightedExamples, spread: float, reach: tuple[float, float]
) -> float:
    """Where fits of more parameters start from and shrink to; near 1 if no temperature is best.

    It is sought between multiples of the `spread`, the typical difference of logits.
    """
    low, high = reach[0] * spread, min(reach[1] * spread, LARGEST_TEMPERATURE)
    found = best_temperature(examples, bounds=(low, high))
    if found.converged or found.x == high:
        return found.x
    return min(max(1.0, spread / 1e3), spread * 1e3)


def check_bounds(bounds: Any) -> tuple[float, float]:
    """The two bounds on the temperature, checked."""
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not LEAST_TEMPERATURE <= low < high <= LARGEST_TEMPERATURE:
        raise ValueError(
            f"`bounds` must be two temperatures from {LEAST_TEMPERATURE:g} to "
            f"{LARGEST_TEMPERATURE:g}, the smaller first; got {bounds!r}. The default is {BOUNDS}."
        )
    return low, high


def _search(
    examples: WeightedExamples, start: float, bounds: tuple[float, float], max_iter: int, tol: float
) -> Solution[float]:
    found = descend(partial(_evaluate, examples, tol), start, bounds, max_iter)
    if not found.converged:
        return found
    point = found.point
    temperature = min(max(math.exp(-point.at - point.step), bounds[0]), bounds[1])
    return replace(found, x=temperature, value=point.value_after_step)


def _evaluate(examples: WeightedExamples, tol: float, log_beta: float) -> Point:
    """The log loss at log beta, and the step towards equal margins."""
    beta = math.exp(log_beta)
    log_sum, expected, variance = softmax_moments(examples, beta)
    observed = beta * examples.mean_true_margin
    slope = observed - expected
    step = log_step(expected, observed, variance)
    done = abs(step) <= tol
    return Point(log_beta, log_sum + observed, slope, slope + variance, step, done)


def log_step(expected: float, observed: float, variance: float) -> float:
    """Newton's step in log beta towards expected = observed, both in units of 1/beta."""
    if observed == 0.0:  # all has underflowed: much too flat
        return _LONGEST_STEP
    if expected == 0.0:  # the softmax is all on the top class: much too sharp
        return -_LONGEST_STEP
    ahead = math.log(expected) - math.log(observed)  # their ratio might underflow
    if variance <= 0.0:  # rounded away, and only the side is known
        return math.copysign(_LONGEST_STEP, ahead)
    return min(max(ahead * (expected / variance), -_LONGEST_STEP), _LONGEST_STEP)


def steps_without_each(moments: FloatArray, weights: FloatArray, share: float = 1.0) -> FloatArray:
    """What sharpens logits at the best temperature to that without each example, (n,).

    `moments` (3, n) are the expected and the true margin and the variance of each, weighed by
    (n,) numbers that sum to 1; if the rows are only a part of those fitted, they are a `share`. One
    Newton step in log(1 / temperature) towards equal margins.
    """
    weighted = weights * moments
    others = weighted.sum(axis=1, keepdims=True) - share * weighted
    expected, observed, variance = np.maximum(others, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # all others are right, or all sure
        steps = (np.log(expected) - np.log(observed)) * expected / variance
    return np.asarray(np.exp(np.clip(np.nan_to_num(steps), -_LONGEST_STEP, _LONGEST_STEP)))


def _fit_without_mistakes(
    examples: WeightedExamples, bounds: tuple[float, float]
) -> Solution[float]:
    """Every label has the top logit: no temperature above 0 is best."""
    temperature, reason = bounds[0], StopReason.NO_MISTAKES
    if not _differing_rows(examples).any():
        temperature, reason = min(max(1.0, bounds[0]), bounds[1]), StopReason.EQUAL_LOGITS
    return Solution(temperature, softmax_moments(examples, 1.0 / temperature)[0], 2, reason)


def _differing_rows(examples: WeightedExamples) -> FloatArray:
    """1 if two possible classes of an example that counts have different logits, else 0, (1,)."""

    def differ(logits: Logits) -> Array:
        margins = logits.margins
        return logits.xp.any((margins > 0.0) & (margins < MAX_MARGIN), axis=1)

    rows = per_row(differ, examples.logits)
    return np.array([float((rows & (examples.weights > 0.0)).any())])
