"""What every fit notes about its examples, along with its first reduction of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hokical.core.arrays import Array
from hokical.core.blocks import per_row
from hokical.core.conversion import look_like_probabilities
from hokical.core.logits import Logits
from hokical.core.types import FloatArray
from hokical.fitting.partitions import Block, Combine, Partition, State, Work, add_states
from hokical.guarantees.score_table import ScoreTable
from hokical.guarantees.scores import label_log_odds
from hokical.guarantees.support import Support, find_lows

Count = Callable[[Block, FloatArray], ScoreTable | None]

#: How far `from_probabilities` puts zeros below the top of their row; nothing is farther.
ZEROS_BELOW = (700.0, 745.0)


@dataclass(frozen=True)
class Census:
    """How many examples count, for how many the classifier is right, and what the rows are like."""

    n_rows: int
    n_with_zeros: int  # blocks with probabilities of 0
    n_examples: int
    n_correct: int
    like_probabilities: bool

    @property
    def n_wrong(self) -> int:
        return self.n_examples - self.n_correct


class ScoredPartition(Partition):
    """The same examples; `table`, `support` and `census` are there once they were gone through.

    `count(block, log_odds)` counts the classifier's own scores; see `label_log_odds`.
    """

    census: Census

    def __init__(self, partition: Partition, count: Count) -> None:
        self.partition, self.count = partition, count
        self.n_classes, self.in_memory = partition.n_classes, partition.in_memory
        self.table: ScoreTable | None = None
        self.support: Support | None = None
        self._counted = False

    def reduce(self, work: Work, combine: Combine) -> State:
        if self._counted:
            return self.partition.reduce(work, combine)
        count = self.count
        state = self.partition.reduce(
            lambda block: (*_notes(block, count), *work(block)),
            lambda left, right: (
                *add_states(left[:3], right[:3]),
                np.minimum(left[3], right[3]),
                *combine(left[4:], right[4:]),
            ),
        )
        self._keep(state[:4])
        return state[4:]

    def gather(self, who: str) -> Block:
        block = self.partition.gather(who)
        if not self._counted:
            self._keep(_notes(block, self.count))
        return block

    def collect(self, work: Work, row_bytes: int, who: str) -> State:
        return self.partition.collect(work, row_bytes, who)

    def require_passes(self, who: str) -> None:
        self.partition.require_passes(who)

    def _keep(self, notes: State) -> None:
        sums, count, wrong, lows = notes
        uncounted, n_rows, n_zeros, n_examples, n_correct = sums.tolist()
        self._counted = True
        self.table = None if uncounted else ScoreTable(count, wrong)
        self.census = Census(n_rows, n_zeros, n_examples, n_correct, bool(lows[4] > 0.0))
        if n_examples:  # or the fit refuses the examples
            self.support = Support.from_lows(lows[:4])


def _notes(block: Block, count: Count) -> State:
    """Sums (5,): blocks that cannot be counted, and the census; counts; minima (5,)."""
    log_odds = block.logits.on_host(label_log_odds(block.logits))
    table, counting = count(block, log_odds), block.counting
    right = (block.correct & counting).sum()
    sums = [table is None, block.n_rows, has_zeros(block.logits), counting.sum(), right]
    none = np.zeros(1, np.int64)
    counts = (none, none) if table is None else (table.count, table.wrong)
    top = block.logits.on_host(block.logits.top)
    lows = find_lows(log_odds[counting], top[counting])
    likeness = float(look_like_probabilities(block.logits, top))
    return np.array(sums, np.int64), *counts, np.append(lows, likeness)


def has_zeros(logits: Logits) -> bool:
    """Whether the logits are those of probabilities, some of them 0."""
    if type(logits) is not Logits:
        return False
    xp = logits.xp
    lowest, highest = float(xp.min(logits.values)), float(xp.max(logits.top))
    if lowest > -np.inf and highest - lowest < ZEROS_BELOW[0]:  # one quick pass tells, as a rule
        return False

    def farthest(block: Logits) -> Array:
        margins = block.margins
        return xp.max(xp.where(block.possible, margins, xp.zeros_like(margins)), axis=1)

    return bool(ZEROS_BELOW[0] <= per_row(farthest, logits).max() <= ZEROS_BELOW[1])
