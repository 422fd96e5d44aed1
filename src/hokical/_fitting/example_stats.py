"""What every fit notes about its examples: sums and minima that blocks add up to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.conversion import look_like_probabilities
from hokical._core.logits import Logits
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._fitting.examples import Examples, Partition, Result, State, add_states
from hokical.guarantees._calibration_data import SAMPLE_SIZE, CalibrationData
from hokical.guarantees._class_scores import ClassScores, row_looks
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._row_sketch import RowSketch, row_draws, row_hashes
from hokical.guarantees._score_table import ScoreTable, can_be_counts
from hokical.guarantees._scores import conservative_levels, label_log_odds
from hokical.guarantees._support import Support, support_minima
from hokical.rules._scaling import UncalibratedRule

#: How far `from_probabilities` puts zeros below the top of their row; nothing is farther.
ZEROS_BELOW = (700.0, 745.0)
#: Rows of an array in memory whose statistics are found at once: about 200 bytes for each.
_ROWS_AT_A_TIME = 1 << 18


@dataclass(frozen=True)
class ExampleStats:
    """How many examples count, for how many the classifier is right, and what the rows are like.

    `kept` stays with the calibrator; the classifier's scores are counted if weights are
    counts, and there is no support where no example counts, which the fit refuses.
    """

    n_rows: int
    n_with_zeros: int  # blocks with probabilities of 0
    n_examples: int
    n_correct: int
    like_probabilities: bool
    kept: CalibrationData

    @classmethod
    def from_state(cls, state: State) -> ExampleStats:
        """Of what `block_stats` gave, joined."""
        sums, count, wrong, minima, sample, hashes, *classes = state
        uncounted, n_rows, n_zeros, n_examples, n_correct, weighted = sums.tolist()
        scores = None if uncounted else ScoreTable(count, wrong)
        support = Support.from_minima(minima[:4]) if n_examples else None
        truth = None if weighted or not n_examples else _as_conformity(sample)
        looks = ClassScores(*classes) if n_examples else None
        kept = CalibrationData(
            fit_scores=scores,
            support=support,
            fit_conformity=truth,
            fit_rows=_sketch(hashes),
            class_scores=looks,
        )
        return cls(n_rows, n_zeros, n_examples, n_correct, bool(minima[4] > 0.0), kept)

    @property
    def n_wrong(self) -> int:
        return self.n_examples - self.n_correct


def block_stats(block: Examples) -> State:
    """Sums (6,): blocks whose scores cannot be counted, and numbers; counts; minima (5,); a sample
    of the examples (k, 6); hashes of all rows and how often each came (k, 2); `ClassScores`.
    """
    counting, found = block.counting, label_log_odds(block.logits)
    key, rows = _choose_sample(block, counting)  # while a device is at the log-odds
    log_odds, top = block.logits.to_host(found), block.logits.to_host(block.logits.top)
    counted = can_be_counts(block.weights)
    counts = _count_scores(block, log_odds, top) if counted else (np.zeros(1, np.int64),) * 2
    right = (block.correct & counting).sum()
    weighted = bool((block.counts[counting] != 1.0).any())
    sums = [not counted, block.n_rows, has_zeros(block.logits), counting.sum(), right, weighted]
    minima = support_minima(log_odds[counting], top[counting])
    likeness = float(look_like_probabilities(block.logits, top))
    hashes = row_hashes(block.logits)
    sketch = RowSketch.from_hashes(hashes[counting])
    looks = row_looks(block.logits, log_odds)
    truth = (block.labels, block.correct, block.counts)
    classes = ClassScores.from_rows(looks, *truth, block.logits.n_classes)
    sample = _note_sample(block, rows, hashes)
    notes = (np.column_stack([key, sample]), _sketch_array(sketch), *classes)
    return np.array(sums, np.int64), *counts, np.append(minima, likeness), *notes


def _choose_sample(block: Examples, counting: BoolArray) -> tuple[FloatArray, IntArray]:
    """Keys (k,) and rows (k,) of examples, by their numbers alone, whatever the blocks."""
    key = np.where(counting, row_draws(block.first_row, block.n_rows), 2.0)
    size = min(SAMPLE_SIZE, int(counting.sum()))
    rows = np.argpartition(key, size - 1)[:size] if size else np.empty(0, np.int64)
    rows = rows[np.argsort(key[rows])]
    return key[rows], rows


def _note_sample(block: Examples, rows: IntArray, hashes: FloatArray) -> FloatArray:
    """`Conformity` (k, 5) of these rows."""
    if not rows.size:
        return np.empty((0, 5))
    truth, some = block.labels[rows], block.logits.take(rows)
    found = Conformity.from_rows(UncalibratedRule(), [some], truth, hashes[rows])
    return np.column_stack([truth, found.proba, found.above, found.rank, found.draw])


def _as_conformity(sample: FloatArray) -> Conformity:
    label, proba, above, rank, draw = sample.T[1:]
    return Conformity(label.astype(np.int64), proba, above, rank.astype(np.int64), draw)


def _sketch(hashes: FloatArray) -> RowSketch:
    return RowSketch.from_counts(hashes[:, 0], hashes[:, 1].astype(np.int64))


def _sketch_array(sketch: RowSketch) -> FloatArray:
    return np.stack([sketch.hashes, sketch.counts.astype(np.float64)], axis=1)


def _count_scores(block: Examples, log_odds: FloatArray, top: FloatArray) -> State:
    level = conservative_levels([log_odds], ~block.correct, top)
    table = ScoreTable.from_examples(level, ~block.correct, block.weights)
    return table.count, table.wrong


def join_stats(left: State, right: State) -> State:
    """The statistics of two parts together."""
    sample = np.concatenate([left[4], right[4]])
    first = sample[np.argsort(sample[:, 0], kind="stable")[:SAMPLE_SIZE]]
    hashes = _sketch_array(_sketch(left[5]) | _sketch(right[5]))
    sums, classes = add_states(left[:3], right[:3]), add_states(left[6:], right[6:])
    return *sums, np.minimum(left[3], right[3]), first, hashes, *classes


def reduce_with_stats(
    examples: Partition,
    work: Callable[[Examples], Result],
    combine: Callable[[Result, Result], Result],
) -> tuple[Result, ExampleStats]:
    """`Partition.reduce`, and the statistics of all examples, in one pass."""
    found, stats = examples.reduce(
        partial(_work_with_stats, work=work),
        partial(_join_with_stats, combine=combine),
    )
    return found, ExampleStats.from_state(stats)


def _work_with_stats(block: Examples, work: Callable[[Examples], Result]) -> tuple[Result, State]:
    parts = block.cut(_ROWS_AT_A_TIME) if block.logits.is_numpy else [block]
    return work(block), reduce(join_stats, (block_stats(part) for part in parts))


def _join_with_stats(
    left: tuple[Result, State],
    right: tuple[Result, State],
    combine: Callable[[Result, Result], Result],
) -> tuple[Result, State]:
    return combine(left[0], right[0]), join_stats(left[1], right[1])


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
