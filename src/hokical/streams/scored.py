"""Counting the classifier's own scores along with the first reduction of a fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hokical.guarantees.score_table import ScoreTable
from hokical.logits import Logits
from hokical.streams.blocks import Blocks, State, add
from hokical.streams.checking import Block

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Count = Callable[[Logits, IntArray, FloatArray | None], ScoreTable | None]


class ScoredBlocks(Blocks):
    """The same blocks; `table` is there once they have been gone through."""

    def __init__(self, blocks: Blocks, count: Count) -> None:
        self.blocks, self.count = blocks, count
        self.n_classes = blocks.n_classes
        self.table: ScoreTable | None = None
        self._counted = False

    def reduce(
        self, work: Callable[[Block], State], combine: Callable[[State, State], State]
    ) -> State:
        if self._counted:
            return self.blocks.reduce(work, combine)
        count = self.count
        missing, counts, wrong, *rest = self.blocks.reduce(
            lambda block: (*_counts(block, count), *work(block)),
            lambda left, right: (*add(left[:3], right[:3]), *combine(left[3:], right[3:])),
        )
        self._counted = True
        self.table = None if missing[0] else ScoreTable(counts, wrong)
        return tuple(rest)

    def gather(self, who: str) -> tuple[Logits, IntArray, FloatArray | None]:
        examples = self.blocks.gather(who)
        if not self._counted:
            self._counted = True
            self.table = self.count(*examples)
        return examples

    def collect(self, work: Callable[[Block], State], row_bytes: int, who: str) -> State:
        return self.blocks.collect(work, row_bytes, who)

    def require_passes(self, who: str) -> None:
        self.blocks.require_passes(who)


def _counts(block: Block, count: Count) -> State:
    """Whether the block could not be counted, (1,), and its counts."""
    table = count(block.logits, block.labels, block.weights)
    if table is None:
        return np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    return np.zeros(1, np.int64), table.count, table.wrong
