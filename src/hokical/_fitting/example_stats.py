"""What every fit notes about its examples: sums and minima that blocks add up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.conversion import look_like_probabilities
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical._fitting.partitions import Block, State, add_states
from hokical.guarantees._score_table import ScoreTable, can_be_counts
from hokical.guarantees._scores import conservative_levels, label_log_odds
from hokical.guarantees._support import Support, support_minima

#: How far `from_probabilities` puts zeros below the top of their row; nothing is farther.
ZEROS_BELOW = (700.0, 745.0)
#: Arrays of a state of statistics.
N_STATS = 4


@dataclass(frozen=True)
class ExampleStats:
    """How many examples count, for how many the classifier is right, and what the rows are like.

    `scores` counts the classifier's own scores, if labels are kept and weights are counts.
    """

    n_rows: int
    n_with_zeros: int  # blocks with probabilities of 0
    n_examples: int
    n_correct: int
    like_probabilities: bool
    scores: ScoreTable | None
    support: Support | None  # None where no example counts, which the fit refuses

    @classmethod
    def from_state(cls, state: State) -> ExampleStats:
        """Of what `block_stats` gave, joined."""
        sums, count, wrong, minima = state
        uncounted, n_rows, n_zeros, n_examples, n_correct = sums.tolist()
        scores = None if uncounted else ScoreTable(count, wrong)
        support = Support.from_minima(minima[:4]) if n_examples else None
        like = bool(minima[4] > 0.0)
        return cls(n_rows, n_zeros, n_examples, n_correct, like, scores, support)

    @property
    def n_wrong(self) -> int:
        return self.n_examples - self.n_correct


def block_stats(block: Block, keeps_labels: bool) -> State:
    """Sums (5,): blocks whose scores cannot be counted, and numbers; counts; minima (5,)."""
    log_odds = block.logits.to_host(label_log_odds(block.logits))
    top, counting = block.logits.to_host(block.logits.top), block.counting
    counted = keeps_labels and can_be_counts(block.weights)
    counts = _count_scores(block, log_odds, top) if counted else (np.zeros(1, np.int64),) * 2
    right = (block.correct & counting).sum()
    sums = [not counted, block.n_rows, has_zeros(block.logits), counting.sum(), right]
    minima = support_minima(log_odds[counting], top[counting])
    likeness = float(look_like_probabilities(block.logits, top))
    return np.array(sums, np.int64), *counts, np.append(minima, likeness)


def _count_scores(block: Block, log_odds: FloatArray, top: FloatArray) -> State:
    level = conservative_levels([log_odds], ~block.correct, top)
    table = ScoreTable.from_examples(level, ~block.correct, block.weights)
    return table.count, table.wrong


def join_stats(left: State, right: State) -> State:
    """The statistics of two parts together."""
    return *add_states(left[:3], right[:3]), np.minimum(left[3], right[3])


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
