"""Calibration examples, in memory or read block by block, and the rows that a method is fitted on.

`Partition.reduce(work, combine)` calls `work` on every checked block of rows and combines the
results in the order of the blocks, so the same fit runs on arrays in memory, over files and over a
cluster. Most methods read all rows this way, or a uniform sample of a large number (`read_sample`);
Hoki's counts are a sum over all rows.

One pass over the examples checks every row, notes what guarantees need (`ExampleStats`), and keeps
the rows whose hashed row numbers are smallest. The sample depends on the row numbers alone: it is
the same for arrays, files, iterators and Dask arrays, for any size of the chunks, without a seed.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray
from hokical._core.conversion import probability_scale
from hokical._core.groups import GroupCoding, code_groups
from hokical._core.logits import MAX_MARGIN, Logits, per_row
from hokical._core.messages import FitDataWarning, warn_user
from hokical._core.parallel import cut_rows
from hokical._core.topk import TopK
from hokical.guarantees.calibration_data import (
    SAMPLE_SIZE,
    CalibrationData,
    RowSketch,
    row_draws,
    row_hashes,
)
from hokical.guarantees.class_scores import ClassScores, shift_features
from hokical.guarantees.scores import ScoreTable, Support, conservative_levels, label_log_odds
from hokical.guarantees.sets import Conformity
from hokical.rules.base import Rule
from hokical.rules.scaling import UncalibratedRule

#: What a reduction makes of a block, and of two results; it must be possible to pickle it.
Result = TypeVar("Result")

_NO_WEIGHT = "`sample_weight` must not be zero everywhere. Give some example a weight."
_MASKING = "Mask only classes that cannot occur."
#: Fewer examples than this are a handful, from which nothing can be learned.
FEWEST_EXAMPLES = 10
#: How far `from_probabilities` puts zeros below the top of their row; nothing is farther.
ZEROS_BELOW = (700.0, 745.0)


@dataclass(frozen=True, eq=False)
class Examples:
    """Checked rows in memory: `logits`, `labels` (n,), and `weights` (n,) or None for 1 each.

    `first_row` is the number of the first row in the data. If the rows are a sample, `sampled_from`
    is the number of rows with a weight that it was drawn from. `coding` says which groups the codes
    of the logits stand for, if there are groups.
    """

    logits: Logits
    labels: IntArray
    weights: FloatArray | None = None
    first_row: int = 0
    sampled_from: int | None = None
    coding: GroupCoding | None = None

    @property
    def n_rows(self) -> int:
        return self.logits.n_rows

    @property
    def n_classes(self) -> int:
        return self.logits.n_classes

    @cached_property
    def correct(self) -> BoolArray:
        """Whether the classifier's own label is the true one, (n,)."""
        return np.asarray(self.logits.to_host(self.logits.labels) == self.labels)

    @property
    def counting(self) -> BoolArray:
        """Rows of a weight above 0, (n,)."""
        return np.ones(self.n_rows, np.bool_) if self.weights is None else self.weights > 0.0

    @property
    def counts(self) -> FloatArray:
        """The weight of each row, (n,), or 1."""
        return np.ones(self.n_rows) if self.weights is None else self.weights

    @cached_property
    def share(self) -> FloatArray:
        """Weights (n,) that sum to 1."""
        return np.asarray(self.counts / self.counts.sum())

    @cached_property
    def effective_size(self) -> float:
        return effective_size(self.share)

    @cached_property
    def true_margins(self) -> FloatArray:
        """The margin of the true class below the row's top, (n,), 0 to MAX_MARGIN."""
        with np.errstate(over="ignore"):
            margins = self.logits.to_host(self.logits.top) - self.logits.of_class(self.labels)
        return np.asarray(np.minimum(margins, MAX_MARGIN))

    @cached_property
    def mean_true_margin(self) -> float:
        return float(np.sum(self.share * self.true_margins))

    @property
    def description(self) -> str:
        """How many of how many rows were used; "" if all were."""
        if self.sampled_from is None:
            return ""
        return f"fitted on {self.n_rows:,} of {self.sampled_from:,} rows"

    def take(self, rows: NDArray[Any]) -> Examples:
        """Some of the rows, by number or by a mask."""
        weights = None if self.weights is None else self.weights[rows]
        some = Examples(self.logits.take(rows), self.labels[rows], weights, coding=self.coding)
        if "correct" in self.__dict__:  # on a device it takes a pass and a wait to find it
            some.__dict__["correct"] = self.correct[rows]
        return some

    def every(self, step: int) -> Examples:
        """One of `step` rows each."""
        return self.take(spaced_rows(0, self.n_rows, step))

    def cut(self, n_rows: int) -> Iterator[Examples]:
        """Itself if it has at most `n_rows`; else consecutive parts of that size, not copied."""
        if self.n_rows <= n_rows:
            yield self
            return
        for rows in cut_rows(self.n_rows, n_rows):
            weights = None if self.weights is None else self.weights[rows]
            first = self.first_row + rows.start
            yield Examples(self.logits.take(rows), self.labels[rows], weights, first)

    def without_weightless(self) -> Examples:
        """The same without rows of weight 0, which must leave no trace."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))

    @property
    def is_learnable(self) -> BoolArray:
        """Rows (n,) of a weight above 0 whose true class is not masked."""
        return self.counting & ~self._masked_truth

    @property
    def learnable(self) -> Examples:
        """The rows that a log-loss fit can learn from, with a warning about the others.

        Where the true class is masked (logit -inf), the log loss is infinite whatever is fitted.
        """
        kept, n_masked = self.is_learnable, int(self._masked_truth.sum())
        if not kept.any():
            if not n_masked:
                raise ValueError(_NO_WEIGHT)
            raise ValueError(
                "`labels` must name a possible class in at least one example; the logit of the "
                f"true class is -inf in all {n_masked} that count. Check that `labels` index the "
                f"columns of `logits`. {_MASKING}"
            )
        if n_masked:
            warn_user(
                f"{n_masked} of {self.n_rows} examples are left out of the fit: the logit of their "
                "true class is -inf, which makes the log loss infinite whatever is fitted. "
                f"{_MASKING}",
                RuntimeWarning,
            )
        return self if kept.all() else self.take(np.flatnonzero(kept))

    def warn_about_masked_truth(self) -> None:
        """For fits other than those of the log loss, which keep such examples."""
        count = int(self._masked_truth.sum())
        if count:
            warn_user(
                f"{count} of {self.n_rows} examples have a true class with logit -inf; they only "
                f"show that the other classes were wrong. {_MASKING}",
                RuntimeWarning,
            )

    @cached_property
    def _masked_truth(self) -> BoolArray:
        return np.asarray((self.logits.of_class(self.labels) == -np.inf) & self.counting)


class Partition(ABC):
    """Examples that can be reduced block by block."""

    n_classes: int
    #: Whether the blocks can be read more than once.
    repeatable: bool = True
    #: Groups of all rows, in order, for methods that learn from them.
    groups: Any = None

    @abstractmethod
    def reduce(
        self, work: Callable[[Examples], Result], combine: Callable[[Result, Result], Result]
    ) -> Result:
        """`work` of every block, combined in order; both are pure functions."""


class InMemory(Partition):
    """All examples in one block."""

    def __init__(self, block: Examples) -> None:
        self.block = block
        self.n_classes = block.logits.n_classes

    def reduce(
        self, work: Callable[[Examples], Result], combine: Callable[[Result, Result], Result]
    ) -> Result:
        return work(self.block)


def spaced_rows(first_row: int, n_rows: int, step: int) -> IntArray:
    """One row of every `step`, the same wherever blocks begin.

    A pseudo-random one, as the order of the rows may be periodic.
    """
    first, last = first_row // step, -(-(first_row + n_rows) // step)
    within = (row_draws(first, last - first) * step).astype(np.int64)
    places = np.arange(first, last) * step + within - first_row
    return places[(places >= 0) & (places < n_rows)]


def effective_size(share: FloatArray) -> float:
    """Kish's effective number of examples, by weights (n,) that sum to 1."""
    return 1.0 / float(np.sum(share * share))


