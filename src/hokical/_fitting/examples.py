"""Calibration examples, in memory or read block by block, and the rows that a method is
fitted on.

`Partition.reduce(work)` calls `work` on every checked block of rows and adds up the
results in the order of the blocks, so the same fit runs on arrays in memory, over files
and over a cluster. Most methods read all rows this way, or a uniform sample of a large
number (`read_sample`); Hoki's counts are a sum over all rows.

One pass over the examples checks every row, notes what guarantees need
(`ExampleStats`), and keeps the rows whose hashed row numbers are smallest. The sample
depends on the row numbers alone: it is the same for arrays, files, iterators and Dask
arrays, for any size of the chunks, without a seed.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import effective_size, sum_by
from hokical._core.conversion import SUM_SLACK
from hokical._core.groups import GroupCoding, code_groups
from hokical._core.logits import MAX_MARGIN, Logits, TopK, per_row
from hokical._core.runtime import FitDataWarning, cut_rows, warn_user
from hokical._core.schema import could_be_probabilities, tell_scores
from hokical.guarantees.class_features import ClassFeatures, shift_features
from hokical.guarantees.evidence import SAMPLE_SIZE, FitRecord
from hokical.guarantees.fingerprints import RowSketch, row_draws, row_hashes
from hokical.guarantees.repeats import (
    RowMarks,
    warn_of_copies_in_fit,
    warn_of_repeats_in_fit,
)
from hokical.guarantees.scores import ScoreTable, Support, conservative_levels
from hokical.guarantees.sets import Conformity
from hokical.rules.base import Rule, UncalibratedRule

_MASKING = "Mask only classes that cannot occur."
#: Fewer examples than this are a handful, from which nothing can be learned.
FEWEST_EXAMPLES = 10
#: Examples for each number that a method without a prior learns: a rule of thumb.
PER_NUMBER = 10
#: How far `from_probabilities` puts zeros below the top of their row; nothing is
#: farther.
ZEROS_BELOW = (700.0, 745.0)


@dataclass(frozen=True)
class ExamplesNeeded:
    """The fewest examples from which a method learns all its numbers.

    Parameters
    ----------
    mistakes : int
        Rows in which the classifier is wrong.
    of_rarer_class : int
        Rows of the rarer of two classes.
    per_class : int
        Rows of each class, on average.
    """

    mistakes: int = 1
    of_rarer_class: int = 0
    per_class: int = 0


class Partition(ABC):
    """Examples that can be reduced block by block."""

    n_classes: int
    #: Whether the blocks can be read more than once.
    repeatable: bool = True
    #: Groups of all rows, in order, for methods that learn from them.
    groups: Any = None

    @abstractmethod
    def reduce(self, work: Callable[[Examples], Any]) -> Any:
        """What `work` makes of every block, added up in order; it and `work` can be
        pickled.
        """


@dataclass(eq=False)
class Examples(Partition):
    """Checked rows in memory: `logits`, `labels` (n,), and `weights` (n,) or None for 1
    each.

    `first_row` is the number of the first row in the data. If the rows are a sample,
    `sampled_from` is the number of rows with a weight that it was drawn from. `coding`
    says which groups the codes of the logits stand for, if there are groups. If labels
    were votes, `votes_of` (n,) says which rows share an example. They are a partition of
    one block.
    """

    logits: Logits
    labels: IntArray
    weights: FloatArray | None = None
    first_row: int = 0
    sampled_from: int | None = None
    coding: GroupCoding | None = None
    groups: Any = None
    votes_of: IntArray | None = None

    def __post_init__(self) -> None:
        self.n_rows = self.logits.n_rows
        self.n_classes = self.logits.n_classes
        #: The weight of each row, (n,), or 1; and whether it is above 0.
        self.counts = np.ones(self.n_rows) if self.weights is None else self.weights
        self.counting: BoolArray = self.counts > 0.0

    def reduce(self, work: Callable[[Examples], Any]) -> Any:
        return work(self)

    @cached_property
    def correct(self) -> BoolArray:
        """Whether the classifier's own label is the true one, (n,)."""
        return np.asarray(self.logits.to_host(self.logits.labels) == self.labels)

    @cached_property
    def share(self) -> FloatArray:
        """Weights (n,) that sum to 1."""
        return np.asarray(self.counts / self.counts.sum())

    @cached_property
    def effective_size(self) -> float:
        if self.votes_of is None:
            return effective_size(self.share)
        n_examples = int(self.votes_of.max()) + 1
        return effective_size(sum_by(self.votes_of, self.share, n_examples))

    @cached_property
    def true_margins(self) -> FloatArray:
        """The margin of the true class below the row's top, (n,), 0 to MAX_MARGIN."""
        with np.errstate(over="ignore"):
            margins = self.logits.to_host(self.logits.top) - self.logits.of_class(
                self.labels
            )
        return np.asarray(np.minimum(margins, MAX_MARGIN))

    @cached_property
    def mean_true_margin(self) -> float:
        return float(np.sum(self.share * self.true_margins))

    def take(self, rows: NDArray[Any] | slice) -> Examples:
        """Some of the rows, by number or by a mask."""
        weights = None if self.weights is None else self.weights[rows]
        taken = Examples(
            self.logits.take(rows),
            self.labels[rows],
            weights,
            coding=self.coding,
            votes_of=None if self.votes_of is None else self.votes_of[rows],
        )
        # On a device it takes a pass and a wait to find it.
        if "correct" in self.__dict__:
            taken.__dict__["correct"] = self.correct[rows]
        return taken

    def without_weightless(self) -> Examples:
        """The same without rows of weight 0, which must leave no trace."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))

    @property
    def learnable(self) -> Examples:
        """The rows that a log-loss fit can learn from, with a warning about the others.

        Where the true class is masked (logit -inf), the log loss is infinite whatever
        is fitted.
        """
        usable = self.counting & ~self.masked_truth
        n_masked = int(self.masked_truth.sum())
        if not usable.any():
            raise ValueError(
                "`labels` must name a possible class in at least one example; the "
                f"logit of the true class is -inf in all {n_masked} that count. Check "
                f"that `labels` index the columns of `logits`. {_MASKING}"
            )
        if n_masked:
            count_text = f"{n_masked} of {self.n_rows} examples are left out of the fit"
            why = (
                "the logit of their true class is -inf, so that their log loss is "
                "infinite"
            )
            warn_user(f"{count_text}: {why}. {_MASKING}", RuntimeWarning)
        return self if usable.all() else self.take(np.flatnonzero(usable))

    def warn_about_masked_truth(self) -> None:
        """For fits other than those of the log loss, which keep such examples."""
        if count := int(self.masked_truth.sum()):
            count_text = (
                f"{count} of {self.n_rows} examples have a true class with logit -inf"
            )
            why = "they only show that the other classes were wrong"
            warn_user(f"{count_text}; {why}. {_MASKING}", RuntimeWarning)

    @cached_property
    def masked_truth(self) -> BoolArray:
        """Rows (n,) of a weight above 0 whose true class is masked."""
        return np.asarray(
            (self.logits.of_class(self.labels) == -np.inf) & self.counting
        )


def spaced_rows(first_row: int, n_rows: int, step: int) -> IntArray:
    """One row of every `step`, the same wherever blocks begin.

    A pseudo-random one, as the order of the rows may be periodic.
    """
    first = first_row // step
    last = -(-(first_row + n_rows) // step)
    within = (row_draws(first, last - first) * step).astype(np.int64)
    rows = np.arange(first, last) * step + within - first_row
    return rows[(rows >= 0) & (rows < n_rows)]


def mean_and_error(gaps: FloatArray, share: FloatArray) -> tuple[float, float]:
    """Weighted mean of differences, and its standard error; the weights sum to 1."""
    mean = float(np.sum(share * gaps))
    return mean, float(np.sqrt(np.sum((share * (gaps - mean)) ** 2)))


def has_zeros(logits: Logits) -> bool:
    """Whether the logits are those of probabilities, some of them 0."""
    if logits.tail is not None:
        return False
    xp = logits.xp
    lowest = float(xp.min(logits.values))
    highest = float(xp.max(logits.top))
    # One quick pass tells, as a rule.
    if lowest > -np.inf and highest - lowest < ZEROS_BELOW[0]:
        return False

    def farthest(block: Logits) -> Array:
        margins = block.margins
        return xp.max(xp.where(block.possible, margins, xp.zeros_like(margins)), axis=1)

    return bool(ZEROS_BELOW[0] <= per_row(farthest, logits).max() <= ZEROS_BELOW[1])


#: The first rows to look at, which rule most logits out.
_FIRST_ROWS = 16


def probability_scale(
    logits: Logits, top: FloatArray, slack: float = SUM_SLACK
) -> float:
    """1 if all rows sum to 1 like probabilities, 100 if they sum to 100 like
    percentages; else 0.

    `top` (n,) are the row maxima, by which logits are quickly ruled out.
    """
    if logits.tail is not None or top.min() <= 0.0 or top.max() > 100.0:
        return 0.0
    scale = 1.0 if top.max() <= 1.0 else 100.0

    def work(block: Logits) -> Array:
        xp = block.xp
        values = block.xp.astype(block.values, block.xp.float64)
        near = xp.abs(xp.sum(values, axis=1) - scale) <= slack * scale
        return near & (xp.min(values, axis=1) >= 0.0)

    # A few rule most logits out.
    for rows in (
        logits.take(slice(0, _FIRST_ROWS)),
        logits,
    ):
        if not per_row(work, rows).all():
            return 0.0
    return scale


#: Above this number of logits a sample is used. It has at most as many logits, and at
#: most this many rows: with 10 classes, 200,000 rows and 1,400,000 rows gave the same
#: log loss to 0.001.
MOST_LOGITS = 4_000_000
MOST_ROWS = 200_000
#: Methods with `rows_per_class` get more logits, up to this number.
MOST_FOR_CLASSES = 25_000_000
#: The key of rows of weight 0; those of other rows are below 1.
_NEVER = 2.0
#: Above this number of classes, no sample of a `TopK` is kept for sets: each row has all its
#: classes.
_MOST_COUNTED_CLASSES = 8192
#: Rows of an array in memory whose statistics are found at once: about 200 bytes for
#: each.
_ROWS_AT_A_TIME = 1 << 18


def read_sample(
    examples: Partition, *, rows_per_class: int = 0, refusal: str | None = None
) -> tuple[Examples, ExampleStats]:
    """Read all examples once: the sample, and the statistics of all of them.

    The sample has at least `rows_per_class` times as many rows as there are classes, if
    possible. `refusal` is the message of the error for examples that are too many to
    use all of them.
    """
    keep = partial(_keep_block, rows_per_class=rows_per_class, refusal=refusal)
    stats: ExampleStats = examples.reduce(partial(with_stats, keep)).checked()
    read: _SampledRows = stats.result
    is_whole = read.n_rows <= read.max_whole
    sampled = read.sample()
    block = sampled.block
    if examples.groups is not None:
        if isinstance(block.logits, TopK):
            raise TypeError(
                "`logits` must be (n, classes) where there are `groups`; got a TopK. "
                "Leave the groups out, or pass all logits."
            )
        coding, codes = code_groups(examples.groups, np.concatenate(sampled.counting))
        sample_codes = codes if is_whole else codes[sampled.rows]
        block = replace(
            block, logits=replace(block.logits, codes=sample_codes), coding=coding
        )
    return replace(block, sampled_from=None if is_whole else stats.n_examples), stats


def sample_block(block: Examples) -> Examples:
    """The rows of a block that a method would be fitted on."""
    return _keep_block(block).sample().block


@dataclass(frozen=True, eq=False)
class _SampledRows:
    """How many rows were read, which of them count, and those that can be in the
    sample, in order.

    `keys` and `rows` (k,) are the hashed numbers and the numbers of the rows in
    `block`. All rows are used up to `max_whole` of them; more are refused with the message
    `refusal`, if there is one.
    """

    n_rows: int
    n_counting: int
    counting: tuple[BoolArray, ...]
    keys: FloatArray
    rows: IntArray
    block: Examples
    max_whole: int
    refusal: str | None = None

    def __add__(self, other: _SampledRows) -> _SampledRows:
        """The rows of both, one below the other."""
        blocks = (self.block, other.block)
        logits = [block.logits for block in blocks]
        xp = logits[0].xp
        weights = [block.weights for block in blocks if block.weights is not None]
        if len(weights) == 1:
            raise ValueError(
                "`sample_weight` must be in every chunk or in none; some lack it."
            )
        values = xp.concat([x.values for x in logits])
        top = xp.concat([x.top for x in logits])
        block = Examples(
            Logits(values, top, logits[0].backend),
            np.concatenate([block.labels for block in blocks]),
            np.concatenate(weights) if weights else None,
        )
        joined = replace(
            self,
            n_rows=self.n_rows + other.n_rows,
            n_counting=self.n_counting + other.n_counting,
            counting=self.counting + other.counting,
            keys=np.append(self.keys, other.keys),
            rows=np.append(self.rows, other.rows),
            block=block,
        )
        return joined.sample(spare=2)

    def sample(self, spare: int = 1) -> _SampledRows:
        """The rows with a weight whose keys are smallest, as many as are wanted.

        Itself if all rows are used, or if it has no more than `spare` times the rows
        wanted.
        """
        max_whole = self.max_whole
        if self.refusal and self.n_rows > max_whole:
            raise ValueError(self.refusal)
        wanted = (
            max_whole if self.n_counting <= max_whole else min(MOST_ROWS, max_whole)
        )
        if self.n_rows <= max_whole or (spare > 1 and self.keys.size <= spare * wanted):
            return self
        size = min(wanted, int(np.count_nonzero(self.keys < _NEVER)))
        chosen = np.sort(np.argpartition(self.keys, size - 1)[:size])
        keys = self.keys[chosen]
        rows = self.rows[chosen]
        block = self.block.take(chosen)
        return replace(self, keys=keys, rows=rows, block=block)


def _keep_block(
    block: Examples, rows_per_class: int = 0, refusal: str | None = None
) -> _SampledRows:
    counting = block.counting
    rows = block.first_row + np.arange(block.n_rows)
    keys = np.where(counting, row_draws(block.first_row, block.n_rows), _NEVER)
    columns = block.logits.n_columns
    more = min(rows_per_class * block.n_classes * columns, MOST_FOR_CLASSES)
    max_whole = max(1, max(MOST_LOGITS, more) // columns)
    n_counting = int(counting.sum())
    sampled = _SampledRows(
        block.n_rows, n_counting, (counting,), keys, rows, block, max_whole, refusal
    )
    return sampled.sample(spare=2)


@dataclass(frozen=True)
class ExampleStats:
    """How many examples count, for how many the classifier is wrong, and what the rows
    are like.

    `record` stays with the calibrator; the classifier's scores are counted if all
    weights are equal. `result` is that of the other
    work of the pass over the rows.
    """

    n_examples: int
    n_wrong: int
    has_zeros: bool  # probabilities of 0
    probability_scale: float
    n_second: int  # examples of class 1
    log_probabilities: bool  # whether the exponentials of each row sum to 1
    n_like_probabilities: int  # examples whose logits could be probabilities
    record: FitRecord
    result: Any = None

    def __add__(self, other: Self) -> Self:
        """Of both lots of examples; rows without a weight leave no trace."""
        record = self.record if self.n_examples else other.record
        if self.n_examples and other.n_examples:
            record = self.record + other.record
        return type(self)(
            self.n_examples + other.n_examples,
            self.n_wrong + other.n_wrong,
            self.has_zeros or other.has_zeros,
            min(self.probability_scale, other.probability_scale),
            self.n_second + other.n_second,
            self.log_probabilities and other.log_probabilities,
            self.n_like_probabilities + other.n_like_probabilities,
            record,
            None if self.result is None else self.result + other.result,
        )

    @property
    def like_probabilities(self) -> float:
        """The share of the examples whose logits could be probabilities."""
        return self.n_like_probabilities / max(self.n_examples, 1)

    def checked(self) -> Self:
        """The same, or an error if no example counts."""
        if not self.n_examples:
            raise ValueError(
                "`sample_weight` must not be zero everywhere. Give some a weight."
            )
        return self


def with_stats(work: Callable[[Examples], Any], block: Examples) -> ExampleStats:
    """The statistics of a block's rows, for `Partition.reduce`, with what `work`
    finds.
    """
    blocks = [block]
    step = _ROWS_AT_A_TIME
    if block.logits.is_numpy and block.n_rows > step:
        slices = cut_rows(block.n_rows, step)
        blocks = [
            replace(block.take(rows), first_row=block.first_row + rows.start)
            for rows in slices
        ]
    return replace(reduce(operator.add, map(_stats_of, blocks)), result=work(block))


def _stats_of(block: Examples) -> ExampleStats:
    """The statistics of some rows, with a sample of them, chosen by their numbers
    alone.
    """
    counting = block.counting
    top = block.logits.to_host(block.logits.top)
    n_examples = int(counting.sum())
    record = _record_of(block, top) if n_examples else FitRecord()
    kinds = (~block.correct, block.labels == 1)
    n_wrong, n_second = (int((counting & rows).sum()) for rows in kinds)
    looks = has_zeros(block.logits), probability_scale(block.logits, top)
    log_probabilities = tell_scores(block.logits) == "log-probabilities"
    n_like = int((counting & could_be_probabilities(block.logits)).sum())
    return ExampleStats(
        n_examples, n_wrong, *looks, n_second, log_probabilities, n_like, record
    )


def _record_of(block: Examples, top: FloatArray) -> FitRecord:
    """What a calibrator keeps of some rows, some of which count; `top` (n,) are their
    row maxima.
    """
    counting = block.counting
    log_odds, cells = shift_features(block.logits)
    label_scores = None
    sample = None
    # Of weights whose scale would change a guarantee, and of votes, whose rows are not
    # independent, nothing is counted.
    if block.votes_of is None and np.ptp(block.counts[counting]) == 0.0:
        wrong = ~block.correct
        level = conservative_levels([log_odds], wrong, top)
        label_scores = ScoreTable.from_examples(
            level, wrong, counting.astype(np.float64)
        )
        top_k = isinstance(block.logits, TopK)
        if not top_k or block.n_classes <= _MOST_COUNTED_CLASSES:
            sample = _sample_conformity(block)
    hashes = row_hashes(block.logits)
    classes = ClassFeatures.from_rows(
        cells, block.labels, block.correct, block.counts, block.n_classes
    )
    return FitRecord(
        label_scores=label_scores,
        conformity=sample,
        support=Support.from_rows(log_odds[counting], top[counting]),
        sketch=RowSketch.from_hashes(hashes[counting]),
        class_features=classes,
    )


def _sample_conformity(block: Examples) -> Conformity:
    """Where the softmax places the true classes of a sample of rows that count."""
    counting = block.counting
    key = np.where(counting, row_draws(block.first_row, block.n_rows), _NEVER)
    size = min(SAMPLE_SIZE, key.size)
    rows = np.argpartition(key, size - 1)[:size]
    rows = rows[np.argsort(key[rows])][: int(counting.sum())]
    sample = Conformity.from_rows(
        UncalibratedRule(), [block.logits.take(rows)], block.labels[rows]
    )
    return replace(sample, run=None, key=key[rows])  # ordered sets ask for `certify`


def warn_of_copies(examples: Partition, sketch: RowSketch | None) -> None:
    """Warn if many rows in memory copy others, or are several of each example.

    `sketch` is that of the rows.
    """
    if not isinstance(examples, Examples) or examples.votes_of is not None:
        return
    if sketch is not None and sketch.has_twins:
        marks = RowMarks.of(examples.logits, examples.labels, examples.counts)
        warn_of_copies_in_fit(marks.copies())
    if type(examples.logits) is Logits and examples.weights is None:
        warn_of_repeats_in_fit(examples.logits, examples.labels)


def warn_about_examples(
    method: str, needed: ExamplesNeeded | None, stats: ExampleStats, rule: Rule
) -> None:
    """Warn of what a user should know about the examples that a method fitted the rule
    on.

    Without `needed`, only of scores that look like probabilities.
    """
    if scale := stats.probability_scale:
        kind = "probabilities"
        remedy = "Convert them"
        if scale > 1.0:
            kind = "percentages"
            remedy = "Divide them by 100 and convert them"
        warn_user(
            f"`logits` look like {kind}: all rows lie in [0, {scale:g}] and sum to "
            f"{scale:g}. {remedy} with `hokical.from_probabilities` (--probabilities), "
            "or pass the logits.",
            FitDataWarning,
            cause=f"logits like {kind}",
        )
    if needed is None:
        return
    lacking = _find_lacking(method, needed, stats, rule.core)
    if lacking:
        warn_user(lacking, FitDataWarning, cause="examples to learn from")


def _find_lacking(
    method: str, needed: ExamplesNeeded, stats: ExampleStats, core: Rule
) -> str:
    """Why a method cannot learn all its numbers from the examples, with the remedy; ""
    if it can.
    """
    n = stats.n_examples
    wrong = stats.n_wrong
    if n < FEWEST_EXAMPLES:
        return (
            f"`logits` hold {n} examples, too few to learn from. Use some hundred or "
            "more."
        )
    if wrong == 0:
        return (
            f"`labels` agree with the classifier on all {n:,} examples, as on data "
            "that it was trained on: there is no mistake to learn from. Use examples "
            "that it has not seen, or `hokical.auto`, which shrinks what few can tell."
        )
    remedy = "Use more examples, or `hokical.auto`, which shrinks what few can tell."
    if wrong < needed.mistakes:
        return (
            f"`labels` show {wrong} mistakes; a temperature needs {needed.mistakes}. "
            f"{remedy}"
        )
    rarer = min(stats.n_second, n - stats.n_second)
    if rarer < needed.of_rarer_class:
        return (
            f"`labels` hold {rarer} examples of the rarer class; {method!r} needs "
            f"{needed.of_rarer_class}. {remedy}"
        )
    if n < needed.per_class * (core.n_classes or 0):
        return (
            f"`labels` hold {n:,} examples of {core.n_classes:,} classes; {method!r} "
            f"needs {needed.per_class} a class. {remedy}"
        )
    if wrong < core.n_parameters:
        return (
            f"`labels` show {wrong} mistakes, fewer than the {core.n_parameters} "
            f"numbers that {core.name!r} learns. Use more examples, or a simpler method "
            "such as 'temps'."
        )
    return ""
