"""`CalibrationMonitor`: predictions in; a status with numbers, tests and a verdict in
words out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sized
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack

import numpy as np

from hokical._core import checks, reading, storage
from hokical._core.arrays import AnyArray, BoolArray, to_host
from hokical._core.groups import GroupCoding, count_rows
from hokical.calibrators import Calibrator
from hokical.calibrators.confidence import ConfidenceCalibrator
from hokical.calibrators.stored import StoredEstimator
from hokical.guarantees.bounds import calibration_bound
from hokical.guarantees.fingerprints import row_hashes
from hokical.guarantees.scores import middle_log_odds
from hokical.metrics.levels import as_confidence
from hokical.metrics.summaries import Estimate
from hokical.monitoring.e_process import CoverageMonitor, EProcess
from hokical.monitoring.saved import SavedStream
from hokical.monitoring.state import (
    InputShift,
    LabelledRows,
    MonitorOptions,
    MonitorState,
    PartTests,
    Reference,
    SeenRows,
    WaitingRows,
    as_ids,
    check_ids,
    close_ids,
    input_shift,
    refuse_repeated,
)
from hokical.monitoring.status import CalibrationTest, Status, judge_stream

#: Probability that the interval of the ECE misses the true error, at each look.
_ECE_DELTA = 0.05


class MonitorKeywords(TypedDict, total=False):
    """The options of `CalibrationMonitor`, as they are passed."""

    window: int
    n_bins: int
    delta: float
    tolerance: float
    min_labels: int
    n_classes: int | None
    class_tolerance: float
    coverage: float | None
    groups: Any
    max_waiting: int


class CalibrationMonitor(SavedStream):
    """Monitor the confidence of a model in production.

    Feed it predictions as they arrive, in batches of any size: results do not depend on
    how the stream was cut. Labels may arrive later, joined by id. Memory is bounded by
    `window` and `max_waiting`. All methods may be called from several threads.

    Parameters
    ----------
    reference : fitted calibrator, ConfidenceCalibrator or None
        What was known at fit time. A calibrator keeps a histogram of its confidence, of
        held-out examples after `certify`, or else of its fit;
        `CalibrationMonitor.from_validation` takes labelled examples instead. With None,
        or a calibrator of confidences whose outputs are passed to `update`, shifts of
        the inputs cannot be detected.
    window : int
        What counts as now: the newest labelled rows, and as many predictions for the
        inputs.
    n_bins : int
        Number of equal-width bins of confidence.
    delta : float
        Probability of *ever* raising a false alarm about calibration, once more the
        same of one about any class and about any group, and of a false alarm about
        inputs at each look.
    tolerance, class_tolerance : float
        How far confidence, and that of the rows with one predicted label or group, may
        be off without an alarm. A gap that a small reference cannot exclude is
        tolerated too.
    min_labels : int
        Labelled rows before there is a verdict on calibration (except for alarms), and
        predictions before there is one on inputs.
    n_classes : int, optional
        Number of classes, each of which then gets its own test; by default the
        calibrator's.
    coverage : float, optional
        Also test whether `predict_set(logits, coverage=coverage)` of the calibrator
        still contains the true class that often, from the labels of `update_logits`.
    groups : array-like of shape (n,), or several columns, optional
        Groups of some rows, those of the reference for instance: each group that occurs
        gets its own test, and rows of others share one.
    max_waiting : int
        Predictions with ids that may wait for their labels; beyond that the oldest are
        dropped. As many labelled ids, and hashes of rows without ids, are remembered so
        that none counts twice.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, size=3000)
    >>> monitor = CalibrationMonitor(None)
    >>> monitor.update(confidence, rng.uniform(size=3000) < confidence)
    CalibrationMonitor(n=3000)
    >>> print(monitor.status().verdict)
    calibrated: confidence 74.9%, accuracy 75.2%
    >>> confidence = rng.uniform(0.5, 1.0, size=3000)
    >>> _ = monitor.update(confidence, ids=range(3000))  # labels arrive later
    >>> _ = monitor.add_labels(range(3000), rng.uniform(size=3000) < confidence - 0.06)
    >>> print(monitor.status().verdict)
    over-confident by about 5 points, started no later than label 5,521
    """

    kind: ClassVar[str] = "CalibrationMonitor"
    _state: MonitorState
    #: The calibrator that is monitored, if known.
    calibrator: Calibrator | None = None
    #: Names of the classes in a status, where they are known.
    class_names: tuple[str, ...] = ()

    def __init__(
        self,
        reference: Calibrator | ConfidenceCalibrator | None,
        *,
        window: int = 5000,
        n_bins: int = 15,
        delta: float = 0.01,
        tolerance: float = 0.01,
        min_labels: int = 200,
        n_classes: int | None = None,
        class_tolerance: float = 0.05,
        coverage: float | None = None,
        groups: Any = None,
        max_waiting: int = 100_000,
    ) -> None:
        _check_reference(reference)
        if n_classes is None and isinstance(reference, Calibrator):
            reference.check_fitted()
            n_classes = reference.n_classes_
        options = MonitorOptions(
            window=window,
            n_bins=n_bins,
            delta=delta,
            tolerance=tolerance,
            min_labels=min_labels,
            n_classes=n_classes,
            class_tolerance=class_tolerance,
            coverage=coverage,
            groups=_group_coding(reference, groups),
            max_waiting=max_waiting,
        )
        super().__init__(_new_state(options, _histogram(reference, options.n_bins)))
        if not isinstance(reference, Reference):
            self.watch(reference)

    @classmethod
    def from_validation(
        cls,
        calibrator: Calibrator | ConfidenceCalibrator | None,
        x: Any,
        y: Any,
        **options: Unpack[MonitorKeywords],
    ) -> Self:
        """A monitor of any fitted calibrator, with labelled examples as its reference.

        `x` are logits (n, classes) and `y` labels (n,). They may be those of the fit;
        others are better, because a calibrator looks better on what it was fitted to.
        For a `ConfidenceCalibrator` they are confidences (n,) and whether the labels
        were right (n,); for None the same, as the model outputs them. Options are those
        of the class.
        """
        groups = options.get("groups")
        if isinstance(calibrator, Calibrator):
            rows = calibrator.read_labelled(x, y, None, groups)
            correct = to_host(calibrator.predict(rows.scores)) == rows.labels
            confidence = calibrator.predict_confidence(rows.scores)
            options.setdefault("n_classes", calibrator.n_classes_)
            options["groups"] = rows.groups
        elif isinstance(calibrator, ConfidenceCalibrator):
            rows = calibrator.read_labelled(x, y, None, groups)
            confidence = calibrator.predict_rows(rows.scores, rows.groups)
            correct = rows.labels
            coding = calibrator.rule_.coding
            options["groups"] = coding if groups is None else rows.groups
        else:
            _check_watched(calibrator)
            rows = reading.pair_rows(x, y, None, groups, ("x", "y"))
            confidence = rows.scores
            correct = rows.labels
        n_bins = options.get("n_bins", 15)
        histogram: Any = Reference.from_examples(confidence, correct, n_bins)
        monitor = cls(histogram, **options)
        monitor.watch(calibrator)
        return monitor

    @property
    def options(self) -> MonitorOptions:
        """The options the monitor was made with."""
        return self._state.options

    @property
    def n(self) -> int:
        """Labelled rows so far."""
        return self._state.n

    def update(
        self,
        confidence: Any,
        correct: Any = None,
        *,
        ids: Any = None,
        predicted: Any = None,
        groups: Any = None,
        again: bool = False,
    ) -> Self:
        """Add predictions, numbers or (n,) each, in order of arrival.

        `confidence` is in [0, 1], `correct` whether the label was right: None, NaN or
        -1 where that is not known. Rows with `ids`, text or integers, then wait for
        `add_labels`; without ids they count among the inputs only. `predicted` classes,
        for the tests by class, need `n_classes`; `groups` are for the tests by group.
        Rows that were counted before, with ids or without, are refused: by their ids
        or, where they are ten or more, by their values, unless `again`.
        """
        checks.check_flag("again", again)
        if _is_empty(confidence):
            return self
        shape = reading.shape_of(confidence)
        if len(shape) > 1:
            raise ValueError(
                "`confidence` must be (n,), the probability that each label is "
                f"right; got shape {shape}. Logits go through `update_logits(logits, "
                "labels)`."
            )
        values = as_confidence(np.atleast_1d(to_host(confidence)))
        truth = reading.as_partial_labels(
            correct, values.size, 2, name="correct", right=True
        )
        n_classes = self.options.n_classes
        classes = np.full(values.size, -1)
        if predicted is not None:
            if n_classes is None:
                raise ValueError(
                    "`predicted` needs the number of classes. Make the monitor with "
                    "`n_classes`."
                )
            classes = reading.as_labels(
                np.atleast_1d(predicted), values.size, n_classes, name="predicted"
            )
        numbers = self.options.group_numbers(groups, values.size)
        rows = LabelledRows(values, truth == 1, classes, numbers)
        with self._lock:
            self._state.count(rows, truth, ids, None if again else values)
        return self

    def update_logits(
        self,
        logits: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        again: bool = False,
    ) -> Self:
        """`update` with the calibrator's confidence for logits (n, classes) and labels
        (n,).

        Labels are None, NaN or -1 where they are not known.
        """
        calibrator = self.calibrator
        if calibrator is None:
            raise ValueError(
                "`logits` need a calibrator of logits, which this monitor does not "
                "have. Make or `load` it with one, or use `update(confidence, correct)`."
            )
        checks.check_flag("again", again)
        if _is_empty(logits) and (labels is None or _is_empty(labels)):
            return self
        reading.pair_rows(logits, labels, None, groups)
        data = calibrator.schema_.read(logits, groups)
        shape = data.n_rows, data.n_classes
        truth = reading.as_partial_labels(labels, *shape, classes=self.class_names)
        predicted = to_host(calibrator.predict(data)).astype(np.int64)
        left_out = self.options.groups is None and calibrator.schema_.saw_groups
        numbers = self.options.group_numbers(None if left_out else groups, data.n_rows)
        confidence = to_host(calibrator.predict_confidence(data)).astype(np.float64)
        rows = LabelledRows(confidence, predicted == truth, predicted, numbers)
        sets = self._state.sets
        members = None
        if sets is not None and (ids is not None or (truth >= 0).any()):
            members = to_host(
                calibrator.predict_set(data, coverage=sets.coverage).members
            )
        with self._lock:
            hashes = None if again else row_hashes(data)
            self._state.count(rows, truth, ids, hashes, members, of_logits=True)
        return self

    def add_labels(
        self, ids: Any, labels: Any, *, unknown: Literal["error", "skip"] = "error"
    ) -> Self:
        """Add labels (n,) of predictions that wait under these `ids` (n,), in order of
        arrival.

        Labels are true classes of logits, or whether a confidence of `update` was
        right; None, NaN and -1 are not yet known, and their rows wait on. An id that is
        unknown, labelled already or given twice is refused, and then none is counted;
        with `unknown="skip"` ids under which none waits are left out.
        """
        checks.check_choice("unknown", unknown, Literal["error", "skip"])
        reading.pair_rows(ids, labels, None, None, ("ids", "labels"))
        keys = as_ids(ids)
        values = np.atleast_1d(reading.to_numpy(labels, "labels"))
        reading.check_length(
            values, len(keys), "labels", "Pass one for each of the `ids`."
        )
        counts = reading.are_known(values)
        with self._lock:
            refuse_repeated(keys)
            if unknown == "skip":
                counts &= self.waits_for(ids)
            if counts.any():
                counted = [keys[k] for k in np.flatnonzero(counts).tolist()]
                self._count_late(counted, values[counts])
        return self

    def _count_late(self, ids: list[str], labels: AnyArray) -> None:
        """Count known labels of rows that wait under different ids."""
        state = self._state
        waiting = state.waiting
        skipping = '; `unknown="skip"` leaves such out'
        check_ids(ids, waiting, waiting.limit, skipping)
        rows = [waiting.rows[key] for key in ids]
        confidence, predicted, groups, of_logits, members = zip(*rows, strict=True)
        if len({*of_logits}) > 1:
            raise ValueError(
                "`ids` must be of one kind; got rows of `update` and of "
                "`update_logits`. Add their labels in two calls."
            )
        if of_logits[0]:
            n_classes = self.options.n_classes or 2
            truth = reading.as_partial_labels(
                labels, len(ids), n_classes, classes=self.class_names
            )
        else:
            truth = reading.as_partial_labels(labels, len(ids), 2, right=True)
        if of_logits[0] and state.sets is not None:
            pairs = zip(truth.tolist(), members, strict=True)
            state.sets.update([label in classes for label, classes in pairs])
        classes = np.array(predicted)
        state.count_labelled(
            LabelledRows(
                confidence=np.array(confidence),
                correct=truth == (classes if of_logits[0] else 1),
                predicted=classes,
                groups=np.array(groups, int).reshape(len(ids), -1),
            )
        )
        close_ids(ids, waiting, waiting.limit)

    def waits_for(self, ids: Any) -> BoolArray:
        """Whether a prediction waits for its label under each of the ids, (n,)."""
        with self._lock:
            waiting = self._state.waiting.rows
            return np.array([key in waiting for key in as_ids(ids)], np.bool_)

    def status(self) -> Status:
        """The status up to the newest row."""
        with self._lock:
            state = self._state
            options = state.options
            window = state.window
            inputs = _input_shift(state)
            shifted = inputs is not None and inputs.shifted
            coding = options.groups
            group_names: list[str] = []
            if coding is not None:
                for column in range(len(coding.columns)):
                    group_names += coding.full_names(column)
            groups = state.groups.table(window.groups, window, group_names)
            predicted = window.predicted[:, None]
            classes = state.classes.table(predicted, window, self.class_names)
            confidence, accuracy = window.shares()
            return Status(
                n=state.n,
                n_window=len(window),
                n_observed=state.n_observed,
                n_waiting=len(state.waiting.rows),
                n_dropped=state.waiting.dropped,
                accuracy=accuracy,
                mean_confidence=confidence,
                brier=window.brier if len(window) else math.nan,
                ece=_estimate_ece(window, options.n_bins),
                calibration=CalibrationTest(
                    state.test.log_e, 1.0 / options.delta, state.test.alarm
                ),
                inputs=inputs,
                classes=classes,
                groups=groups,
                sets=None if state.sets is None else state.sets.status(),
                verdict=judge_stream(state, shifted, classes, groups),
            )

    @classmethod
    def load(
        cls,
        path: storage.StrPath,
        calibrator: Calibrator | ConfidenceCalibrator | None = None,
    ) -> Self:
        """A monitor as `save` left it; pass the calibrator again to feed logits.

        Any calibrator but the one it was made with is refused. Where several processes
        load, update and save one file, hold `CalibrationMonitor.lock(path)` meanwhile.
        """
        monitor = cls.__new__(cls)
        SavedStream.__init__(monitor, cls._read_state(path, MonitorState))
        try:
            monitor.status()
            # Uses what `status` does not.
            confidence = np.linspace(0.1, 0.9, 64)
            correct = np.arange(64) % 2
            copy.deepcopy(monitor).update(confidence, correct, again=True)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            raise storage.CalibratorFileError(
                f"{path} has unusable numbers: {error}."
            ) from error
        if calibrator is not None:
            monitor.watch(calibrator)
        return monitor

    @staticmethod
    def lock(path: storage.StrPath) -> AbstractContextManager[None]:
        """Hold a lock on a monitor's file, after other processes that do (none on
        Windows).

        `with CalibrationMonitor.lock(path):
        CalibrationMonitor.load(path).update(...).save(path)`
        """
        return storage.lock_file(f"{storage.as_path(path)}.lock")

    def watch(self, calibrator: Calibrator | ConfidenceCalibrator | None) -> None:
        """Monitor a calibrator, unless it is another than before; one of confidences
        is noted.
        """
        of_logits = isinstance(calibrator, Calibrator)
        is_new = self._state.stamp is None  # not of a file
        if is_new and self.options.coverage is not None and not of_logits:
            raise TypeError(
                f"`coverage` needs a calibrator of logits; got {calibrator!r}. Leave it "
                "out, or use `CoverageMonitor`."
            )
        _check_watched(calibrator)
        if calibrator is None:
            return
        stamp = _stamp(calibrator)
        if self._state.stamp not in (None, stamp):
            raise ValueError(
                "`calibrator` must be the one that this monitor was made with, "
                f"{self._state.stamp}; got {stamp}. Pass that one, or make a new monitor."
            )
        self._state.stamp = stamp
        if isinstance(calibrator, Calibrator):
            self.calibrator = calibrator
            options = self.options
            if options.coverage is not None and self._state.sets is None:
                self._state.sets = CoverageMonitor.of(
                    calibrator, options.coverage, options.delta, options.tolerance
                )
            names = tuple(map(str, calibrator.class_names))
            self.class_names = names or self.class_names


def _check_reference(reference: object) -> None:
    """Raise if it is not what a monitor can be made with."""
    allowed = (Calibrator, ConfidenceCalibrator, Reference, type(None))
    if not isinstance(reference, allowed):
        raise TypeError(
            f"`reference` must be a fitted calibrator or None; got {reference!r}. For "
            "examples use `from_validation`; for a `Dense`, its `fitted_calibrator()` "
            "and rows of `draw_positions(logits, labels)`."
        )


def _check_watched(calibrator: object) -> None:
    """Raise if a monitor cannot watch it."""
    if not isinstance(calibrator, (Calibrator, ConfidenceCalibrator, type(None))):
        raise TypeError(
            "`calibrator` must be a fitted calibrator of logits or of confidences, or "
            f"None; got {checks.show(calibrator)}."
        )


def _group_coding(reference: object, groups: Any) -> GroupCoding | None:
    """The coding of groups of some rows, or else of those that the calibrator learned
    from.
    """
    if groups is None:
        if isinstance(reference, StoredEstimator) and reference.is_fitted:
            return reference.needed_groups
        return None
    if isinstance(groups, GroupCoding):
        return groups
    return GroupCoding.read(groups, count_rows(groups))[0]


def _histogram(reference: object, n_bins: int) -> Reference | None:
    """The histogram of confidence of the reference; None of confidences."""
    if isinstance(reference, Reference):  # of `from_validation`
        return reference
    if not isinstance(reference, Calibrator):
        return None
    predictor = reference.predictor_
    table = predictor.fit_record.confidences
    if predictor.held_out is not None and predictor.held_out.label_scores:
        table = predictor.held_out.label_scores
    if table is None:
        raise ValueError(
            "`reference` must keep a histogram of its confidence; this "
            f"{reference.name!r} has none (votes, weights that are not whole numbers, "
            "members of an ensemble, or positions of maps). Use "
            "`CalibrationMonitor.from_validation(calibrator, logits, labels)`."
        )
    pooled = table.pooled()
    levels = 0.5 * (1.0 + np.tanh(0.5 * middle_log_odds(pooled.count.size)))
    n_correct = pooled.count - pooled.wrong
    return Reference.from_counts(levels, pooled.count, n_correct, n_bins)


def _new_state(options: MonitorOptions, histogram: Reference | None) -> MonitorState:
    """The state of a monitor that has seen nothing."""
    allowance = np.full((2, 1 + options.n_bins), options.tolerance)
    if histogram is not None:
        allowance = histogram.allowances(options.tolerance)
    n_classes = options.n_classes or 1
    n_groups = max(sum(options.group_sizes), 1)
    return MonitorState(
        options=options,
        reference=histogram,
        test=EProcess.start(allowance, options.delta),
        window=LabelledRows.empty(len(options.group_sizes)),
        inputs=np.zeros(0),
        classes=PartTests(options.class_tolerance, options.delta / n_classes),
        groups=PartTests(options.class_tolerance, options.delta / n_groups),
        waiting=WaitingRows(options.max_waiting),
        seen=SeenRows(options.max_waiting),
    )


def _input_shift(state: MonitorState) -> InputShift | None:
    """How far the newest confidences are from the reference's; None where that is not
    known.
    """
    options = state.options
    if state.reference is None or state.inputs.size < options.min_labels:
        return None
    bins = checks.bin_index(state.inputs, options.n_bins)
    counts = np.bincount(bins, minlength=options.n_bins)
    return input_shift(counts, state.reference.weight, options.delta)


def _estimate_ece(window: LabelledRows, n_bins: int) -> Estimate:
    """The calibration error of labelled rows, with an interval for the true one."""
    n = len(window)
    if not n:
        return Estimate(math.nan, 0.0, 1.0)
    bins = checks.bin_index(window.confidence, n_bins)
    gaps = np.bincount(bins, window.correct - window.confidence)
    value = min(float(np.abs(gaps).sum()) / n, 1.0)
    brier = min(window.brier, 1.0)
    # A bound on the distance to the true error, on both sides.
    bound = calibration_bound(
        0.0, n, n_bins, _ECE_DELTA, method="bousquet", brier=brier
    )
    return Estimate(value, max(0.0, value - bound), min(1.0, value + bound))


def _stamp(calibrator: Calibrator | ConfidenceCalibrator) -> str:
    """What a calibrator is recognized by."""
    if isinstance(calibrator, Calibrator):
        name = f"{calibrator.name} of {calibrator.n_classes_} classes"
        digest = calibrator.fitted.fingerprint()
    else:
        name = calibrator.name
        digest = storage.fingerprint({"rule": calibrator.rule_})
    return f"{name}, stamp {digest.rpartition(':')[2][:16]}"


def _is_empty(batch: Any) -> bool:
    """Whether an array, a `TopK` or a list holds nothing."""
    if hasattr(batch, "shape"):
        return tuple(batch.shape[:1]) == (0,)
    return isinstance(batch, Sized) and len(batch) == 0