def mean_and_error(gaps: FloatArray, share: FloatArray) -> tuple[float, float]:
    """Weighted mean of differences, and its standard error; the weights sum to 1."""
    mean = float(np.sum(share * gaps))
    return mean, float(np.sqrt(np.sum((share * (gaps - mean)) ** 2)))


def has_zeros(logits: Logits) -> bool:
    """Whether the logits are those of probabilities, some of them 0."""
    if logits.tail is not None:
        return False
    xp = logits.xp
    lowest, highest = float(xp.min(logits.values)), float(xp.max(logits.top))
    if lowest > -np.inf and highest - lowest < ZEROS_BELOW[0]:  # one quick pass tells, as a rule
        return False

    def farthest(block: Logits) -> Array:
        margins = block.margins
        return xp.max(xp.where(block.possible, margins, xp.zeros_like(margins)), axis=1)

    return bool(ZEROS_BELOW[0] <= per_row(farthest, logits).max() <= ZEROS_BELOW[1])


#: Above this number of logits a sample is used. It has at most as many logits, and at most this
#: many rows: with 10 classes, 200,000 rows and 1,400,000 rows gave the same log loss to 0.001.
MOST_LOGITS, MOST_ROWS = 4_000_000, 200_000
#: Methods that need so many rows for each class get more logits, up to this number.
MOST_FOR_CLASSES = 25_000_000
#: The key of rows of weight 0; those of other rows are below 1.
_NEVER = 2.0
#: Beyond so many classes, no sample of a `TopK` is kept for sets: each row has all its classes.
_MOST_COUNTED_CLASSES = 8192
#: What rows of this sum look like, the sum, and what to do.
_LOOKS = {
    1.0: ("probabilities", 1, "Convert them"),
    100.0: ("percentages", 100, "Divide them by 100 and convert them"),
}
#: Methods of papers, fitted without a prior, need so many examples of the rarer class for each
#: number that they learn, or of each class on average.
_PER_NUMBER, _NUMBERS = 10, {"platt": 2, "beta": 3, "venn_abers": 1}
_BY_CLASS = ("vecs", "structured", "irova_ts")
#: Rows of an array in memory whose statistics are found at once: about 200 bytes for each.
_ROWS_AT_A_TIME = 1 << 18


