"""What a calibrator keeps of its calibration examples, for guarantees that are asked
for later.

`CalibrationData` are counts of examples by their score, a sample of scores for sets,
and a `RowSketch`: a small fingerprint of the rows of the fit, so that the same rows are
not taken for fresh ones. Of the hashes of all rows the smallest are kept, with how
often each was seen. Sketches of parts can be joined in any order, and the share of
given rows that is among those of the fit can be estimated. `ClassScores` are the
distributions of features of each true class, in counts that can be added: `shift`
compares new rows with them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import AnyArray, Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import ArrayOf, check_array, check_choice, sum_by
from hokical._core.groups import GroupNames, read_columns, take_rows
from hokical._core.logits import Logits, TopK, as_logits, by_blocks
from hokical._core.reading import Rows, as_clusters
from hokical._core.runtime import FitDataWarning, warn_user
from hokical._core.special import clip, safe_log
from hokical._core.storage import pack_array, storable
from hokical.guarantees import scores
from hokical.guarantees.scores import CLASS_LEVELS, LEVELS, ScoreTable
from hokical.guarantees.sets import Conformity

#: What to do about rows that look like those of the fit.
Reused = Literal["refuse", "ignore"]
#: How many hashes are kept, and how many columns of a row they are made of.
_KEPT = 512
_COLUMNS = 8
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def scatter(numbers: NDArray[np.uint64]) -> FloatArray:
    """Numbers in [0, 1) that look random, the same for equal ones (SplitMix64, 53
    bits).
    """
    word = (numbers ^ (numbers >> np.uint64(30))) * _MIX[0]
    word = (word ^ (word >> np.uint64(27))) * _MIX[1]
    return ((word ^ (word >> np.uint64(31))) >> np.uint64(11)).astype(
        np.float64
    ) * 2.0**-53


def row_draws(first: int, n_rows: int) -> FloatArray:
    """A number in [0, 1) for each row (n,) by its place alone, `first` that of the
    first.
    """
    return scatter(np.arange(first + 1, first + 1 + n_rows, dtype=np.uint64))


def one_of_each(rows: Rows, cluster: Any) -> Rows:
    """One row of each cluster (n,), drawn by their places, of those of weight above
    0.
    """
    codes = as_clusters(cluster, len(rows.labels))
    draws = row_draws(0, len(rows.labels))
    if rows.weights is not None:
        draws = draws + 2.0 * (rows.weights == 0.0)
    order = np.lexsort((draws, codes))
    kept = np.sort(order[np.unique(codes[order], return_index=True)[1]])
    if rows.groups is not None:
        columns = read_columns(rows.groups, len(rows.labels))
        return rows.take(kept)._replace(groups=take_rows(columns, kept))
    return rows.take(kept)


def row_hashes(logits: Logits) -> FloatArray:
    """A number in [0, 1) for each row (n,), from a few margins in steps of 1/4096.

    So a row has the same one in any batch, library and type, after a log-softmax, and
    after a constant is added.
    """
    # Not all columns, which would move a device's logits.
    places = np.unique(
        np.linspace(0, logits.n_columns - 1, _COLUMNS + 1).astype(np.int64)
    )
    xp = logits.xp
    # Overflow: of logits farther apart than the largest number.
    with logits.backend.in_float64(), np.errstate(over="ignore"):
        few = xp.take(logits.values, logits.from_host(places), axis=1)
        margins = clip(logits.top[:, None] - few, None, 1e12, xp)
        steps = (
            margins * 4096.0 + 2.0**52 - 2.0**52
        )  # as `rint`, in a fifth of the time
        table = logits.to_host(xp.astype(steps, xp.float32))
    if isinstance(logits, TopK):
        table = np.hstack([table, logits.indices[:, places]])
    return number_hashes(table)


def number_words(numbers: AnyArray, columns: IntArray) -> NDArray[np.uint64]:
    """Numbers as words of the same shape, in single precision; 0 is the word 0.

    Each word has a factor of its column's, so that equal numbers in other columns count
    otherwise.
    """
    odd = np.full(columns.max(initial=0) + 1, np.uint64(0x9E3779B97F4A7C15))
    with np.errstate(over="ignore", invalid="ignore"):
        words = (
            (numbers.astype(np.float32, copy=False) + 0.0)
            .view(np.uint32)
            .astype(np.uint64)
        )
    return words * np.multiply.accumulate(odd)[columns]


def number_hashes(table: AnyArray) -> FloatArray:
    """A number in [0, 1) for each row (n,) of numbers (n, columns), from all of
    them.
    """
    # So many rows at a time, as each number takes some 25 bytes.
    step = max(1, (1 << 19) // max(table.shape[1], 1))
    columns = np.arange(table.shape[1])
    cuts = range(0, len(table), step)
    return scatter(
        np.concatenate(
            [number_words(table[k : k + step], columns).sum(axis=1) for k in cuts]
        )
    )


@storable("rows")
@dataclass(frozen=True, eq=False)
class RowSketch:
    """The smallest `hashes` (k,) of rows, rising, and their `counts` (k,)."""

    hashes: Annotated[FloatArray, ArrayOf(("rows",), 0.0, 1.0, rising=True)]
    counts: Annotated[IntArray, ArrayOf(("rows",), 1, 1 << 62, np.int64)]

    @classmethod
    def from_hashes(cls, hashes: FloatArray) -> Self:
        """From hashes (n,) in any order."""
        own, counts = np.unique(hashes, return_counts=True)
        return cls(own[:_KEPT], counts[:_KEPT].astype(np.int64))

    def __add__(self, other: Self) -> Self:
        """Of both lots of rows."""
        own, place = np.unique(
            np.append(self.hashes, other.hashes), return_inverse=True
        )
        counts = np.bincount(place, np.append(self.counts, other.counts), own.size)
        return type(self)(own[:_KEPT], counts[:_KEPT].astype(np.int64))

    def to_stored(self) -> dict[str, Any]:
        return {"hashes": pack_array(self.hashes), "counts": pack_array(self.counts)}

    @property
    def share_of_twins(self) -> float:
        """How often a row comes again by itself (Good and Turing)."""
        return float(
            1.0 - np.count_nonzero(self.counts == 1) / max(self.counts.sum(), 1)
        )

    @property
    def has_twins(self) -> bool:
        """Whether equal rows are no copies of one another, because rows have few
        values.
        """
        return self.share_of_twins > 0.05

    def holds_too_many(self, hashes: FloatArray) -> bool:
        """Whether more of the rows with these hashes (n,) are of the fit than of fresh
        ones.

        Rows of few distinct values come again by themselves: as often as a row of the
        fit has a twin (Good and Turing). Beyond that, 5 % and four standard errors of
        the difference are attributed to coincidence.
        """
        if self.hashes.size == _KEPT:  # beyond the last one nothing is known
            hashes = hashes[hashes <= self.hashes[-1]]
        if not hashes.size or not self.hashes.size:
            return False
        found = np.isin(hashes, self.hashes).mean()
        twins = self.share_of_twins
        once, twice = ((self.counts == k).sum() for k in (1, 2))
        n = float(self.counts.sum())
        spread = (once * (1.0 - once / n) + 2.0 * twice) / n**2 + 0.25 / hashes.size
        return bool(found > twins + 0.05 + 4.0 * np.sqrt(spread))


def warn_of_rows_of_fit(found: bool, name: str | None = None) -> None:
    """Warn if rows of the fit were `found` in data that are to measure it, or in
    their file.
    """
    if found:
        warn_user(
            f"{name or 'the test set'} holds the examples that the calibrator was "
            "fitted on, so it looks better than it is. Use other examples, or "
            "`hokical.evaluate(method, x, y, folds=10)`.",
            FitDataWarning,
        )


def refuse_rows_of_fit(found: bool, name: str, reused: Reused) -> None:
    """Raise if rows of the fit were `found` in the argument `name`, unless `reused`
    allows it.
    """
    check_choice("reused", reused, Reused)
    if found and reused == "refuse":
        raise ValueError(
            f"`{name}` must be of examples that were not used in `fit`; got rows of "
            "the fit, which look better than new ones. Fit on one part of the "
            "examples and certify on the other. "
            'If new rows happen to be identical, pass `reused="ignore"` (--look-alike).'
        )


#: Levels of a feature, coarse enough to hold examples.
_PER_FEATURE_LEVEL = 64
N_LEVELS = LEVELS // _PER_FEATURE_LEVEL
#: Relative error of a class's frequency because the calibrator is no perfect model.
MISFIT = 0.05
#: When a search for frequencies has converged: the mean change of one in a step.
FREQUENCY_TOLERANCE = 1e-7


def shift_features(logits: Logits) -> tuple[FloatArray, IntArray]:
    """Log-odds (n,) of each label, and the cells (n, features), of `N_LEVELS` for each
    feature.

    The features are the log-odds of the label, and how far apart are the best, the
    second and the mean logit. Of two classes, all that there is are the log-odds and
    the label. `TopK`s have none.
    """
    # Features of more classes would be larger than most calibrators.
    none = isinstance(logits, TopK) or logits.n_classes > 4096
    if none or logits.n_classes == 2:
        log_odds = logits.to_host(by_blocks(scores.block_log_odds, logits))
        levels = scores.score_levels(log_odds, _PER_FEATURE_LEVEL)
        levels += N_LEVELS * logits.to_host(logits.labels)
        return log_odds, np.zeros((log_odds.size, 0), np.int64) if none else levels[
            :, None
        ]
    log_odds, second, mean = map(logits.to_host, by_blocks(label_distances, logits))
    numbers = (log_odds, second, mean, mean - second)
    cells = [scores.score_levels(each, _PER_FEATURE_LEVEL) for each in numbers]
    return log_odds, np.stack(
        [cell + N_LEVELS * k for k, cell in enumerate(cells)], axis=1
    )


def label_distances(block: Logits) -> tuple[Array, Array, Array]:
    """Log-odds of the label, and how far the second and the mean of the possible logits
    lie below the best, (n,) each.
    """
    fused = None if block.is_numpy else block.backend.kernels.label_distances(block)
    if fused is not None:
        return -safe_log(fused[0], block.xp), *fused[1:]
    xp = block.xp
    margins = block.margins
    second = block.gaps
    known = margins if block.all_possible else xp.where(block.possible, margins, 0.0)
    mean = xp.sum(known, axis=1) / block.possible_counts
    return scores.block_log_odds(block), xp.where(second < xp.inf, second, 0.0), mean


@storable("class-scores")
@dataclass(frozen=True, eq=False)
class ClassScores:
    """Examples of each class, (classes,), their squared weights, those that the
    classifier itself labels right, and (cells, classes) by features. `implied`
    (classes,) are the class frequencies that calibrated probabilities assume, if known.
    """

    count: Annotated[FloatArray, ArrayOf(("classes",), 0.0, 1e300)]
    square: Annotated[FloatArray, ArrayOf(("classes",), 0.0, 1e300)]
    hit: Annotated[FloatArray, ArrayOf(("classes",), 0.0, 1e300)]
    cells: FloatArray
    implied: FloatArray | None = None

    @classmethod
    def from_rows(
        cls,
        cells: IntArray,
        truth: IntArray,
        right: BoolArray,
        counts: FloatArray,
        n_classes: int,
    ) -> Self:
        """Of examples in these cells (n, features), with true classes, and right
        ones (n,).
        """
        n_features = cells.shape[1]
        n_cells = N_LEVELS * n_features * (2 if n_classes == 2 else 1)
        counts = np.where(
            counts > 0.0, np.clip(counts, 1e-140, 1e140), 0.0
        )  # for their squares
        place = (cells * n_classes + truth[:, None]).ravel()
        table = sum_by(place, np.repeat(counts, n_features), n_cells * n_classes)
        numbers = (counts, counts**2, counts * right)
        count, square, hit = (sum_by(truth, each, n_classes) for each in numbers)
        return cls(count, square, hit, table.reshape(n_cells, n_classes))

    @property
    def frequencies(self) -> FloatArray:
        """The frequency of each class, (classes,)."""
        return np.asarray(self.count / self.count.sum())

    @property
    def effective(self) -> FloatArray:
        """The effective sample size of each class, (classes,)."""
        held = self.square > 0.0
        return np.divide(
            self.count**2, self.square, out=np.zeros(held.size), where=held
        )

    @property
    def assumed_frequencies(self) -> FloatArray:
        """Those that calibrated probabilities assume, (classes,), none 0."""
        implied = self.smoothed_frequencies if self.implied is None else self.implied
        return np.maximum(implied, 1e-9)

    @property
    def farthest_off(self) -> int | None:
        """The class whose assumed frequency is farthest from that of the labels; None
        if chance explains it, or if it is not known what probabilities assume. Of
        classes with examples.
        """
        if self.implied is None:
            return None
        most = np.maximum(self.assumed_frequencies, self.frequencies)
        error = np.sqrt(most / self.effective.sum() + (MISFIT * most) ** 2)
        off = np.abs(self.implied - self.frequencies) / error * (self.count > 0.0)
        # Three standard errors, or more for the largest of many differences;
        # frequencies assumed of many classes are noisy themselves.
        limit = np.sqrt(3.0**2 + 4.0 * np.log(off.size / 2.0))
        return int(off.argmax()) if off.max() > limit else None

    def with_implied(
        self, proba: Array, labels: IntArray, weights: FloatArray, logits: Logits
    ) -> Self:
        """With the frequencies that probabilities (n, classes), where the logits are,
        assume.

        If each class has the frequency that they assume, their mean is that frequency
        too, however frequent the classes are among these examples. Pseudo-examples
        whose probabilities are the frequencies of the labels decide where nearly
        certain scores leave it open.
        """
        order = np.argsort(labels, kind="stable")
        order = order[weights[order] > 0.0]
        sorted_labels = labels[order]
        ends = np.flatnonzero(np.diff(sorted_labels, append=-1))
        present = sorted_labels[
            ends
        ]  # classes (k,) with examples, and their means (k, classes)
        share = (
            weights[order]
            / sum_by(labels, weights, int(labels.max()) + 1)[sorted_labels]
        )
        xp = logits.xp
        there = logits.from_host(order)
        last = logits.from_host(ends)
        rows = xp.take(proba, there, axis=0) * logits.from_host(share)[:, None]
        sums = logits.to_host(xp.take(xp.cumulative_sum(rows, axis=0), last, axis=0))
        means = np.diff(sums, axis=0, prepend=np.zeros((1, sums.shape[1])))
        around = self.smoothed_frequencies
        n = 1.0 / float(np.sum((weights / weights.sum()) ** 2))
        trust = n / (
            n + 0.5 * around.size**2
        )  # half a pseudo-example for each pair of classes
        trusted = trust * means
        known = around[present]
        for _ in range(100):
            last = known
            found = known @ trusted + (1.0 - trust * known.sum()) * around
            known = found[present]
            if np.abs(known - last).max() < FREQUENCY_TOLERANCE:
                break
        return replace(self, implied=found)

    @property
    def smoothed_frequencies(self) -> FloatArray:
        """The frequencies behind the counts, (classes,), none 0.

        Pseudo-counts by the counts' own spread (a Dirichlet prior around equal shares,
        moments matched), at least half an example for each class.
        """
        n = self.effective.sum()
        classes = self.count.size
        count = self.count / self.count.sum() * n
        spread = float(
            ((count - n / classes) ** 2).sum() / (n / classes) / (classes - 1)
        )
        if spread <= 1.0:
            return np.full(classes, 1.0 / classes)
        prior = max((n - spread) / (spread - 1.0), 0.5 * classes)
        return np.asarray((count + prior / classes) / (n + prior))

    def __add__(self, other: Self) -> Self:
        names = ("count", "square", "hit", "cells")
        return type(self)(
            *(getattr(self, name) + getattr(other, name) for name in names)
        )

    def reweighted(self, weights: FloatArray) -> Self:
        """Of examples among which each class is `weights` (classes,) times as
        frequent.
        """
        numbers = (self.count * weights, self.square * weights**2, self.hit * weights)
        implied = None
        if self.implied is not None:
            implied = self.assumed_frequencies * weights
            implied = implied / max(implied.sum(), 1e-300)
        return type(self)(*numbers, self.cells * weights, implied)

    def to_stored(self) -> dict[str, Any]:
        """Cells that hold examples, by number: most are empty."""
        place = np.flatnonzero(self.cells).astype(np.int32)
        arrays = {
            "place": pack_array(place),
            "held": pack_array(self.cells.ravel()[place]),
        }
        sums = {
            name: getattr(self, name) for name in ("count", "square", "hit", "implied")
        }
        return sums | arrays | {"n_cells": len(self.cells)}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`."""
        if stored["n_cells"] not in (0, 2 * N_LEVELS, 4 * N_LEVELS):
            raise ValueError(f"`class_scores` has {stored['n_cells']} cells")
        cells = np.zeros((stored["n_cells"], stored["count"].size))
        cells.ravel()[stored["place"]] = stored["held"]
        found = cls(
            stored["count"],
            stored["square"],
            stored["hit"],
            cells,
            stored.get("implied"),
        )
        if not found.count.any() or found.square[found.count == 0.0].any():
            raise ValueError(
                "`class_scores` must hold counts, and squares of nothing else."
            )
        check_array("cells", cells, cells.shape, 0.0, 1e300)
        if found.implied is not None:
            check_array("implied", found.implied, found.count.shape, 0.0, 1e300)
        return found


