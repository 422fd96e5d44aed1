"""Counting the classifier's own scores along with the first reduction of a fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hokical.fitting.partitions import Block, Partition, State, add_states
from hokical.guarantees.score_table import ScoreTable

Count = Callable[[Block], ScoreTable | None]


class ScoredPartition(Partition):
    """The same examples; `table` is there once they have been gone through."""

    def __init__(self, partition: Partition, count: Count) -> None:
        self.partition, self.count = partition, count
        self.n_classes, self.in_memory = partition.n_classes, partition.in_memory
        self.table: ScoreTable | None = None
        self._counted = False

    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        if self._counted:
            return self.partition.reduce(work, combine)
        count = self.count
        missing, counts, wrong, *rest = self.partition.reduce(
            lambda block: (*_counts(block, count), *work(block)),
            lambda left, right: (*add_states(left[:3], right[:3]), *combine(left[3:], right[3:])),
        )
        self._counted = True
        self.table = None if missing[0] else ScoreTable(counts, wrong)
        return tuple(rest)

    def gather(self, who: str) -> Block:
        block = self.partition.gather(who)
        if not self._counted:
            self._counted = True
            self.table = self.count(block)
        return block

    def collect(self, work: Callable[[Block], State], row_bytes: int, who: str) -> State:
        return self.partition.collect(work, row_bytes, who)

    def require_passes(self, who: str) -> None:
        self.partition.require_passes(who)


def _counts(block: Block, count: Count) -> State:
    """Whether the block could not be counted, (1,), and its counts."""
    table = count(block)
    if table is None:
        return np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    return np.zeros(1, np.int64), table.count, table.wrong
