"""The class frequencies of rows without labels, what follows from them, and how sure
that is.

The new frequencies are the means of p'(k | x), which is proportional to p(k | x) times
the new frequency of k over that of the fit; EM finds them, with pseudo-counts along the
old ones: without them classes that do not occur get a weight of 0, and the first row of
such a class an infinite loss. Uncertainty is by the delta method: how each new row, and
each calibration example, moves the estimate. Estimate, interval and p-values are by this
one model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import effective_size, sum_by
from hokical._core.logits import Logits
from hokical.guarantees.bounds import chi_square_tail, merge_cells
from hokical.guarantees.class_features import (
    FREQUENCY_TOLERANCE,
    MISFIT,
    N_LEVELS,
    ClassFeatures,
    shift_features,
)
from hokical.guarantees.scores import middle_log_odds
from hokical.rules.base import BalancedRule, Rule, predict_on_host

#: The sample size is capped here, so that negligible differences are not flagged.
_MOST_ROWS = 20_000.0
#: The most classes for which matrices of classes by classes are solved and multiplied.
_MOST_SOLVED = 256


@dataclass(frozen=True, eq=False)
class Comparison:
    """What the rows of one estimate are compared with.

    Attributes
    ----------
    scores : the examples of each class, of the fit or of one group of it
    around : frequencies that pseudo-counts follow; None for those of the fit
    n_tests : how many such estimates there are
    is_unknown : whether the fit has too few examples of the group of the rows
    """

    scores: ClassFeatures
    around: FloatArray | None = None
    n_tests: int = 1
    is_unknown: bool = False


def at(labels: IntArray, values: FloatArray) -> FloatArray:
    """The value (n,) of each row's label, of values (n, classes)."""
    return np.asarray(values[np.arange(len(labels)), labels])


