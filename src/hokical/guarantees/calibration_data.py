"""What a calibrator keeps of its calibration examples, for guarantees that are asked for later.

`CalibrationData` are counts of examples by their score, a sample of scores for sets, and a
`RowSketch`: a small fingerprint of the rows of the fit, so that the same rows are not taken for
fresh ones. Of the hashes of all rows the smallest are kept, with how often each was seen. Sketches
of parts can be joined in any order, and the share of given rows that is among those of the fit can
be estimated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, to_float64
from hokical._core.checks import check_choice
from hokical._core.groups import GroupNames, read_columns, take_rows
from hokical._core.logits import Logits
from hokical._core.messages import FitDataWarning, warn_user
from hokical._core.parallel import cut_rows
from hokical._core.reading import Rows, as_clusters
from hokical._core.special import at_most
from hokical._core.storage import pack_array, storable
from hokical._core.topk import TopK
from hokical.guarantees.class_scores import ClassScores, GroupScores
from hokical.guarantees.scores import CLASS_LEVELS, LEVELS, ScoreTable, Support
from hokical.guarantees.sets import Conformity

#: What to do about rows that look like those of the fit.
Reused = Literal["refuse", "ignore"]
#: How many hashes are kept, and how many columns of a row they are made of.
_KEPT, _COLUMNS = 512, 8
#: Steps of a margin that tell rows apart, and the largest margin that does.
_PER_UNIT, _FARTHEST = 4096.0, 1e12
#: The share of equal rows in a fit up to which they are copies.
_FEW_TWINS = 0.05
#: Added to a number from 0 to itself it leaves the nearest whole one.
_ROUNDER = 2.0**52
#: Rows that are hashed at a time, as each takes some 200 bytes.
_AT_A_TIME = 1 << 16
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def scatter(numbers: NDArray[np.uint64]) -> FloatArray:
    """Numbers in [0, 1) that look random, the same for equal ones (SplitMix64, 53 bits)."""
    word = (numbers ^ (numbers >> np.uint64(30))) * _MIX[0]
    word = (word ^ (word >> np.uint64(27))) * _MIX[1]
    return ((word ^ (word >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def row_draws(first: int, n_rows: int) -> FloatArray:
    """A number in [0, 1) for each row (n,) by its place alone, `first` that of the first."""
    return scatter(np.arange(first + 1, first + 1 + n_rows, dtype=np.uint64))


def one_of_each(rows: Rows, cluster: Any) -> Rows:
    """One row of each cluster (n,), drawn by their places, of those of weight above 0."""
    codes, draws = as_clusters(cluster, len(rows.labels)), row_draws(0, len(rows.labels))
    if rows.weights is not None:
        draws = draws + 2.0 * (rows.weights == 0.0)
    order = np.lexsort((draws, codes))
    kept = np.sort(order[np.unique(codes[order], return_index=True)[1]])
    groups = rows.groups
    if groups is not None and not isinstance(groups, np.ndarray):
        groups = take_rows(read_columns(groups, len(rows.labels)), kept)
    elif groups is not None:
        groups = groups[kept]
    return rows.take(kept)._replace(groups=groups)


def row_hashes(logits: Logits) -> FloatArray:
    """A number in [0, 1) for each row (n,), from a few margins in steps of 1/4096.

    So a row has the same one in any batch, library and type, after a log-softmax, and after a
    constant is added.
    """
    # Not all columns, which would move a device's logits.
    places = np.unique(np.linspace(0, logits.n_columns - 1, _COLUMNS + 1).astype(np.int64))
    xp = logits.xp
    # Overflow: of logits farther apart than the largest number.
    with logits.backend.in_float64(), np.errstate(over="ignore"):
        few = to_float64(xp.take(logits.values, logits.from_host(places), axis=1), xp)
        margins = at_most(to_float64(logits.top, xp)[:, None] - few, _FARTHEST, xp)
        steps = margins * _PER_UNIT + _ROUNDER - _ROUNDER  # as `rint`, in a fifth of the time
        table = logits.to_host(xp.astype(steps, xp.float32))
    if isinstance(logits, TopK):
        table = np.hstack([table, logits.indices[:, places]])
    return number_hashes(table)


def odd_powers(n: int) -> NDArray[np.uint64]:
    """A factor (n,) for each column, so that equal numbers in other columns count otherwise."""
    return np.multiply.accumulate(np.full(n, _ODD))


def number_words(numbers: AnyArray) -> NDArray[np.uint64]:
    """Numbers as words of the same shape, in single precision; 0 is the word 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (numbers.astype(np.float32, copy=False) + 0.0).view(np.uint32).astype(np.uint64)