def read_sample(
    examples: Partition, *, rows_per_class: int = 0, refusal: str | None = None
) -> tuple[Examples, ExampleStats]:
    """Read all examples once: the sample, and the statistics of all of them.

    The sample has at least `rows_per_class` times as many rows as there are classes, if possible.
    `refusal` is the message of the error for examples that are too many to use all of them.
    """
    keep = partial(_keep_block, rows_per_class=rows_per_class)
    kept, stats = reduce_with_stats(examples, keep, partial(_join, refusal=refusal))
    if not stats.n_examples:
        raise ValueError("`sample_weight` must not be zero everywhere. Give some example a weight.")
    kept.refuse(refusal)
    sample = kept.sample()
    block, rows = sample.block, slice(None) if kept.is_whole else sample.rows
    if examples.groups is not None:
        if isinstance(block.logits, TopK):
            raise TypeError(
                "`logits` must be (n, classes) where there are `groups`; got a TopK. Leave the "
                "groups out, or pass all logits."
            )
        coding, codes = code_groups(examples.groups, np.concatenate(kept.counting))
        block = replace(block, logits=replace(block.logits, codes=codes[rows]), coding=coding)
    return replace(block, sampled_from=None if kept.is_whole else stats.n_examples), stats


def sample_block(block: Examples) -> Examples:
    """The rows of a block that a method would be fitted on."""
    return _keep_block(block).sample().block


