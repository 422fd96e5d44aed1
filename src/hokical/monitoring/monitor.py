"""`CalibrationMonitor`: predictions in; a status with numbers, tests and a verdict in
words out.

`OnlineSets`: prediction sets whose coverage is kept by feedback.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from collections.abc import Sized
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from hokical._core import checks, reading, storage
from hokical._core.arrays import BoolArray, FloatArray, to_host, to_input_library
from hokical._core.groups import GroupCoding, count_rows
from hokical._core.version import VERSION
from hokical.calibrators import Calibrator
from hokical.calibrators.confidence import ConfidenceCalibrator
from hokical.calibrators.predictor import input_of
from hokical.calibrators.stored import StoredEstimator
from hokical.guarantees.bounds import calibration_bound, check_chance
from hokical.guarantees.fingerprints import row_hashes
from hokical.guarantees.scores import confidence_log_odds, middle_log_odds
from hokical.guarantees.sets import PredictionSets, SetOptions
from hokical.metrics.levels import as_confidence
from hokical.metrics.summaries import Estimate
from hokical.monitoring import state as kept
from hokical.monitoring.e_process import (
    DIRECTIONS,
    Alarm,
    CoverageMonitor,
    EProcess,
    SetStatus,
)
from hokical.monitoring.state import (
    InputShift,
    MonitorOptions,
    MonitorState,
    PartStatus,
    Reference,
)

VerdictKind = Literal[
    "too few labels",
    "calibrated",
    "inputs shifted",
    "suspect",
    "as at fit time",
    "over-confident",
    "under-confident",
    "calibrated again",
    "class miscalibrated",
    "group miscalibrated",
]
Parts = tuple[PartStatus, ...]
#: By how many standard errors the window's gap must exceed the tolerance to be
#: mentioned.
_ERRORS = 3.0
#: Probability that the interval of the ECE misses the true error, at each look.
_ECE_DELTA = 0.05


@dataclass(frozen=True)
class Verdict:
    """`kind` for programs, `text` for people."""

    kind: VerdictKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class CalibrationTest:
    """Evidence that confidence is off by more than is allowed.

    An alarm is raised when `e_value` reaches `threshold` = 1/delta. As long as nothing
    is wrong, the probability that this ever happens is at most delta.
    """

    log_e: float
    threshold: float
    alarm: Alarm | None

    @property
    def e_value(self) -> float:
        """The factor by which the bets against calibration have grown, 1e307 at
        most.
        """
        return math.exp(min(self.log_e, 307.0 * math.log(10.0)))


@dataclass(frozen=True)
class Status:
    """The status of a monitor; NaN for what is not known yet.

    `n`, `n_window` and `n_observed` count labelled rows so far and in the window, and
    all predictions; `n_waiting` rows wait for a label under an id, `n_dropped` were
    given up because too many waited. `accuracy`, `mean_confidence`, `brier` and `ece`
    are of the window. The interval of the ECE misses the true binned calibration error
    with probability at most 0.05, at any number of rows (Bousquet's inequality; see
    `docs/theory.md`), if the window's rows are i.i.d.; it is valid for one look.
    `inputs` is None if there is no reference, or too few predictions. Of `classes` and
    `groups` at most 20 are shown, alarms first, then by evidence. `sets` are tested if
    a `coverage` was given.
    """

    n: int
    n_window: int
    n_observed: int
    n_waiting: int
    n_dropped: int
    accuracy: float
    mean_confidence: float
    brier: float
    ece: Estimate
    calibration: CalibrationTest
    inputs: InputShift | None
    classes: Parts
    groups: Parts
    sets: SetStatus | None
    verdict: Verdict

    @property
    def alarmed(self) -> bool:
        """Whether an alarm was raised, about all confidence, a class, a group or
        sets.
        """
        tests: list[Any] = [self.calibration, *self.classes, *self.groups, self.sets]
        return any(test is not None and test.alarm is not None for test in tests)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts; None for what is unknown or not finite."""
        return dict(storage.json_values(asdict(self)))

    def __str__(self) -> str:
        return str(self.verdict)


