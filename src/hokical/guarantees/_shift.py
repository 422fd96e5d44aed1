"""Class frequencies and accuracy of unlabelled rows, in numbers and words."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.types import FloatArray, IntArray
from hokical._core.warn import warn_user
from hokical.guarantees._class_scores import ClassScores
from hokical.guarantees._label_shift import ClassFrequencies, NewRows

#: The probability of a false "something else changed", and of false label shift.
LEVEL = 0.01
#: Least effective number of calibration examples after reweighting, or half of that before.
_LEAST_EXAMPLES = 50.0
#: Least examples of the class that decides how uncertain the new frequencies are.
_LEAST_OF_CLASS = 8.0
SAME, MOVED = "no change", "label shift explains it"
BROKEN = "something else changed: these numbers do not apply"
OFF = (
    "the probabilities of some classes were not calibrated in the fit, or it is not known whether: "
    "these numbers do not apply"
)
UNKNOWN = "too few examples of the classes it would take: these numbers do not apply"
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
) -> ShiftEstimate:
    """Class frequencies and accuracy of new rows, and whether only the frequencies changed.

    `around` has the frequencies of more rows, `n_tests` is how many such estimates there are.
    """
    found = ClassFrequencies(rows, known, None if around is None else around.class_frequencies)
    unsure, lost = found.uncertain_labels()
    # Three tests, by Bonferroni: labels that are surer than they should be have a ninth.
    fits = min(1.0, n_tests * 2.25 * min(found.fit_p_value(), unsure, 4.0 * (1.0 - unsure)))
    change = min(1.0, n_tests * found.change_p_value())
    verdict = _judge(found, fits, change, calibrator)
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
