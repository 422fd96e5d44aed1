"""The distribution of features of each true class in the fit: counts that can be added.

Under label shift rows of one class are distributed as before, whatever their frequency. So new rows
must be distributed like the calibration examples, weighted by how much more frequent each class has
become; where they are not, something else has changed.

Then p'(k | x) is proportional to p(k | x) w_k, where w is the new frequency divided by that of the
fit. The new frequencies are the means of p', which EM finds, with pseudo-counts along the old ones:
without them classes that do not occur get a weight of 0, and the first row of such a class an
infinite loss. Uncertainty is by the delta method: how each new row, and each calibration example,
moves the estimate. Estimate, interval and verdict (`shift`) are by this one model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import sum_by
from hokical._core.logits import Logits, as_logits, by_blocks
from hokical._core.storage import pack_array, storable
from hokical._core.topk import TopK
from hokical.guarantees.bounds import chi_square_tail, merge_cells
from hokical.guarantees.scores import LEVELS, label_log_odds, middle_log_odds, score_levels

#: Levels of a feature, coarse enough to hold examples.
_COARSE = 64
N_LEVELS = LEVELS // _COARSE
#: Beyond so many classes no features are kept, which would be larger than most calibrators.
_MOST_CLASSES = 4096
#: Standard errors by which one of two frequencies may be off.
_MOST_OFF = 3.0
#: Relative error of a class's frequency because the calibrator is no perfect model.
_MISFIT = 0.05
#: Pseudo-examples for each pair of classes behind the frequencies that probabilities assume, and at
#: most so many steps that lead there.
_PSEUDO, _FEWER_STEPS = 0.5, 100
#: Pseudo-counts of each class, on average (chosen from .01 to 1 on CIFAR's networks).
_PRIOR = 0.1
#: When EM has converged: the mean change of a frequency in one step; and its most steps.
_TOLERANCE, _MOST_STEPS = 1e-7, 500
#: Matrices of classes by classes are sums over so many rows at most, 5e8 products in each.
_LEAST_ROWS, _MOST_PRODUCTS = 500, 5e8
#: The sample size is capped here, so that negligible differences are not flagged.
_MOST_ROWS = 20_000.0
#: Rows that a cell of the test is to hold at least.
_IN_CELL = 20.0
#: Standard errors that out-of-distribution rows are allowed for beyond their estimated number.
_REACH = 0.5
#: A standard error of class frequencies from which on they are taken for unknown, and the most
#: classes for which such directions are looked for.
_FREE, _MOST_FREE = 0.1, 64
#: The most classes for which matrices of classes by classes are solved and multiplied.
_MOST_SOLVED = 256
#: How many times the variance that labels of the rows would leave makes a direction unknown.
_BLURRED = 4.0
#: Directions in which the cells vary less than this share of the largest are left out.
_FLAT = 1e-3
#: Examples that a group has at least, for class scores of its own, and the most such groups.
_LEAST_IN_GROUP, _MOST_GROUPS = 100, 64
#: Counts of all groups together, at most.
_MOST_COUNTS = 1 << 22


def shift_features(logits: Logits, log_odds: FloatArray | None = None) -> IntArray:
    """Cells (n, features) in which each row falls, one of `N_LEVELS` for each feature.

    The features are the log-odds of the label, and how far apart are the best, the second and the
    mean logit. Of two classes, all that there is are the log-odds and the label. `TopK`s have none.
    """
    if isinstance(logits, TopK) or logits.n_classes > _MOST_CLASSES:
        return np.zeros((logits.n_rows, 0), np.int64)
    if log_odds is None:
        log_odds = logits.to_host(label_log_odds(logits))
    if logits.n_classes == 2:
        levels = score_levels(log_odds, _COARSE)
        return np.asarray(levels + N_LEVELS * logits.to_host(logits.labels))[:, None]
    second, mean = (logits.to_host(part) for part in by_blocks(distances, logits))
    cells = [score_levels(each, _COARSE) for each in (log_odds, second, mean, mean - second)]
    return np.stack([cell + N_LEVELS * k for k, cell in enumerate(cells)], axis=1)


def class_means(
    proba: Array, labels: IntArray, weights: FloatArray, logits: Logits
) -> tuple[IntArray, FloatArray]:
    """The classes (k,) of examples of some weight, and the mean (k, classes) of the probabilities
    (n, classes) of each, on the host.
    """
    order = np.argsort(labels, kind="stable")
    order = order[weights[order] > 0.0]
    sorted_labels = labels[order]
    ends = np.flatnonzero(np.diff(sorted_labels, append=-1))
    present = sorted_labels[ends]
    share = weights[order] / sum_by(labels, weights, int(labels.max()) + 1)[sorted_labels]
    xp, there, last = logits.xp, logits.from_host(order), logits.from_host(ends)
    rows = xp.take(proba, there, axis=0) * logits.from_host(share)[:, None]
    sums = logits.to_host(xp.take(xp.cumulative_sum(rows, axis=0), last, axis=0))
    return present, np.diff(sums, axis=0, prepend=np.zeros((1, sums.shape[1])))


def distances(logits: Logits) -> tuple[Array, Array]:
    """How far the second and the mean of the possible logits lie below the best, (n,) each."""
    fused = logits.backend.kernels.label_distances(logits)
    if fused is not None:
        return fused[1], fused[2]
    xp, margins, second = logits.xp, logits.margins, logits.gaps
    known = margins if logits.all_possible else xp.where(logits.possible, margins, 0.0)
    sums = xp.sum(known, axis=1)
    return xp.where(second < xp.inf, second, 0.0), sums / logits.possible_counts


@storable("class-scores")
@dataclass(frozen=True, eq=False)
class ClassScores:
    """Examples of each class, (classes,), their squared weights, those that the classifier itself
    labels right, and (cells, classes) by features. `implied` (classes,) are the class frequencies
    that calibrated probabilities assume, if known.
    """

    count: FloatArray
    square: FloatArray
    hit: FloatArray
    cells: FloatArray
    implied: FloatArray | None = None

    @classmethod
    def from_rows(
        cls,
        features: IntArray,
        labels: IntArray,
        right: BoolArray,
        weights: FloatArray,
        n_classes: int,
    ) -> Self:
        """Of examples in these cells (n, features), with true classes, and right ones (n,)."""
        n_features = features.shape[1]
        n_cells = N_LEVELS * n_features * (2 if n_classes == 2 else 1)
        weights = np.where(weights > 0.0, np.clip(weights, 1e-140, 1e140), 0.0)  # for their squares
        place = (features * n_classes + labels[:, None]).ravel()
        cells = sum_by(place, np.repeat(weights, n_features), n_cells * n_classes)
        numbers = (weights, weights**2, weights * right)
        count, square, hit = (sum_by(labels, each, n_classes) for each in numbers)
        return cls(count, square, hit, cells.reshape(n_cells, n_classes))

    @property
    def n_classes(self) -> int:
        return self.count.size

    @property
    def frequencies(self) -> FloatArray:
        """The frequency of each class, (classes,)."""
        return np.asarray(self.count / self.count.sum())

    @property
    def effective(self) -> FloatArray:
        """The effective sample size of each class, (classes,)."""
        return np.divide(self.count**2, self.square, out=np.zeros(self.n_classes),
                         where=self.square > 0.0)  # fmt: skip

    @property
    def assumed_frequencies(self) -> FloatArray:
        """Those that calibrated probabilities assume, (classes,), none 0."""
        implied = self.smoothed_frequencies if self.implied is None else self.implied
        return np.maximum(implied, 1e-9)

    @property
    def farthest_off(self) -> int | None:
        """The class whose assumed frequency is farthest from that of the labels; None if chance
        explains it, or if it is not known what probabilities assume. Of classes with examples.
        """
        if self.implied is None:
            return None
        most = np.maximum(self.assumed_frequencies, self.frequencies)
        error = np.sqrt(most / self.effective.sum() + (_MISFIT * most) ** 2)
        off = np.abs(self.implied - self.frequencies) / error * (self.count > 0.0)
        # The largest of many differences; frequencies assumed of many classes are noisy themselves.
        limit = np.sqrt(_MOST_OFF**2 + 4.0 * np.log(self.n_classes / 2.0))
        return int(off.argmax()) if off.max() > limit else None

    def with_implied(self, present: IntArray, means: FloatArray, n_examples: float) -> Self:
        """With the frequencies that probabilities assume, by their `class_means`.

        If each class has the frequency that they assume, their mean is that frequency too, however
        frequent the classes are among these examples. Pseudo-examples whose probabilities are
        the frequencies of the labels decide where nearly certain scores leave it open.
        """
        around = self.smoothed_frequencies
        trust = n_examples / (n_examples + _PSEUDO * self.n_classes**2)
        trusted, known = trust * means, around[present]
        for _ in range(_FEWER_STEPS):
            last, found = known, known @ trusted + (1.0 - trust * known.sum()) * around
            known = found[present]
            if np.abs(known - last).max() < _TOLERANCE:
                break
        return replace(self, implied=found)

    @property
    def smoothed_frequencies(self) -> FloatArray:
        """The frequencies behind the counts, (classes,), none 0.

        Pseudo-counts by the counts' own spread (a Dirichlet prior around equal shares, moments
        matched), at least half an example for each class.
        """
        n, classes = self.effective.sum(), self.n_classes
        count = self.frequencies * n
        spread = float(((count - n / classes) ** 2).sum() / (n / classes) / (classes - 1))
        if spread <= 1.0:
            return np.full(classes, 1.0 / classes)
        prior = max((n - spread) / (spread - 1.0), 0.5 * classes)
        return np.asarray((count + prior / classes) / (n + prior))

    def __add__(self, other: Self) -> Self:
        names = ("count", "square", "hit", "cells")
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))

    def reweighted(self, weights: FloatArray) -> Self:
        """Of examples among which each class is `weights` (classes,) times as frequent."""
        numbers = (self.count * weights, self.square * weights**2, self.hit * weights)
        implied = None
        if self.implied is not None:
            implied = self.assumed_frequencies * weights
            implied = implied / max(implied.sum(), 1e-300)
        return type(self)(*numbers, self.cells * weights, implied)

    def to_stored(self) -> dict[str, Any]:
        """Cells that hold examples, by number: most are empty."""
        place = np.flatnonzero(self.cells).astype(np.int32)
        arrays = {"place": pack_array(place), "held": pack_array(self.cells.ravel()[place])}
        sums = {name: getattr(self, name) for name in ("count", "square", "hit", "implied")}
        return sums | arrays | {"n_cells": len(self.cells)}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`."""
        if stored["n_cells"] not in (0, 2 * N_LEVELS, 4 * N_LEVELS):
            raise ValueError(f"`class_scores` has {stored['n_cells']} cells")
        cells = np.zeros((stored["n_cells"], stored["count"].size))
        cells.ravel()[stored["place"]] = stored["held"]
        found = cls(stored["count"], stored["square"], stored["hit"], cells, stored.get("implied"))
        arrays = [array for array in vars(found).values() if array is not None]
        known = all(np.isfinite(a).all() and (a >= 0.0).all() for a in arrays)
        known &= not found.square[found.count == 0.0].any()
        shapes = {a.shape for a in arrays if a is not cells} | {cells.shape[1:]}
        if shapes != {found.count.shape} or not known or not found.count.any():
            raise ValueError("`class_scores` must hold counts of one number of classes.")
        return found