def _judge(
    state: MonitorState, shifted: bool, classes: Parts, groups: Parts
) -> Verdict:
    """The verdict on a stream, from its window and all tests: of all rows, then of
    the parts.
    """
    found = _judge_all(state, shifted)
    tolerance = state.options.class_tolerance
    kinds: tuple[tuple[Parts, VerdictKind, str], ...] = (
        (groups, "group miscalibrated", "group"),
        (classes, "class miscalibrated", "predicted class"),
    )
    for parts, kind, noun in kinds:
        alarms = [each for each in parts if each.alarm is not None]
        # NaN without rows in the window: not off there.
        off = [
            each
            for each in alarms
            if abs(each.mean_confidence - each.accuracy) > tolerance
        ]
        if alarms and not off:
            text = f"{found}; a {noun} was miscalibrated, not in the window"
            found = replace(found, text=text)
        elif off:
            worst = off[0]
            more = f" (and {len(off) - 1} more)" if len(off) > 1 else ""
            shares = (
                f"confidence {worst.mean_confidence:.0%}, accuracy {worst.accuracy:.0%}"
            )
            text = f"{noun} {worst.name}: {shares}{more}"
            if found.kind in (
                "over-confident",
                "under-confident",
                "group miscalibrated",
            ):
                found = replace(found, text=f"{found}; {text}")
            else:
                found = Verdict(kind, f"{text}; overall {found}")
    alarmed = state.sets is not None and state.sets.alarm is not None
    return replace(found, text=f"{found}; {state.sets}") if alarmed else found


def _judge_all(state: MonitorState, shifted: bool) -> Verdict:
    """The verdict on all rows together."""
    if state.test.alarm is not None:
        return _judge_alarm(state, state.test.alarm, shifted)
    n = state.n
    needed = state.options.min_labels
    if n < needed:
        text = "too few labels yet"
        if shifted:
            text = f"inputs have shifted; {text} to judge calibration"
        return Verdict("too few labels", f"{text} ({n:,}; at least {needed:,} needed)")
    says, right = state.window.shares()
    gap = abs(says - right)
    side = 0 if says > right else 1
    off = f"{DIRECTIONS[side]}-confident by about {_points(gap)}"
    also = "; inputs have shifted" if shifted else ""
    least = gap - _ERRORS * math.sqrt(state.window.brier / len(state.window))
    if least > state.test.allowance[side, 0]:
        return Verdict(
            "suspect", f"perhaps {off}; not enough evidence for an alarm yet{also}"
        )
    if least > state.options.tolerance:
        return Verdict("as at fit time", f"{off}, much as at fit time{also}")
    if shifted:
        return Verdict(
            "inputs shifted", "inputs have shifted but confidence is still calibrated"
        )
    return Verdict(
        "calibrated", f"calibrated: confidence {says:.1%}, accuracy {right:.1%}"
    )


def _judge_alarm(state: MonitorState, alarm: Alarm, shifted: bool) -> Verdict:
    """The verdict after an alarm, by the rows of the window since the change."""
    kind: VerdictKind = (
        "over-confident" if alarm.direction == "over" else "under-confident"
    )
    n_bins = state.options.n_bins
    where = ""
    if alarm.bin is not None:
        low, high = checks.bin_edges(n_bins)[alarm.bin : alarm.bin + 2]
        where = f" at confidences of {low:.0%} to {high:.0%}"
    where += f", started no later than label {alarm.n:,}"
    also = "; inputs have shifted too" if shifted else ""
    recent = state.window.take(slice(-(state.n - alarm.since + 1), None))
    says, right = recent.shares(alarm.bin, n_bins)
    if math.isnan(says):
        return Verdict(kind, f"{kind}{where}; no labels there lately{also}")
    side = DIRECTIONS.index(alarm.direction)
    place = 0 if alarm.bin is None else 1 + alarm.bin
    excess = (right - says) if side else (says - right)
    if excess <= state.test.allowance[side, place]:
        text = f"was {kind}{where}; calibrated again in the window{also}"
        return Verdict("calibrated again", text)
    return Verdict(kind, f"{kind} by about {_points(excess)}{where}{also}")


