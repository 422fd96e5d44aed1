"""`CalibrationMonitor`: predictions in; a status with numbers, tests and a verdict in words out."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from hokical._core import storage
from hokical._core.arrays import BoolArray, to_host
from hokical._core.checks import bin_edges, bin_index, check_choice
from hokical._core.groups import GroupCoding, count_rows
from hokical._core.logits import as_logits
from hokical._core.reading import as_labels, as_partial_labels, pair_rows
from hokical.calibrators import Calibrator
from hokical.calibrators.confidence import ConfidenceCalibrator
from hokical.guarantees.bounds import calibration_bound
from hokical.guarantees.calibration_data import row_hashes
from hokical.metrics.examples import as_confidence
from hokical.metrics.summaries import Estimate
from hokical.monitoring.coverage import CoverageMonitor, SavedStream, SetStatus
from hokical.monitoring.e_process import DIRECTIONS, Alarm, Direction, PartStatus
from hokical.monitoring.rows import Batch, LabelledRows, as_ids, has_no_rows
from hokical.monitoring.state import (
    InputShift,
    MonitorOptions,
    MonitorState,
    Reference,
    input_shift,
)

VerdictKind = Literal[
    "too few labels", "calibrated", "inputs shifted", "suspect", "as at fit time",
    "over-confident", "under-confident", "calibrated again", "class miscalibrated",
    "group miscalibrated",
]  # fmt: skip
#: By how many standard errors the window's gap must exceed the tolerance to be mentioned.
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

    An alarm is raised when `e_value` reaches `threshold` = 1/delta. As long as nothing is wrong,
    the probability that this ever happens is at most delta.
    """

    log_e: float
    threshold: float
    alarm: Alarm | None

    @property
    def e_value(self) -> float:
        """The factor by which the bets against calibration have grown, 1e307 at most."""
        return math.exp(min(self.log_e, 307.0 * math.log(10.0)))


@dataclass(frozen=True)
class Status:
    """The status of a monitor; NaN for what is not known yet.

    `n`, `n_window` and `n_observed` count labelled rows so far and in the window, and all
    predictions; `n_waiting` rows wait for a label under an id, `n_dropped` were given up because
    too many waited. `accuracy`, `mean_confidence`, `brier` and `ece` are of the window. The
    interval of the ECE misses the true binned calibration error with probability at most
    0.05, at any number of rows (Bousquet's inequality; see `docs/theory.md`), if the
    window's rows are i.i.d.; it is valid for one look. `inputs` is None if there is no reference,
    or too few predictions. Of `classes` and `groups` at most 20 are shown, alarms first, then by
    evidence. `sets` are tested if a `coverage` was given.
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
    classes: tuple[PartStatus, ...]
    groups: tuple[PartStatus, ...]
    sets: SetStatus | None
    verdict: Verdict

    @property
    def alarmed(self) -> bool:
        """Whether an alarm was raised, about all confidence, a class, a group or sets."""
        sets = [] if self.sets is None else [self.sets]
        tests: list[Any] = [self.calibration, *self.classes, *self.groups, *sets]
        return any(test.alarm is not None for test in tests)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts; None for what is unknown or not finite."""
        return dict(storage.json_values(asdict(self)))

    def __str__(self) -> str:
        return str(self.verdict)


def make_status(state: MonitorState, class_names: Sequence[str]) -> Status:
    """The status up to the newest row."""
    options, window = state.options, state.window
    inputs = _compare_inputs(state)
    classes = state.classes.table(window.predicted[:, None], window, class_names)
    groups = state.groups.table(window.groups, window, options.group_names)
    says, right = window.shares()
    return Status(
        n=state.n,
        n_window=len(window),
        n_observed=state.n_observed,
        n_waiting=len(state.waiting.rows),
        n_dropped=state.waiting.dropped,
        accuracy=right,
        mean_confidence=says,
        brier=window.brier if len(window) else math.nan,
        ece=_estimate_ece(state),
        calibration=CalibrationTest(state.test.log_e, 1.0 / options.delta, state.test.alarm),
        inputs=inputs,
        classes=classes,
        groups=groups,
        sets=None if state.sets is None else state.sets.status(),
        verdict=_judge(state, inputs is not None and inputs.shifted, classes, groups),
    )


