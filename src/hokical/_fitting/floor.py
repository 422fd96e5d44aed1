"""A floor for probabilities, chosen together with the temperature by log loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hokical._core.logits import Logits
from hokical._fitting.examples import ZEROS_BELOW, Examples, has_zeros, spaced_rows
from hokical._fitting.newton import Solution
from hokical._fitting.temperature import base_temperature, best_temperature, typical_spread
from hokical.rules._checks import LARGEST_TEMPERATURE, LEAST_TEMPERATURE
from hokical.rules._probabilities import add_floor, log_probabilities

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
#: Temperatures are sought within these multiples of the spread of the logits, or of 1.
REACH = (1e-5, 1e5)


def choose_floor(examples: Examples) -> float:
    """The floor for zeros of least log loss; 0 if no label is below the top of its row."""
    some = _sample(examples)
    if some.mean_true_margin <= 0.0:
        return 0.0
    return _choose_floor(some, _find_bounds(some)[1:], ZERO_FLOORS)[0]


@dataclass(frozen=True, eq=False)
class Base:
    """A floor and its temperature, and the examples with that floor in their logits."""

    floor: float
    temperature: Solution[float]
    examples: Examples


def choose_base(examples: Examples, *, for_noise: bool = True) -> Base:
    """The floor and its temperature of least log loss.

    Floors are meant for zeros and, unless `for_noise` is False, for labels that can be wrong.
    """
    some = _sample(examples)
    spread, low, high = _find_bounds(some)
    floor, start = 0.0, None
    if some.mean_true_margin > 0.0 and (for_noise or has_zeros(examples.logits)):
        floor, start = _choose_floor(some, (low, high), FLOORS)
    floored = with_floor(examples, floor)
    return Base(floor, base_temperature(floored, spread, (low, high), start), floored)


def _find_bounds(examples: Examples) -> tuple[float, float, float]:
    """The spread of the logits, and the least and the greatest temperature."""
    spread = typical_spread(examples)
    low, high = REACH[0] * min(spread, 1.0), REACH[1] * max(spread, 1.0)
    return spread, max(low, LEAST_TEMPERATURE), min(high, LARGEST_TEMPERATURE)


def _choose_floor(
    some: Examples, bounds: tuple[float, float], floors: tuple[float, ...]
) -> tuple[float, float]:
    """The floor, and about its temperature; each temperature is sought from the one before.

    0 is tried first, and then floors as long as they change something.
    """
    logits, n_examples = some.logits, some.effective_size
    zeros = has_zeros(logits)
    unchanged = UNCHANGED if zeros else HARDLY_CHANGED
    xp, possible = logits.xp, logits.possible
    log_p = log_probabilities(logits)
    p = xp.exp(log_p)
    start, losses, temperatures = 1.0, np.full(len(floors), np.inf), np.ones(len(floors))
    last = len(floors) - 1
    for place in (last, *range(last)):
        floor = floors[place]
        values = xp.where(possible, xp.log(p + floor) if floor > 0.0 else log_p, -xp.inf)
        floored = replace(some, logits=Logits(values, xp.max(values, axis=1), logits.backend))
        found = best_temperature(floored, bounds=bounds, tol=ROUGH_TOLERANCE, start=start)
        price = NOISE_EVIDENCE / n_examples if floor > ZERO_FLOORS[0] else 0.0
        losses[place], temperatures[place] = found.value + price, found.x
        start = found.x
        if place < last and abs(losses[place] - losses[last]) <= unchanged:
            losses[place:], temperatures[place:] = losses[last], temperatures[last]
            break
    best = int(np.flatnonzero(losses <= losses.min() + LOSS_TOLERANCE)[0])
    if losses[last] <= losses[best] + LOSS_TOLERANCE and not zeros:
        best = last
    return floors[best], float(temperatures[best])


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
