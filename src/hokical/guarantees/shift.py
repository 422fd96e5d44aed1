"""Class frequencies and accuracy of unlabelled rows, in numbers and words.

Class frequencies of unlabelled rows, and their uncertainty.

Under label shift p'(k | x) is proportional to p(k | x) w_k, where w is the new frequency divided by
that of the fit. The new frequencies are the means of p', which EM finds, with pseudo-counts along
the old ones: without them classes that do not occur get a weight of 0, and the first row of such a
class an infinite loss. Uncertainty is by the delta method: how each new row, and each calibration
example, moves the estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import sum_by
from hokical._core.messages import warn_user
from hokical.guarantees.bounds import chi_square_tail, merge_cells
from hokical.guarantees.class_scores import N_LEVELS, ClassScores
from hokical.guarantees.scores import middle_log_odds

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
#: Relative error of a class's frequency because the calibrator is no perfect model.
_MISFIT = 0.05
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


#: The probability of a false "not label shift", and of false label shift.
LEVEL = 0.01
#: Least effective number of calibration examples after reweighting, or half of that before.
_LEAST_EXAMPLES = 50.0
#: Least examples of the class that decides how uncertain the new frequencies are.
_LEAST_OF_CLASS = 8.0
SAME, MOVED = "no change", "consistent with label shift"
BROKEN = "not label shift: estimates withheld"
OFF = (
    "the probabilities of some classes were not calibrated in the fit, or it is not known whether: "
    "estimates withheld"
)
UNKNOWN = "too few examples of the classes it would take: estimates withheld"
#: What to do if a verdict does not hold.
_REMEDIES = {
    BROKEN: "No class frequencies explain these rows. Label some hundred of them and measure; if "
    "calibration is off, fit again.",
    OFF: "Fit `hokical.auto`, which calibrates the probability of each class, and ask again.",
    UNKNOWN: "Fit with more examples of the classes that have become common, or wait for labels.",
}
_SHOWN, _GROUPS = 5, 20
#: Frequencies with wider intervals are not printed.
_OPEN = 0.9


@dataclass(frozen=True, eq=False)
class ShiftEstimate:
    """Class frequencies and accuracy on rows without labels, if only class frequencies changed.

    Attributes
    ----------
    n : int
        Rows.
    class_frequencies, old_class_frequencies : array of shape (classes,)
        The frequency of each class now, and among the calibration examples.
    class_frequencies_interval : array of shape (classes, 2)
        From 0 to 1 for classes without an example in the fit; if the verdict is "no change", they
        contain the old frequencies.
    weights : array of shape (classes,)
        How much more frequent each class has become, shrunk to 1 by the evidence: 1 if the verdict
        is "no change".
    accuracy : float
        The share of labels that is right on these rows, and `accuracy_interval`. The interval also
        holds if the mix of rows changed and not the reliability of scores; its lower end allows for
        out-of-distribution rows that are too few to be detected. Of an ensemble
        (`CalibratedClassifier`) both are of its single models; their mean is usually better.
    adapted_accuracy : float
        The accuracy of the labels of `adapt()`.
    confusion : array of shape (classes, classes)
        The expected share of rows of each true class (row) and label (column).
    log_loss, brier : float
        Expected, of the probabilities as they are, over all classes.
    p_value, change_p_value : float
        Of the test that only class frequencies changed, and of the one that they did not change.
    unseen : array of integers
        Classes without an example in the fit: they cannot be found.
    holds : bool
        Whether label shift, or no change, explains the rows. If not, intervals are from 0 to 1.
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

    def adapt(self) -> Any:
        """The calibrator for the new class frequencies, like any other; see `reweight_classes`."""
        if not self.holds:
            words = f"The probabilities would be those of wrong class frequencies: {self.verdict}."
            warn_user(words, UserWarning)
        return self._calibrator._reweight(self.weights)

    @property
    def label_shares(self) -> FloatArray:
        """The share of rows with each label, (classes,): counted, so true whatever changed."""
        return np.asarray(self.confusion.sum(axis=0))

    @property
    def label_accuracy(self) -> FloatArray:
        """The expected accuracy of the rows with each label, (classes,); NaN if there are none."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.diag(self.confusion) / self.label_shares)

    @property
    def guarantee(self) -> str:
        """What the numbers rest on, in words."""
        if not self.holds:
            return (
                "Without labels these rows do not determine the accuracy, the class frequencies, "
                "or whether guarantees of probabilities, sets and abstention still hold."
            )
        words = (
            "Valid if rows of each class are distributed as in the calibration data; the interval "
            "of the accuracy also if scores are as reliable as there. A few out-of-distribution "
            "rows can go unnoticed; accuracy is then closer to the lower bound."
        )
        if self.verdict != MOVED:
            return words
        return (
            f"{words} Corrupted inputs can mimic label shift; check that the estimated class "
            "frequencies are plausible."
        )

    def _name(self, k: int, before: str = "class ") -> str:
        return self.class_names[k] if self.class_names else f"{before}{k}"

    def __str__(self) -> str:
        low, high = self.accuracy_interval
        p = self.p_value if self.verdict in (BROKEN, OFF) else self.change_p_value
        p_value = f"p = {p:.2g}" if p > 1e-6 else "p < 1e-6"
        lines = [f"{self.n:,} rows: {self.verdict} ({p_value})."]
        if self.holds:
            lines += [
                f"Accuracy{self._of} {self.accuracy:.1%} ({low:.1%} to {high:.1%}); after adapting "
                f"to the new class frequencies {self.adapted_accuracy:.1%}."
            ]
            old = self.old_class_frequencies
            order = np.argsort(-np.abs(self.class_frequencies - old), kind="stable")
            known = np.ptp(self.class_frequencies_interval, axis=1) < _OPEN
            order = order[known[order]][:_SHOWN]
            parts = [
                f"{self._name(k)} {self.class_frequencies[k]:.1%} (was {old[k]:.1%})" for k in order
            ]
            others = " and others" if old.size > len(parts) else ""
            shown = f"{', '.join(parts)}{others}" if parts else "not determined by these rows"
            lines += [f"Class frequencies: {shown}."]
        lines += [self.guarantee]
        if not self.holds:
            lines += [_REMEDIES[self.verdict]]
        for name, found in list(self.by_group.items())[:_GROUPS]:
            low, high = found.accuracy_interval
            accuracy = f"accuracy {found.accuracy:.1%} ({low:.1%} to {high:.1%}), " * found.holds
            lines += [f"{name}, {found.n:,} rows: {accuracy}{found.verdict}."]
        if self.unseen.size:
            names = ", ".join(self._name(k, "") for k in self.unseen[:_SHOWN])
            more = " and more" if self.unseen.size > _SHOWN else ""
            lines += [f"Not in the fit, so they cannot be found: classes {names}{more}."]
        return "\n".join(lines)


def estimate_shift(
    rows: NewRows,
    known: ClassScores,
    delta: float,
    calibrator: Any = None,
    *,
    around: ShiftEstimate | None = None,
    n_tests: int = 1,
    unknown: bool = False,
) -> ShiftEstimate:
    """Class frequencies and accuracy of new rows, and whether only the frequencies changed.

    `around` has the frequencies of more rows, `n_tests` is how many such estimates there are. If
    the fit has too few examples of the group of the rows, it is `unknown` what its classes are
    like.
    """
    found = ClassFrequencies(rows, known, None if around is None else around.class_frequencies)
    unsure, lost = found.uncertain_labels()
    # Three tests, by Bonferroni: labels that are surer than they should be have a ninth.
    fits = min(1.0, n_tests * 2.25 * min(found.fit_p_value(), unsure, 4.0 * (1.0 - unsure)))
    change = min(1.0, n_tests * found.change_p_value())
    verdict = UNKNOWN if unknown else _judge(found, fits, change, calibrator)
    holds = verdict in (SAME, MOVED)
    reach = NormalDist().inv_cdf(1.0 - delta / 2.0) if holds else np.inf
    accuracy, accuracy_interval = _accuracy(found, lost, reach)
    parts = (found.posterior * rows.weights[:, None]).T
    confusion = np.array([sum_by(rows.labels, part, known.n_classes) for part in parts])
    logs = np.log(np.maximum(rows.proba, 1e-300))
    squares = (rows.proba * (rows.proba - 2.0 * found.posterior)).sum(axis=1)
    unseen = np.flatnonzero(known.count == 0.0)
    shares = _interval(found.share, found.variance, reach, 1.0 / rows.effective)
    # As of Poisson counts, whose upper end is further away.
    shares[:, 1] = np.minimum(shares[:, 1] + min(reach, 9.0) ** 2 / (2.0 * rows.effective), 1.0)
    shares[unseen] = 0.0, 1.0
    if verdict == SAME:  # the old frequencies are among those that explain the rows
        shares[:, 0] = np.minimum(shares[:, 0], known.frequencies)
        shares[:, 1] = np.maximum(shares[:, 1], known.frequencies)
    # By the evidence: those of the fit unless they are ruled out, the estimates if they are so far.
    evidence = max(0.0, 1.0 - change / LEVEL)
    return ShiftEstimate(
        n=rows.count,
        class_frequencies=found.share,
        class_frequencies_interval=shares,
        old_class_frequencies=known.frequencies,
        weights=1.0 + evidence * (found.ratio - 1.0),
        accuracy=accuracy,
        accuracy_interval=accuracy_interval,
        adapted_accuracy=float(rows.weights @ found.posterior.max(axis=1)),
        confusion=confusion,
        log_loss=float(-rows.weights @ (found.posterior * logs).sum(axis=1)),
        brier=float(1.0 + rows.weights @ squares),
        p_value=fits,
        change_p_value=change,
        unseen=unseen,
        holds=holds,
        verdict=verdict,
        class_names=getattr(calibrator, "class_names", ()),
        _calibrator=calibrator,
    )


def _accuracy(found: ClassFrequencies, lost: float, reach: float) -> tuple[float, FloatArray]:
    """The accuracy, from the new frequencies and from the confidences, and an interval (2,).

    `lost` is the accuracy that out-of-distribution rows can take away.
    """
    rows, (value, variance) = found.rows, found.accuracy()
    if rows.own_labels is not None:  # at fit time these were counted, and not those predicted
        both = (rows.at(each, found.posterior) for each in (rows.own_labels, rows.labels))
        own = value + float(rows.weights @ np.subtract(*both))
        gap = (own - found.accuracy_by_recall()) ** 2
        variance = max(variance, gap)  # two ways that should agree
    plain, spread = found.mean_confidence()
    # One row more or less, which few rows that are nearly certain would not allow for.
    ends, others = _interval(
        np.array([value, plain]), np.array([variance, spread]), reach, 1.0 / rows.effective
    )
    low = max(min(ends[0] - lost, others[0]), 0.0)
    return plain + found.evidence * (value - plain), np.array([low, max(ends[1], others[1])])


def _interval(middle: FloatArray, variance: FloatArray, reach: float, step: float) -> FloatArray:
    """Intervals (k, 2) in [0, 1] of so many standard errors and a step."""
    far = reach * np.sqrt(np.maximum(variance, 1e-300)) + step
    return np.asarray(np.clip(np.stack([middle - far, middle + far], axis=1), 0.0, 1.0))


def _judge(found: ClassFrequencies, fits: float, change: float, calibrator: Any) -> str:
    """The verdict; first whether there is any, as tests on other ground are not at their level."""
    known, examples = found.known, 1.0 / found.noise.sum()
    at_fit_time = 1.0 / (found.old**2 / (known.effective + 1.0)).sum()
    decisive = known.effective[found.noise.argmax()]
    few = examples < min(_LEAST_EXAMPLES, 0.5 * at_fit_time) or decisive < _LEAST_OF_CLASS
    unknown = known.implied is None and getattr(calibrator, "name", "") == "hoki"
    if min(fits, change) >= LEVEL:
        return SAME
    if unknown or known.farthest_off is not None:
        return OFF
    if change < LEVEL and few:
        return UNKNOWN
    if fits >= LEVEL:
        return MOVED
    return OFF if known.implied is None else BROKEN
