"""Distributions of features of the rows of each true class, in counts that add up.

`ClassFeatures` are those of the examples of a fit, `GroupFeatures` those of the groups that
have enough examples: `shift` compares new rows with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np

from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import ArrayOf, check_array, sum_by
from hokical._core.logits import Logits, TopK, as_logits, by_blocks
from hokical._core.special import safe_log
from hokical._core.storage import pack_array, storable
from hokical.guarantees import scores
from hokical.guarantees.scores import LEVELS

#: Levels of a feature, coarse enough to hold examples.
_PER_FEATURE_LEVEL = 64
N_LEVELS = LEVELS // _PER_FEATURE_LEVEL
#: Relative error of a class's frequency because the calibrator is no perfect model.
MISFIT = 0.05
#: Classes up to which the error of implied frequencies is found, by matrices of
#: examples by classes.
_MAX_CLASSES_WITH_ERROR = 64
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
        no_cells = np.zeros((log_odds.size, 0), np.int64)
        return log_odds, no_cells if none else levels[:, None]
    log_odds, second, mean = map(logits.to_host, by_blocks(label_distances, logits))
    numbers = (log_odds, second, mean, mean - second)
    cells = [scores.score_levels(number, _PER_FEATURE_LEVEL) for number in numbers]
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
    possible_margins = (
        margins if block.all_possible else xp.where(block.possible, margins, 0.0)
    )
    mean = xp.sum(possible_margins, axis=1) / block.possible_counts
    return scores.block_log_odds(block), xp.where(second < xp.inf, second, 0.0), mean


@storable("class-scores")
@dataclass(frozen=True, eq=False)
class ClassFeatures:
    """Examples of each class, (classes,), their squared weights, those that the
    classifier itself labels right, and (cells, classes) by features. `implied`
    (classes,) are the class frequencies that calibrated probabilities assume, if known,
    and `implied_error` (classes,) their standard errors.
    """

    count: Annotated[FloatArray, ArrayOf(("classes",), 0.0, 1e150)]
    square: Annotated[FloatArray, ArrayOf(("classes",), 0.0, 1e300)]
    hit: Annotated[FloatArray, ArrayOf(("classes",), 0.0, 1e150)]
    cells: FloatArray
    implied: FloatArray | None = None
    implied_error: FloatArray | None = None

    @classmethod
    def from_rows(
        cls,
        cells: IntArray,
        truth: IntArray,
        correct: BoolArray,
        counts: FloatArray,
        n_classes: int,
    ) -> Self:
        """Of examples in these cells (n, features), with true classes, and right
        ones (n,).
        """
        n_features = cells.shape[1]
        n_cells = N_LEVELS * n_features * (2 if n_classes == 2 else 1)
        # Within bounds whose squares are finite.
        counts = np.where(counts > 0.0, np.clip(counts, 1e-140, 1e140), 0.0)
        index = (cells * n_classes + truth[:, None]).ravel()
        table = sum_by(index, np.repeat(counts, n_features), n_cells * n_classes)
        numbers = (counts, counts**2, counts * correct)
        count, square, hit = (sum_by(truth, amounts, n_classes) for amounts in numbers)
        return cls(count, square, hit, table.reshape(n_cells, n_classes))

    @property
    def frequencies(self) -> FloatArray:
        """The frequency of each class, (classes,)."""
        return np.asarray(self.count / self.count.sum())

    @property
    def effective(self) -> FloatArray:
        """The effective sample size of each class, (classes,)."""
        has_examples = self.square > 0.0
        return np.divide(
            self.count**2,
            self.square,
            out=np.zeros(has_examples.size),
            where=has_examples,
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
        noise = 0.0 if self.implied_error is None else self.implied_error
        error = np.sqrt(most / self.effective.sum() + (MISFIT * most) ** 2 + noise**2)
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
        last_rows = np.flatnonzero(np.diff(sorted_labels, append=-1))
        present = sorted_labels[last_rows]  # classes (k,) with examples
        totals = sum_by(labels, weights, int(labels.max()) + 1)
        share = weights[order] / totals[sorted_labels]
        xp = logits.xp
        rows = xp.take(proba, logits.from_host(order), axis=0)
        weighted = rows * logits.from_host(share)[:, None]
        sums = xp.cumulative_sum(weighted, axis=0)
        sums = logits.to_host(xp.take(sums, logits.from_host(last_rows), axis=0))
        means = np.diff(sums, axis=0, prepend=np.zeros((1, sums.shape[1])))
        around = self.smoothed_frequencies
        n = 1.0 / float(np.sum((weights / weights.sum()) ** 2))
        # Half a pseudo-example for each pair of classes.
        trust = n / (n + 0.5 * around.size**2)
        steps = np.broadcast_to(around, (around.size, around.size)).copy()
        steps[present] = trust * means + (1.0 - trust) * around
        implied = _stationary(steps, around, present)
        error = None
        if around.size <= _MAX_CLASSES_WITH_ERROR:
            index = np.searchsorted(present, sorted_labels)
            # What has a number per class and example stays where it is.
            centres = xp.take(logits.from_host(means), logits.from_host(index), axis=0)
            moves = xp.astype(rows, xp.float64) - centres
            factors = trust * share * implied[sorted_labels]
            moves *= logits.from_host(factors)[:, None]
            error = _stationary_error(steps, implied, moves, logits)
        return replace(self, implied=implied, implied_error=error)

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

    def __add__(self, second: Self) -> Self:
        return type(self)(
            self.count + second.count,
            self.square + second.square,
            self.hit + second.hit,
            self.cells + second.cells,
        )

    def reweighted(self, weights: FloatArray) -> Self:
        """Of examples among which each class is `weights` (classes,) times as
        frequent.
        """
        numbers = (self.count * weights, self.square * weights**2, self.hit * weights)
        implied = None
        error = None
        if self.implied is not None:
            implied = self.assumed_frequencies * weights
            total = max(implied.sum(), 1e-300)
            implied = implied / total
            if self.implied_error is not None:
                error = self.implied_error * weights / total
        return type(self)(*numbers, self.cells * weights, implied, error)

    def to_stored(self) -> dict[str, Any]:
        """Cells that hold examples, by number: most are empty."""
        occupied = np.flatnonzero(self.cells).astype(np.int32)
        arrays = {
            "place": pack_array(occupied),
            "held": pack_array(self.cells.ravel()[occupied]),
        }
        sums = {
            "count": self.count,
            "square": self.square,
            "hit": self.hit,
            "implied": self.implied,
            "implied_error": self.implied_error,
        }
        return sums | arrays | {"n_cells": len(self.cells)}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`."""
        if stored["n_cells"] not in (0, 2 * N_LEVELS, 4 * N_LEVELS):
            raise ValueError(f"`class_features` has {stored['n_cells']} cells")
        cells = np.zeros((stored["n_cells"], stored["count"].size))
        cells.ravel()[stored["place"]] = stored["held"]
        class_features = cls(
            stored["count"],
            stored["square"],
            stored["hit"],
            cells,
            stored.get("implied"),
            stored.get("implied_error"),
        )
        if (
            not class_features.count.any()
            or class_features.square[class_features.count == 0.0].any()
        ):
            raise ValueError(
                "`class_features` must hold counts, and squares of nothing else."
            )
        check_array("cells", cells, cells.shape, 0.0, 1e300)
        for name in ("implied", "implied_error"):
            if stored.get(name) is not None:
                check_array(name, stored[name], class_features.count.shape, 0.0, 1e300)
        return class_features