def _compare_inputs(state: MonitorState) -> InputShift | None:
    options = state.options
    if state.reference is None or state.inputs.size < options.min_labels:
        return None
    bins = bin_index(state.inputs, options.n_bins)
    counts = np.bincount(bins, minlength=options.n_bins)
    return input_shift(counts, state.reference.weight, options.delta)


def _estimate_ece(state: MonitorState) -> Estimate:
    """The window's ECE; the bound is one on the distance to the true error, on both sides."""
    window, n_bins = state.window, state.options.n_bins
    if not len(window):
        return Estimate(math.nan, 0.0, 1.0)
    value, brier = window.ece(n_bins), min(window.brier, 1.0)
    bound = calibration_bound(0.0, len(window), n_bins, _ECE_DELTA, method="bousquet", brier=brier)
    return Estimate(value, max(0.0, value - bound), min(1.0, value + bound))


def _judge(
    state: MonitorState,
    shifted: bool,
    classes: tuple[PartStatus, ...],
    groups: tuple[PartStatus, ...],
) -> Verdict:
    """The verdict on a stream, from its window and all tests."""
    found = _judge_all(state, shifted)
    tolerance = state.options.class_tolerance
    found = _judge_parts(found, tolerance, groups, "group miscalibrated", "group")
    found = _judge_parts(found, tolerance, classes, "class miscalibrated", "predicted class")
    sets = state.sets
    return found if sets is None or sets.alarm is None else replace(found, text=f"{found}; {sets}")


def _judge_parts(
    whole: Verdict, tolerance: float, parts: tuple[PartStatus, ...], kind: VerdictKind, noun: str
) -> Verdict:
    """The verdict on all rows, and on the classes or groups with an alarm."""
    alarms = [each for each in parts if each.alarm is not None]
    if not alarms:
        return whole
    off = [
        each for each in alarms if each.n and abs(each.mean_confidence - each.accuracy) > tolerance
    ]
    if not off:
        past = f"a {noun} was miscalibrated, not in the window"
        return Verdict(whole.kind, f"{whole.text}; {past}")
    worst = off[0]
    shares = f"confidence {worst.mean_confidence:.0%}, accuracy {worst.accuracy:.0%}"
    text = f"{noun} {worst.name}: {shares}"
    text += f" (and {len(off) - 1} more)" if len(off) > 1 else ""
    if whole.kind in ("over-confident", "under-confident", "group miscalibrated"):
        return Verdict(whole.kind, f"{whole.text}; {text}")
    return Verdict(kind, f"{text}; overall {whole.text}")


def _judge_all(state: MonitorState, shifted: bool) -> Verdict:
    """The verdict on all rows together."""
    if state.test.alarm is not None:
        return _judge_alarm(state, state.test.alarm, shifted)
    n, needed = state.n, state.options.min_labels
    if n < needed:
        text = "too few labels yet"
        if shifted:
            text = f"inputs have shifted; {text} to judge calibration"
        return Verdict("too few labels", f"{text} ({n:,}; at least {needed:,} needed)")
    says, right = state.window.shares()
    gap, side = abs(says - right), 0 if says > right else 1
    off = f"{_describe(DIRECTIONS[side])} by about {_points(gap)}"
    also = "; inputs have shifted" if shifted else ""
    least = gap - _ERRORS * math.sqrt(state.window.brier / len(state.window))
    if least > state.test.allowance[side, 0]:
        return Verdict("suspect", f"perhaps {off}; not enough evidence for an alarm yet{also}")
    if least > state.options.tolerance:
        return Verdict("as at fit time", f"{off}, much as at fit time{also}")
    if shifted:
        return Verdict("inputs shifted", "inputs have shifted but confidence is still calibrated")
    return Verdict("calibrated", f"calibrated: confidence {says:.1%}, accuracy {right:.1%}")


