"""The distribution of features of each true class in the fit: counts that can be added.

Under label shift rows of one class are distributed as before, whatever their frequency. So new rows
must be distributed like the calibration examples, weighted by how much more frequent each class has
become; where they are not, something else has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import sum_by
from hokical._core.logits import Logits, as_logits, by_blocks
from hokical._core.storage import pack_array, storable
from hokical._core.topk import TopK
from hokical.guarantees.scores import LEVELS, label_log_odds, score_levels

#: Levels of a feature, coarse enough to hold examples.
_COARSE = 64
N_LEVELS = LEVELS // _COARSE
#: Beyond so many classes no features are kept, which would be larger than most calibrators.
_MOST_CLASSES = 4096
#: Standard errors by which one of two frequencies may be off, with a relative error of the fit.
_MOST_OFF, _MISFIT = 3.0, 0.05
#: Pseudo-examples for each pair of classes behind the frequencies that probabilities assume; at
#: most so many steps lead there, until no frequency changes by more.
_PSEUDO, _MOST_STEPS, _TOLERANCE = 0.5, 100, 1e-7


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
        for _ in range(_MOST_STEPS):
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


#: Examples that a group has at least, for class scores of its own, and the most such groups.
_LEAST_IN_GROUP, _MOST_GROUPS = 100, 64
#: Counts of all groups together, at most.
_MOST_COUNTS = 1 << 22


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
