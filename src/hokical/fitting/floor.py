"""What structured scaling starts from: a floor for probabilities, chosen with the temperature."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hokical.core.arrays import Array
from hokical.core.blocks import by_blocks
from hokical.core.logits import Logits
from hokical.fitting.likelihood import CountedExamples, typical_spread
from hokical.fitting.temperature import (
    MAX_ITER,
    TOLERANCE,
    TemperatureFit,
    _search,
    best_temperature,
)
from hokical.rules.probabilities import log_probabilities
from hokical.rules.structured import smooth

#: What may be added to every probability, largest first; 0 leaves them as they are.
FLOORS = (1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12, 1e-15, 1e-20, 1e-30, 1e-60, 0.0)
#: The largest floor within this of the least log loss is taken, as zeros may still turn up.
AS_GOOD = 1e-9
#: Floors are compared on evenly spaced rows, at least this many rows and logits.
COMPARED_ROWS, COMPARED_SIZE = 1000, 1 << 17
#: Log losses need not be exact to be compared: the last step of each floor's temperature.
ROUGH_TOLERANCE = 1e-3
#: Temperatures are sought within these multiples of the spread of the logits, or of 1.
REACH = (1e-5, 1e5)


def choose_base(examples: CountedExamples) -> tuple[float, TemperatureFit]:
    """The floor and its temperature of least log loss.

    Where the log loss falls down to temperature 0, as when every label has the top logit, the
    temperature is 1, kept within a factor of 1000 of the spread, and `converged` is False.
    """
    spread = typical_spread(examples)
    low, high = REACH[0] * min(spread, 1.0), REACH[1] * max(spread, 1.0)
    if examples.mean_true_margin > 0.0:
        floor, start = _choose_floor(examples, (low, high))
        plain = _as_log_probabilities(examples)
        found = _search_from(start, _add_floor(plain, floor), (low, high), TOLERANCE)
    else:
        floor, found = 0.0, best_temperature(examples, bounds=(low, high))
    if found.converged or found.temperature == high:
        return floor, replace(found, converged=True)
    neutral = min(max(1.0, spread / 1e3), spread * 1e3)
    return floor, replace(found, temperature=neutral)


def _choose_floor(examples: CountedExamples, bounds: tuple[float, float]) -> tuple[float, float]:
    """The floor, and about its temperature; each temperature is sought from the one before."""
    step = min(examples.logits.n_rows // COMPARED_ROWS, examples.logits.size // COMPARED_SIZE)
    some = examples if step < 2 else examples.every(step)
    plain = _as_log_probabilities(some if some.mean_true_margin > 0.0 else examples)
    start, losses, temperatures = 1.0, [], []
    for floor in FLOORS:
        found = _search_from(start, _add_floor(plain, floor), bounds, ROUGH_TOLERANCE)
        start = found.temperature
        losses.append(found.log_loss)
        temperatures.append(start)
    best = int(np.flatnonzero(np.array(losses) <= min(losses) + AS_GOOD)[0])
    return FLOORS[best], temperatures[best]


def _search_from(
    start: float, examples: CountedExamples, bounds: tuple[float, float], tol: float
) -> TemperatureFit:
    return _search(examples, -math.log(start), bounds, MAX_ITER, tol)


def _as_log_probabilities(examples: CountedExamples) -> CountedExamples:
    """The same examples with log-probabilities for logits."""
    return _remade(examples, log_probabilities)


def _add_floor(examples: CountedExamples, floor: float) -> CountedExamples:
    """Examples with log(p + floor) for logits, from those with log p."""
    if floor == 0.0:
        return examples
    return _remade(examples, lambda block: smooth(block.values, floor, block.xp))


def _remade(examples: CountedExamples, work: Callable[[Logits], Array]) -> CountedExamples:
    """The same examples with other logits where they are possible."""

    def keep_masks(block: Logits) -> Array:
        return block.xp.where(block.possible, work(block), -block.xp.inf)

    logits = examples.logits
    values = by_blocks(keep_masks, logits)
    made = Logits(values, logits.xp.max(values, axis=1), logits.backend)
    return CountedExamples(made, examples.labels, examples.weights)