def _points(share: float) -> str:
    """Percentage points, with a decimal if they are few."""
    points = 100.0 * share
    number = f"{points:.0f}" if points >= 1.95 else f"{points:.1f}"
    return f"{number} point" if number in ("1", "1.0") else f"{number} points"


class SavedStream:
    """What is known of a stream, with a lock of its own, in a file of its `kind`."""

    kind: ClassVar[str]

    def __init__(self, state: Any) -> None:
        self._state = state
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, stored: dict[str, Any]) -> None:
        vars(self).update(stored, _lock=threading.RLock())

    def save(self, path: storage.StrPath) -> None:
        """Write the state to a JSON file, atomically; `load` continues from it.

        Of the calibrator only a stamp is stored, to recognize it.
        """
        with self._lock:
            body = {"kind": self.kind, "library_version": VERSION, "state": self._state}
            storage.write_document(path, body)

    @classmethod
    def _read_state(cls, path: storage.StrPath, expected: type[Any]) -> Any:
        """The state in a file that `save` wrote."""
        state = storage.read_document(path, kind=cls.kind).get("state")
        if not isinstance(state, expected):
            text = f"{path} does not hold a usable {cls.kind}. Make a new one."
            raise storage.CalibratorFileError(text)
        return state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self._state.n})"


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
        allowed = (Calibrator, ConfidenceCalibrator, Reference, type(None))
        if not isinstance(reference, allowed):
            rule = f"`reference` must be a fitted calibrator or None; got {reference!r}"
            dense = (
                "its `fitted_calibrator()` and rows of `draw_positions(logits, labels)`"
            )
            raise TypeError(
                f"{rule}. For examples use `from_validation`; for a `Dense`, {dense}."
            )
        if n_classes is None and isinstance(reference, Calibrator):
            reference.check_fitted()
            n_classes = reference.n_classes_
        if groups is None:  # those that the calibrator learned from
            if isinstance(reference, StoredEstimator) and reference.is_fitted:
                groups = reference.needed_groups
        elif not isinstance(groups, GroupCoding):
            groups = GroupCoding.read(groups, count_rows(groups))[0]
        limits = (
            window,
            n_bins,
            delta,
            tolerance,
            min_labels,
            n_classes,
            class_tolerance,
        )
        options = MonitorOptions(*limits, coverage, groups, max_waiting)
        histogram = (
            reference if isinstance(reference, Reference) else None
        )  # of `from_validation`
        if isinstance(reference, Calibrator):
            predictor = reference.predictor_
            table = predictor.fit_record.confidences
            if predictor.held_out is not None and predictor.held_out.label_scores:
                table = predictor.held_out.label_scores
            if table is None:
                rule = "`reference` must keep a histogram of its confidence"
                why = "weights that are not whole numbers, members of an ensemble, or "
                "positions of maps"
                remedy = (
                    "Use `CalibrationMonitor.from_validation(calibrator, logits, "
                    "labels)`."
                )
                raise ValueError(
                    f"{rule}; this {reference.name!r} has none ({why}). {remedy}"
                )
            pooled = table.pooled()
            count = pooled.count
            right = pooled.count - pooled.wrong
            levels = 0.5 * (1.0 + np.tanh(0.5 * middle_log_odds(count.size)))
            histogram = Reference.from_counts(levels, count, right, options.n_bins)
        allowance = np.full((2, 1 + options.n_bins), options.tolerance)
        if histogram is not None:
            allowance = histogram.allowances(options.tolerance)
        sizes = options.group_sizes
        none = np.zeros(0, int)
        nothing = np.zeros(0)
        rows = kept.LabelledRows(
            nothing, none > 0, none, np.zeros((0, len(sizes)), int)
        )
        start = EProcess.start(allowance, delta)
        numbers = (n_classes or 1, max(sum(sizes), 1))  # of classes, and of groups
        classes, parts = (
            kept.PartTests(class_tolerance, delta / number) for number in numbers
        )
        queues = kept.WaitingRows(max_waiting), kept.SeenRows(max_waiting)
        begun = (options, histogram, start, rows, nothing, classes, parts, *queues)
        super().__init__(MonitorState(*begun))
        if not isinstance(reference, Reference):
            self._watch(reference)

    @classmethod
    def from_validation(
        cls,
        calibrator: Calibrator | ConfidenceCalibrator | None,
        x: Any,
        y: Any,
        **options: Any,
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
            y = to_host(calibrator.predict(rows.scores)) == rows.labels
            x = calibrator.predict_confidence(rows.scores)
            groups = rows.groups
            options = (
                {"n_classes": calibrator.n_classes_} | options | {"groups": groups}
            )
        elif calibrator is not None:
            rows = calibrator.read_labelled(x, y, None, groups)
            x = calibrator.predict_rows(rows.scores, rows.groups)
            y = rows.labels
            options["groups"] = (
                calibrator.rule_.coding if groups is None else rows.groups
            )
        else:
            x, y, *_ = reading.pair_rows(x, y, None, groups, ("x", "y"))
        known: Any = Reference.from_examples(x, y, options.get("n_bins", 15))
        monitor = cls(known, **options)
        monitor._watch(calibrator)
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
        if _is_empty(confidence):
            return self
        values = as_confidence(np.atleast_1d(to_host(confidence)))
        truth = reading.as_partial_labels(
            correct, values.size, 2, name="correct", right=True
        )
        n_classes = self.options.n_classes
        classes = np.full(values.size, -1)
        if predicted is not None:
            if n_classes is None:
                remedy = "Make the monitor with `n_classes`."
                raise ValueError(f"`predicted` needs the number of classes. {remedy}")
            given = np.atleast_1d(predicted)
            classes = reading.as_labels(given, values.size, n_classes, name="predicted")
        numbers = self.options.group_numbers(groups, values.size)
        rows = kept.LabelledRows(values, truth == 1, classes, numbers)
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
            rule = (
                "`logits` need a calibrator of logits, which this monitor does not have"
            )
            remedy = "Make or `load` it with one, or use `update(confidence, correct)`."
            raise ValueError(f"{rule}. {remedy}")
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
        rows = kept.LabelledRows(confidence, predicted == truth, predicted, numbers)
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
        keys = kept.as_ids(ids)
        given = np.atleast_1d(reading.to_numpy(labels, "labels"))
        reading.check_length(
            given, len(keys), "labels", "Pass one for each of the `ids`."
        )
        counts = reading.are_known(given)
        with self._lock:
            state = self._state
            waiting = self._state.waiting
            kept.refuse_repeated(keys)
            if unknown == "skip":
                counts &= self.waits_for(ids)
            if not counts.any():
                return self
            keys = [keys[k] for k in np.flatnonzero(counts).tolist()]
            given = given[counts]
            kept.check_ids(
                keys, waiting, waiting.limit, '; `unknown="skip"` leaves such out'
            )
            rows = [waiting.rows[each] for each in keys]
            confidence, predicted, groups, of_logits, members = zip(*rows, strict=True)
            if len({*of_logits}) > 1:
                rule = (
                    "must be of one kind; got rows of `update` and of `update_logits`"
                )
                raise ValueError(f"`ids` {rule}. Add their labels in two calls.")
            # of confidences
            n_classes = 2
            meant = dict[str, Any](right=True)
            if of_logits[0]:
                n_classes = self.options.n_classes or 2
                meant = {"classes": self.class_names}
            truth = reading.as_partial_labels(given, len(keys), n_classes, **meant)
            if of_logits[0] and state.sets is not None:
                sets = zip(truth.tolist(), members, strict=True)
                state.sets.update([label in classes for label, classes in sets])
            own = np.array(predicted)
            codes = np.array(groups, int).reshape(len(keys), -1)
            correct = truth == (own if of_logits[0] else 1)
            state.count_labelled(
                kept.LabelledRows(np.array(confidence), correct, own, codes)
            )
            kept.close_ids(keys, waiting, waiting.limit)
        return self

    def waits_for(self, ids: Any) -> BoolArray:
        """Whether a prediction waits for its label under each of the ids, (n,)."""
        with self._lock:
            waiting = self._state.waiting.rows
            return np.array([each in waiting for each in kept.as_ids(ids)], np.bool_)

    def status(self) -> Status:
        """The status up to the newest row."""
        with self._lock:
            state = self._state
            coding = self.options.groups
            options = state.options
            window = state.window
            inputs = None
            if state.reference is not None and state.inputs.size >= options.min_labels:
                bins = checks.bin_index(state.inputs, options.n_bins)
                counts = np.bincount(bins, minlength=options.n_bins)
                inputs = kept.input_shift(counts, state.reference.weight, options.delta)
            columns = () if coding is None else range(len(coding.columns))
            names = [name for k in columns if coding for name in coding.full_names(k)]
            groups = state.groups.table(window.groups, window, names)
            classes = state.classes.table(
                window.predicted[:, None], window, self.class_names
            )
            says, right = window.shares()
            brier = math.nan
            error = Estimate(math.nan, 0.0, 1.0)
            if len(window):
                brier = window.brier
                bins = checks.bin_index(window.confidence, options.n_bins)
                gaps = np.bincount(bins, window.correct - window.confidence)
                value = min(float(np.abs(gaps).sum()) / len(window), 1.0)
                # A bound on the distance to the true error, on both sides.
                given = (0.0, len(window), options.n_bins, _ECE_DELTA)
                bound = calibration_bound(
                    *given, method="bousquet", brier=min(brier, 1.0)
                )
                error = Estimate(
                    value, max(0.0, value - bound), min(1.0, value + bound)
                )
            test = CalibrationTest(
                state.test.log_e, 1.0 / options.delta, state.test.alarm
            )
            return Status(
                n=state.n,
                n_window=len(window),
                n_observed=state.n_observed,
                n_waiting=len(state.waiting.rows),
                n_dropped=state.waiting.dropped,
                accuracy=right,
                mean_confidence=says,
                brier=brier,
                ece=error,
                calibration=test,
                inputs=inputs,
                classes=classes,
                groups=groups,
                sets=None if state.sets is None else state.sets.status(),
                verdict=_judge(
                    state, inputs is not None and inputs.shifted, classes, groups
                ),
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
            right = np.arange(64) % 2
            copy.deepcopy(monitor).update(confidence, right, again=True)
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
            monitor._watch(calibrator)
        return monitor

    @staticmethod
    def lock(path: storage.StrPath) -> AbstractContextManager[None]:
        """Hold a lock on a monitor's file, after other processes that do (none on
        Windows).

        `with CalibrationMonitor.lock(path):
        CalibrationMonitor.load(path).update(...).save(path)`
        """
        return storage.lock_file(f"{os.fspath(path)}.lock")

    def _watch(self, calibrator: Calibrator | ConfidenceCalibrator | None) -> None:
        """Monitor a calibrator, unless it is another than before; one of confidences
        is noted.
        """
        wanted = (
            self.options.coverage is not None and self._state.stamp is None
        )  # not of a file
        if wanted and not isinstance(calibrator, Calibrator):
            rule = f"`coverage` needs a calibrator of logits; got {calibrator!r}"
            raise TypeError(f"{rule}. Leave it out, or use `CoverageMonitor`.")
        if calibrator is None:
            return
        if isinstance(calibrator, Calibrator):
            name = f"{calibrator.name} of {calibrator.n_classes_} classes"
            digest = calibrator.fitted.fingerprint()
        else:
            name = calibrator.name
            digest = storage.fingerprint({"rule": calibrator.rule_})
        stamp = f"{name}, stamp {digest.rpartition(':')[2][:16]}"
        if self._state.stamp not in (None, stamp):
            rule = "`calibrator` must be the one that this monitor was made with"
            remedy = "Pass that one, or make a new monitor."
            raise ValueError(f"{rule}, {self._state.stamp}; got {stamp}. {remedy}")
        self._state.stamp = stamp
        if isinstance(calibrator, Calibrator):
            self.calibrator = calibrator
            options = self.options
            if options.coverage is not None and self._state.sets is None:
                allowed = options.delta, options.tolerance
                self._state.sets = CoverageMonitor.of(
                    calibrator, options.coverage, *allowed
                )
            self.class_names = (
                tuple(map(str, calibrator.class_names)) or self.class_names
            )


def _is_empty(batch: Any) -> bool:
    """Whether an array, a `TopK` or a list holds nothing."""
    if hasattr(batch, "shape"):
        return tuple(batch.shape[:1]) == (0,)
    return isinstance(batch, Sized) and len(batch) == 0


#: How far each tracker moves its threshold, in log-odds, for a miss; how fast trackers
#: are weighed by their loss, and the share of the weight that is dealt out again (ten
#: classes, labels 200 rows late, steady, drifting and after jumps).
_STEPS = np.array([0.01, 0.03, 0.1])
_RATE = 0.3
_RENEWED = 0.01
#: Misses beyond what is allowed at which sets hold every class, and those that can be
#: saved up.
_MOST_DEBT = 100.0
_MOST_SAVED = 20.0
#: Labels of which the recent coverage is shown, and the largest log-odds that a score
#: may have.
_RECENT = 1000
_FARTHEST = 40.0


@dataclass(frozen=True)
class OnlineStatus:
    """What `OnlineSets.status` returns, which says what is what."""

    coverage: float
    n: int
    covered: float
    recent: float
    threshold: float
    most_missed: float
    n_waiting: int

    def __str__(self) -> str:
        goal = f"the goal is {self.coverage:.4g}, {self.n_waiting:,} sets wait"
        if not self.n:
            return f"no labels yet; {goal}"
        covered = f"{self.covered:.1%} of {self.n:,} labels covered"
        return f"{covered}, {self.recent:.1%} of the newest; {goal}"


@storage.storable("online-sets")
@dataclass(eq=False)
class OnlineState:
    """Thresholds (3,) of the trackers as log-odds against a class, their weights, what
    waits.

    A waiting row has the log-odds (3 + classes,) of the trackers' thresholds and then
    against each class, and whether each class was in its set.
    """

    coverage: float
    max_waiting: int
    stamp: str
    thresholds: Annotated[
        FloatArray, checks.ArrayOf((_STEPS.size,), -_FARTHEST, _FARTHEST)
    ]
    weights: Annotated[FloatArray, checks.ArrayOf((_STEPS.size,), 0.0, 1.0)]
    debt: checks.Coefficient = 0.0
    n: int = 0
    n_missed: int = 0
    most_waiting: int = 0
    recent: list[bool] = field(default_factory=list)
    rows: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    labelled: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        self.max_waiting = checks.check_count("max_waiting", self.max_waiting)
        self.rows = {each: (row[0], row[1] != 0) for each, row in self.rows.items()}

    def to_stored(self) -> dict[str, Any]:
        rows = {
            k: [storage.pack_array(a), storage.pack_array(b.astype(np.int8))]
            for k, (a, b) in self.rows.items()
        }
        return vars(self) | {"rows": rows}

    @property
    def allowed(self) -> float:
        """The share of misses that is aimed at now: less, the more were missed
        before.
        """
        return (1.0 - self.coverage) * (1.0 - self.debt / _MOST_DEBT)

    @property
    def threshold(self) -> float:
        """The largest log-odds against a class of a set; inf where every class is
        needed.
        """
        return float(self.weights @ self.thresholds) if self.allowed > 0.0 else math.inf

    def add(self, odds: FloatArray, covered: bool, label: int) -> None:
        """Count a set's label: move every tracker, and weigh them by the loss of a
        quantile.
        """
        self.n = self.n + 1
        self.n_missed = self.n_missed + (not covered)
        debt = self.debt + (not covered) - (1.0 - self.coverage)
        self.debt = max(debt, -_MOST_SAVED)
        self.recent = [*self.recent[1 - _RECENT :], covered]
        share = max(self.allowed, 0.0)
        own = odds[: _STEPS.size]
        score = float(odds[_STEPS.size + label])
        missed = score > own
        loss = np.where(missed, (1.0 - share) * (score - own), share * (own - score))
        weights = self.weights * np.exp(-_RATE * (loss - loss.min()))
        self.weights = (
            1.0 - _RENEWED
        ) * weights / weights.sum() + _RENEWED / weights.size
        moved = self.thresholds + _STEPS * (missed - share)
        self.thresholds = np.clip(moved, -_FARTHEST, _FARTHEST)


class OnlineSets(SavedStream):
    """Prediction sets whose coverage is kept by feedback, whatever the stream does.

    The threshold starts where `certify` puts it and moves with every label that
    arrives, late and in any order: adaptive conformal inference with three step sizes,
    weighed by how well each did (Gibbs and Candes, 2021 and 2024). Where sets have
    missed more than they may, fewer misses are aimed at; 100 misses beyond that, sets
    hold every class. So of any n labels that came, at most (1 - coverage) n + 100 + w
    were missed, where w sets waited for a label at once at most: for any sequence of
    rows and labels, without a distribution. Nothing is said of sets whose label never
    comes, nor of a part of the stream. All methods may be called from several threads.

    Parameters
    ----------
    calibrator : fitted Calibrator, after `certify`
    coverage : float
        The share of sets that is to contain the true class, in the long run.
    max_waiting : int
        Sets that may wait for a label, with a number for each class; beyond it the
        oldest are dropped.

    Examples
    --------
    >>> from hokical import make
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = make("temps").fit(val_logits[::2], val_labels[::2])
    >>> online = OnlineSets(
    ...     cal.certify(val_logits[1::2], val_labels[1::2]), coverage=0.98
    ... )
    >>> for first in range(
    ...     0, 10_000, 100
    ... ):  # every day's rows; their labels come in the evening
    ...     rows = range(first, first + 100)
    ...     found = online.predict_set(logits[rows], ids=rows)
    ...     _ = online.add_labels(rows, labels[rows])
    >>> print(online.status())
    98.0% of 10,000 labels covered, 98.1% of the newest; the goal is 0.98, 0 sets wait
    """

    kind: ClassVar[str] = "OnlineSets"

    def __init__(
        self,
        calibrator: Calibrator,
        coverage: float = 0.9,
        *,
        max_waiting: int = 10_000,
    ) -> None:
        if not isinstance(calibrator, Calibrator):
            raise TypeError(
                f"`calibrator` must be a fitted calibrator; got {calibrator!r}."
            )
        options = SetOptions(check_chance("coverage", coverage))
        asked = calibrator.fitted.certified_sets(options)
        if asked.certified_on == "fit":
            remedy = (
                "Call `certify(logits, labels)` first, with rows that nothing was "
                "fitted on."
            )
            raise ValueError(f"`calibrator` must be certified. {remedy}")
        # Where nothing is proven, with every class.
        start = _against(np.clip(-asked.thresholds.values, 0.0, 1.0))[0]
        thresholds = np.full(_STEPS.size, start)
        weights = np.full(_STEPS.size, 1.0 / _STEPS.size)
        stamp = calibrator.fitted.fingerprint()
        self.calibrator = calibrator
        super().__init__(
            OnlineState(float(coverage), max_waiting, stamp, thresholds, weights)
        )

    def predict_set(
        self, logits: Any, *, ids: Any, groups: Any = None
    ) -> PredictionSets:
        """Sets for logits (n, classes), which wait for their labels under the `ids`
        (n,).

        All rows of a call get the same threshold; the likeliest class is in every set.
        """
        proba = to_host(self.calibrator.predict_proba(logits, groups=groups)).astype(
            np.float64
        )
        keys = kept.as_ids(ids, len(proba))
        odds = _against(proba)
        with self._lock:
            state = self._state
            kept.check_ids(kept.refuse_repeated(keys), state)
            members = odds <= state.threshold
            members[np.arange(len(proba)), proba.argmax(axis=1)] = True
            for key, own, inside in zip(keys, odds, members, strict=True):
                state.rows[key] = np.append(state.thresholds, own), inside
            kept.drop_oldest(state.rows, state.max_waiting)
            state.most_waiting = max(state.most_waiting, len(state.rows))
            least = self.status().threshold
            beyond = int(_MOST_DEBT) + state.most_waiting
        words = (
            f"In the long run at least {state.coverage:.4g} of the sets whose label "
            "arrives contain it, whatever the stream is: at most "
            f"{1.0 - state.coverage:.4g} n + {beyond:,} of any n are missed."
        )
        inside, sizes = (
            to_input_library(a, input_of(logits))
            for a in (members, members.sum(axis=1))
        )
        names = self.calibrator.class_names or None
        least_of = np.array([least])
        options = SetOptions(state.coverage)
        return PredictionSets(
            inside, sizes, options, "held-out", words, least_of, classes=names
        )

    def add_labels(self, ids: Any, labels: Any) -> Self:
        """Add true classes (n,) of sets that wait under these `ids` (n,), in order of
        arrival.

        An id that is unknown, labelled already or given twice is refused, and then none
        counts.
        """
        keys = kept.as_ids(ids)
        known = self.calibrator
        truth = reading.as_labels(
            labels, len(keys), known.n_classes_, classes=known.class_names
        )
        with self._lock:
            state = self._state
            kept.check_ids(kept.refuse_repeated(keys), state, state.max_waiting)
            for key, label in zip(keys, truth.tolist(), strict=True):
                odds, inside = state.rows[key]
                state.add(odds, bool(inside[label]), label)
            kept.close_ids(keys, state, state.max_waiting)
        return self

    def status(self) -> OnlineStatus:
        """What is known now: of `n` labels the share `covered`, of the newest 1000
        `recent`.

        `threshold` is the least probability of a class in the next set. `most_missed`
        bounds the share that is missed of these labels, whatever the stream is;
        `n_waiting` sets have no label yet. Shares without labels are NaN.
        """
        with self._lock:
            state = self._state
            n = state.n or math.nan
            beyond = _MOST_DEBT + state.most_waiting
            recent = float(np.mean(state.recent)) if state.recent else math.nan
            least = 1.0 / (1.0 + math.exp(min(state.threshold, 700.0)))
            most = min(1.0, 1.0 - state.coverage + beyond / n) if state.n else 1.0
            found = (1.0 - state.n_missed / n, recent, least, most, len(state.rows))
            return OnlineStatus(state.coverage, state.n, *found)

    @classmethod
    def load(cls, path: storage.StrPath, calibrator: Calibrator) -> Self:
        """Sets as `save` left them; pass the calibrator that they were made with."""
        state = cls._read_state(path, OnlineState)
        if state.stamp != calibrator.fitted.fingerprint():
            rule = "must be the one that these sets were made with"
            raise ValueError(f"`calibrator` {rule}. Pass that one, or make new ones.")
        found = cls.__new__(cls)
        found.calibrator = calibrator
        SavedStream.__init__(found, state)
        return found


def _against(proba: FloatArray) -> FloatArray:
    """The log-odds (...) against classes of these probabilities."""
    return np.clip(-confidence_log_odds(proba), -_FARTHEST, _FARTHEST)
