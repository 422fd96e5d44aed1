"""The one fit of a temperature: alone, with a floor for probabilities, or in an ensemble.

It is found by Newton's method with safeguards. With margins d_i = top - z_i, the log loss is
stationary in beta = 1/T where the mean margin of the true class equals the mean margin that the
softmax of beta z expects. The expected one falls with beta, so there is one solution and its side
is always known. Newton's method runs on the log of both sides as a function of log beta, which is
close to a straight line.

Sums over classes are written once, for arrays of any library, and stay on the device of the logits;
sums over rows are made on the host, block after block, so that the number of threads changes no
result.

Ensemble temperature scaling has its authors' two steps: the temperature, then the weights. The
average is w_1 softmax(z / T) + w_2 softmax(z) + w_3 uniform. T minimises the mean squared error of
a = softmax(z / T) alone, |a - y|^2 = |a|^2 - 2 a_y + 1; that of the average is then convex in the
weights. With Z(b) = sum_k exp(-b d_k) over the margins d_k of a row, a_k is exp(-d_k / T) over Z(1
/ T), and the product of the softmaxes at b and c = 1 / T is Z(b + c) / (Z(b) Z(c)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hokical._core.arrays import Array, FloatArray
from hokical._core.checks import LARGEST_TEMPERATURE, LEAST_TEMPERATURE
from hokical._core.logits import MAX_MARGIN, Logits, per_row, sum_over_blocks
from hokical._core.special import FAR, row_dots, row_sums
from hokical._fitting.examples import ZEROS_BELOW, Examples, has_zeros, spaced_rows
from hokical._fitting.newton import Solution, StopReason, least_quadratic
from hokical.rules.base import LEAST, add_floor, log_probabilities

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


#: What may be added to probabilities where some are 0, largest first; 0 leaves them as they are.
_LEAST_FLOORS = (1e-10, 1e-12, 1e-15, 1e-20, 1e-30, 1e-60, 0.0)
ZERO_FLOORS = (1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, *_LEAST_FLOORS)
#: Where labels can be wrong as well: a share s of them at random is a floor of s / (1 - s) / k.
FLOORS = (0.3, 0.1, 3e-2, *ZERO_FLOORS)
#: How much likelier, in log-likelihood, such a floor must make all labels: few agree at random.
NOISE_EVIDENCE = 2.0
#: Where there are zeros, the largest floor within this of the least log loss is taken, as more may
#: turn up; elsewhere none, if that is as good, as it saves an exponential and a logarithm a class.
LOSS_TOLERANCE = 1e-9
#: A floor that changes the log loss by no more than this is as good as any below it: where there
#: are zeros, and elsewhere.
UNCHANGED, HARDLY_CHANGED = 1e-11, 1e-6
#: Floors are compared on a part of the rows, at least this many rows or logits.
COMPARED_ROWS, COMPARED_SIZE = 1000, 1 << 16
#: Log losses need not be exact to be compared: the last step of each floor's temperature.
ROUGH_TOLERANCE = 3e-2
#: The precision of the prior of log T for temperatures above 1, and below 1.
PRIOR = (1.0, 8.0)
#: Mean margins of logits outside of these shift the prior's centre.
USUAL_SPREADS = (0.1, 1000.0)
#: How much of an example the prior of a floor is.
ZERO_EXAMPLES = 0.05
#: The last step in log T of a temperature with a prior.
SHRUNK_TOLERANCE = 1e-3
#: Temperatures are sought within these multiples of the spread of the logits, or of 1.
REACH = (1e-5, 1e5)


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


def sharpen_without_each(
    examples: Examples, temperature: float, part: float = 1.0, *, centre: float | None = None
) -> FloatArray:
    """What sharpens logits at the best temperature to that without each example, (n,).

    One Newton step in log(1 / temperature). If the rows are only a `part` of those fitted, each
    weighs that much less. With a `centre`, there is the prior of `shrink_temperature`.
    """
    logits, beta = examples.logits, 1.0 / temperature
    zeroth, first, second = host_moments(logits, beta)
    mean = first / zeroth
    moments = np.stack([mean, examples.true_margins * beta, second / zeroth - mean * mean])
    weighted = examples.share * moments
    others = weighted.sum(axis=1, keepdims=True) - part * weighted
    expected, observed, variance = np.maximum(others, 0.0)
    if centre is not None:
        away = centre - math.log(temperature)
        pull = PRIOR[int(away > 0.0)] * part / examples.effective_size
        slopes = observed - expected + pull * away
        curvature = np.maximum(variance, 0.0) + pull
        return np.asarray(np.exp(np.clip(-slopes / curvature, -_LONGEST_STEP, _LONGEST_STEP)))
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


def choose_floor(examples: Examples) -> float:
    """The floor for zeros of least log loss; 0 if no label is below the top of its row."""
    some = _sample(examples)
    if some.mean_true_margin <= 0.0:
        return 0.0
    return _choose_floor(some, _find_bounds(some)[1:], ZERO_FLOORS, with_prior=False)[0]


def choose_floor_alone(examples: Examples) -> float:
    """The floor for zeros of least log loss of uncalibrated probabilities.

    Its prior is a part of an example whose true class has the probability 0.
    """
    some, losses = _sample(examples), []
    for floor in ZERO_FLOORS[:-1]:
        floored = with_floor(some, floor)
        loss = softmax_moments(floored, 1.0)[0] + floored.mean_true_margin
        losses.append(loss + _floor_price(floor, some))
    return ZERO_FLOORS[int(np.argmin(losses))]


def _floor_price(floor: float, examples: Examples) -> float:
    """Mean log loss that the prior of a floor adds."""
    share = max(floor, LEAST) / (1.0 + floor * examples.n_classes)
    return -ZERO_EXAMPLES / examples.effective_size * math.log(share)


@dataclass(frozen=True, eq=False)
class Base:
    """A floor and its temperature, and the examples with that floor in their logits.

    `optimism` is what the mean log loss would rise by if each example had no say in the floor, and
    `centre` that of the prior of log T.
    """

    floor: float
    temperature: Solution[float]
    examples: Examples
    optimism: float = 0.0
    centre: float = 0.0


def choose_base(examples: Examples, *, for_noise: bool = True, with_prior: bool = False) -> Base:
    """The floor and its temperature of least log loss.

    Floors are meant for zeros and, unless `for_noise` is False, for labels that can be wrong. Both
    can have the priors of `shrink_temperature` and of `choose_floor_alone`.
    """
    some, zeros = _sample(examples), has_zeros(examples.logits)
    spread, low, high = _find_bounds(some)
    floor, start, optimism = 0.0, None, 0.0
    if (zeros and with_prior) or (some.mean_true_margin > 0.0 and (zeros or for_noise)):
        found = _choose_floor(some, (low, high), FLOORS, zeros and with_prior)
        floor, start, optimism = found
    floored = with_floor(examples, floor)
    if with_prior:
        centre = _prior_centre(spread)
        return Base(floor, shrink_temperature(floored, start, centre), floored, optimism, centre)
    return Base(floor, base_temperature(floored, spread, (low, high), start), floored)


def _prior_centre(spread: float) -> float:
    """Of log T: 0, but for scores in other units, as similarities or huge ones."""
    least, largest = USUAL_SPREADS
    return min(0.0, math.log(spread / least)) + max(0.0, math.log(spread / largest))


def shrink_temperature(
    examples: Examples, start: float | None = None, centre: float | None = None
) -> Solution[float]:
    """The temperature of least log loss, with a normal prior of log T about a centre.

    From the temperature without a prior, if there is one: by Fisher scoring in s = -log T, within a
    bracket. The centre follows from the spread of the logits by default.
    """
    centre = _prior_centre(typical_spread(examples)) if centre is None else centre
    found, n_examples = best_temperature(examples, start=start), examples.effective_size
    at = -math.log(found.x) if found.converged else -centre
    low, high = -math.log(LARGEST_TEMPERATURE), -math.log(LEAST_TEMPERATURE)
    n_iter, step = found.n_iter, math.inf
    while abs(step) > SHRUNK_TOLERANCE and n_iter < found.n_iter + MAX_ITER:
        n_iter += 1
        log_sum, expected, variance = softmax_moments(examples, math.exp(at))
        observed, away = math.exp(at) * examples.mean_true_margin, at + centre
        pull = PRIOR[int(away > 0.0)] / n_examples
        value, slope = log_sum + observed, observed - expected + pull * away
        low, high = (low, at) if slope > 0.0 else (at, high)
        step = min(max(-slope / (max(variance, 0.0) + pull), -_LONGEST_STEP), _LONGEST_STEP)
        following = at + step if low < at + step < high else 0.5 * (low + high)
        step, at = following - at, following
    reason = StopReason.CONVERGED if abs(step) <= SHRUNK_TOLERANCE else StopReason.MAX_ITER
    temperature = min(max(math.exp(-at), LEAST_TEMPERATURE), LARGEST_TEMPERATURE)
    return Solution(temperature, value, n_iter, reason)


def _find_bounds(examples: Examples) -> tuple[float, float, float]:
    """The spread of the logits, and the least and the greatest temperature."""
    spread = typical_spread(examples)
    low, high = REACH[0] * min(spread, 1.0), REACH[1] * max(spread, 1.0)
    return spread, max(low, LEAST_TEMPERATURE), min(high, LARGEST_TEMPERATURE)


def _choose_floor(
    some: Examples, bounds: tuple[float, float], floors: tuple[float, ...], with_prior: bool
) -> tuple[float, float, float]:
    """The floor, about its temperature, and its optimism where it has a prior.

    Each temperature is sought from the one before.

    0 is tried first, and then floors as long as they change something.
    """
    logits, n_examples = some.logits, some.effective_size
    zeros = has_zeros(logits)
    unchanged = UNCHANGED if zeros else HARDLY_CHANGED
    xp, possible = logits.xp, logits.possible
    log_p = log_probabilities(logits)
    p = xp.exp(log_p)
    start, losses, temperatures = 1.0, np.full(len(floors), np.inf), np.ones(len(floors))
    last, rows = len(floors) - 1, np.zeros((len(floors), some.n_rows if with_prior else 0))
    for place in (last, *range(last)):
        floor = floors[place]
        values = xp.where(possible, xp.log(p + floor) if floor > 0.0 else log_p, -xp.inf)
        floored = replace(some, logits=Logits(values, xp.max(values, axis=1), logits.backend))
        if with_prior:
            found = shrink_temperature(floored, start, 0.0)
            sums = host_moments(floored.logits, 1.0 / found.x)[0]
            rows[place] = np.log(sums) + floored.true_margins / found.x
        else:
            found = best_temperature(floored, bounds=bounds, tol=ROUGH_TOLERANCE, start=start)
        for_labels = floor > (ZERO_FLOORS[0] if zeros else 0.0)
        price = NOISE_EVIDENCE / n_examples if for_labels else 0.0
        price += _floor_price(floor, some) if with_prior else 0.0
        losses[place], temperatures[place] = found.value + price, found.x
        start = found.x
        if place < last and abs(losses[place] - losses[last]) <= unchanged:
            losses[place:], temperatures[place:] = losses[last], temperatures[last]
            rows[place:] = rows[last]
            break
    best = int(np.flatnonzero(losses <= losses.min() + LOSS_TOLERANCE)[0])
    if losses[last] <= losses[best] + LOSS_TOLERANCE and not zeros:
        best = last
    optimism = 0.0
    if with_prior:
        others = np.argmin(losses[:, None] - some.share * rows, axis=0)
        optimism = float(some.share @ (rows[others, np.arange(some.n_rows)] - rows[best]))
    return floors[best], float(temperatures[best]), optimism


def _sample(examples: Examples) -> Examples:
    """Evenly spaced rows, and all whose true class has a probability of 0: those are expensive."""
    n_rows = examples.logits.n_rows
    step = min(n_rows // COMPARED_ROWS, n_rows * examples.n_classes // COMPARED_SIZE)
    if step < 2:
        return examples
    costly = examples.true_margins >= ZEROS_BELOW[0]
    taken = costly.copy()
    taken[spaced_rows(0, n_rows, step)] = True
    rows = np.flatnonzero(taken)
    weights = examples.counts[rows] * np.where(costly[rows], 1.0, float(step))
    return replace(examples.take(rows), weights=weights)


def with_floor(examples: Examples, floor: float) -> Examples:
    """The same examples with log(p + floor) for logits; themselves where the floor is 0."""
    if floor == 0.0:
        return examples
    return replace(examples, logits=add_floor(examples.logits, floor))


#: Distances, in log temperature, from that of least log loss at which the squared error is looked
#: at until its nearest minimum is bracketed; and the width of differences that give its slope.
_DISTANCES, _WIDTH = (0.1, 0.3, 1.0, 3.0), 1e-4


def fit_ensemble(examples: Examples) -> tuple[Solution[float], FloatArray]:
    """The temperature, with the squared error of the average as its value, and the weights (3,)."""
    found = best_temperature(examples)
    if found.converged:
        found = _least_squared_error(examples, found)
    true, gram = _compare_parts(examples, 1.0 / found.x)
    mean, weights = examples.share @ true, np.eye(3)[0]
    if examples.mean_true_margin > 0.0:  # without a mistake, the sharpest softmax is best
        weights = least_quadratic(-2.0 * mean, 2.0 * gram)
    value = float(1.0 + weights @ gram @ weights - 2.0 * mean @ weights)
    return replace(found, value=value), weights


def _least_squared_error(examples: Examples, found: Solution[float]) -> Solution[float]:
    """The temperature of least mean squared error next to that of least log loss.

    If the error falls for long, that of least log loss is kept.
    """
    from scipy.optimize import brentq

    start = math.log(found.x)
    here = _slope(start, examples)
    # As an argument, not in a closure: SciPy's wrapper of a function is freed only by collection.
    options = {"args": (examples,), "xtol": 1e-10, "full_output": True}
    for distance in _DISTANCES:
        end = start - math.copysign(distance, here)
        if _slope(end, examples) * here < 0.0:
            root, report = brentq(_slope, start, end, **options)
            return replace(found, x=math.exp(root), n_iter=found.n_iter + report.function_calls)
    return found


def _slope(log_temperature: float, examples: Examples) -> float:
    """The difference of mean squared errors at two temperatures close by."""
    after, before = (_error(log_temperature + step, examples) for step in (_WIDTH, -_WIDTH))
    return after - before


def _error(log_temperature: float, examples: Examples) -> float:
    """The mean squared error of the softmax at a temperature, less 1."""
    beta = math.exp(-log_temperature)
    total, square = (_sums(examples, b) for b in (beta, 2.0 * beta))
    true = np.exp(-beta * examples.true_margins) / total
    return float(examples.share @ (square / total**2 - 2.0 * true))


def _compare_parts(examples: Examples, beta: float) -> tuple[FloatArray, FloatArray]:
    """Probabilities (n, 3) of the true classes, and mean inner products (3, 3).

    Of the three distributions over the classes of each row: scaled, plain and uniform.
    """
    margins = examples.true_margins
    a, b, aa, ab, bb = (_sums(examples, each) for each in (beta, 1.0, 2.0 * beta, beta + 1.0, 2.0))
    even = 1.0 / per_row(lambda block: block.possible_counts, examples.logits)
    true = np.stack([np.exp(-margins * beta) / a, np.exp(-margins) / b, even], axis=1)
    rows = (aa / a**2, ab / (a * b), bb / b**2, even)
    first, mixed, second, uniform = (float(examples.share @ row) for row in rows)
    # Any distribution over the possible classes has the same product with the uniform one.
    gram = [[first, mixed, uniform], [mixed, second, uniform], [uniform, uniform, uniform]]
    return np.maximum(true, LEAST), np.array(gram)


def _sums(examples: Examples, beta: float) -> FloatArray:
    """Z(beta) of each row, (n,)."""
    return per_row(lambda block: moment_sums(block, beta)[0], examples.logits)
