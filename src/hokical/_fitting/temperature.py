"""The one fit of a temperature: by maximum likelihood, Newton's method with safeguards.

With margins d_i = top - z_i, the log loss is stationary in beta = 1/T where the mean margin of the
true class equals the mean margin that the softmax of beta z expects. The expected one falls with
beta, so there is one solution and its side is always known. Newton's method runs on the log of both
sides as a function of log beta, which is close to a straight line.
"""

from __future__ import annotations

import math

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import Solution, StopReason
from hokical._fitting.softmax_moments import moment_sums, softmax_moments
from hokical.rules._checks import LARGEST_TEMPERATURE

#: Temperatures are sought between these two unless others are given.
BOUNDS = (1e-5, 1e5)
#: Most passes over the examples.
MAX_ITER = 200
#: The last step's relative length. Newton squares the error, so what is left is about 1e-13.
TOLERANCE = 1e-6
#: Large fits start from the answer for evenly spaced rows, at least this many rows and logits.
_COARSE_ROWS, _COARSE_SIZE = 500, 10_000
#: A mean margin of the true class from which logits are huge.
_HUGE = 100.0
#: Longest step in log temperature: far from the solution the slope is no guide.
_LONGEST_STEP = 4.0


def best_temperature(
    examples: Examples,
    *,
    bounds: tuple[float, float] = BOUNDS,
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
        size = examples.n_rows * examples.logits.n_columns
        start, step = 1.0, min(examples.n_rows // _COARSE_ROWS, size // _COARSE_SIZE)
        some = examples.every(step) if step >= 4 else examples
        if some is not examples and some.counting.any() and some.mean_true_margin > 0.0:
            start = _search(some, start, bounds, tol).x
    found = _search(examples, start, bounds, tol)
    scale = examples.mean_true_margin
    if found.x < bounds[1] or bounds != BOUNDS or scale < _HUGE:
        return found
    # Not degenerate labels, as a rule, but huge logits: the bound goes with their scale.
    wide = bounds[0], min(bounds[1] * scale, LARGEST_TEMPERATURE)
    return _search(examples, found.x, wide, tol)


def base_temperature(examples: Examples, spread: float, reach: tuple[float, float]) -> float:
    """Where fits of more parameters start from and shrink to; near 1 if no temperature is best.

    It is sought between multiples of the `spread`, the typical difference of logits.
    """
    low, high = reach[0] * spread, min(reach[1] * spread, LARGEST_TEMPERATURE)
    found = best_temperature(examples, bounds=(low, high))
    if found.converged or found.x == high:
        return found.x
    return neutral_temperature(spread)


def neutral_temperature(spread: float) -> float:
    """1, kept within a factor of 1000 of the typical difference of logits."""
    return min(max(1.0, spread / 1e3), spread * 1e3)


def _search(
    examples: Examples, start: float, bounds: tuple[float, float], tol: float
) -> Solution[float]:
    """Newton's steps in s = log(1 / temperature) inside a bracket, which every step narrows."""
    lowest, highest = -math.log(bounds[1]), -math.log(bounds[0])
    low, high = -math.inf, math.inf
    at = following = min(max(-math.log(start), lowest), highest)
    value = math.inf
    for iteration in range(1, MAX_ITER + 1):
        at, beta = following, math.exp(following)
        log_sum, expected, variance = softmax_moments(examples, beta)
        observed = beta * examples.mean_true_margin
        value, step = log_sum + observed, _log_step(expected, observed, variance)
        if abs(step) <= tol:  # its effect is known to the third order
            slope = observed - expected
            value += step * (slope + 0.5 * step * (slope + variance))
            temperature = min(max(math.exp(-at - step), bounds[0]), bounds[1])
            return Solution(temperature, value, iteration, StopReason.CONVERGED)
        if step > 0.0 and at == highest:
            return Solution(bounds[0], value, iteration, StopReason.SMALLEST_TEMPERATURE)
        if step < 0.0 and at == lowest:
            return Solution(bounds[1], value, iteration, StopReason.LARGEST_TEMPERATURE)
        low, high = (at, high) if step > 0.0 else (low, at)
        following = min(max(at + step, lowest), highest)
        if not low < following < high:
            following = 0.5 * (low + high)
    return Solution(math.exp(-at), value, MAX_ITER, StopReason.MAX_ITER)


def _log_step(expected: float, observed: float, variance: float) -> float:
    """Newton's step in log beta towards expected = observed, both in units of 1/beta."""
    if observed == 0.0:  # all has underflowed: much too flat
        return _LONGEST_STEP
    if expected == 0.0:  # the softmax is all on the top class: much too sharp
        return -_LONGEST_STEP
    ahead = math.log(expected) - math.log(observed)  # their ratio might underflow
    if variance <= 0.0:  # rounded away, and only the side is known
        return math.copysign(_LONGEST_STEP, ahead)
    return min(max(ahead * (expected / variance), -_LONGEST_STEP), _LONGEST_STEP)


def sharpen_without_each(examples: Examples, temperature: float, part: float = 1.0) -> FloatArray:
    """What sharpens logits at the best temperature to that without each example, (n,).

    One Newton step in log(1 / temperature). If the rows are only a `part` of those fitted, each
    weighs that much less.
    """
    logits, beta = examples.logits, 1.0 / temperature
    zeroth, first, second = (logits.to_host(each) for each in moment_sums(logits, beta))
    mean = first / zeroth
    moments = np.stack([mean, examples.true_margins * beta, second / zeroth - mean * mean])
    weighted = examples.share * moments
    others = weighted.sum(axis=1, keepdims=True) - part * weighted
    expected, observed, variance = np.maximum(others, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # all others are right, or all sure
        steps = (np.log(expected) - np.log(observed)) * expected / variance
    return np.asarray(np.exp(np.clip(np.nan_to_num(steps), -_LONGEST_STEP, _LONGEST_STEP)))


def _fit_without_mistakes(examples: Examples, bounds: tuple[float, float]) -> Solution[float]:
    """Every label has the top logit: no temperature above 0 is best."""

    def differ(logits: Logits) -> Array:
        margins = logits.margins
        return logits.xp.any((margins > 0.0) & (margins < MAX_MARGIN), axis=1)

    temperature, reason = bounds[0], StopReason.NO_MISTAKES
    if not (per_row(differ, examples.logits) & examples.counting).any():
        temperature, reason = min(max(1.0, bounds[0]), bounds[1]), StopReason.EQUAL_LOGITS
    return Solution(temperature, softmax_moments(examples, 1.0 / temperature)[0], 2, reason)
