"""What unlabelled rows say of the balance of classes and of accuracy, in numbers and words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.types import FloatArray, IntArray
from hokical._core.warn import warn_user
from hokical.guarantees._class_scores import ClassScores
from hokical.guarantees._label_shift import Balance, NewRows, sum_rows_by

#: The probability of a false "something else changed", and of false label shift.
LEVEL = 0.01
#: Least effective number of calibration examples after reweighting, or half of that before.
_LEAST_EXAMPLES = 50.0
SAME, MOVED = "no change", "label shift explains it"
BROKEN = "something else changed: these numbers do not apply"
UNKNOWN = "too few examples of the classes it would take: these numbers do not apply"
#: What to do if a verdict does not hold.
_REMEDIES = {
    BROKEN: "No class frequencies explain these rows. Label some hundred of them and measure; if "
    "calibration is off, fit again.",
    UNKNOWN: "Fit with more examples of the classes that have become common, or wait for labels.",
}
_SHOWN, _GROUPS = 5, 20


@dataclass(frozen=True, eq=False)
class ShiftEstimate:
    """The class balance and the accuracy of rows without labels, if only the balance changed.

    Attributes
    ----------
    n : int
        Rows.
    balance, old_balance : array of shape (classes,)
        The share of each class now, and among the examples of the fit.
    balance_interval : array of shape (classes, 2)
        From 0 to 1 for classes without an example in the fit.
    weights : array of shape (classes,)
        How much commoner each class has become; 1 on average over the examples of the fit.
    accuracy : float
        The share of labels that is right on these rows, as far as the change of balance is more
        than chance, and `accuracy_interval`. It also holds if the mix of rows changed and not what
        scores mean; its lower end makes room for rows of new kinds that are too few to be told.
    label_accuracy : array of shape (classes,)
        The same of the rows with each label, NaN where there are none; `label_accuracy_interval`.
    adapted_accuracy : float
        The accuracy of the labels of `adapt()`.
    confusion : array of shape (classes, classes)
        The expected share of rows of each true class (row) and label (column).
    log_loss, brier : float
        Expected, of the probabilities as they are, over all classes.
    p_value, change_p_value : float
        Of the test that the balance is all that changed, and of the one that it did not change.
    unseen : array of integers
        Classes without an example in the fit: they cannot be found.
    holds : bool
        Whether a new balance, or none, explains the rows. If not, intervals are from 0 to 1.
    verdict, guarantee : str
        The same in words, and what the numbers rest on.
    by_group : dict of names to estimates
        The same for the rows of each group, if groups were given.
    class_names : tuple of str
        Names of the classes, where the calibrator knows them.
    """

    n: int
    balance: FloatArray
    balance_interval: FloatArray
    old_balance: FloatArray
    weights: FloatArray
    accuracy: float
    accuracy_interval: FloatArray
    label_accuracy: FloatArray
    label_accuracy_interval: FloatArray
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

    def adapt(self) -> Any:
        """The calibrator for the new class frequencies, like any other; see `reweight_classes`."""
        if not self.holds:
            words = f"The probabilities would be those of wrong class frequencies: {self.verdict}."
            warn_user(words, UserWarning)
        return self._calibrator._reweight(self.weights)

    @property
    def f1(self) -> float:
        """The expected macro F1: the mean over the classes that are there or predicted."""

        def macro(confusion: FloatArray) -> float:
            sums = confusion.sum(axis=0) + confusion.sum(axis=1)
            there = sums > 0.0
            return float((2.0 * np.diag(confusion)[there] / sums[there]).mean())

        return self.metric(macro)

    @property
    def label_shares(self) -> FloatArray:
        """The share of rows with each label, (classes,): counted, so true whatever changed."""
        return np.asarray(self.confusion.sum(axis=0))

    def metric(self, score: Callable[[FloatArray], float]) -> float:
        """Any metric of the expected `confusion` matrix, true classes in rows; shares sum to 1."""
        return score(self.confusion)

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
        chance = f"p = {self.p_value:.2g}" if self.p_value > 1e-6 else "p < 1e-6"
        lines = [f"{self.n:,} rows: {self.verdict} ({chance})."]
        if self.holds:
            lines += [
                f"Accuracy {self.accuracy:.1%} ({low:.1%} to {high:.1%}); after adapting to the "
                f"new class frequencies {self.adapted_accuracy:.1%}."
            ]
            order = np.argsort(-np.abs(self.balance - self.old_balance), kind="stable")
            order = order[~np.isin(order, self.unseen)][:_SHOWN]
            parts = [
                f"{self._name(k)} {self.balance[k]:.1%} (was {self.old_balance[k]:.1%})"
                for k in order
            ]
            others = " and others" if self.balance.size > _SHOWN else ""
            lines += [f"Class frequencies: {', '.join(parts)}{others}."]
        lines += [self.guarantee]
        if not self.holds:
            lines += [_REMEDIES[self.verdict]]
        for name, found in list(self.by_group.items())[:_GROUPS]:
            low, high = found.accuracy_interval
            said = f"accuracy {found.accuracy:.1%} ({low:.1%} to {high:.1%}), " * found.holds
            lines += [f"{name}, {found.n:,} rows: {said}{found.verdict}."]
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
    """The balance and the accuracy of new rows, and whether the balance is all that changed.

    `around` has the balance of more rows, `n_tests` is how many such estimates there are.
    """
    found = Balance(rows, known, None if around is None else around.balance)
    unsure, lost = found.unsureness(known)
    # Three tests, by Bonferroni: labels that are surer than they should be have a ninth.
    fits = min(1.0, 2.25 * min(found.fit_p_value(known), unsure, 4.0 * (1.0 - unsure)))
    change = found.change_p_value()
    verdict = _judge(found, known, fits * n_tests, change * n_tests)
    holds = verdict in (SAME, MOVED)
    reach = NormalDist().inv_cdf(1.0 - delta / 2.0) if holds else None
    value, ends = _accuracies(found, rows, known, lost, reach)
    confusion = sum_rows_by(rows.labels, found.posterior * rows.weights[:, None], known.n_classes).T
    logs = np.log(np.maximum(rows.proba, 1e-300))
    unseen = np.flatnonzero(known.count == 0.0)
    shares = _interval(found.share, found.variance(), reach, 1.0 / rows.effective)
    shares[unseen] = 0.0, 1.0
    return ShiftEstimate(
        n=rows.count,
        balance=found.share,
        balance_interval=shares,
        old_balance=known.balance,
        weights=found.ratio,
        accuracy=float(value[0]),
        accuracy_interval=ends[0],
        label_accuracy=value[1:],
        label_accuracy_interval=ends[1:],
        adapted_accuracy=float(rows.weights @ found.posterior.max(axis=1)),
        confusion=confusion,
        log_loss=float(-rows.weights @ (found.posterior * logs).sum(axis=1)),
        brier=float(
            1.0 + rows.weights @ (rows.proba * (rows.proba - 2.0 * found.posterior)).sum(axis=1)
        ),
        p_value=fits,
        change_p_value=change,
        unseen=unseen,
        holds=holds,
        verdict=verdict,
        class_names=getattr(calibrator, "class_names", ()),
        _calibrator=calibrator,
    )


def _accuracies(
    found: Balance,
    rows: NewRows,
    known: ClassScores,
    lost: Any,
    reach: float | None,
) -> tuple[FloatArray, FloatArray]:
    """The accuracy of all rows, then of those with each label, (1 + classes,), and intervals.

    Found from the new frequencies and from what scores meant; `lost` is what out-of-distribution
    rows can take away.
    """
    value, variance = found.accuracy()
    if rows.own_labels is not None:  # at fit time these were counted, and not those predicted
        here = np.arange(rows.labels.size)
        both = (found.posterior[here, each] for each in (rows.own_labels, rows.labels))
        own = value[0] + float(rows.weights @ np.subtract(*both))
        gap = (own - found.accuracy_by_recall(known)) ** 2
        variance[0] += gap if gap > 9.0 * variance[0] else 0.0  # two ways that should agree
    plain, doubt = found.mean_confidence(known)
    labelled = np.append(1.0, sum_by(rows.labels, rows.weights, known.n_classes))
    # One row more or less, which few rows that are nearly certain would not allow for.
    step = 1.0 / np.maximum(rows.effective * labelled, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends, others = _interval(value, variance, reach, step), _interval(plain, doubt, reach, step)
        ends[:, 0] = np.maximum(np.minimum(ends[:, 0] - lost / labelled, others[:, 0]), 0.0)
        ends[:, 1] = np.maximum(ends[:, 1], others[:, 1])
    return plain + found.evidence * (value - plain), ends


def _interval(
    middle: FloatArray, variance: FloatArray, reach: float | None, step: Any = 0.0
) -> FloatArray:
    """Intervals (k, 2) of so many standard errors and a step; of no reach, anything in [0, 1]."""
    if reach is None:
        return np.broadcast_to([0.0, 1.0], (middle.size, 2)).copy()
    far = reach * np.sqrt(np.maximum(variance, 0.0)) + step
    return np.asarray(np.clip(np.stack([middle - far, middle + far], axis=1), 0.0, 1.0))


def _judge(found: Balance, known: ClassScores, fits: float, change: float) -> str:
    examples = 1.0 / found.doubt.sum()
    at_fit_time = 1.0 / (found.old**2 / (known.effective + 1.0)).sum()
    if examples < min(_LEAST_EXAMPLES, 0.5 * at_fit_time):
        return UNKNOWN
    if fits < LEVEL:
        return BROKEN
    return MOVED if change < LEVEL else SAME
