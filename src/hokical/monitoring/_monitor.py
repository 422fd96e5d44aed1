"""`CalibrationMonitor`: predictions in, verdicts out."""

from __future__ import annotations

import copy
import os
import threading
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import check_choice
from hokical._core.files import lock_file
from hokical._core.groups import GroupCoding, count_rows
from hokical._core.labels import as_labels
from hokical._core.logits import as_logits
from hokical._core.reading import pair_rows
from hokical._core.storage import CalibratorFileError, fingerprint, read_document, write_document
from hokical._core.types import BoolArray
from hokical._core.version import VERSION
from hokical.calibrators import Calibrator
from hokical.calibrators._confidence import ConfidenceCalibrator
from hokical.guarantees._row_sketch import row_hashes
from hokical.metrics._examples import as_confidence
from hokical.monitoring._coverage import CoverageMonitor, refuse_old_record
from hokical.monitoring._rows import Batch, LabelledRows, as_ids, as_partial_labels, has_no_rows
from hokical.monitoring._state import MonitorOptions, MonitorState, Reference
from hokical.monitoring._status import Status, make_status

_KIND = "CalibrationMonitor"


class CalibrationMonitor:
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
    over-confident by about 5 points since label 5,521 or before
    """

    _state: MonitorState
    _calibrator: Calibrator | None = None
    #: Names of the classes in a status, where they are known.
    class_names: tuple[str, ...] = ()
    #: One for all monitors, so that monitors can be copied.
    _lock = threading.RLock()

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
        self._state = MonitorState.start(options, histogram)
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor to a JSON file, atomically; `load` continues from it.

        Of the calibrator only a stamp is stored, to recognize it.
        """
        with self._lock:
            document = {"kind": _KIND, "library_version": VERSION, "state": self._state}
            write_document(path, document)

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
        document = read_document(path, refuse_old_record, _KIND)
        if not isinstance(document.get("state"), MonitorState):
            raise CalibratorFileError(f"{path} does not hold a usable {_KIND}. Make a new one.")
        monitor = cls.__new__(cls)
        monitor._state = document["state"]
        try:
            monitor.status()
            # Uses what `status` does not.
            copy.deepcopy(monitor).update(np.linspace(0.1, 0.9, 64), np.arange(64) % 2)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise CalibratorFileError(f"{path} has unusable numbers: {error}.") from error
        if calibrator is not None:
            monitor._watch(calibrator)
        return monitor

    @staticmethod
    def lock(path: str | os.PathLike[str]) -> AbstractContextManager[None]:
        """Hold a lock on a monitor's file, after other processes that do (none on Windows).

        `with CalibrationMonitor.lock(path): CalibrationMonitor.load(path).update(...).save(path)`
        """
        return lock_file(f"{os.fspath(path)}.lock")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"

    def _watch(self, calibrator: Calibrator | ConfidenceCalibrator) -> None:
        """Monitor a calibrator, unless it is another than before; one of confidences is noted."""
        if isinstance(calibrator, Calibrator):
            name, digest = (
                f"{calibrator.name} of {calibrator.n_classes_} classes",
                calibrator._stamp(),
            )
        else:
            name, digest = calibrator.name, fingerprint({"rule": calibrator.rule_})
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
