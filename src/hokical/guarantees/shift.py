"""Label shift of rows without labels: what is estimated, in numbers and words; other
frequencies.

Under label shift rows of one class are distributed as before, whatever their frequency.
So new rows must be distributed like the calibration examples (`ClassFeatures`), weighted
by how much more frequent each class has become; where they are not, something else has
changed.

`class_frequencies` has the estimate and its uncertainty; here are the tests, the verdict
and what a user is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Protocol, Self

import numpy as np

from hokical._core.arrays import FloatArray, IntArray, lazy_arrays
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits
from hokical._core.reading import select_rows, to_numpy
from hokical._core.runtime import warn_user
from hokical.guarantees.class_features import ClassFeatures, GroupFeatures
from hokical.guarantees.class_frequencies import ClassFrequencies, Comparison
from hokical.guarantees.evidence import FitRecord
from hokical.guarantees.fingerprints import RowSketch, row_draws, row_hashes
from hokical.rules.base import BalancedRule, Rule

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
    of_all = _estimate(model, data, counts, delta, Comparison(model.class_features))
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
        comparison = Comparison(
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
    comparison: Comparison, group_features: GroupFeatures, cell: IntArray
) -> Comparison:
    """With the examples of the group of these codes, if it had enough of them."""
    matching = np.flatnonzero((group_features.codes == cell).all(axis=1))
    if not matching.size:
        return replace(comparison, is_unknown=True)
    return replace(comparison, scores=group_features.scores[matching[0]], around=None)


def _merge_equal_rows(
    sketch: RowSketch | None, data: Logits, counts: FloatArray
) -> tuple[Logits, FloatArray]:
    """The distinct rows, and the sum of the `counts` of each.

    Repeated rows are not merged where rows of the fit were repeated too.
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
    comparison: Comparison,
) -> ShiftEstimate:
    """The estimate of some rows, and whether only the class frequencies changed."""
    rows, totals = _merge_equal_rows(model.fit_record.sketch, data, counts)
    n_rows = int(np.count_nonzero(counts))
    estimated = ClassFrequencies(
        model.rule, rows, totals / totals.sum(), n_rows, comparison
    )
    tests = _test(estimated, model, comparison)
    holds = tests.verdict in (SAME, MOVED)
    reach = NormalDist().inv_cdf(1.0 - delta / 2.0) if holds else np.inf
    accuracy, accuracy_interval = estimated.accuracy(tests.lost_accuracy, reach)
    scores = comparison.scores
    shares = estimated.intervals(reach)
    # The old frequencies are among those that explain the rows.
    if tests.verdict == SAME:
        shares[:, 0] = np.minimum(shares[:, 0], scores.frequencies)
        shares[:, 1] = np.maximum(shares[:, 1], scores.frequencies)
    # By the evidence: those of the fit unless they are ruled out, the estimates if they
    # are so far.
    evidence = max(0.0, 1.0 - tests.change / _TEST_LEVEL)
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
        p_value=tests.fits,
        change_p_value=tests.change,
        unseen=np.flatnonzero(scores.count == 0.0),
        holds=holds,
        verdict=tests.verdict,
        class_names=model.class_names,
        _calibrator=model.calibrator,
    )


@dataclass(frozen=True)
class _Tests:
    """Whether only the class frequencies changed.

    Attributes
    ----------
    fits : the p-value of rows like these if nothing else changed
    change : that of such frequencies if they are the old ones
    lost_accuracy : what out-of-distribution rows can take away from the accuracy
    verdict : what follows from both
    """

    fits: float
    change: float
    lost_accuracy: float
    verdict: str


def _test(
    estimated: ClassFrequencies, model: ShiftModel, comparison: Comparison
) -> _Tests:
    """The tests of the rows, by Bonferroni for several estimates."""
    n_tests = comparison.n_tests
    unsure, lost_accuracy = estimated.uncertain_labels()
    # Three tests, of which the one for labels that are surer than they should be has a
    # ninth of the level.
    p_values = (estimated.fit_p_value(), unsure, 4.0 * (1.0 - unsure))
    fits = min(1.0, n_tests * 2.25 * min(p_values))
    change = min(1.0, n_tests * estimated.change_p_value())
    verdict = TOO_FEW
    if not comparison.is_unknown:
        verdict = _judge(estimated, fits, change, model.method)
    return _Tests(fits, change, lost_accuracy, verdict)


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


def in_order(
    values: Mapping[Any, Any], names: Sequence[Any], argument: str = "frequencies"
) -> list[Any]:
    """The values of a mapping in the order of the classes, each of which must have
    one.
    """
    if set(values) != set(names):
        lacking = [name for name in names if name not in values][:5]
        unknown = [name for name in values if name not in names][:5]
        raise ValueError(
            f"`{argument}` must have a value for each class and for nothing else; "
            f"none for {lacking}, not classes: {unknown}. Give the others as well; a "
            "class that does not occur or costs nothing has 0."
        )
    return [values[name] for name in names]


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
        is_checked = isinstance(logits, Logits)
        logits = logits.take(rows) if is_checked else select_rows(logits, rows)
        if weights is not None:
            weights = to_numpy(weights, "sample_weight")[rows]
    return (np.asarray(logits) if lazy else logits), weights, rows