def _judge_alarm(state: MonitorState, alarm: Alarm, shifted: bool) -> Verdict:
    """The verdict after an alarm, by the rows of the window since the change."""
    kind, n_bins = _describe(alarm.direction), state.options.n_bins
    where = ""
    if alarm.bin is not None:
        low, high = bin_edges(n_bins)[alarm.bin : alarm.bin + 2]
        where = f" at confidences of {low:.0%} to {high:.0%}"
    where += f", started no later than label {alarm.n:,}"
    also = "; inputs have shifted too" if shifted else ""
    recent = state.window.take(slice(-int(min(state.n - alarm.since + 1, len(state.window))), None))
    says, right = recent.shares(alarm.bin, n_bins)
    if math.isnan(says):
        return Verdict(kind, f"{kind}{where}; no labels there lately{also}")
    excess = says - right if alarm.direction == "over" else right - says
    if excess <= state.test.allowance[alarm.place]:
        text = f"was {kind}{where}; calibrated again in the window{also}"
        return Verdict("calibrated again", text)
    return Verdict(kind, f"{kind} by about {_points(excess)}{where}{also}")


def _describe(direction: Direction) -> Literal["over-confident", "under-confident"]:
    return "over-confident" if direction == "over" else "under-confident"


def _points(share: float) -> str:
    """Percentage points, with a decimal if they are few."""
    points = 100.0 * share
    number = f"{points:.0f}" if points >= 1.95 else f"{points:.1f}"
    return f"{number} point" if number in ("1", "1.0") else f"{number} points"


