"""What every fit notes about its examples, in one pass, and warnings about them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Self

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.conversion import probability_scale
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import FloatArray
from hokical._core.warn import FitDataWarning, warn_user
from hokical._fitting.examples import Examples, Partition, Result
from hokical.guarantees._calibration_data import SAMPLE_SIZE, CalibrationData
from hokical.guarantees._class_scores import ClassScores, row_features
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._row_sketch import RowSketch, row_draws, row_hashes
from hokical.guarantees._score_table import ScoreTable
from hokical.guarantees._scores import Support, conservative_levels, label_log_odds
from hokical.rules._base import Rule
from hokical.rules._scaling import UncalibratedRule

#: Fewer examples than this are a handful, from which nothing can be learned.
FEWEST_EXAMPLES = 20
#: How far `from_probabilities` puts zeros below the top of their row; nothing is farther.
ZEROS_BELOW = (700.0, 745.0)
#: Beyond so many classes, no sample of a `TopK` is kept for sets: each row has all its classes.
_MOST_CLASSES = 8192
#: What rows of this sum look like, the sum, and what to do.
_LOOKS = {
    1.0: ("probabilities", 1, "Convert them"),
    100.0: ("percentages", 100, "Divide them by 100 and convert them"),
}
#: Rows of an array in memory whose statistics are found at once: about 200 bytes for each.
_ROWS_AT_A_TIME = 1 << 18


@dataclass(frozen=True)
class ExampleStats:
    """How many examples count, for how many the classifier is wrong, and what the rows are like.

    `kept` stays with the calibrator; the classifier's scores are counted if all weights are equal.
    """

    n_examples: int
    n_wrong: int
    has_zeros: bool  # probabilities of 0
    probability_scale: float  # see `hokical._core.conversion.probability_scale`
    kept: CalibrationData

    def __add__(self, other: Self) -> Self:
        """Of both lots of examples; rows without a weight leave no trace."""
        kept = self.kept if self.n_examples else other.kept
        return type(self)(
            self.n_examples + other.n_examples,
            self.n_wrong + other.n_wrong,
            self.has_zeros or other.has_zeros,
            min(self.probability_scale, other.probability_scale),
            self.kept + other.kept if self.n_examples and other.n_examples else kept,
        )


def block_stats(block: Examples) -> ExampleStats:
    """The statistics of some rows."""
    counting, found = block.counting, label_log_odds(block.logits)
    n_examples = int(counting.sum())
    log_odds, top = block.logits.to_host(found), block.logits.to_host(block.logits.top)
    return ExampleStats(
        n_examples,
        int((counting & ~block.correct).sum()),
        has_zeros(block.logits),
        probability_scale(block.logits, top),
        _keep(block, log_odds, top) if n_examples else CalibrationData(),
    )


def _keep(block: Examples, log_odds: FloatArray, top: FloatArray) -> CalibrationData:
    """What is kept of a block, with a sample of its rows, chosen by their numbers alone."""
    counting, hashes, scores, sample = block.counting, row_hashes(block.logits), None, None
    alike = np.ptp(block.counts[counting]) == 0.0  # weights whose scale would change a promise
    if alike:
        level = conservative_levels([log_odds], ~block.correct, top)
        scores = ScoreTable.from_examples(level, ~block.correct, counting.astype(np.float64))
    known = not isinstance(block.logits, TopK) or block.n_classes <= _MOST_CLASSES
    if known and alike:
        key = np.where(counting, row_draws(block.first_row, block.n_rows), 2.0)
        rows = np.argpartition(key, min(SAMPLE_SIZE, key.size) - 1)[:SAMPLE_SIZE]
        rows = rows[np.argsort(key[rows])][: int(counting.sum())]
        some, truth = [block.logits.take(rows)], block.labels[rows]
        found = Conformity.from_rows(UncalibratedRule(), some, truth)
        sample = replace(found, run=None, key=key[rows])  # ordered sets ask for `certify`
    cells, n_classes = row_features(block.logits, log_odds), block.n_classes
    classes = ClassScores.from_rows(cells, block.labels, block.correct, block.counts, n_classes)
    return CalibrationData(
        fit_scores=scores,
        support=Support.from_rows(log_odds[counting], top[counting]),
        fit_conformity=sample,
        fit_rows=RowSketch.from_hashes(hashes[counting]),
        class_scores=classes,
    )


def reduce_with_stats(
    examples: Partition,
    work: Callable[[Examples], Result],
    combine: Callable[[Result, Result], Result],
) -> tuple[Result, ExampleStats]:
    """`Partition.reduce`, and the statistics of all examples, in one pass."""
    found: tuple[Result, ExampleStats] = examples.reduce(
        partial(_work_with_stats, work=work), partial(_join_with_stats, combine=combine)
    )
    return found


def _work_with_stats(block: Examples, work: Callable[[Examples], Result]) -> Any:
    parts = block.cut(_ROWS_AT_A_TIME) if block.logits.is_numpy else [block]
    return work(block), reduce(operator.add, map(block_stats, parts))


def _join_with_stats(left: Any, right: Any, combine: Callable[[Result, Result], Result]) -> Any:
    return combine(left[0], right[0]), left[1] + right[1]


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


def warn_about_examples(method: str, stats: ExampleStats, rule: Rule) -> None:
    """Warn of what a user should know about the examples that a method fitted the rule on."""
    for problem in _find_problems(method, stats, rule):
        warn_user(problem, FitDataWarning)


def _find_problems(method: str, stats: ExampleStats, rule: Rule) -> Iterator[str]:
    """What is wrong, each with its remedy."""
    if stats.probability_scale in _LOOKS:
        what, size, first = _LOOKS[stats.probability_scale]
        yield (
            f"`logits` look like {what}: all rows lie in [0, {size}] and sum to {size}. {first} "
            "with `hokical.from_probabilities` (--probabilities), or pass the logits."
        )
    n, wrong = stats.n_examples, stats.n_wrong
    if method == "uncalibrated":  # which learns nothing
        return
    if n < FEWEST_EXAMPLES:
        yield f"`logits` hold {n} examples, too few to learn from. Use some hundred or more."
    elif wrong == 0:
        yield (
            f"`labels` agree with the classifier on all {n:,} examples, as on data that it was "
            "trained on: there is no mistake to learn from. Use examples that it has not seen."
        )
    elif wrong == n:
        yield (
            f"`labels` agree with the classifier on none of {n:,} examples. Check that they index "
            "the columns of `logits`."
        )
    elif wrong < rule.core.n_parameters:
        yield (
            f"`labels` show {wrong} mistakes, fewer than the {rule.core.n_parameters} numbers that "
            f"{rule.core.name!r} learns. Use more examples, or a simpler method such as 'temps'."
        )
