"""Label shift of rows without labels: what is estimated, in numbers and words; other frequencies.

The model is that of `class_scores`; rows are read, and calibrators adapted to known or estimated
class frequencies, here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray, lazy_arrays
from hokical._core.checks import sum_by
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits
from hokical._core.messages import warn_user
from hokical._core.reading import to_numpy
from hokical.guarantees.calibration_data import CalibrationData, row_draws, row_hashes
from hokical.guarantees.class_scores import (
    ClassFrequencies,
    ClassScores,
    NewRows,
    shift_features,
)
from hokical.rules.base import Rule, predict_on_host
from hokical.rules.wrapped import BalancedRule, GroupedRule, SetRule

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
#: Probabilities that an estimate holds at most; of more rows a sample is taken.
MOST_NUMBERS = 1 << 24


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


def class_weights(
    rule: Rule, known: ClassScores, frequencies: Any, names: Sequence[Any]
) -> FloatArray:
    """New frequencies of the classes divided by those of the fit, (classes,)."""
    asked = _read_frequencies(frequencies, known.n_classes, names or range(known.n_classes))
    gone = isinstance(rule, BalancedRule) and (asked > 0.0) & (rule.weights == 0.0)
    if np.any(gone):
        raise ValueError(
            "`frequencies` must be 0 for classes that had the frequency 0 before: "
            f"{np.flatnonzero(gone).tolist()}. Start from the calibrator of the fit."
        )
    old = np.where(known.count > 0.0, known.frequencies, known.smoothed_frequencies)
    weights: FloatArray = asked / asked.sum() / old
    guessed = np.flatnonzero((known.count == 0.0) & (weights > 1.0))
    if guessed.size:
        some = [str(names[k] if names else k) for k in guessed[:5].tolist()]
        warn_user(
            f"`frequencies` give {asked[guessed].sum():.1%} to classes without an example in the "
            f"fit, such as {', '.join(some)}: their frequency in the fit is a guess, and so are "
            "all probabilities that follow. Fit with examples of them, or give them frequency 0.",
            UserWarning,
        )
    return weights


def _read_frequencies(given: Any, n_classes: int, names: Sequence[Any]) -> FloatArray:
    """Checked class frequencies (classes,)."""
    if isinstance(given, Mapping):
        given = in_order(given, names)
    array = to_numpy(given, "frequencies")
    if array.shape != (n_classes,) or array.dtype.kind not in "iuf":
        raise ValueError(
            f"`frequencies` must have one number for each class, ({n_classes},); got shape "
            f"{array.shape} of {array.dtype}."
        )
    asked: FloatArray = array.astype(np.float64)
    if not ((asked >= 0.0) & np.isfinite(asked)).all() or abs(asked.sum() - 1.0) > 1e-3:
        raise ValueError(
            f"`frequencies` must be at least 0 and sum to 1; got {asked}. Divide counts by their "
            "sum."
        )
    return asked


def in_order(frequencies: Mapping[Any, Any], names: Sequence[Any]) -> list[Any]:
    """The values of a mapping in the order of the classes, each of which must have one."""
    if set(frequencies) != set(names):
        lacking = [name for name in names if name not in frequencies][:5]
        other = [name for name in frequencies if name not in names][:5]
        raise ValueError(
            "`frequencies` must have a value for each class and for nothing else; none for "
            f"{lacking}, not classes: {other}. A class that does not occur has the frequency 0."
        )
    return [frequencies[name] for name in names]


def warn_of_other_frequencies(known: ClassScores, name: str) -> None:
    """Warn if the probabilities of the fit are not calibrated for each class."""
    k = known.farthest_off
    if k is not None:
        warn_user(
            f"`estimate_shift` needs probabilities that are calibrated for each class: those of "
            f"{name} assume {known.assumed_frequencies[k]:.1%} of class {k}, where "
            f"{known.frequencies[k]:.1%} of the labels of the fit are. Alarms may be false, and "
            "frequencies and intervals wrong. Fit `hokical.auto`.",
            UserWarning,
        )


def reweight(
    rule: Rule, kept: CalibrationData, weights: FloatArray
) -> tuple[Rule, CalibrationData]:
    """Rule and data for rows among which each class is `weights` (classes,) times as frequent."""
    known = kept.class_scores
    assert known is not None
    if isinstance(rule, SetRule):
        raise ValueError("class frequencies must be set before sets: `with_sets` comes last.")
    before = np.ones(known.n_classes)
    if isinstance(rule, BalancedRule):
        before, rule = rule.weights, rule.rule
    sample = kept.fit_conformity
    if sample is not None and (weights[sample.labels] > 0.0).any():
        own = sample.take(weights[sample.labels] > 0.0)
        # At most 1, so that a weight of 2 is not taken for two examples.
        counts = own.counts * weights[own.labels]
        most, unit = counts.max(), own.unit * weights.max() / counts.max()
        sample = replace(own, weights=counts / most, unit=float(unit))
    else:
        sample = None
    seen = weights if (weights * known.count).any() else np.ones_like(weights)
    left = kept.without_fit().without_held_out()
    groups = None if kept.group_scores is None else kept.group_scores.reweighted(weights)
    left = replace(left, fit_conformity=sample, class_scores=known.reweighted(seen))
    left = replace(left, group_scores=groups)
    return BalancedRule(rule, before * weights), left


def drop_groups(rule: Any) -> Any:
    """The rule without what it learned from groups."""
    if isinstance(rule, GroupedRule):
        return rule.rule
    return replace(rule, rule=drop_groups(rule.rule))


def read_rows(rule: Rule, kept: CalibrationData, data: Logits, counts: FloatArray) -> NewRows:
    """What an estimate needs of checked rows; duplicates as one of them, in no order."""
    order, total = _merge_twins(kept, row_hashes(data), counts)
    some = data.take(order)
    labels, own = predict_on_host(rule, "labels", some), some.to_host(some.labels)
    return NewRows(
        predict_on_host(rule, "proba", some).astype(np.float64),
        labels.astype(np.int64),
        shift_features(some),
        total / total.sum(),
        int(np.count_nonzero(counts)),
        # With other class frequencies, no labels were counted at fit time.
        None if isinstance(rule, BalancedRule) else own.astype(np.int64),
    )


def _merge_twins(
    kept: CalibrationData, hashes: FloatArray, counts: FloatArray
) -> tuple[IntArray, FloatArray]:
    """One row of each hash, in no order, and its count; if the rows of the fit differed too."""
    if kept.fit_rows is not None and kept.fit_rows.has_twins:
        order = np.argsort(hashes, kind="stable")
        total = counts[order]
    else:
        _, order, place = np.unique(hashes, return_index=True, return_inverse=True)
        total = np.bincount(place, counts).astype(np.float64)
    return order[total > 0.0], total[total > 0.0]


def rows_by_group(coding: GroupCoding, codes: IntArray) -> Iterator[tuple[str, IntArray, IntArray]]:
    """The name of each group that occurs, its codes (columns,), and the numbers of its rows."""
    cells, place = np.unique(codes, axis=0, return_inverse=True)
    names = [coding.full_names(k) for k in range(len(coding.columns))]
    for i, cell in enumerate(cells):
        title = ", ".join(own[code] for own, code in zip(names, cell, strict=True))
        yield title, cell, np.flatnonzero(place.ravel() == i)


def at_most(logits: Any, weights: Any, n_rows: int) -> tuple[Any, Any, IntArray | None]:
    """The rows, or this many of them, chosen by their numbers; a lazy array's in memory."""
    lazy = lazy_arrays(logits) is not None
    if lazy and np.isnan(logits.shape[0]):
        logits = logits.compute_chunk_sizes()
    sized = hasattr(logits, "__len__")
    total = getattr(logits, "n_rows", len(logits) if sized else n_rows)
    rows = None
    if total > n_rows:
        keys = row_draws(0, total)
        rows = np.sort(np.argpartition(keys, n_rows)[:n_rows])
        logits = logits.take(rows) if isinstance(logits, Logits) else logits[rows]
        weights = None if weights is None else np.asarray(to_numpy(weights, "sample_weight"))[rows]
    return (np.asarray(logits) if lazy else logits), weights, rows
