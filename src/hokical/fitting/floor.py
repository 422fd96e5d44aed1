"""A floor for probabilities, chosen together with the temperature by log loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hokical.core.arrays import Array
from hokical.core.blocks import by_blocks, per_row
from hokical.core.logits import Logits
from hokical.core.topk import TopK
from hokical.core.views import Views
from hokical.fitting.likelihood import CountedExamples, count_block, typical_spread
from hokical.fitting.partitions import Block, Partition, State
from hokical.fitting.temperature import TemperatureFit, best_temperature
from hokical.rules.floored import add_floor

#: What may be added to every probability, largest first; 0 leaves them as they are.
FLOORS = (1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12, 1e-15, 1e-20, 1e-30, 1e-60, 0.0)
#: The largest floor within this of the least log loss is taken, as zeros may still turn up.
AS_GOOD = 1e-9
#: Floors are compared on evenly spaced rows, at least this many rows and logits.
COMPARED_ROWS, COMPARED_SIZE = 1000, 1 << 14
#: Log losses need not be exact to be compared: the last step of each floor's temperature.
ROUGH_TOLERANCE = 1e-3
#: Temperatures are sought within these multiples of the spread of the logits, or of 1.
REACH = (1e-5, 1e5)
#: How far `from_probabilities` puts zeros below the top of their row; nothing is farther.
ZEROS_BELOW = (700.0, 745.0)


class FlooredPartition(Partition):
    """The same examples, their logits log(p + floor) where probabilities of 0 are among them.

    `floor` is chosen when the examples are first asked for, and stays 0 where they have no zeros,
    where a 0 is as good as any floor, and where they never are in memory all at once.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.n_classes, self.in_memory = partition.n_classes, partition.in_memory
        self.floor = 0.0
        self._block: Block | None = None

    def gather(self, who: str) -> Block:
        if self._block is None:
            block = self.partition.gather(who)
            if has_zeros(block.logits):
                self.floor = choose_floor(count_block(block))
            if self.floor > 0.0:
                logits = floor_all(block.logits, self.floor)
                block = Block(logits, block.labels, block.weights, block.first_row)
            self._block = block
        return self._block

    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        if self.in_memory:
            return work(self.gather(""))
        return self.partition.reduce(work, combine)

    def collect(self, work: Callable[[Block], State], row_bytes: int, who: str) -> State:
        if self.in_memory:
            return work(self.gather(who))
        return self.partition.collect(work, row_bytes, who)

    def require_passes(self, who: str) -> None:
        self.partition.require_passes(who)


def has_zeros(logits: Logits) -> bool:
    """Whether the logits are those of probabilities, some of them 0."""
    if isinstance(logits, (TopK, Views)):
        return False
    xp = logits.xp
    lowest, highest = float(xp.min(logits.values)), float(xp.max(logits.top))
    if lowest > -np.inf and highest - lowest < ZEROS_BELOW[0]:  # one quick pass tells, as a rule
        return False

    def farthest(block: Logits) -> Array:
        margins = block.margins
        return xp.max(xp.where(block.possible, margins, xp.zeros_like(margins)), axis=1)

    return bool(ZEROS_BELOW[0] <= per_row(farthest, logits).max() <= ZEROS_BELOW[1])


def choose_floor(examples: CountedExamples) -> float:
    """The floor of least log loss with its own temperature; 0 if no label is below the top."""
    if examples.mean_true_margin == 0.0:
        return 0.0
    return _choose_floor(examples, _find_bounds(examples)[1:])[0]


def floor_all(logits: Logits, floor: float) -> Logits:
    """Logits log(p + floor) (n, classes), computed block by block."""
    values = by_blocks(lambda block: add_floor(block, floor).values, logits)
    made = Logits(values, logits.xp.max(values, axis=1), logits.backend)
    made.__dict__["labels"] = logits.labels
    return made


def choose_base(examples: CountedExamples) -> tuple[float, TemperatureFit]:
    """The floor and its temperature of least log loss.

    Where the log loss falls down to temperature 0, as when every label has the top logit, the
    temperature is 1, kept within a factor of 1000 of the spread, and `converged` is False.
    """
    spread, low, high = _find_bounds(examples)
    if examples.mean_true_margin > 0.0:
        floor, start = _choose_floor(examples, (low, high))
        found = best_temperature(with_floor(examples, floor), bounds=(low, high), start=start)
    else:
        floor, found = 0.0, best_temperature(examples, bounds=(low, high))
    if found.converged or found.temperature == high:
        return floor, replace(found, converged=True)
    neutral = min(max(1.0, spread / 1e3), spread * 1e3)
    return floor, replace(found, temperature=neutral)


def _find_bounds(examples: CountedExamples) -> tuple[float, float, float]:
    """The spread of the logits, and the least and the greatest temperature."""
    spread = typical_spread(examples)
    return spread, REACH[0] * min(spread, 1.0), REACH[1] * max(spread, 1.0)


def _choose_floor(examples: CountedExamples, bounds: tuple[float, float]) -> tuple[float, float]:
    """The floor, and about its temperature; each temperature is sought from the one before."""
    step = min(examples.logits.n_rows // COMPARED_ROWS, examples.logits.size // COMPARED_SIZE)
    some = examples if step < 2 else examples.every(step)
    plain = with_floor(some if some.mean_true_margin > 0.0 else examples, 0.0)
    start, losses, temperatures = 1.0, [], []
    for floor in FLOORS:
        floored = with_floor(plain, floor)
        found = best_temperature(floored, bounds=bounds, tol=ROUGH_TOLERANCE, start=start)
        start = found.temperature
        losses.append(found.log_loss)
        temperatures.append(start)
    best = int(np.flatnonzero(np.array(losses) <= min(losses) + AS_GOOD)[0])
    return FLOORS[best], temperatures[best]


def with_floor(examples: CountedExamples, floor: float) -> CountedExamples:
    """The same examples with log(p + floor) for logits."""
    return CountedExamples(floor_all(examples.logits, floor), examples.labels, examples.weights)