class ClassFrequencies:
    """The class frequencies of unlabelled rows by EM, and their variance.

    Of rows there are probabilities `proba` (n, classes), the `labels` that are
    predicted (n,), and `own_labels`, the classifier's, or None if other class
    frequencies were set, as then none were counted at fit time; `cells` (n, features)
    and `weights` (n,) of sum 1. `n_rows` is how many came, as some of them may have
    been equal, and `n` their effective number.

    `share` (classes,) are the new frequencies, `old` those of the fit, `noise`
    (classes,) what the variance of a class's examples adds to that of a mean over the
    new rows.
    """

    def __init__(
        self,
        rule: Rule,
        data: Logits,
        weights: FloatArray,
        n_rows: int,
        comparison: Comparison,
    ) -> None:
        self.proba = predict_on_host(rule, "proba", data).astype(np.float64)
        self.labels = predict_on_host(rule, "labels", data).astype(np.int64)
        self.own_labels = None
        if not isinstance(rule, BalancedRule):
            self.own_labels = data.to_host(data.labels)
        self.cells = shift_features(data)[1]
        self.weights = weights
        self.n_rows = n_rows
        scores = comparison.scores
        around = comparison.around
        self.scores = scores
        self.old = scores.assumed_frequencies
        self.n = effective_size(weights)
        # Of each class 0.1 on average (chosen from .01 to 1 on CIFAR's networks).
        self.prior = 0.1 * self.old.size * (self.old if around is None else around)
        odds = self.proba / self.old
        self.share = self._maximize(odds)
        mixed = odds @ self.share
        self.log_ratio = float(
            weights @ np.log(mixed / (odds @ scores.smoothed_frequencies))
        )
        self.score = odds / mixed[:, None]
        self.posterior = self.score * self.share
        self.noise = self.share**2 / (scores.effective + 1.0)
        # Rows for matrices of classes by classes, of at most 5e8 products; they come in
        # no order.
        self.few = slice(0, max(500, int(5e8 / self.old.size**2)))
        self.pull = self._pull(self.share)

    def _maximize(self, odds: FloatArray) -> FloatArray:
        """The most likely frequencies by EM, with squared extrapolation (Varadhan,
        Roland 2008).
        """
        weights = self.weights * self.n_rows
        prior = self.prior
        share = self.old
        total = weights.sum() + prior.sum()

        def step(share: FloatArray) -> FloatArray:
            return np.asarray(
                (share * (odds.T @ (weights / (odds @ share))) + prior) / total
            )

        for _ in range(500):
            first = step(share)
            second = step(first)
            move = first - share
            turn = second - 2.0 * first + share
            length = math.sqrt(float(move @ move) / max(float(turn @ turn), 1e-300))
            length = min(max(length, 1.0), 1e3)
            jump = share + 2.0 * length * move + length**2 * turn
            last = share
            share = step(jump) if (jump > 0.0).all() else second
            if np.abs(share - last).mean() < FREQUENCY_TOLERANCE:
                break
        return np.asarray(share / share.sum())

    def _pull(self, prior_share: FloatArray) -> FloatArray:
        """How each row moves the class frequencies, (few, classes).

        The inverse information of a row on the simplex, times its score; of many
        classes the information is taken for diagonal. That of the pseudo-counts is
        their number divided by the square of the `prior_share` (classes,).
        """
        weights = self.weights[self.few]
        score = self.score[self.few]
        scaled_score = score * np.sqrt(weights / weights.sum())[:, None]
        prior = self.prior / (self.n * prior_share**2)
        if self.share.size > _MOST_SOLVED:
            along = 1.0 / ((scaled_score**2).sum(axis=0) + prior)
            pull = (score - 1.0) * along
        else:
            inverse = np.linalg.inv(scaled_score.T @ scaled_score + np.diag(prior))
            along = inverse.sum(axis=1)
            pull = (score - 1.0) @ inverse
        return np.asarray(pull - np.outer((score - 1.0) @ along, along) / along.sum())

    def covariance(
        self,
        moved: FloatArray,
        slopes: FloatArray,
        common: Any = 1.0,
        diagonal: bool = False,
    ) -> FloatArray:
        """Of numbers (m,) with `slopes` (m, classes), which each row moves by `moved`
        (few, m).

        Sampling of rows and of examples, and the error of the calibrator; of rows that
        are each `common` (few,) times as frequent as they came. Or the `diagonal` (m,)
        alone.
        """
        row_weights = self.weights[self.few]
        posterior = self.posterior[self.few]
        weights = row_weights * common
        square = row_weights**2 * common
        weights = weights / weights.sum()
        square = square / square.sum()
        share = weights @ posterior
        n = min(self.n, _MOST_ROWS)
        # Which is safe, and much quicker for many classes.
        means = np.zeros((share.size, 1))
        if moved.shape[1] <= _MOST_SOLVED:
            means = (posterior * weights[:, None]).T @ moved / share[:, None]
        spread = np.sqrt(weights * (posterior @ (self.noise / share)))
        # The calibrator is no perfect model, and learned classes with few examples from
        # few.
        misfit = np.sqrt((MISFIT * self.share) ** 2 + self.noise)
        tilt = (slopes - (slopes @ self.share)[:, None]) * misfit
        sampling = (moved - weights @ moved) * np.sqrt(square / n)[:, None]
        terms = [
            sampling,
            moved * spread[:, None],
            means * np.sqrt(self.noise)[:, None],
            tilt.T,
        ]
        rows, examples, shared, model = (
            (term**2).sum(axis=0) if diagonal else term.T @ term for term in terms
        )
        return np.asarray(rows + examples - shared + model)

    @cached_property
    def variance(self) -> FloatArray:
        """Of the frequencies, (classes,); by a row at least, which a class without any
        may have.

        The expansion to first order does not hold in directions that the rows hardly
        determine; they are taken for unknown. With many classes hardly any frequency is
        so uncertain.
        """
        everything = np.eye(self.share.size)
        free_pull = self._pull(np.maximum(self.share, self.prior / self.prior.sum()))
        variance = self.covariance(free_pull, everything, diagonal=True) + self.n**-2.0
        if self.share.size <= 64:
            values, vectors = np.linalg.eigh(self.covariance(self.pull, everything))
            labelled = (self.share @ vectors**2 - (self.share @ vectors) ** 2) / self.n
            # A standard error of 0.1, and four times the variance that labels would
            # leave.
            free = (values > 0.1**2) & (values > 4.0 * labelled)
            variance += (vectors[:, free] ** 2).sum(axis=1)
        return np.asarray(variance)

    def intervals(self, reach: float) -> FloatArray:
        """Intervals (classes, 2) of the frequencies, of `reach` standard errors.

        As of Poisson counts, whose upper end is further away; from 0 to 1 for classes
        without an example in the fit.
        """
        shares = _interval(self.share, self.variance, reach, 1.0 / self.n)
        poisson = min(reach, 9.0) ** 2 / (2.0 * self.n)
        shares[:, 1] = np.minimum(shares[:, 1] + poisson, 1.0)
        shares[self.scores.count == 0.0] = 0.0, 1.0
        return shares

    def confusion(self) -> FloatArray:
        """The expected share of rows of each true class and label, (classes,
        classes).
        """
        by_class = (self.posterior * self.weights[:, None]).T
        n_classes = self.old.size
        return np.array([sum_by(self.labels, row, n_classes) for row in by_class])

    def expected_scores(self) -> tuple[float, float]:
        """The log loss and the Brier score to expect of the probabilities."""
        logs = np.log(np.maximum(self.proba, 1e-300))
        squares = (self.proba * (self.proba - 2.0 * self.posterior)).sum(axis=1)
        log_loss = -self.weights @ (self.posterior * logs).sum(axis=1)
        return float(log_loss), float(1.0 + self.weights @ squares)

    def accuracy(self, lost: float, reach: float) -> tuple[float, FloatArray]:
        """The accuracy, from the new frequencies and from the confidences, and an
        interval (2,).

        `lost` is the accuracy that out-of-distribution rows can take away, and `reach`
        the number of standard errors.
        """
        by_frequencies, variance = self._accuracy_by_frequencies()
        by_confidences, error = self._accuracy_by_confidences()
        values = np.array([by_frequencies, by_confidences])
        variances = np.array([variance, error])
        # One row more or less, which few rows that are nearly certain would not allow
        # for.
        intervals = _interval(values, variances, reach, 1.0 / self.n)
        low = max(min(intervals[0, 0] - lost, intervals[1, 0]), 0.0)
        high = intervals[:, 1].max()
        # How much of the change is more than sampling error, from 0 to 1 (James and
        # Stein).
        statistic = 2.0 * self.n * self.log_ratio
        evidence = max(0.0, 1.0 - (self.old.size - 1) / max(statistic, 1e-300))
        accuracy = by_confidences + evidence * (by_frequencies - by_confidences)
        return accuracy, np.array([low, high])

    def _accuracy_by_frequencies(self) -> tuple[float, float]:
        """The accuracy by the probabilities under the new frequencies, and its variance."""
        labels = self.labels
        weights = self.weights
        few = self.few
        label_proba = at(labels, self.posterior)
        hits = sum_by(labels, weights * label_proba, self.share.size)
        recall = np.clip(hits / self.share, 0.0, 1.0)
        noise = weights**2 @ (label_proba * (1.0 - label_proba)) + self.noise @ (
            recall * (1.0 - recall)
        )
        few_weights = weights[few]
        score = self.score[few]
        slopes = (
            hits / self.share
            - (label_proba[few] * few_weights) @ score / few_weights.sum()
        )[None]
        spread = self.covariance(self.pull @ slopes.T, slopes, diagonal=True)[0]
        # By how much each row's part in the frequencies raises the probability of its
        # own label.
        pull = at(labels[few], self.pull / self.share) - (score * self.pull).sum(axis=1)
        gain = float(
            few_weights**2
            @ (label_proba[few] * pull)
            / (few_weights @ few_weights)
            / self.n
        )
        accuracy = float(hits.sum()) - gain
        variance = float(noise + spread + gain**2)
        gap = self._gap_to_fit(accuracy, label_proba)
        return accuracy, max(variance, gap**2)

    def _gap_to_fit(self, accuracy: float, label_proba: FloatArray) -> float:
        """By how much the accuracy is off that of the classes in the fit; 0 where it is
        not known.

        Both should agree. The classifier's labels were counted in the fit, and not
        those predicted, whose probabilities are (n,).
        """
        if self.own_labels is None:
            return 0.0
        own_proba = at(self.own_labels, self.posterior)
        own_accuracy = accuracy + float(self.weights @ (own_proba - label_proba))
        recall = self.scores.hit / np.maximum(self.scores.count, 1e-300)
        return own_accuracy - float(self.share @ recall)

    def _accuracy_by_confidences(self) -> tuple[float, float]:
        """The accuracy if confidences are as reliable as in the fit, whatever the rows
        are like, and its variance.
        """
        confidence = at(self.labels, self.proba)
        mean = float(self.weights @ confidence)
        variance = (
            float(self.weights**2 @ (confidence * (1.0 - confidence)))
            + (MISFIT * (1.0 - mean)) ** 2
        )
        variance += mean * (1.0 - mean) / self.scores.effective.sum()
        return mean, variance

    def change_p_value(self) -> float:
        """The probability of such different frequencies if they are the old ones.

        By the likelihood ratio of all classes, less what the errors of examples and of
        the calibrator explain, and by the class whose interval is farthest from its old
        frequency.
        """
        n = self.n
        scores = self.scores
        noise = (
            float((self.old**2 * self.noise / self.share**2).sum()) + 1.0 / _MOST_ROWS
        )
        row_weights = self.weights[self.few]
        trace = float((row_weights / row_weights.sum()) @ (self.pull**2).sum(axis=1))
        misfit = float(MISFIT**2 * (self.share**2).sum() / max(trace, 1e-300))
        freedom = self.old.size - 1
        ratio = 2.0 * n * self.log_ratio
        by_rows = chi_square_tail(freedom, ratio / (1.0 + n * noise))
        by_all = chi_square_tail(freedom, ratio / (1.0 + n * (noise + misfit)))
        old = scores.frequencies
        n_examples = scores.effective.sum()
        gap = np.abs(self.share - old) - 1.0 / n - 1.0 / n_examples
        z = float((gap / np.sqrt(self.variance + old * (1.0 - old) / n_examples)).max())
        by_class = 2.0 * (self.old.size - 1) * NormalDist().cdf(-z)
        # Rows that hardly determine the frequencies have estimates at the end, and no
        # variance.
        return min(1.0, 2.0 * min(by_all, max(by_class, by_rows)))

    def fit_p_value(self) -> float:
        """The probability of such different rows if only the class frequencies changed.

        The shares of rows in the cells of a feature, against those of the calibration
        examples with each class as frequent as it is now; the smallest of the features,
        times their number.
        """
        p_values = [
            self._feature_p_value(*self._feature(k)) for k in range(self.cells.shape[1])
        ]
        return float(min(1.0, len(p_values) * min(p_values)))

    def uncertain_labels(self) -> tuple[float, float]:
        """The probability of such uncertain labels if only the frequencies changed; and
        the loss.

        A class that the fit has not seen shows in the mean log-odds of labels first.
        The loss is the share of rows whose labels are wrong if out-of-distribution rows
        explain the log-odds: as uncertain as rows that are expected to get wrong
        labels, and all counted as right.
        """
        shares, cells = self._feature(0)
        score = -np.resize(middle_log_odds(N_LEVELS), len(shares))
        # Rows of one level have no log-odds to compare: exactly 0.
        score -= score[cells[0]]
        slopes = (score @ shares)[None]
        unsure = score[cells]
        weights = self.weights
        spread = self.covariance(unsure[self.few, None] - self.pull @ slopes.T, slopes)
        gap = float(weights @ unsure - slopes[0] @ self.share)
        # Few rows with similar scores by coincidence: at least as uncertain as in the
        # fit.
        within = float((score**2 @ shares - slopes[0] ** 2) @ self.share) / self.n
        error = math.sqrt(max(float(spread[0, 0]), within, 1e-300))
        wrong = weights * (1.0 - at(self.labels, self.posterior))
        apart = max(float((wrong / max(wrong.sum(), 1e-300) - weights) @ unsure), 1e-9)
        # Half a standard error beyond the estimated number of out-of-distribution rows.
        lost = min(max(gap + 0.5 * error, 0.0) / apart, 1.0)
        return 0.5 * math.erfc(gap / error / math.sqrt(2.0)), lost

    def _feature(self, k: int) -> tuple[FloatArray, IntArray]:
        """The share of each class's examples in the cells of a feature, and the
        cells of rows.
        """
        span = 2 * N_LEVELS if self.share.size == 2 else N_LEVELS
        cells = self.scores.cells[k * span : (k + 1) * span]
        counts = self.scores.count
        pooled = cells.sum(axis=1, keepdims=True) / cells.sum()
        # A pseudo-count counts for as much as an example.
        unit = np.divide(
            self.scores.square, counts, out=np.ones_like(counts), where=counts > 0.0
        )
        return (cells + unit * pooled) / (counts + unit), self.cells[:, k] - k * span

    def _feature_p_value(self, shares: FloatArray, row_cells: IntArray) -> float:
        expected = shares @ self.share
        observed = sum_by(row_cells, self.weights, len(shares))
        # By the shares of rows and examples together, as in Pearson's test: by those of
        # the rows alone, cells with too few of them would seem more certain than they
        # are.
        n = self.n
        examples = 1.0 / self.noise.sum()
        joint = (n * observed + examples * expected) / (n + examples)
        n = min(n, examples)
        group = merge_cells(joint * n, max(5.0, min(20.0, n / 10.0)))
        if not group[-1]:
            return 1.0
        joined = (group == np.arange(group[-1] + 1)[:, None]).astype(np.float64)
        gap = joined @ (observed - expected)
        slopes = joined @ shares
        observed = joined @ observed
        joint = joined @ joint
        moved = joined.T[row_cells[self.few]] - self.pull @ slopes.T
        common = np.divide(
            joint, observed, out=np.ones_like(observed), where=observed > 0.0
        )
        spread = self.covariance(moved, slopes, common[group[row_cells[self.few]]])
        values, vectors = np.linalg.eigh(spread)
        # Without directions that the frequencies have used up, and those within a row's
        # share.
        usable = values > np.maximum(1e-3 * values[-1], self.n**-2.0)
        statistic = float(((gap @ vectors)[usable] ** 2 / values[usable]).sum())
        return chi_square_tail(int(usable.sum()), statistic) if usable.any() else 1.0


def _interval(
    estimates: FloatArray, variance: FloatArray, reach: float, step: float
) -> FloatArray:
    """Intervals (k, 2) in [0, 1] of `reach` standard errors and a `step`."""
    half_widths = reach * np.sqrt(np.maximum(variance, 1e-300)) + step
    return np.asarray(
        np.clip(
            np.stack([estimates - half_widths, estimates + half_widths], axis=1),
            0.0,
            1.0,
        )
    )