class CalibrationMonitor(SavedStream):
    """Monitor the confidence of a model in production.

    Feed it predictions as they arrive, in batches of any size: results do not depend on how the
    stream was cut. Labels may arrive later, joined by id. Memory is bounded by `window` and
    `max_waiting`. All methods may be called from several threads.

    Parameters
    ----------
    reference : fitted calibrator, ConfidenceCalibrator or None
        What was known at fit time. A calibrator keeps a histogram of its confidence, of held-out
        examples after `certify`, or else of its fit; `CalibrationMonitor.from_validation` takes
        labelled examples instead. With None, or a calibrator of confidences whose outputs are
        passed to `update`, shifts of the inputs cannot be detected.
    window : int
        What counts as now: the newest labelled rows, and as many predictions for the inputs.
    n_bins : int
        Number of equal-width bins of confidence.
    delta : float
        Probability of *ever* raising a false alarm about calibration, once more the same of one
        about any class and about any group, and of a false alarm about inputs at each look.
    tolerance, class_tolerance : float
        How far confidence, and that of the rows with one predicted label or group, may be off
        without an alarm. A gap that a small reference cannot exclude is tolerated too.
    min_labels : int
        Labelled rows before there is a verdict on calibration (except for alarms), and predictions
        before there is one on inputs.
    n_classes : int, optional
        Number of classes, each of which then gets its own test; by default the calibrator's.
    coverage : float, optional
        Also test whether `predict_set(logits, coverage=coverage)` of the calibrator still contains
        the true class that often, from the labels of `update_logits`.
    groups : array-like of shape (n,), or several columns, optional
        Groups of some rows, those of the reference for instance: each group that occurs gets its
        own test, and rows of others share one.
    max_waiting : int
        Predictions with ids that may wait for their labels; beyond that the oldest are dropped. As
        many labelled ids, and hashes of rows without ids, are remembered so that none counts twice.

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
    _calibrator: Calibrator | None = None
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
            raise TypeError(
                f"`reference` must be a fitted calibrator or None; got {reference!r}. For "
                "examples use `from_validation`; for a `Dense`, its `fitted_calibrator()` and rows "
                "of `draw_positions(maps, labels, per_item=1)`."
            )
        if n_classes is None and isinstance(reference, Calibrator):
            reference._check_fitted()
            n_classes = reference.n_classes_
        options = MonitorOptions(
            window, n_bins, delta, tolerance, min_labels, n_classes, class_tolerance, coverage,
            _as_coding(groups, reference), max_waiting,
        )  # fmt: skip
        histogram = reference if isinstance(reference, Reference) else None  # of `from_validation`
        if isinstance(reference, Calibrator):
            histogram = Reference.from_calibrator(reference, options.n_bins)
        super().__init__(MonitorState.start(options, histogram))
        if isinstance(reference, (Calibrator, ConfidenceCalibrator)):
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

        `x` are logits (n, classes) and `y` labels (n,). They may be those of the fit; others are
        better, because a calibrator looks better on what it was fitted to. For a
        `ConfidenceCalibrator` they are confidences (n,) and whether the labels were right (n,); for
        None the same, as the model outputs them. Options are those of the class.
        """
        groups = options.get("groups")
        if isinstance(calibrator, Calibrator):
            rows = calibrator._read(x, y, None, groups)
            y = to_host(calibrator.predict(rows.scores)) == rows.labels
            x, groups = calibrator.predict_confidence(rows.scores), rows.groups
            options = {"n_classes": calibrator.n_classes_} | options | {"groups": groups}
        elif calibrator is not None:
            rows = calibrator._read(x, y, None, groups)
            x, y = calibrator._predict_stated(rows.scores, rows.groups), rows.labels
            options["groups"] = calibrator.rule_.coding if groups is None else rows.groups
        else:
            x, y, *_ = pair_rows(x, y, None, groups, ("x", "y"))
        known: Any = Reference.from_examples(x, y, options.get("n_bins", 15))
        monitor = cls(known, **options)
        if calibrator is not None:
            monitor._watch(calibrator)
        return monitor

    @property
    def options(self) -> MonitorOptions:
        """The options the monitor was made with."""
        return self._state.options

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator that is monitored, if known."""
        return self._calibrator

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

        `confidence` is in [0, 1], `correct` whether the label was right: None, NaN or -1 where that
        is not known. Rows with `ids`, text or integers, then wait for `add_labels`; without ids
        they count among the inputs only. `predicted` classes, for the tests by class, need
        `n_classes`; `groups` are for the tests by group. Rows that were counted before, with ids or
        without, are refused: by their ids or, where they are ten or more, by their values, unless
        `again`.
        """
        if has_no_rows(confidence):
            return self
        values = as_confidence(np.atleast_1d(to_host(confidence)))
        truth = as_partial_labels(correct, values.size, 2, name="correct")
        n_classes = self.options.n_classes
        if predicted is None:
            classes = np.full(values.size, -1)
        elif n_classes is None:
            raise ValueError(
                "`predicted` needs the number of classes: give the monitor `n_classes`."
            )
        else:
            classes = as_labels(np.atleast_1d(predicted), values.size, n_classes, name="predicted")
        numbers = self.options.group_numbers(groups, values.size)
        batch = Batch(LabelledRows(values, truth == 1, classes, numbers), truth)
        with self._lock:
            self._state.count(batch, ids, None if again else values)
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
        """`update` with the calibrator's confidence for logits (n, classes) and labels (n,).

        Labels are None, NaN or -1 where they are not known.
        """
        calibrator = self._calibrator
        if calibrator is None:
            raise ValueError(
                "`logits` need a calibrator of logits, which this monitor does not have. Use "
                "`update(confidence, correct)`, of a calibrator of confidences with what it "
                "predicts; or make it with a fitted calibrator of logits, `from_validation(...)` "
                "or `load(path, calibrator)`."
            )
        if has_no_rows(logits) and (labels is None or has_no_rows(labels)):
            return self
        pair_rows(logits, labels, None, groups)
        data = calibrator._attach_groups(as_logits(logits, fitted_by=calibrator), groups)
        truth = as_partial_labels(labels, data.n_rows, data.n_classes, self.class_names)
        predicted = to_host(calibrator.predict(data))
        left_out = self.options.groups is None and getattr(calibrator, "groups_", None) is not None
        numbers = self.options.group_numbers(None if left_out else groups, data.n_rows)
        confidence = to_host(calibrator.predict_confidence(data)).astype(np.float64)
        rows = LabelledRows(confidence, predicted == truth, predicted.astype(np.int64), numbers)
        sets, members = self._state.sets, None
        if sets is not None and (ids is not None or (truth >= 0).any()):
            members = to_host(calibrator.predict_set(data, coverage=sets.coverage).members)
        with self._lock:
            hashes = None if again else row_hashes(data)
            self._state.count(Batch(rows, truth, members, of_logits=True), ids, hashes)
        return self

    def add_labels(
        self, ids: Any, labels: Any, *, unknown: Literal["error", "skip"] = "error"
    ) -> Self:
        """Add labels (n,) of predictions that wait under these `ids` (n,), in order of arrival.

        Labels are true classes of logits, or whether a confidence of `update` was right; None, NaN
        and -1 are not yet known, and their rows wait on. An id that is unknown, labelled already or
        given twice is refused, and then none is counted; with `unknown="skip"` ids under which none
        waits are left out.
        """
        check_choice("unknown", unknown, Literal["error", "skip"])
        with self._lock:
            self._state.add_labels(ids, labels, self.class_names, skip=unknown == "skip")
        return self

    def waits_for(self, ids: Any) -> BoolArray:
        """Whether a prediction waits for its label under each of the ids, (n,)."""
        with self._lock:
            return np.array([each in self._state.waiting.rows for each in as_ids(ids)], np.bool_)

    def status(self) -> Status:
        """The status up to the newest row."""
        with self._lock:
            return make_status(self._state, self.class_names)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        calibrator: Calibrator | ConfidenceCalibrator | None = None,
    ) -> Self:
        """A monitor as `save` left it; pass the calibrator again to feed logits.

        Any calibrator but the one it was made with is refused. Where several processes load,
        update and save one file, hold `CalibrationMonitor.lock(path)` meanwhile.
        """
        monitor = cls.__new__(cls)
        SavedStream.__init__(monitor, cls._read_state(path, MonitorState))
        try:
            monitor.status()
            # Uses what `status` does not.
            confidence, right = np.linspace(0.1, 0.9, 64), np.arange(64) % 2
            copy.deepcopy(monitor).update(confidence, right, again=True)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise storage.CalibratorFileError(f"{path} has unusable numbers: {error}.") from error
        if calibrator is not None:
            monitor._watch(calibrator)
        return monitor

    @staticmethod
    def lock(path: str | os.PathLike[str]) -> AbstractContextManager[None]:
        """Hold a lock on a monitor's file, after other processes that do (none on Windows).

        `with CalibrationMonitor.lock(path): CalibrationMonitor.load(path).update(...).save(path)`
        """
        return storage.lock_file(f"{os.fspath(path)}.lock")

    def _watch(self, calibrator: Calibrator | ConfidenceCalibrator) -> None:
        """Monitor a calibrator, unless it is another than before; one of confidences is noted."""
        if isinstance(calibrator, Calibrator):
            name = f"{calibrator.name} of {calibrator.n_classes_} classes"
            digest = calibrator._stamp()
        else:
            name, digest = calibrator.name, storage.fingerprint({"rule": calibrator.rule_})
        stamp = f"{name}, stamp {digest.rpartition(':')[2][:16]}"
        if self._state.stamp not in (None, stamp):
            raise ValueError(
                f"`calibrator` must be the one that this monitor was made with "
                f"({self._state.stamp}); got {stamp}. Pass that one, or make a new monitor for the "
                "new calibrator."
            )
        self._state.stamp = stamp
        if isinstance(calibrator, Calibrator):
            self._calibrator = calibrator
            options = self.options
            if options.coverage is not None and self._state.sets is None:
                allowed = options.delta, options.tolerance
                self._state.sets = CoverageMonitor.of(calibrator, options.coverage, *allowed)
            self.class_names = tuple(map(str, calibrator.class_names)) or self.class_names


def _as_coding(groups: Any, reference: Any) -> GroupCoding | None:
    """The groups of some rows, or else those that the calibrator learned from."""
    if groups is None:
        rule = getattr(reference, "rule_", None)
        return getattr(rule, "needed_groups", None)
    if isinstance(groups, GroupCoding):
        return groups
    return GroupCoding.learn(groups, count_rows(groups))