@storable("group-scores")
@dataclass(frozen=True, eq=False)
class GroupScores:
    """Class scores of the groups of a fit that have enough examples.

    `codes` (groups, columns) are those of the groups by the coding of the rule,
    `scores` are of the examples of each, with the frequencies that the probabilities of
    that group assume.
    """

    codes: IntArray
    scores: tuple[ClassScores, ...]

    def __post_init__(self) -> None:
        shapes = {each.cells.shape for each in self.scores}
        if (
            self.codes.ndim != 2
            or len(self.codes) != len(self.scores)
            or len(shapes) > 1
        ):
            raise ValueError("`group_scores` must hold the class scores of each group.")

    @classmethod
    def from_rows(
        cls, logits: Logits, proba: FloatArray, labels: IntArray, weights: FloatArray
    ) -> Self:
        """Of examples with codes of groups, and probabilities (n, classes) on the
        host.
        """
        codes, place = np.unique(np.asarray(logits.codes), axis=0, return_inverse=True)
        place = place.ravel()
        n_classes = logits.n_classes
        sizes = np.bincount(place, weights > 0.0)
        cells = shift_features(logits)[1]
        right = logits.to_host(logits.labels) == labels
        # At most 64 groups and 2^22 counts, of groups with at least 100 examples.
        most = min(64, (1 << 22) // (N_LEVELS * max(cells.shape[1], 1) * 2 * n_classes))
        chosen = np.argsort(-sizes, kind="stable")[:most]
        chosen = np.sort(chosen[sizes[chosen] >= 100])
        found = []
        for k in chosen:
            own = np.flatnonzero(place == k)
            rows = proba[own]
            truth = labels[own]
            counts = weights[own]
            each = ClassScores.from_rows(
                cells[own], truth, right[own], counts, n_classes
            )
            found.append(each.with_implied(rows, truth, counts, as_logits(rows)))
        return cls(codes[chosen], tuple(found))


#: Examples that are kept for prediction sets: a sample, so that a fitted calibrator
#: stays small.
SAMPLE_SIZE = 2048


#: Some examples of `certify`: where their true classes are, the level (n,) of the
#: label's score, whether the label is wrong (n,), counts by each class, and the columns
#: of groups.
HeldOutPart = tuple[
    Conformity, IntArray, BoolArray, ScoreTable | None, dict[str, AnyArray] | None
]


@dataclass(frozen=True, eq=False)
class CalibrationData:
    """Statistics of the examples of a fit, and of those of `certify`; None where not
    available.
    """

    #: Counts by the classifier's own score on the examples of the fit.
    fit_scores: ScoreTable | None = None
    #: Counts by the calibrated confidence on a sample of them, for monitors.
    fit_confidences: ScoreTable | None = None
    #: Counts by the calibrated confidence on the examples of `certify`.
    held_out_scores: ScoreTable | None = None
    #: The range of the rows of the fit.
    support: scores.Support | None = None
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
        for name, known in vars(self).items():
            fits = True
            if isinstance(known, Conformity):
                fits = known.n > 0 and known.labels.max() < n_classes
            elif isinstance(known, ScoreTable):
                by_class = name == "held_out_classes"
                shape = (
                    (n_classes, CLASS_LEVELS)
                    if by_class
                    else (*known.count.shape[:-1], LEVELS)
                )
                fits = known.count.shape == shape
            elif isinstance(known, (ClassScores, GroupScores)):
                own = known.scores if isinstance(known, GroupScores) else (known,)
                fits = all(each.count.size == n_classes for each in own)
            if not fits:
                yield name

    def without_fit(self) -> Self:
        """Without what the examples of the fit would prove, where they are not
        independent.
        """
        return replace(self, fit_scores=None, fit_confidences=None, fit_conformity=None)

    def without_held_out(self) -> Self:
        """Without what `certify` noted."""
        return replace(
            self, held_out_scores=None, held_out_conformity=None, held_out_classes=None
        )

    def with_held_out(
        self,
        parts: Sequence[HeldOutPart],
        unseen: Sequence[HeldOutPart],
        clustered: bool,
    ) -> Self:
        """With the examples of `certify`, in place of earlier ones.

        `unseen` are the same with the predictions for groups that the fit does not
        know. Examples may be `clustered`: one of each cluster.
        """
        noted, levels, wrong, tables, named = zip(*parts, strict=True)
        other = (
            type(self)().with_held_out(unseen, (), clustered)
            if unseen
            else type(self)()
        )
        examples = reduce(operator.add, noted)
        # Equal weights mean nothing, unless a new example may weigh more than each of
        # these, as an item of many positions does.
        equal = (
            examples.weights is not None and (examples.weights == examples.unit).all()
        )
        if equal and not examples.counted:
            examples = replace(examples, weights=None, unit=1.0)
        groups = None
        if all(columns is not None for columns in named):
            if len({frozenset(columns) for columns in named}) > 1:
                raise ValueError("`groups` must have the same columns in all parts.")
            joined = {
                name: np.concatenate([each[name] for each in named])
                for name in named[0]
            }
            groups = GroupNames.from_rows(joined, examples.n)
            examples = replace(examples, group_names=groups[0], group=groups[1])
        beside = replace(
            examples, unseen=other.held_out_conformity, clustered=clustered
        )
        left = replace(self.without_held_out(), held_out_conformity=beside)
        if not examples.counted:
            return left
        rows = np.concatenate(levels), np.concatenate(wrong)
        counts = ScoreTable.from_examples(*rows, examples.counts, groups)
        counts = replace(counts, unseen=other.held_out_scores, clustered=clustered)
        classes = (
            None
            if any(each is None for each in tables)
            else reduce(operator.add, tables)
        )
        return replace(left, held_out_scores=counts, held_out_classes=classes)

    def __add__(self, other: Self) -> Self:
        """Of the examples of two fits; of a sample of each, shares as large as the
        fits.
        """
        known = [
            each.class_scores for each in (self, other) if each.class_scores is not None
        ]
        weights = [classes.square.sum() / classes.count.sum() for classes in known]
        alike = len(weights) == 2 and math.isclose(*weights, rel_tol=1e-12)
        own = vars(self)
        names = ["support", "fit_rows", "class_scores"]
        names += ["fit_scores", "fit_conformity"] * alike
        both = [name for name in names if None not in (own[name], getattr(other, name))]
        joined = {name: own[name] + getattr(other, name) for name in both}
        sample = joined.pop("fit_conformity", None)
        if (
            sample is not None and sample.key is not None
        ):  # those of files of 0.3 have no keys
            chosen = np.argsort(sample.key, kind="stable")[:SAMPLE_SIZE]
            joined["fit_conformity"] = sample.take(chosen)
        return type(self)(**joined)
