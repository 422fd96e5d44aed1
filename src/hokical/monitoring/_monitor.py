"""`CalibrationMonitor`: predictions in, verdicts out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hokical._core.groups import GroupCoding, count_rows
from hokical._core.logits import Logits, as_logits
from hokical._core.types import BoolArray, IntArray
from hokical.calibrators import Calibrator, ConfidenceCalibrator
from hokical.metrics._examples import Examples
from hokical.monitoring import _arrivals as arrivals
from hokical.monitoring._arrivals import Window
from hokical.monitoring._drift import allowances
from hokical.monitoring._expected import SampledRows, rows_per_pane
from hokical.monitoring._reference import Reference, as_reference
from hokical.monitoring._state import MonitorOptions, MonitorState
from hokical.monitoring._watching import WatchedStream, split_dense

if TYPE_CHECKING:  # it needs scikit-learn
    from hokical.dense import Dense

#: Batches that are remembered.
_BATCHES = 10_000


class CalibrationMonitor(WatchedStream):
    """Watch the confidence of a model in service.

    Feed it predictions as they arrive, in batches of any size: results do not depend on how the
    stream was cut. It keeps sums, never examples, so its size does not grow. All methods may be
    called from several threads.

    Parameters
    ----------
    reference : fitted Hoki, Reference, ConfidenceCalibrator or None
        What was known at fit time. A fitted `Hoki` carries it; for other calibrators use
        `CalibrationMonitor.from_validation`. With None, or a calibrator of confidences whose
        answers are passed to `update`, shifts of the inputs cannot be detected.
    window : int or timedelta
        What counts as now: the last so many labelled examples (and as many predictions, for the
        inputs), or those of the last period of time. It slides in steps of 2 %.
    delta : float
        Probability of *ever* raising a false alarm about calibration, once more the same of one
        about any class, and of a false alarm about inputs at each look.
    tolerance, class_tolerance : float
        By how much confidence, and that of the rows with one predicted label, may be off without an
        alarm. A gap that the reference cannot exclude, because it is small, is tolerated too.
    interval_delta : float
        Probability that the interval of the ECE misses the true error, at each look.
    min_labels : int
        Labelled examples before there is a verdict on calibration (except for alarms), and
        predictions before there is one on inputs.
    n_bins : int
        Number of equal-width bins of confidence.
    model : str
        Name of the model in exports.
    n_classes : int, optional
        Number of classes, each of which then gets its own test; by default the calibrator's.
    groups : array-like of shape (n,), or several columns, optional
        Groups of some rows, those of the reference for instance: each group that occurs gets its
        own test, and rows of others share one. All groups share the probability `delta`, once more.
    coverage : float, optional
        Also test whether `predict_set(logits, coverage=coverage)` of the calibrator still holds the
        true class so often, from the labels of `update_logits`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, size=3000)
    >>> monitor = CalibrationMonitor(None)
    >>> monitor.update(confidence, rng.uniform(size=3000) < confidence)
    CalibrationMonitor(model='model', n=3000)
    >>> print(monitor.status().verdict)
    calibrated: says 74.9%, right 75.2%
    >>> _ = monitor.update(confidence, rng.uniform(size=3000) < confidence - 0.06)
    >>> print(monitor.status().verdict)
    over-confident by about 6 points since label 5,046 or before
    """

    def __init__(
        self,
        reference: Calibrator | ConfidenceCalibrator | Reference | None,
        *,
        window: int | timedelta = 5000,
        n_bins: int = 15,
        delta: float = 0.01,
        tolerance: float = 0.01,
        interval_delta: float = 0.05,
        min_labels: int = 200,
        model: str = "model",
        n_classes: int | None = None,
        class_tolerance: float = 0.05,
        coverage: float | None = None,
        groups: Any = None,
    ) -> None:
        if n_classes is None and isinstance(reference, Calibrator):
            n_classes = reference.n_classes_
        options = MonitorOptions(
            Window.from_option(window), n_bins, delta, tolerance, interval_delta, min_labels, model,
            n_classes, class_tolerance, coverage, _as_coding(groups, reference),
        )  # fmt: skip
        answers = isinstance(reference, ConfidenceCalibrator)
        self.reference = None if answers else as_reference(reference, options.n_bins)
        allowance = allowances(self.reference, options.n_bins, tolerance)
        self._state = MonitorState.start(options, allowance)
        if isinstance(reference, (Calibrator, ConfidenceCalibrator)):
            self._watch(reference)

    @classmethod
    def from_validation(
        cls,
        calibrator: Calibrator | Dense | ConfidenceCalibrator,
        logits: Any,
        labels: Any,
        **options: Any,
    ) -> Self:
        """A monitor of any fitted calibrator, with labelled examples as its reference.

        `logits` (n, classes) and `labels` (n,), or maps for a `Dense`, may be those of the fit;
        others are better, because a calibrator looks better on what it was fitted to. Options are
        those of the class. Of a `ConfidenceCalibrator` they are confidences (n,), and whether the
        answers were right (n,).
        """
        if isinstance(calibrator, ConfidenceCalibrator):
            said = calibrator.predict(logits, options.get("groups"))
            known = Reference.from_examples(said, labels, n_bins=options.get("n_bins", 15))
            coding = {"groups": options.get("groups", calibrator.rule_.coding)}
            monitor = cls(known, **options | coding)
            monitor._watch(calibrator)
            return monitor
        own, dense = split_dense(calibrator)
        if dense is not None:
            logits, labels = dense.draw_positions(logits, labels)
        n_bins = options.get("n_bins", 15)
        logits = own.with_groups(logits, options.get("groups"))
        reference = Reference.from_validation(own, logits, labels, n_bins=n_bins)
        monitor = cls(reference, **({"n_classes": own.n_classes_} | options))
        monitor._watch(calibrator)
        return monitor

    def update(
        self,
        confidence: Any,
        correct: Any,
        timestamp: Any = None,
        *,
        predicted: Any = None,
        groups: Any = None,
        observed: bool = False,
    ) -> Self:
        """Add labelled predictions, numbers or (n,) each, in order of arrival.

        `confidence` is in [0, 1], `correct` whether the label was right, `timestamp` when: seconds
        since 1970, a datetime with a time zone, datetime64 or ISO text (read as UTC), needed if the
        window is a time. `predicted` classes, for the tests by class, need `n_classes`; `groups`,
        as the monitor was made with, are for the tests by group. `observed`: these predictions were
        passed to `observe` before their labels arrived.
        """
        given = {"predicted": predicted, "groups": groups, "observed": observed}
        return self._count(confidence, correct, timestamp, **given)

    def update_logits(
        self,
        logits: Any,
        labels: Any = None,
        timestamp: Any = None,
        *,
        groups: Any = None,
        observed: bool = False,
    ) -> Self:
        """`update` with the calibrator's confidence for logits (n, classes) and labels (n,).

        Rows whose label is -1 or NaN, or all if `labels` is None, have no label yet: they count
        among the inputs only. Of maps, for a `Dense`, one position of each item is drawn at random,
        since neighbours are not independent; a timestamp is then one for all.
        """
        calibrator = self._calibrator
        if calibrator is None:
            raise ValueError(
                "this monitor has no calibrator for logits. Use `update(confidence, correct)`, or "
                "make it with a fitted Hoki, `from_validation(...)` or `load(path, calibrator)`."
            )
        if arrivals.has_no_rows(logits) and (labels is None or arrivals.has_no_rows(labels)):
            return self
        if self._dense is not None:
            seed = self._state.n_observed  # another position of the same place each time
            logits, labels = self._dense.draw_positions(logits, labels, random_state=seed)
        data = calibrator.with_groups(as_logits(logits, fitted_by=calibrator), groups)
        truth = arrivals.as_partial_labels(labels, data.n_rows, data.n_classes)
        predicted = calibrator.predict(data)
        if not observed:
            self._sample_rows(calibrator, data, timestamp)
        self._count(
            calibrator.predict_confidence(data),
            predicted == truth,
            timestamp,
            predicted=None if self.options.n_classes is None else predicted,
            groups=groups,
            observed=observed,
            labelled=truth >= 0,
            support=None if calibrator.support_ is None else calibrator.predict_support(data),
        )
        return self._count_sets(calibrator, data, truth)

    def _sample_rows(self, calibrator: Calibrator, data: Logits, timestamp: Any) -> None:
        """Keep rows from which accuracy can be expected without labels, if the fit allows it."""
        known = calibrator.class_scores_
        if known is None or not known.cells.size or data.n_columns != data.n_classes:
            return
        times = arrivals.as_times(timestamp, data.n_rows, self.options.window)
        most = rows_per_pane(data.n_classes, self.options.window.n_panes)
        with self._lock:
            if self._state.merged is None:
                self._state.sample_rows(SampledRows.of(calibrator, data, most), times)

    def _count_sets(self, calibrator: Calibrator, data: Logits, truth: IntArray) -> Self:
        """Note whether sets hold the labels that are known, if sets are watched."""
        rows = np.flatnonzero(truth >= 0)
        with self._lock:
            sets = self._state.sets
            if sets is not None and rows.size:
                found = calibrator.predict_set(data.take(rows), coverage=sets.coverage)
                sets.update_sets(found, truth[rows])
        return self

    def observe(self, confidence: Any, timestamp: Any = None) -> Self:
        """Add predictions without labels (yet), (n,), to detect shifts of the inputs.

        When the labels arrive, pass them to `update` with `observed=True`.
        """
        none = np.zeros(np.shape(confidence), dtype=bool)
        return self._count(confidence, none, timestamp, labelled=np.atleast_1d(none))

    def observe_logits(self, logits: Any, timestamp: Any = None, *, groups: Any = None) -> Self:
        """`observe` with the calibrator's confidence for logits (n, classes)."""
        return self.update_logits(logits, None, timestamp, groups=groups)

    def note_batch(self, digest: str) -> bool:
        """Remember a batch by a digest of its contents; False if it is among the last 10,000."""
        with self._lock:
            if digest in self._state.batches:
                return False
            self._state.batches = [*self._state.batches, digest][-_BATCHES:]
            return True

    def _count(
        self,
        confidence: Any,
        correct: Any,
        timestamp: Any,
        *,
        predicted: Any = None,
        groups: Any = None,
        observed: bool = False,
        labelled: BoolArray | None = None,
        support: BoolArray | None = None,
    ) -> Self:
        """Check predictions and add them; those that are not `labelled` to the inputs alone."""
        rows, options = arrivals.as_examples_or_none(confidence, correct), self.options
        if rows is None:
            return self
        times = arrivals.as_times(timestamp, rows.n_rows, options.window)
        classes = arrivals.as_classes(predicted, rows.n_rows, options.n_classes)
        codes = self._codes(groups, rows.n_rows)
        with self._lock:
            if self._state.merged is not None:
                raise ValueError(
                    f"a merged monitor of {self._state.replicas} replicas cannot be fed. Feed the "
                    "replicas and merge again."
                )
            if not observed:
                self._state.count_inputs(rows.confidence, times, support)
            own = slice(None) if labelled is None else labelled
            known = Examples(rows.confidence[own], rows.correct[own], None)
            if known.n_rows:
                moments = None if times is None else times[own]
                parts = (None if part is None else part[own] for part in (classes, codes))
                self._state.count_labelled(known, moments, *parts)
        return self

    def _codes(self, groups: Any, n_rows: int) -> IntArray | None:
        """The codes (n, columns) of groups, where they are watched."""
        coding = self.options.groups
        if groups is None:
            return None
        if coding is None:
            raise ValueError(
                "`groups` cannot be watched by this monitor, which was made without them: give "
                "`groups` of the reference to `CalibrationMonitor`."
            )
        return coding.codes([groups] if np.isscalar(groups) else groups, n_rows)


def _as_coding(groups: Any, reference: Any) -> GroupCoding | None:
    """The groups of some rows, or else those that the calibrator learned from."""
    if groups is None:
        rule = getattr(reference, "rule_", None)
        return getattr(rule, "needed_groups", None) or getattr(rule, "coding", None)
    if isinstance(groups, GroupCoding):
        return groups
    return GroupCoding.learn(groups, count_rows(groups))