@storable("group-scores")
@dataclass(frozen=True, eq=False)
class GroupScores:
    """Class scores of the groups of a fit that have enough examples.

    `codes` (groups, columns) are those of the groups by the coding of the rule, `scores` are of the
    examples of each, with the frequencies that the probabilities of that group assume.
    """

    codes: IntArray
    scores: tuple[ClassScores, ...]

    def __post_init__(self) -> None:
        shapes = {each.cells.shape for each in self.scores}
        if self.codes.ndim != 2 or len(self.codes) != len(self.scores) or len(shapes) > 1:
            raise ValueError("`group_scores` must hold the class scores of each group.")

    @classmethod
    def from_rows(
        cls, logits: Logits, proba: FloatArray, labels: IntArray, weights: FloatArray
    ) -> Self:
        """Of examples with codes of groups, and probabilities (n, classes) on the host."""
        codes, place = np.unique(np.asarray(logits.codes), axis=0, return_inverse=True)
        sizes = np.bincount(place.ravel(), weights > 0.0)
        features, right = shift_features(logits), logits.to_host(logits.labels) == labels
        n_counts = N_LEVELS * max(features.shape[1], 1) * 2 * logits.n_classes
        most = min(_MOST_GROUPS, _MOST_COUNTS // n_counts)
        chosen = np.argsort(-sizes, kind="stable")[:most]
        chosen, found = np.sort(chosen[sizes[chosen] >= _LEAST_IN_GROUP]), []
        for k in chosen:
            own = np.flatnonzero(place.ravel() == k)
            rows, truth, counts = proba[own], labels[own], weights[own]
            scores = ClassScores.from_rows(
                features[own], truth, right[own], counts, logits.n_classes
            )
            means = class_means(rows, truth, counts, as_logits(rows))
            size = float(counts.sum() ** 2 / (counts**2).sum())
            found.append(scores.with_implied(*means, size))
        return cls(codes[chosen], tuple(found))

    def of(self, codes: IntArray) -> ClassScores | None:
        """The class scores of a group with these codes (columns,), None if it has too few."""
        same = np.flatnonzero((self.codes == codes).all(axis=1))
        return self.scores[int(same[0])] if same.size else None

    def reweighted(self, weights: FloatArray) -> Self:
        """Of examples among which each class is `weights` (classes,) times as frequent."""
        return replace(self, scores=tuple(each.reweighted(weights) for each in self.scores))


@dataclass(frozen=True, eq=False)
class NewRows:
    """Unlabelled rows: probabilities (n, classes), labels, cells (n, features), weights of sum 1.

    Rows that came several times may be one of them; `count` is how many came. `own_labels` are the
    classifier's, None if they are not known; `labels` are those that are predicted.
    """

    proba: FloatArray
    labels: IntArray
    cells: IntArray
    weights: FloatArray
    count: int
    own_labels: IntArray | None = None

    @cached_property
    def effective(self) -> float:
        """The effective sample size."""
        return float(1.0 / (self.weights**2).sum())

    def at(self, labels: IntArray, values: FloatArray) -> FloatArray:
        """The value (n,) of each row's label, of values (n, classes)."""
        return np.asarray(values[np.arange(len(labels)), labels])


class ClassFrequencies:
    """The class frequencies of new rows by EM, and their variance.

    `share` (classes,) are the new frequencies, `ratio` those to the old ones, `noise` (classes,)
    what the variance of a class's examples adds to that of a mean over the new rows.
    """

    def __init__(self, rows: NewRows, known: ClassScores, around: FloatArray | None = None) -> None:
        """Pseudo-counts are in proportion to the frequencies `around`, or to those of the fit."""
        self.rows, self.known, self.old = rows, known, known.assumed_frequencies
        self.prior = _PRIOR * self.old.size * (self.old if around is None else around)
        odds = rows.proba / self.old
        self.share = _maximize(odds, rows.weights * rows.count, self.old, self.prior)
        self.ratio = self.share / self.old
        mixed = odds @ self.share
        self.log_ratio = float(rows.weights @ np.log(mixed / (odds @ known.smoothed_frequencies)))
        self.score = odds / mixed[:, None]
        self.posterior = self.score * self.share
        self.noise = self.share**2 / (known.effective + 1.0)

    @cached_property
    def few(self) -> slice:
        """Rows for large matrices; rows come in no order."""
        return slice(0, max(_LEAST_ROWS, int(_MOST_PRODUCTS / self.share.size**2)))

    @cached_property
    def _pull(self) -> FloatArray:
        """How each row moves the class frequencies, (few, classes).

        The inverse information of a row on the simplex, times its score; of many classes the
        information is taken for diagonal.
        """
        weights, score = self.rows.weights[self.few], self.score[self.few]
        own = score * np.sqrt(weights / weights.sum())[:, None]
        prior = self.prior / (self.rows.effective * self.share**2)
        if self.share.size > _MOST_SOLVED:
            along = 1.0 / ((own**2).sum(axis=0) + prior)
            found = (score - 1.0) * along
        else:
            inverse = np.linalg.inv(own.T @ own + np.diag(prior))
            along, found = inverse.sum(axis=1), (score - 1.0) @ inverse
        return np.asarray(found - np.outer((score - 1.0) @ along, along) / along.sum())

    def _parts_of_variance(
        self, moved: FloatArray, slopes: FloatArray, common: FloatArray | float
    ) -> list[FloatArray]:
        """Factors (r, m) each: the covariance is the sum of their squares, the third subtracted."""
        given, posterior = self.rows.weights[self.few], self.posterior[self.few]
        weights, square = given * common, given**2 * common
        weights, square = weights / weights.sum(), square / square.sum()
        share = weights @ posterior
        n = min(self.rows.effective, _MOST_ROWS)
        means = np.zeros((share.size, 1))  # which is safe, and much quicker for many classes
        if moved.shape[1] <= _MOST_SOLVED:
            means = (posterior * weights[:, None]).T @ moved / share[:, None]
        spread = np.sqrt(weights * (posterior @ (self.noise / share)))
        # The calibrator is no perfect model, and learned classes with few examples from few.
        misfit = np.sqrt((_MISFIT * self.share) ** 2 + self.noise)
        tilt = (slopes - (slopes @ self.share)[:, None]) * misfit
        sampling = (moved - weights @ moved) * np.sqrt(square / n)[:, None]
        return [sampling, moved * spread[:, None], means * np.sqrt(self.noise)[:, None], tilt.T]

    def covariance(
        self, moved: FloatArray, slopes: FloatArray, common: FloatArray | float = 1.0
    ) -> FloatArray:
        """Of numbers (m,) with `slopes` (m, classes), which each row moves by `moved` (few, m).

        Sampling of rows and of examples, and the error of the calibrator; of rows that are each
        `common` (few,) times as frequent as they came.
        """
        squares = [part.T @ part for part in self._parts_of_variance(moved, slopes, common)]
        return np.asarray(squares[0] + squares[1] - squares[2] + squares[3])

    def variances(self, moved: FloatArray, slopes: FloatArray) -> FloatArray:
        """The diagonal (m,) of the `covariance`."""
        sums = [(part**2).sum(axis=0) for part in self._parts_of_variance(moved, slopes, 1.0)]
        return np.asarray(sums[0] + sums[1] - sums[2] + sums[3])

    def moves(self, slopes: FloatArray) -> FloatArray:
        """How each row moves numbers (few, m) with `slopes` (m, classes) by the frequencies."""
        return np.asarray(self._pull @ slopes.T)

    @cached_property
    def variance(self) -> FloatArray:
        """Of the frequencies, (classes,); by a row at least, which a class without any may have.

        The expansion to first order does not hold in directions that the rows hardly determine;
        they are taken for unknown. With many classes hardly any frequency is so uncertain.
        """
        everything = np.eye(self.share.size)
        found = self.variances(self._pull, everything) + self.rows.effective**-2.0
        if self.share.size <= _MOST_FREE:
            values, vectors = np.linalg.eigh(self.covariance(self._pull, everything))
            labelled = (self.share @ vectors**2 - (self.share @ vectors) ** 2) / self.rows.effective
            free = (values > _FREE**2) & (values > _BLURRED * labelled)
            found += (vectors[:, free] ** 2).sum(axis=1)
        return np.asarray(found)

    def accuracy(self) -> tuple[float, float]:
        """The expected accuracy of the labels, and its variance."""
        rows, few = self.rows, self.few
        own = rows.at(rows.labels, self.posterior)
        hit = sum_by(rows.labels, rows.weights * own, self.share.size)
        recall = np.clip(hit / self.share, 0.0, 1.0)
        noise = rows.weights**2 @ (own * (1.0 - own)) + self.noise @ (recall * (1.0 - recall))
        weights, labels, score = rows.weights[few], rows.labels[few], self.score[few]
        slopes = (hit / self.share - (own[few] * weights) @ score / weights.sum())[None]
        spread = self.variances(self.moves(slopes), slopes)[0]
        # By how much each row's part in the frequencies raises the probability of its own label.
        pull = rows.at(labels, self._pull / self.share) - (score * self._pull).sum(axis=1)
        gain = float(weights**2 @ (own[few] * pull) / (weights @ weights) / rows.effective)
        return float(hit.sum()) - gain, float(noise + spread + gain**2)

    def mean_confidence(self) -> tuple[float, float]:
        """The same if confidences are as reliable as in the fit, whatever the rows are like."""
        own = self.rows.at(self.rows.labels, self.rows.proba)
        value = float(self.rows.weights @ own)
        variance = float(self.rows.weights**2 @ (own * (1.0 - own)))
        variance += value * (1.0 - value) / self.known.effective.sum()
        return value, variance + (_MISFIT * (1.0 - value)) ** 2

    @property
    def evidence(self) -> float:
        """How much of the change is more than sampling error, from 0 to 1 (James and Stein)."""
        statistic = 2.0 * self.rows.effective * self.log_ratio
        return max(0.0, 1.0 - (self.old.size - 1) / max(statistic, 1e-300))

    def accuracy_by_recall(self) -> float:
        """The accuracy of the classifier's labels, by how often each class got its own."""
        return float(self.share @ (self.known.hit / np.maximum(self.known.count, 1e-300)))

    def change_p_value(self) -> float:
        """The probability of such different frequencies if they are the old ones.

        By the likelihood ratio of all classes, less what the errors of examples and of the
        calibrator explain, and by the class whose interval is farthest from its old frequency.
        """
        n, known = self.rows.effective, self.known
        noise = float((self.old**2 * self.noise / self.share**2).sum()) + 1.0 / _MOST_ROWS
        given = self.rows.weights[self.few]
        trace = float((given / given.sum()) @ (self._pull**2).sum(axis=1))
        misfit = float(_MISFIT**2 * (self.share**2).sum() / max(trace, 1e-300))
        by_rows, by_all = (
            chi_square_tail(self.old.size - 1, 2.0 * n * self.log_ratio / (1.0 + n * error))
            for error in (noise, noise + misfit)
        )
        old, held = known.frequencies, known.effective.sum()
        gap = np.abs(self.share - old) - 1.0 / n - 1.0 / held
        far = float((gap / np.sqrt(self.variance + old * (1.0 - old) / held)).max())
        by_class = 2.0 * (self.old.size - 1) * NormalDist().cdf(-far)
        # Rows that hardly determine the frequencies have estimates at the end, and no variance.
        return min(1.0, 2.0 * min(by_all, max(by_class, by_rows)))

    def fit_p_value(self) -> float:
        """The probability of such different rows if only the class frequencies changed.

        The shares of rows in the cells of a feature, against those of the calibration examples
        with each class as frequent as it is now; the smallest of the features, times their number.
        """
        n_features = self.rows.cells.shape[1]
        found = [self._feature_p_value(*self._feature(k)) for k in range(n_features)]
        return float(min(1.0, n_features * min(found)))

    def uncertain_labels(self) -> tuple[float, float]:
        """The probability of such uncertain labels if only the frequencies changed; and the loss.

        A class that the fit has not seen shows in the mean log-odds of labels first. The loss is
        the share of rows whose labels are wrong if out-of-distribution rows explain the log-odds:
        as uncertain as rows that are expected to get wrong labels, and all counted as right.
        """
        shares, place = self._feature(0)
        score = -np.resize(middle_log_odds(N_LEVELS), len(shares))
        score -= score[place[0]]  # rows of one level have no log-odds to compare: exactly 0
        slopes, unsure = (score @ shares)[None], score[place]
        spread = self.covariance(unsure[self.few, None] - self.moves(slopes), slopes)
        gap = float(self.rows.weights @ unsure - slopes[0] @ self.share)
        # Few rows with similar scores by coincidence: at least as uncertain as in the fit.
        within = float((score**2 @ shares - slopes[0] ** 2) @ self.share) / self.rows.effective
        error = math.sqrt(max(float(spread[0, 0]), within, 1e-300))
        wrong = self.rows.weights * (1.0 - self.rows.at(self.rows.labels, self.posterior))
        apart = max(float((wrong / max(wrong.sum(), 1e-300) - self.rows.weights) @ unsure), 1e-9)
        lost = min(max(gap + _REACH * error, 0.0) / apart, 1.0)
        return 0.5 * math.erfc(gap / error / math.sqrt(2.0)), lost

    def _feature(self, k: int) -> tuple[FloatArray, IntArray]:
        """The share of each class's examples in the cells of a feature, and the cells of rows."""
        span = 2 * N_LEVELS if self.share.size == 2 else N_LEVELS
        cells, held = self.known.cells[k * span : (k + 1) * span], self.known.count
        pooled = cells.sum(axis=1, keepdims=True) / cells.sum()
        # A pseudo-count counts for as much as an example.
        unit = np.divide(self.known.square, held, out=np.ones_like(held), where=held > 0.0)
        return (cells + unit * pooled) / (held + unit), self.rows.cells[:, k] - k * span

    def _feature_p_value(self, shares: FloatArray, place: IntArray) -> float:
        expected = shares @ self.share
        seen = sum_by(place, self.rows.weights, len(shares))
        # By the shares of rows and examples together, as in Pearson's test: by those of the rows
        # alone, cells with too few of them would seem more certain than they are.
        n, examples = self.rows.effective, 1.0 / self.noise.sum()
        both = (n * seen + examples * expected) / (n + examples)
        n = min(n, examples)
        group = merge_cells(both * n, max(5.0, min(_IN_CELL, n / 10.0)))
        if not group[-1]:
            return 1.0
        joined = (group == np.arange(group[-1] + 1)[:, None]).astype(np.float64)
        gap, slopes = joined @ (seen - expected), joined @ shares
        seen, both = joined @ seen, joined @ both
        moved = joined.T[place[self.few]] - self.moves(slopes)
        common = np.divide(both, seen, out=np.ones_like(seen), where=seen > 0.0)
        spread = self.covariance(moved, slopes, common[group[place[self.few]]])
        values, vectors = np.linalg.eigh(spread)
        # Without directions that the frequencies have used up, and those within a row's share.
        kept = values > np.maximum(_FLAT * values[-1], self.rows.effective**-2.0)
        statistic = float(((gap @ vectors)[kept] ** 2 / values[kept]).sum())
        return chi_square_tail(int(kept.sum()), statistic) if kept.any() else 1.0


def _maximize(
    odds: FloatArray, weights: FloatArray, old: FloatArray, prior: FloatArray
) -> FloatArray:
    """The most likely frequencies by EM, with squared extrapolation (Varadhan and Roland 2008)."""
    total = weights.sum() + prior.sum()

    def step(share: FloatArray) -> FloatArray:
        return np.asarray((share * (odds.T @ (weights / (odds @ share))) + prior) / total)

    share = old
    for _ in range(_MOST_STEPS):
        first = step(share)
        second = step(first)
        move, turn = first - share, second - 2.0 * first + share
        length = math.sqrt(float(move @ move) / max(float(turn @ turn), 1e-300))
        length = min(max(length, 1.0), 1e3)
        jump = share + 2.0 * length * move + length**2 * turn
        best = step(jump) if (jump > 0.0).all() else second
        done = np.abs(best - share).mean() < _TOLERANCE
        share = best
        if done:
            break
    return np.asarray(share / share.sum())