def number_hashes(table: AnyArray) -> FloatArray:
    """A number in [0, 1) for each row (n,) of numbers (n, columns), from all of them."""
    step, odd = max(1, _AT_A_TIME * _COLUMNS // max(table.shape[1], 1)), odd_powers(table.shape[1])
    cuts = cut_rows(len(table), step)
    return scatter(np.concatenate([number_words(table[rows]) @ odd for rows in cuts]))


@storable("rows")
@dataclass(frozen=True, eq=False)
class RowSketch:
    """The smallest `hashes` (k,) of rows, rising, and their `counts` (k,)."""

    hashes: FloatArray
    counts: IntArray

    def __post_init__(self) -> None:
        kinds = (self.hashes.dtype.kind, self.counts.dtype.kind)
        rising = kinds == ("f", "i") and (np.diff(self.hashes) > 0.0).all()
        if not rising or self.hashes.shape != self.counts.shape or (self.counts < 1).any():
            raise ValueError("a sketch of rows must hold rising hashes and how often each was seen")

    @classmethod
    def from_hashes(cls, hashes: FloatArray, counts: IntArray | None = None) -> Self:
        """From hashes (n,) in any order, and how often each was seen."""
        own = np.unique(hashes)[:_KEPT]
        kept = hashes <= own[-1] if own.size else np.zeros(0, np.bool_)
        place = np.searchsorted(own, hashes[kept])
        total = np.bincount(place, None if counts is None else counts[kept], own.size)
        return cls(own, total.astype(np.int64))

    def __or__(self, other: Self) -> Self:
        """Of both lots of rows."""
        pairs = zip((self.hashes, self.counts), (other.hashes, other.counts), strict=True)
        return self.from_hashes(*(np.concatenate(pair) for pair in pairs))

    def to_stored(self) -> dict[str, object]:
        return {"hashes": pack_array(self.hashes), "counts": pack_array(self.counts)}

    @property
    def share_of_twins(self) -> float:
        """How often a row comes again by itself (Good and Turing)."""
        return float(1.0 - np.count_nonzero(self.counts == 1) / max(self.counts.sum(), 1))

    @property
    def has_twins(self) -> bool:
        """Whether equal rows are no copies of one another, because rows have few values."""
        return self.share_of_twins > _FEW_TWINS

    def holds_too_many(self, hashes: FloatArray) -> bool:
        """Whether more of the rows with these hashes (n,) are of the fit than of fresh ones.

        Rows of few distinct values come again by themselves: as often as a row of the fit has a
        twin (Good and Turing). Beyond that, 5 % and four standard errors of the difference are
        attributed to coincidence.
        """
        if self.hashes.size == _KEPT:  # beyond the last one nothing is known
            hashes = hashes[hashes <= self.hashes[-1]]
        if not hashes.size or not self.hashes.size:
            return False
        found, twins = np.isin(hashes, self.hashes).mean(), self.share_of_twins
        once, twice = ((self.counts == k).sum() for k in (1, 2))
        n = float(self.counts.sum())
        spread = (once * (1.0 - once / n) + 2.0 * twice) / n**2 + 0.25 / hashes.size
        return bool(found > twins + 0.05 + 4.0 * np.sqrt(spread))


def warn_of_rows_of_fit(found: bool, name: str | None = None) -> None:
    """Warn if rows of the fit were `found` in data that are to measure it, or in their file."""
    if found:
        warn_user(
            f"{name or 'the test set'} holds the examples that the calibrator was fitted on, so it "
            "looks better than it is. Use other examples, or `hokical.evaluate(method, x, y, "
            "folds=10)`.",
            FitDataWarning,
        )


def refuse_rows_of_fit(found: bool, name: str, reused: Reused) -> None:
    """Raise if rows of the fit were `found` in the argument `name`, unless `reused` allows it."""
    check_choice("reused", reused, Reused)
    if found and reused == "refuse":
        raise ValueError(
            f"`{name}` must be of examples that were not used in `fit`; got rows of the fit. They "
            "look better than new ones, so what they certify would not hold. Split the labelled "
            "examples: fit on one part and certify on the other. If they are new rows that "
            'happen to be identical, pass `reused="ignore"` (--look-alike).'
        )


#: Examples that are kept for prediction sets: a sample, so that a fitted calibrator stays small.
SAMPLE_SIZE = 2048


class HeldOutPart(NamedTuple):
    """Some examples of `certify`: where their true classes are, the `level` (n,) of the label's
    score, whether the label is `wrong` (n,), counts by each class, and the columns of groups.
    """

    examples: Conformity
    level: IntArray
    wrong: BoolArray
    classes: ScoreTable | None
    groups: dict[str, AnyArray] | None


@dataclass(frozen=True, eq=False)
class CalibrationData:
    """Statistics of the examples of a fit, and of those of `certify`; None where not available."""

    #: Counts by the classifier's own score on the examples of the fit.
    fit_scores: ScoreTable | None = None
    #: Counts by the calibrated confidence on a sample of them, for monitors.
    fit_confidences: ScoreTable | None = None
    #: Counts by the calibrated confidence on the examples of `certify`.
    held_out_scores: ScoreTable | None = None
    #: The range of the rows of the fit.
    support: Support | None = None
    #: Where the classifier's softmax places the true classes of a sample of the fit.
    fit_conformity: Conformity | None = None
    #: Where the calibrated probabilities place those of `certify`.
    held_out_conformity: Conformity | None = None
    #: Those of `certify` by the calibrated probability of each class.
    held_out_classes: ScoreTable | None = None
    #: A fingerprint of the rows of the fit, which cannot certify it.
    fit_rows: RowSketch | None = None
    #: Features of the rows of the fit by true class.
    class_scores: ClassScores | None = None
    #: The same of groups, where the rule depends on them.
    group_scores: GroupScores | None = None

    def unsuitable(self, n_classes: int) -> Iterator[str]:
        """The names of what cannot be of so many classes, in a forged file."""
        for name, noted in vars(self).items():
            fits = True
            if isinstance(noted, Conformity):
                fits = noted.n > 0 and noted.labels.max() < n_classes
            elif isinstance(noted, ClassScores):
                fits = noted.n_classes == n_classes
            elif isinstance(noted, GroupScores):
                fits = all(each.n_classes == n_classes for each in noted.scores)
            elif isinstance(noted, ScoreTable) and name == "held_out_classes":
                fits = noted.count.shape == (n_classes, CLASS_LEVELS)
            elif isinstance(noted, ScoreTable):
                fits = noted.count.shape[-1] == LEVELS
            if not fits:
                yield name

    def without_fit(self) -> Self:
        """Without what the examples of the fit would prove, where they are not independent."""
        gone = ("fit_scores", "fit_confidences", "fit_conformity")
        return replace(self, **dict.fromkeys(gone))

    def without_held_out(self) -> Self:
        """Without what `certify` noted."""
        gone = ("held_out_scores", "held_out_conformity", "held_out_classes")
        return replace(self, **dict.fromkeys(gone))

    def with_held_out(
        self,
        parts: Sequence[HeldOutPart],
        unseen: Sequence[HeldOutPart] = (),
        *,
        clustered: bool = False,
    ) -> Self:
        """With the examples of `certify`, in place of earlier ones.

        `unseen` are the same with the predictions for groups that the fit does not know. Examples
        may be `clustered`: one of each cluster.
        """
        if unseen:
            found, alone = (self.with_held_out(p, clustered=clustered) for p in (parts, unseen))
            scores, examples = found.held_out_scores, found.held_out_conformity
            if scores is not None:
                scores = replace(scores, unseen=alone.held_out_scores)
            if examples is not None:
                examples = replace(examples, unseen=alone.held_out_conformity)
            return replace(found, held_out_scores=scores, held_out_conformity=examples)
        noted, levels, wrong, tables, named = zip(*parts, strict=True)
        examples = replace(reduce(operator.add, noted).settled(), clustered=clustered)
        groups = None
        if (columns := _join_columns(named)) is not None:
            groups = GroupNames.from_rows(columns, examples.n)
            examples = replace(examples, group_names=groups[0], group=groups[1])
        left = replace(self.without_held_out(), held_out_conformity=examples)
        if not examples.counted:
            return left
        rows = np.concatenate(levels), np.concatenate(wrong)
        counts = ScoreTable.from_examples(*rows, examples.counts, groups)
        counts = replace(counts, clustered=clustered)
        classes = reduce(partial(_if_both, operator.add), tables)
        return replace(left, held_out_scores=counts, held_out_classes=classes)

    def __add__(self, other: Self) -> Self:
        """Of the examples of two fits; of a sample of each, shares as large as the fits."""
        known = [each.class_scores for each in (self, other) if each.class_scores is not None]
        weights = [classes.square.sum() / classes.count.sum() for classes in known]
        alike = len(weights) == 2 and math.isclose(*weights, rel_tol=1e-12)
        counted = self if alike else type(self)()
        return type(self)(
            fit_scores=_if_both(operator.add, counted.fit_scores, other.fit_scores),
            support=_if_both(operator.or_, self.support, other.support),
            fit_conformity=_if_both(_join_samples, counted.fit_conformity, other.fit_conformity),
            fit_rows=_if_both(operator.or_, self.fit_rows, other.fit_rows),
            class_scores=_if_both(operator.add, self.class_scores, other.class_scores),
        )


def _join_samples(left: Conformity, right: Conformity) -> Conformity | None:
    """A sample of two fits; None if one is of a file of 0.3, which has no keys."""
    both = left + right
    if both.key is None:
        return None
    return both.take(np.argsort(both.key, kind="stable")[:SAMPLE_SIZE])


def _join_columns(parts: Sequence[dict[str, AnyArray] | None]) -> dict[str, AnyArray] | None:
    """The columns of all parts, matched by name; None unless all have some."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if len({frozenset(part) for part in known}) > 1:
        raise ValueError("`groups` must have the same columns in all parts.")
    return {name: np.concatenate([part[name] for part in known]) for name in known[0]}


def _if_both(join: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    return None if left is None or right is None else join(left, right)