def _stationary(steps: FloatArray, around: FloatArray, present: IntArray) -> FloatArray:
    """Frequencies (classes,) that steps (classes, classes) from class to class keep.

    Only rows of classes that are `present` differ from `around`, where it starts.
    """
    away = steps[present] - around
    shares = around[present]
    for _ in range(100):
        frequencies = around + shares @ away
        last = shares
        shares = frequencies[present]
        if np.abs(shares - last).max() < FREQUENCY_TOLERANCE:
            break
    return np.asarray(frequencies)


def _stationary_error(
    steps: FloatArray, frequencies: FloatArray, moves: Array, logits: Logits
) -> FloatArray:
    """Standard errors (classes,) of frequencies that steps keep.

    Each example adds its `moves` (n, classes), in the library of the logits, to one
    step from the frequencies. What follows of a move is by the fundamental matrix of
    the steps, a Markov chain.
    """
    size = frequencies.size
    fundamental = np.linalg.inv(np.eye(size) - steps + frequencies)
    influence = moves @ logits.from_host(fundamental)
    variances = logits.to_host(logits.xp.sum(influence**2, axis=0))
    return np.asarray(np.sqrt(variances))


@storable("group-scores")
@dataclass(frozen=True, eq=False)
class GroupFeatures:
    """Class scores of the groups of a fit that have enough examples.

    `codes` (groups, columns) are those of the groups by the coding of the rule,
    `scores` are of the examples of each, with the frequencies that the probabilities of
    that group assume.
    """

    codes: IntArray
    scores: tuple[ClassFeatures, ...]

    def __post_init__(self) -> None:
        shapes = {scores.cells.shape for scores in self.scores}
        if (
            self.codes.ndim != 2
            or len(self.codes) != len(self.scores)
            or len(shapes) > 1
        ):
            raise ValueError(
                "`group_features` must hold the class scores of each group."
            )

    @classmethod
    def from_rows(
        cls, logits: Logits, proba: FloatArray, labels: IntArray, weights: FloatArray
    ) -> Self:
        """Of examples with codes of groups, and probabilities (n, classes) on the
        host.
        """
        codes, group_index = np.unique(
            np.asarray(logits.codes), axis=0, return_inverse=True
        )
        group_index = group_index.ravel()
        n_classes = logits.n_classes
        sizes = np.bincount(group_index, weights > 0.0)
        cells = shift_features(logits)[1]
        correct = logits.to_host(logits.labels) == labels
        # At most 64 groups and 2^22 counts, of groups with at least 100 examples.
        max_groups = min(
            64, (1 << 22) // (N_LEVELS * max(cells.shape[1], 1) * 2 * n_classes)
        )
        chosen = np.argsort(-sizes, kind="stable")[:max_groups]
        chosen = np.sort(chosen[sizes[chosen] >= 100])
        by_group = []
        for k in chosen:
            members = np.flatnonzero(group_index == k)
            rows = proba[members]
            truth = labels[members]
            counts = weights[members]
            group_features = ClassFeatures.from_rows(
                cells[members], truth, correct[members], counts, n_classes
            )
            by_group.append(
                group_features.with_implied(rows, truth, counts, as_logits(rows))
            )
        return cls(codes[chosen], tuple(by_group))
