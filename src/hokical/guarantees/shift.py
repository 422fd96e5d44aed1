"""Label shift of rows without labels: what is estimated, in numbers and words; other
frequencies.

Under label shift rows of one class are distributed as before, whatever their frequency.
So new rows must be distributed like the calibration examples (`ClassFeatures`), weighted
by how much more frequent each class has become; where they are not, something else has
changed.

Then p'(k | x) is proportional to p(k | x) w_k, where w is the new frequency divided by
that of the fit. The new frequencies are the means of p', which EM finds, with
pseudo-counts along the old ones: without them classes that do not occur get a weight of
0, and the first row of such a class an infinite loss. Uncertainty is by the delta
method: how each new row, and each calibration example, moves the estimate. Estimate,
interval and verdict are by this one model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Protocol, Self

import numpy as np

from hokical._core.arrays import FloatArray, IntArray, lazy_arrays
from hokical._core.checks import effective_size, sum_by
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits
from hokical._core.reading import to_numpy
from hokical._core.runtime import warn_user
from hokical.guarantees.bounds import chi_square_tail, merge_cells
from hokical.guarantees.class_features import (
    FREQUENCY_TOLERANCE,
    MISFIT,
    N_LEVELS,
    ClassFeatures,
    GroupFeatures,
    shift_features,
)
from hokical.guarantees.evidence import FitRecord
from hokical.guarantees.fingerprints import RowSketch, row_draws, row_hashes
from hokical.guarantees.scores import middle_log_odds
from hokical.rules.base import BalancedRule, Rule, predict_on_host

#: The probability of a false "not label shift", and of false label shift.
_TEST_LEVEL = 0.01
SAME = "no change"
MOVED = "consistent with label shift"
BROKEN = "not label shift: estimates withheld"
OFF = (
    "the probabilities of some classes were not calibrated in the fit, or it is not "
    "known whether: estimates withheld"
)
TOO_FEW = "too few examples of the classes it would take: estimates withheld"
#: What to do if a verdict does not hold.
_REMEDIES = {
    BROKEN: "No class frequencies explain these rows. Label some hundred of them and measure; if "
    "calibration is off, fit again.",
    OFF: "Fit `hokical.auto`, which calibrates the probability of each class, and ask again.",
    TOO_FEW: "Fit with more examples of the classes that have become common, or wait for labels.",
}
#: Classes that are shown.
_SHOWN = 5
#: Groups that are shown.
_SHOWN_GROUPS = 20
#: Intervals of this width say nothing about a frequency.
_UNDETERMINED_WIDTH = 0.9
#: Smaller p-values are not told apart in words.
_LEAST_P_VALUE = 1e-6
#: Probabilities that an estimate holds at most; of more rows a sample is taken.
MOST_NUMBERS = 1 << 24
#: The sample size is capped here, so that negligible differences are not flagged.
_MOST_ROWS = 20_000.0
#: The most classes for which matrices of classes by classes are solved and multiplied.
_MOST_SOLVED = 256


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
        comparison: _Comparison,
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
        means = np.zeros(
            (share.size, 1)
        )  # which is safe, and much quicker for many classes
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
        """Intervals (classes, 2) of the frequencies, of so many standard errors.

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

        `lost` is the accuracy that out-of-distribution rows can take away.
        """
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
        value = float(hits.sum()) - gain
        variance = float(noise + spread + gain**2)
        # At fit time the classifier's labels were counted, and not those predicted.
        if self.own_labels is not None:
            own_accuracy = value + float(
                weights @ (at(self.own_labels, self.posterior) - label_proba)
            )
            recall = self.scores.hit / np.maximum(self.scores.count, 1e-300)
            # Which should agree.
            variance = max(variance, (own_accuracy - float(self.share @ recall)) ** 2)
        # If confidences are as reliable as in the fit, whatever the rows are like.
        confidence = at(labels, self.proba)
        mean_confidence = float(weights @ confidence)
        error = (
            float(weights**2 @ (confidence * (1.0 - confidence)))
            + (MISFIT * (1.0 - mean_confidence)) ** 2
        )
        error += mean_confidence * (1.0 - mean_confidence) / self.scores.effective.sum()
        values = np.array([value, mean_confidence])
        variances = np.array([variance, error])
        # One row more or less, which few rows that are nearly certain would not allow
        # for.
        by_frequencies, by_confidences = _interval(
            values, variances, reach, 1.0 / self.n
        )
        low = max(min(by_frequencies[0] - lost, by_confidences[0]), 0.0)
        # How much of the change is more than sampling error, from 0 to 1 (James and
        # Stein).
        statistic = 2.0 * self.n * self.log_ratio
        evidence = max(0.0, 1.0 - (self.old.size - 1) / max(statistic, 1e-300))
        return mean_confidence + evidence * (value - mean_confidence), np.array(
            [low, max(by_frequencies[1], by_confidences[1])]
        )

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
        score -= score[
            cells[0]
        ]  # rows of one level have no log-odds to compare: exactly 0
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


@dataclass(frozen=True, eq=False)
class ShiftEstimate:
    """Class frequencies and accuracy on rows without labels, if only class frequencies
    changed.

    Attributes
    ----------
    n : int
        Rows.
    class_frequencies, old_class_frequencies : array of shape (classes,)
        The frequency of each class now, and among the calibration examples.
    class_frequencies_interval : array of shape (classes, 2)
        From 0 to 1 for classes without an example in the fit; if the verdict is "no
        change", they contain the old frequencies.
    weights : array of shape (classes,)
        How much more frequent each class has become, shrunk to 1 by the evidence: 1 if
        the verdict is "no change".
    accuracy : float
        The share of labels that is right on these rows, and `accuracy_interval`. The
        interval also holds if the mix of rows changed and not the reliability of
        scores; its lower end allows for out-of-distribution rows that are too few to be
        detected. Of an ensemble (`CalibratedClassifier`) both are of its single models;
        their mean is usually better.
    adapted_accuracy : float
        The accuracy of the labels of `adapt()`.
    confusion : array of shape (classes, classes)
        The expected share of rows of each true class (row) and label (column).
    log_loss, brier : float
        Expected, of the probabilities as they are, over all classes.
    p_value, change_p_value : float
        Of the test that only class frequencies changed, and of the one that they did
        not change.
    unseen : array of integers
        Classes without an example in the fit: they cannot be found.
    holds : bool
        Whether label shift, or no change, explains the rows. If not, intervals are from
        0 to 1.
    verdict, guarantee : str
        The same in words, and what the numbers rest on.
    by_group : dict of names to estimates
        The same for the rows of each group, if groups were given.
    class_names : tuple of str
        Names of the classes, where the calibrator knows them.
    """

    n: int
    class_frequencies: FloatArray
    class_frequencies_interval: FloatArray
    old_class_frequencies: FloatArray
    weights: FloatArray
    accuracy: float
    accuracy_interval: FloatArray
    adapted_accuracy: float
    confusion: FloatArray
    log_loss: float
    brier: float
    p_value: float
    change_p_value: float
    unseen: IntArray
    holds: bool
    verdict: str
    by_group: dict[str, ShiftEstimate] = field(default_factory=dict, repr=False)
    class_names: tuple[str, ...] = ()
    _calibrator: Any = field(default=None, repr=False)
    _of: str = field(default="", repr=False)

    def for_classifier(self, classifier: Any, class_names: tuple[str, ...]) -> Self:
        """The same for a classifier, which `adapt` reweights, and its classes."""
        by_group = {
            name: estimate.for_classifier(classifier, class_names)
            for name, estimate in self.by_group.items()
        }
        return replace(
            self, by_group=by_group, class_names=class_names, _calibrator=classifier
        )

    def of_single_models(self) -> Self:
        """The same, whose text says that the accuracy is that of single models."""
        text = " of single models of the ensemble, whose mean is usually better,"
        by_group = {
            name: replace(estimate, _of=text)
            for name, estimate in self.by_group.items()
        }
        return replace(self, by_group=by_group, _of=text)

    def adapt(self) -> Any:
        """The calibrator for the new class frequencies, like any other; see
        `reweight_classes`.
        """
        if not self.holds:
            message = (
                "The probabilities would be those of wrong class frequencies: "
                f"{self.verdict}."
            )
            warn_user(message)
        return self._calibrator.reweighted(self.weights)

    @property
    def label_shares(self) -> FloatArray:
        """The share of rows with each label, (classes,): counted, so true whatever
        changed.
        """
        return np.asarray(self.confusion.sum(axis=0))

    @property
    def label_accuracy(self) -> FloatArray:
        """The expected accuracy of the rows with each label, (classes,); NaN if
        there are none.
        """
        with np.errstate(invalid="ignore"):
            return np.asarray(np.diag(self.confusion) / self.label_shares)

    @property
    def guarantee(self) -> str:
        """What the numbers rest on, in words."""
        if not self.holds:
            return (
                "Without labels these rows do not determine the accuracy, the class "
                "frequencies, or whether guarantees of probabilities, sets and "
                "abstention still hold."
            )
        message = (
            "Valid if rows of each class are distributed as in the calibration data; "
            "the interval of the accuracy also if scores are as reliable as there. A "
            "few out-of-distribution rows can go unnoticed; accuracy is then closer to "
            "the lower bound."
        )
        if self.verdict == MOVED:
            message += (
                " Corrupted inputs can mimic label shift; check that the estimated "
                "class frequencies are plausible."
            )
        return message

    def __str__(self) -> str:
        p = self.p_value if self.verdict in (BROKEN, OFF) else self.change_p_value
        p_value = f"= {p:.2g}" if p > _LEAST_P_VALUE else "< 1e-6"
        lines = [f"{self.n:,} rows: {self.verdict} (p {p_value})."]
        if self.holds:
            low, high = self.accuracy_interval
            lines += [
                f"Accuracy{self._of} {self.accuracy:.1%} ({low:.1%} to {high:.1%}); "
                "after adapting to the new class frequencies "
                f"{self.adapted_accuracy:.1%}.",
                f"Class frequencies: {self._describe_changes()}.",
            ]
        lines.append(self.guarantee)
        if not self.holds:
            lines.append(_REMEDIES[self.verdict])
        for title, estimate in list(self.by_group.items())[:_SHOWN_GROUPS]:
            low, high = estimate.accuracy_interval
            accuracy = ""
            if estimate.holds:
                accuracy = (
                    f"accuracy {estimate.accuracy:.1%} ({low:.1%} to {high:.1%}), "
                )
            lines += [f"{title}, {estimate.n:,} rows: {accuracy}{estimate.verdict}."]
        if self.unseen.size:
            names = ", ".join(self._class_name(k, "") for k in self.unseen[:_SHOWN])
            more = " and more" if self.unseen.size > _SHOWN else ""
            lines += [
                f"Not in the fit, so they cannot be found: classes {names}{more}."
            ]
        return "\n".join(lines)

    def _describe_changes(self) -> str:
        """The class frequencies that changed most, of those that are determined."""
        new = self.class_frequencies
        old = self.old_class_frequencies
        order = np.argsort(-np.abs(new - old), kind="stable")
        widths = np.ptp(self.class_frequencies_interval, axis=1)
        shown = order[widths[order] < _UNDETERMINED_WIDTH][:_SHOWN]
        if not shown.size:
            return "not determined by these rows"
        changes = [
            f"{self._class_name(k)} {new[k]:.1%} (was {old[k]:.1%})" for k in shown
        ]
        return ", ".join(changes) + " and others" * (old.size > len(changes))

    def _class_name(self, label: int, before: str = "class ") -> str:
        return self.class_names[label] if self.class_names else f"{before}{label}"


class Reweightable(Protocol):
    """What can be adapted to other class frequencies: a calibrator, or a classifier."""

    def reweighted(self, ratio: FloatArray, /) -> Any:
        """A copy for rows among which each class is `ratio` times as frequent."""


@dataclass(frozen=True, eq=False)
class ShiftModel:
    """A fitted calibrator, as far as label shift concerns it.

    Attributes
    ----------
    calibrator : what is adapted to new class frequencies
    method : its name in the registry
    rule : how rows are predicted, maybe without groups
    fit_record : statistics of the examples of the fit
    class_names : names of the classes, if they are known
    """

    calibrator: Reweightable
    method: str
    rule: Rule
    fit_record: FitRecord
    class_names: tuple[str, ...] = ()

    @property
    def class_features(self) -> ClassFeatures:
        """The features of the examples of the fit, by class."""
        assert self.fit_record.class_features is not None
        return self.fit_record.class_features


@dataclass(frozen=True, eq=False)
class _Comparison:
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


def estimate_shift(
    model: ShiftModel, data: Logits, counts: FloatArray, delta: float, groups: object
) -> ShiftEstimate:
    """Class frequencies and accuracy of checked rows, of all and of each of the
    `groups` if given.

    If the rule of the model needs groups, rows of a group are compared with the
    examples of that group in the fit.
    """
    _warn_of_assumed_frequencies(model)
    coding = model.rule.needed_groups
    codes = data.codes
    group_features = None if coding is None else model.fit_record.group_features
    if coding is None and groups is not None:
        coding, codes = GroupCoding.read(groups, data.n_rows)
    of_all = _estimate(model, data, counts, delta, _Comparison(model.class_features))
    by_group = {}
    if coding is None:
        return of_all
    codes = coding.codes_of_inputs(codes)
    cells, cell_index = np.unique(codes, axis=0, return_inverse=True)
    names = [coding.full_names(k) for k in range(len(coding.columns))]
    for number, cell in enumerate(cells):
        rows = np.flatnonzero(cell_index.ravel() == number)
        if not counts[rows].any():
            continue
        comparison = _Comparison(
            model.class_features, of_all.class_frequencies, len(cells)
        )
        if group_features is not None:
            comparison = _compare_with_group(comparison, group_features, cell)
        title = ", ".join(
            column[code] for column, code in zip(names, cell, strict=True)
        )
        by_group[title] = _estimate(
            model, data.take(rows), counts[rows], delta, comparison
        )
    return replace(of_all, by_group=by_group)


def _warn_of_assumed_frequencies(model: ShiftModel) -> None:
    """Warn if probabilities are not calibrated for each class."""
    scores = model.class_features
    label = scores.farthest_off
    if label is not None:
        warn_user(
            "`estimate_shift` needs probabilities that are calibrated for each class: "
            f"those of {model.method} assume {scores.assumed_frequencies[label]:.1%} "
            f"of class {label}, where {scores.frequencies[label]:.1%} of the labels of "
            "the fit are. Alarms may be false, and frequencies and intervals wrong. "
            "Fit `hokical.auto`."
        )


def _compare_with_group(
    comparison: _Comparison, group_features: GroupFeatures, cell: IntArray
) -> _Comparison:
    """With the examples of the group of these codes, if it had enough of them."""
    matching = np.flatnonzero((group_features.codes == cell).all(axis=1))
    if not matching.size:
        return replace(comparison, is_unknown=True)
    return replace(comparison, scores=group_features.scores[matching[0]], around=None)


def _merge_equal_rows(
    sketch: RowSketch | None, data: Logits, counts: FloatArray
) -> tuple[Logits, FloatArray]:
    """One row of each kind, and how often it came: repetitions are no news.

    Unless rows of the fit came again by themselves.
    """
    hashes = row_hashes(data)
    if sketch is not None and sketch.has_twins:
        order = np.argsort(hashes, kind="stable")
        totals = counts[order]
    else:  # in the order of the hashes, which is none
        _, order, index = np.unique(hashes, return_index=True, return_inverse=True)
        totals = np.bincount(index, counts).astype(np.float64)
    return data.take(order[totals > 0.0]), totals[totals > 0.0]


def _estimate(
    model: ShiftModel,
    data: Logits,
    counts: FloatArray,
    delta: float,
    comparison: _Comparison,
) -> ShiftEstimate:
    """The estimate of some rows, and whether only the class frequencies changed."""
    rows, totals = _merge_equal_rows(model.fit_record.sketch, data, counts)
    n_rows = int(np.count_nonzero(counts))
    estimated = ClassFrequencies(
        model.rule, rows, totals / totals.sum(), n_rows, comparison
    )
    unsure, lost = estimated.uncertain_labels()
    # Three tests, by Bonferroni: labels that are surer than they should be have a
    # ninth.
    n_tests = comparison.n_tests
    p_values = (estimated.fit_p_value(), unsure, 4.0 * (1.0 - unsure))
    fits = min(1.0, n_tests * 2.25 * min(p_values))
    change = min(1.0, n_tests * estimated.change_p_value())
    verdict = TOO_FEW
    if not comparison.is_unknown:
        verdict = _judge(estimated, fits, change, model.method)
    holds = verdict in (SAME, MOVED)
    reach = NormalDist().inv_cdf(1.0 - delta / 2.0) if holds else np.inf
    accuracy, accuracy_interval = estimated.accuracy(lost, reach)
    scores = comparison.scores
    shares = estimated.intervals(reach)
    if verdict == SAME:  # the old frequencies are among those that explain the rows
        shares[:, 0] = np.minimum(shares[:, 0], scores.frequencies)
        shares[:, 1] = np.maximum(shares[:, 1], scores.frequencies)
    # By the evidence: those of the fit unless they are ruled out, the estimates if they
    # are so far.
    evidence = max(0.0, 1.0 - change / _TEST_LEVEL)
    log_loss, brier = estimated.expected_scores()
    return ShiftEstimate(
        n=n_rows,
        class_frequencies=estimated.share,
        class_frequencies_interval=shares,
        old_class_frequencies=scores.frequencies,
        weights=1.0 + evidence * (estimated.share / estimated.old - 1.0),
        accuracy=accuracy,
        accuracy_interval=accuracy_interval,
        adapted_accuracy=float(estimated.weights @ estimated.posterior.max(axis=1)),
        confusion=estimated.confusion(),
        log_loss=log_loss,
        brier=brier,
        p_value=fits,
        change_p_value=change,
        unseen=np.flatnonzero(scores.count == 0.0),
        holds=holds,
        verdict=verdict,
        class_names=model.class_names,
        _calibrator=model.calibrator,
    )


def _interval(
    estimates: FloatArray, variance: FloatArray, reach: float, step: float
) -> FloatArray:
    """Intervals (k, 2) in [0, 1] of so many standard errors and a step."""
    half_widths = reach * np.sqrt(np.maximum(variance, 1e-300)) + step
    return np.asarray(
        np.clip(
            np.stack([estimates - half_widths, estimates + half_widths], axis=1),
            0.0,
            1.0,
        )
    )


def _judge(estimated: ClassFrequencies, fits: float, change: float, method: str) -> str:
    """The verdict; first whether there is any, as tests on other ground are not at
    their level.
    """
    scores = estimated.scores
    examples = 1.0 / estimated.noise.sum()
    if min(fits, change) >= _TEST_LEVEL:
        return SAME
    is_unknown = scores.implied is None and method == "hoki"
    if is_unknown or scores.farthest_off is not None:
        return OFF
    # Examples after reweighting are too few below 50, or half of those before; and of
    # the class that decides how uncertain the new frequencies are below 8.
    before = 1.0 / (estimated.old**2 / (scores.effective + 1.0)).sum()
    too_few = (
        examples < min(50.0, 0.5 * before)
        or scores.effective[estimated.noise.argmax()] < 8.0
    )
    if change < _TEST_LEVEL and too_few:
        return TOO_FEW
    if fits >= _TEST_LEVEL:
        return MOVED
    return OFF if scores.implied is None else BROKEN


def class_weights(
    rule: Rule, scores: ClassFeatures, frequencies: Any, names: Any
) -> FloatArray:
    """New frequencies of the classes divided by those of the fit, (classes,)."""
    n_classes = scores.count.size
    if isinstance(frequencies, Mapping):
        frequencies = in_order(frequencies, names or range(n_classes))
    wanted = to_numpy(frequencies, "frequencies")
    is_valid = (
        wanted.shape == (n_classes,)
        and wanted.dtype.kind in "iuf"
        and (wanted >= 0.0).all()
    )
    if not is_valid or not abs(wanted.sum() - 1.0) <= 1e-3:
        raise ValueError(
            f"`frequencies` must have one number for each class, ({n_classes},), at "
            f"least 0, and sum to 1; got shape {wanted.shape}: {wanted}. Divide "
            "counts by their sum."
        )
    wanted = wanted.astype(np.float64)
    impossible = isinstance(rule, BalancedRule) and (wanted > 0.0) & (
        rule.weights == 0.0
    )
    if np.any(impossible):
        raise ValueError(
            "`frequencies` must be 0 for classes that had the frequency 0 before: "
            f"{np.flatnonzero(impossible).tolist()}. Start from the calibrator of the fit."
        )
    old = np.where(scores.count > 0.0, scores.frequencies, scores.smoothed_frequencies)
    weights: FloatArray = wanted / wanted.sum() / old
    guessed = np.flatnonzero((scores.count == 0.0) & (weights > 1.0))
    if guessed.size:
        shown = [str(names[k] if names else k) for k in guessed[:5].tolist()]
        warn_user(
            f"`frequencies` give {wanted[guessed].sum():.1%} to classes without an "
            f"example in the fit, such as {', '.join(shown)}: their frequency in the "
            "fit is a guess, and so are all probabilities that follow. Fit with "
            "examples of them, or give them frequency 0."
        )
    return weights


def in_order(frequencies: Mapping[Any, Any], names: Sequence[Any]) -> list[Any]:
    """The values of a mapping in the order of the classes, each of which must have
    one.
    """
    if set(frequencies) != set(names):
        lacking = [name for name in names if name not in frequencies][:5]
        unknown = [name for name in frequencies if name not in names][:5]
        raise ValueError(
            "`frequencies` must have a value for each class and for nothing else; "
            f"none for {lacking}, not classes: {unknown}. A class that does not occur "
            "has the frequency 0."
        )
    return [frequencies[name] for name in names]


def sample_rows(
    logits: Any, weights: Any, n_rows: int
) -> tuple[Any, Any, IntArray | None]:
    """The rows, or this many of them, chosen by their numbers; a lazy array's in
    memory.
    """
    lazy = lazy_arrays(logits) is not None
    if lazy and np.isnan(logits.shape[0]):
        logits = logits.compute_chunk_sizes()
    total = getattr(
        logits, "n_rows", len(logits) if hasattr(logits, "__len__") else n_rows
    )
    rows = None
    if total > n_rows:
        rows = np.sort(np.argpartition(row_draws(0, total), n_rows)[:n_rows])
        logits = logits.take(rows) if isinstance(logits, Logits) else logits[rows]
        weights = (
            None
            if weights is None
            else np.asarray(to_numpy(weights, "sample_weight"))[rows]
        )
    return (np.asarray(logits) if lazy else logits), weights, rows