@dataclass(frozen=True, eq=False)
class _Kept:
    """How many rows were read, which of them count, and those that can be in the sample, in order.

    `keys` and `rows` (k,) are the hashed numbers and the numbers of the rows in `block`.
    """

    n_rows: int
    n_counting: int
    counting: tuple[BoolArray, ...]
    keys: FloatArray
    rows: IntArray
    block: Examples
    rows_per_class: int

    @property
    def _whole(self) -> int:
        """The largest number of rows that is used as a whole."""
        logits = self.block.logits
        more = min(self.rows_per_class * logits.n_classes * logits.n_columns, MOST_FOR_CLASSES)
        return max(1, max(MOST_LOGITS, more) // logits.n_columns)

    @property
    def is_whole(self) -> bool:
        return self.n_rows <= self._whole

    def refuse(self, refusal: str | None) -> None:
        if refusal and not self.is_whole:
            raise ValueError(refusal)

    def sample(self, spare: int = 1) -> _Kept:
        """The rows with a weight whose keys are smallest, as many as are wanted.

        Itself if all rows are used, or if it has no more than `spare` times the rows wanted.
        """
        whole = self._whole
        wanted = whole if self.n_counting <= whole else min(MOST_ROWS, whole)
        if self.is_whole or (spare > 1 and self.keys.size <= spare * wanted):
            return self
        size = min(wanted, int(np.count_nonzero(self.keys < _NEVER)))
        chosen = np.sort(np.argpartition(self.keys, size - 1)[:size])
        keys, rows, block = self.keys[chosen], self.rows[chosen], self.block.take(chosen)
        return replace(self, keys=keys, rows=rows, block=block)


def _keep_block(block: Examples, rows_per_class: int = 0) -> _Kept:
    counting, rows = block.counting, block.first_row + np.arange(block.n_rows)
    keys = np.where(counting, row_draws(block.first_row, block.n_rows), _NEVER)
    n_rows, n_counting = block.n_rows, int(counting.sum())
    kept = _Kept(n_rows, n_counting, (counting,), keys, rows, block, rows_per_class)
    return kept.sample(spare=2)


def _join(left: _Kept, right: _Kept, refusal: str | None) -> _Kept:
    """The rows of both, one below the other."""
    blocks = (left.block, right.block)
    logits = [block.logits for block in blocks]
    values = logits[0].xp.concat([part.values for part in logits])
    top = logits[0].xp.concat([part.top for part in logits])
    weights = [block.weights for block in blocks if block.weights is not None]
    if len(weights) == 1:
        raise ValueError("`weights` must be in every chunk or in none; some chunks lack them.")
    found = _Kept(
        left.n_rows + right.n_rows,
        left.n_counting + right.n_counting,
        left.counting + right.counting,
        np.append(left.keys, right.keys),
        np.append(left.rows, right.rows),
        Examples(
            Logits(values, top, logits[0].backend),
            np.append(left.block.labels, right.block.labels),
            np.concatenate(weights) if weights else None,
        ),
        left.rows_per_class,
    )
    found.refuse(refusal)
    return found.sample(spare=2)


@dataclass(frozen=True)
class ExampleStats:
    """How many examples count, for how many the classifier is wrong, and what the rows are like.

    `kept` stays with the calibrator; the classifier's scores are counted if all weights are equal.
    """

    n_examples: int
    n_wrong: int
    has_zeros: bool  # probabilities of 0
    probability_scale: float  # see `hokical._core.conversion.probability_scale`
    n_classes: int
    n_second: int  # examples of class 1
    kept: CalibrationData

    def __add__(self, other: Self) -> Self:
        """Of both lots of examples; rows without a weight leave no trace."""
        kept = self.kept if self.n_examples else other.kept
        return type(self)(
            self.n_examples + other.n_examples,
            self.n_wrong + other.n_wrong,
            self.has_zeros or other.has_zeros,
            min(self.probability_scale, other.probability_scale),
            max(self.n_classes, other.n_classes),
            self.n_second + other.n_second,
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
        block.n_classes,
        int((counting & (block.labels == 1)).sum()),
        _keep(block, log_odds, top) if n_examples else CalibrationData(),
    )


def _keep(block: Examples, log_odds: FloatArray, top: FloatArray) -> CalibrationData:
    """What is kept of a block, with a sample of its rows, chosen by their numbers alone."""
    counting, hashes, scores, sample = block.counting, row_hashes(block.logits), None, None
    alike = np.ptp(block.counts[counting]) == 0.0  # weights whose scale would change a guarantee
    if alike:
        level = conservative_levels([log_odds], ~block.correct, top)
        scores = ScoreTable.from_examples(level, ~block.correct, counting.astype(np.float64))
    known = not isinstance(block.logits, TopK) or block.n_classes <= _MOST_COUNTED_CLASSES
    if known and alike:
        key = np.where(counting, row_draws(block.first_row, block.n_rows), 2.0)
        rows = np.argpartition(key, min(SAMPLE_SIZE, key.size) - 1)[:SAMPLE_SIZE]
        rows = rows[np.argsort(key[rows])][: int(counting.sum())]
        some, truth = [block.logits.take(rows)], block.labels[rows]
        found = Conformity.from_rows(UncalibratedRule(), some, truth)
        sample = replace(found, run=None, key=key[rows])  # ordered sets ask for `certify`
    cells, n_classes = shift_features(block.logits, log_odds), block.n_classes
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


def warn_about_examples(method: str, stats: ExampleStats, rule: Rule) -> None:
    """Warn of what a user should know about the examples that a method fitted the rule on."""
    for problem in _find_problems(method, stats, rule):
        warn_user(problem, FitDataWarning)


def _describe_few(method: str, stats: ExampleStats) -> str:
    """What a method of a paper has too few of, if so: it is fitted without a prior."""
    n, wrong, least = stats.n_examples, stats.n_wrong, _PER_NUMBER
    if method == "temps" and wrong < least:
        return f"`labels` show {wrong} mistakes; a temperature needs {least}"
    needed, rarer = least * _NUMBERS.get(method, 0), min(stats.n_second, n - stats.n_second)
    if rarer < needed:
        return f"`labels` hold {rarer} examples of the rarer class; {method!r} needs {needed}"
    if method in _BY_CLASS and n < least * stats.n_classes:
        many = f"{n:,} examples of {stats.n_classes:,} classes"
        return f"`labels` hold {many}; {method!r} needs {least} a class"
    return ""


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
    if method == "auto" and (n < FEWEST_EXAMPLES or wrong == 0):  # it has priors, or says so
        return
    if n < FEWEST_EXAMPLES:
        yield f"`logits` hold {n} examples, too few to learn from. Use some hundred or more."
    elif wrong == 0:
        yield (
            f"`labels` agree with the classifier on all {n:,} examples, as on data that it was "
            "trained on: there is no mistake to learn from. Use examples that it has not "
            "seen, or `hokical.auto`, which shrinks what few can tell."
        )
    elif few := _describe_few(method, stats):
        yield f"{few}. Use more examples, or `hokical.auto`, which shrinks what few can tell."
    elif wrong < rule.core.n_parameters:
        yield (
            f"`labels` show {wrong} mistakes, fewer than the {rule.core.n_parameters} numbers that "
            f"{rule.core.name!r} learns. Use more examples, or a simpler method such as 'temps'."
        )
