"""The one fit of a temperature: by maximum likelihood, Newton's method with safeguards.

With margins d_i = top - z_i, the log loss is stationary in beta = 1/T where the mean margin of the
true class equals the mean margin that the softmax of beta z expects. The expected one falls with
beta, so there is one solution and its side is always known. Newton's method runs on the log of both
sides as a function of log beta, which is close to a straight line.

Sums over classes are written once, for arrays of any library, and stay on the device of the logits;
sums over rows are made on the host, block after block, so that the number of threads changes no
result.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row, sum_over_blocks
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.special import FAR, row_dots, row_sums
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import Solution, StopReason
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
#: A median is where this share is reached: the same one, whatever the rounding.
_BARELY_HALF = 0.5 - 1e-9


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


def base_temperature(
    examples: Examples, spread: float, bounds: tuple[float, float], start: float | None = None
) -> Solution[float]:
    """Where fits of more parameters start from and shrink to.

    Where the log loss falls down to temperature 0, as when every label has the top logit, it is 1,
    kept within a factor of 1000 of the `spread`, the typical difference of logits, and has not
    converged.
    """
    found = best_temperature(examples, bounds=bounds, start=start)
    if found.converged or found.x == bounds[1]:
        return replace(found, reason=StopReason.CONVERGED)
    neutral = min(max(1.0, spread / 1e3), spread * 1e3)
    return replace(found, x=min(max(neutral, bounds[0]), bounds[1]))


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
    zeroth, first, second = host_moments(logits, beta)
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


def typical_spread(examples: Examples) -> float:
    """Weighted median over examples of the mean margin of the possible classes, or 1 if all are 0.

    A median, so that a few examples with extreme logits do not set the units for all.
    """

    def mean_margins(block: Logits) -> Array:
        xp, possible = block.xp, block.possible
        total = xp.sum(xp.where(possible, block.margins, xp.zeros_like(block.margins)), axis=1)
        return total / xp.sum(xp.astype(possible, xp.float64), axis=1)

    found = per_row(mean_margins, examples.logits)
    rows = np.flatnonzero((found > 0.0) & examples.counting)
    if rows.size == 0:
        return 1.0
    rows = rows[np.argsort(found[rows])]
    reached = np.cumsum(examples.share[rows])
    middle = int(np.searchsorted(reached, _BARELY_HALF * reached[-1]))
    return float(found[rows[middle]])


def softmax_moments(examples: Examples, beta: float) -> tuple[float, float, float]:
    """Weighted means of three numbers per row, for the softmax of beta z.

    With scaled margins x_i = beta (top - z_i): the log of sum_i exp(-x_i), and the mean and the
    variance of x under the softmax.
    """

    def work(rows: slice, block: Logits) -> FloatArray:
        zeroth, first, second = host_moments(block, beta)
        mean = first / zeroth
        three = np.stack([np.log(zeroth), mean, second / zeroth - mean * mean])
        return np.asarray(np.sum(three * examples.share[rows], axis=1))

    log_sum, mean, variance = sum_over_blocks(examples.logits, work).tolist()
    return log_sum, mean, variance


def host_moments(logits: Logits, beta: Array | float) -> FloatArray:
    """`moment_sums` (3, n) on the host."""
    return np.asarray(logits.to_host(logits.xp.stack(list(moment_sums(logits, beta)))))


def moment_sums(logits: Logits, beta: Array | float) -> tuple[Array, Array, Array]:
    """sum_i x_i^r exp(-x_i) for r = 0, 1, 2 of each row, three arrays (n,), columns and tail.

    x_i are the margins times `beta`, a number or one for each row (n,).
    """
    xp, tail = logits.xp, logits.tail
    by_row = beta if isinstance(beta, float) else beta[:, None]
    minus_x = logits.margins * -by_row  # finite, and so is its product with exp(-x) = 0
    term = xp.exp(minus_x)
    zeroth = row_sums(term, xp)
    term *= minus_x
    first, second = -row_sums(term, xp), row_dots(term, minus_x, xp)
    if tail is None:
        return zeroth, first, second
    x = xp.clip(tail.margin * beta, None, FAR)
    term = tail.count * xp.exp(-x)
    return zeroth + term, first + x * term, second + x * x * term
