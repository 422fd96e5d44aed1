"""CalibrationMonitor: predictions in, verdicts out."""

from __future__ import annotations

import math
import os
import threading
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hokical.calibrators import Calibrator
from hokical.calibrators.catalog import find_rule
from hokical.core.files import lock_file, write_text_atomically
from hokical.core.logits import as_logits
from hokical.core.storage import CalibratorFileError, read_document, write_document
from hokical.core.types import BoolArray, IntArray
from hokical.core.version import VERSION
from hokical.metrics.checks import Examples
from hokical.monitoring.arrivals import (
    as_classes,
    as_examples_or_none,
    as_partial_labels,
    as_times,
    has_no_rows,
)
from hokical.monitoring.drift import allowances
from hokical.monitoring.export import append_json_line, json_line, prometheus_text
from hokical.monitoring.inputs import InputDrift, input_drift
from hokical.monitoring.reference import Reference, as_reference
from hokical.monitoring.stamp import Stamp
from hokical.monitoring.state import MonitorOptions, MonitorState
from hokical.monitoring.status import CalibrationDrift, Status, window_numbers
from hokical.monitoring.verdict import verdict
from hokical.monitoring.windows import Window

if TYPE_CHECKING:  # it needs scikit-learn
    from hokical.dense import Dense

_KIND = "CalibrationMonitor"
#: Batches that are remembered.
_BATCHES = 10_000


class CalibrationMonitor:
    """Watch the confidence of a model in service.

    Feed it predictions as they arrive, in batches of any size: results do not depend on how the
    stream was cut. It keeps sums, never examples, so its size does not grow. All methods may be
    called from several threads.

    Parameters
    ----------
    reference : fitted Hoki, Reference or None
        What was known at fit time. A fitted `Hoki` carries it; for other calibrators use
        `CalibrationMonitor.from_validation`. With None, shifts of the inputs cannot be detected.
    window : int or timedelta
        What counts as now: the last so many labelled examples (and as many predictions, for the
        inputs), or those of the last period of time. It slides in steps of 2 %.
    n_bins : int
        Number of equal-width bins of confidence.
    delta : float
        Probability of *ever* raising a false alarm about calibration, once more the same of one
        about any class, and of a false alarm about inputs at each look.
    tolerance : float
        By how much confidence may be off without an alarm. A gap that the reference cannot exclude,
        because it is small, is tolerated too.
    interval_delta : float
        Probability that the interval of the ECE misses the true error, at each look.
    min_labels : int
        Labelled examples before there is a verdict on calibration (except for alarms), and
        predictions before there is one on inputs.
    model : str
        Name in exports.
    n_classes : int, optional
        Number of classes, for a test of each; a calibrator's own by default.
    class_tolerance : float
        By how much the confidence of the rows with one predicted label may be off.

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
    over-confident by about 6 points since label 2,801
    """

    _calibrator: Calibrator | None = None
    _dense: Dense | None = None
    _stamp: Stamp | None = None
    #: One for all monitors, so that monitors can be copied, and merged without a deadlock.
    _lock = threading.RLock()

    def __init__(
        self,
        reference: Calibrator | Reference | None,
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
    ) -> None:
        if n_classes is None and isinstance(reference, Calibrator):
            n_classes = reference.n_classes_
        options = MonitorOptions(
            Window.from_option(window), n_bins, delta, tolerance, interval_delta, min_labels, model,
            n_classes, class_tolerance,
        )  # fmt: skip
        self.reference = as_reference(reference, options.n_bins)
        allowance = allowances(self.reference, options.n_bins, tolerance)
        self._state = MonitorState.start(options, allowance)
        if isinstance(reference, Calibrator):
            self._watch(reference)

    @classmethod
    def from_validation(
        cls, calibrator: Calibrator | Dense, logits: Any, labels: Any, **options: Any
    ) -> Self:
        """A monitor of any fitted calibrator, with labelled examples as its reference.

        `logits` (n, classes) and `labels` (n,), or maps for a `Dense`, may be those of the fit;
        others are better, because a calibrator looks better on what it was fitted to. Options are
        those of the class.
        """
        own, dense = _split_dense(calibrator)
        if dense is not None:
            logits, labels = dense.draw_positions(logits, labels)
        n_bins = options.get("n_bins", 15)
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
        observed: bool = False,
    ) -> Self:
        """Add labelled predictions, in order of arrival.

        Parameters
        ----------
        confidence, correct : numbers, or array-like of shape (n,)
            The confidence of each prediction, in [0, 1], and whether it was right.
        timestamp : float, datetime or array-like of shape (n,), optional
            When: seconds since 1970, a datetime with a time zone, datetime64 or ISO text (read as
            UTC). Needed if the window is a time.
        predicted : int or array-like of shape (n,), optional
            The predicted class, for the tests by class; needs `n_classes`.
        observed : bool
            True if these predictions were passed to `observe` before their labels arrived.
        """
        return self._count(confidence, correct, timestamp, predicted=predicted, observed=observed)

    def update_logits(
        self, logits: Any, labels: Any = None, timestamp: Any = None, *, observed: bool = False
    ) -> Self:
        """`update` with the calibrator's confidence for logits (n, classes) and labels (n,).

        Rows whose label is -1 or NaN, or all if `labels` is None, have no label yet: they count
        among the inputs only. Of maps, for a `Dense`, one position of each item is drawn at random,
        since neighbours are not independent; a timestamp is then one for all.
        """
        calibrator = self._require_calibrator()
        if has_no_rows(logits) and (labels is None or has_no_rows(labels)):
            return self
        if self._dense is not None:
            seed = self._state.n_observed  # another position of the same place each time
            logits, labels = self._dense.draw_positions(logits, labels, random_state=seed)
        data = as_logits(logits, fitted_by=calibrator)
        truth = as_partial_labels(labels, data.n_rows, data.n_classes)
        predicted = calibrator.predict(data)
        return self._count(
            calibrator.predict_confidence(data),
            predicted == truth,
            timestamp,
            predicted=None if self.options.n_classes is None else predicted,
            observed=observed,
            labelled=truth >= 0,
            support=None if calibrator.support_ is None else calibrator.predict_support(data),
        )

    def observe(self, confidence: Any, timestamp: Any = None) -> Self:
        """Add predictions without labels (yet), (n,), to detect shifts of the inputs.

        When the labels arrive, pass them to `update` with `observed=True`.
        """
        none = np.zeros(np.shape(confidence), dtype=bool)
        return self._count(confidence, none, timestamp, labelled=np.atleast_1d(none))

    def observe_logits(self, logits: Any, timestamp: Any = None) -> Self:
        """`observe` with the calibrator's confidence for logits (n, classes)."""
        return self.update_logits(logits, None, timestamp)

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
        observed: bool = False,
        labelled: BoolArray | None = None,
        support: BoolArray | None = None,
    ) -> Self:
        """Check predictions and add them; those that are not `labelled` to the inputs alone."""
        rows, options = as_examples_or_none(confidence, correct), self.options
        if rows is None:
            return self
        times = as_times(timestamp, rows.n_rows, options.window)
        classes = as_classes(predicted, rows.n_rows, options.n_classes)
        with self._lock:
            self._check_live()
            if not observed:
                self._state.count_inputs(rows.confidence, times, support)
            own = slice(None) if labelled is None else labelled
            known = Examples(rows.confidence[own], rows.correct[own], None)
            if known.n_rows:
                moments = None if times is None else times[own]
                self._state.count_labelled(
                    known, moments, None if classes is None else classes[own]
                )
        return self

    @property
    def options(self) -> MonitorOptions:
        """The options the monitor was made with."""
        return self._state.options

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator that is watched, if known."""
        return self._calibrator

    @property
    def n(self) -> int:
        """Labelled examples so far."""
        return self._state.n

    def status(self) -> Status:
        """The status up to the newest example."""
        with self._lock:
            options, state = self.options, self._state
            window, seen = state.labelled.total(), state.inputs.total()
            inputs, classes = self._input_drift(seen), state.classes.table(state.class_test()[1])
            return Status(
                model=options.model,
                n=state.n,
                n_observed=state.n_observed,
                replicas=state.replicas,
                window=str(options.window),
                time=state.time,
                ece_since_start=math.nan if state.sums is None else state.sums.ece(),
                calibration=CalibrationDrift(
                    state.reading().log_e, 1.0 / options.delta, state.alarm()
                ),
                inputs=inputs,
                n_seen=0 if seen is None else int(seen[:-2].sum()),
                n_unlike=int(seen[-2]) if seen is not None and seen[-1] else None,
                classes=classes,
                verdict=verdict(state, window, inputs, classes),
                **window_numbers(window, options.interval_delta),
            )

    def merge(self, *others: CalibrationMonitor) -> CalibrationMonitor:
        """One reading of several replicas, each with its own stream; none is changed.

        Sums add and evidence multiplies, to the bit the same in any order. A window of examples
        holds the last of *each* replica, one of time those of that time. The result can be saved,
        merged and exported, but not fed: feed the replicas.

        An alarm of a replica stays. An alarm that only all together give is of the moment: it may
        be gone when they are merged again later.
        """
        for other in others:
            self._check_mergeable(other)
        monitors = (self, *others)
        stamp = next((each._stamp for each in monitors if each._stamp is not None), None)
        with self._lock:
            state = MonitorState.merge([each._state for each in monitors])
        return self._from_parts(self.reference, state, stamp, self._calibrator)

    def to_json_line(self) -> str:
        """The status as one line of JSON, without the line's end."""
        return json_line(self.status())

    def append_json_line(self, path: str | os.PathLike[str]) -> None:
        """Append the status to a file of JSON lines, whole or not at all."""
        append_json_line(path, self.status())

    def to_prometheus(self) -> str:
        """The status in Prometheus' text format, with the label `model`."""
        return prometheus_text([self.status()])

    def write_prometheus(self, path: str | os.PathLike[str]) -> None:
        """Write `to_prometheus` to a file (for a textfile collector), atomically."""
        write_text_atomically(path, self.to_prometheus())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor to a JSON file, atomically; `load` continues from it.

        Of the calibrator only a stamp is stored, to recognize it.
        """
        parts = {"reference": self.reference, "state": self._state, "stamp": self._stamp}
        with self._lock:
            write_document(path, {"kind": _KIND, "library_version": VERSION, **parts})

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], calibrator: Calibrator | Dense | None = None
    ) -> CalibrationMonitor:
        """A monitor as `save` left it; pass the calibrator again to feed logits.

        Any calibrator but the one it was made with is refused. Where several processes load,
        update and save one file, hold `CalibrationMonitor.lock(path)` meanwhile.
        """
        document = read_document(path, find_rule)
        if document.get("kind") != _KIND or not isinstance(document.get("state"), MonitorState):
            raise CalibratorFileError(
                f"{path} does not hold a {_KIND}. For a calibrator use `hokical.load`."
            )
        monitor = cls._from_parts(
            document.get("reference"), document["state"], document.get("stamp")
        )
        if calibrator is not None:
            monitor._watch(calibrator)
        return monitor

    @staticmethod
    def lock(path: str | os.PathLike[str]) -> AbstractContextManager[None]:
        """Hold a lock on a monitor's file, after other processes that do (none on Windows).

        `with CalibrationMonitor.lock(path): CalibrationMonitor.load(path).update(...).save(path)`
        """
        return lock_file(f"{os.fspath(path)}.lock", wait=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.options.model!r}, n={self.n})"

    def _input_drift(self, seen: IntArray | None) -> InputDrift | None:
        if seen is None or self.reference is None or seen[:-2].sum() < self.options.min_labels:
            return None
        return input_drift(seen[:-2], self.reference.weight, self.options.delta)

    def _watch(self, given: Calibrator | Dense) -> None:
        """Watch a calibrator, unless it is another than before."""
        calibrator, dense = _split_dense(given)
        stamp = Stamp.of(calibrator)
        if self._stamp not in (None, stamp):
            raise ValueError(
                f"`calibrator` must be the one that this monitor was made with ({self._stamp}); "
                f"got {stamp}. Pass that one, or make a new monitor for the new calibrator."
            )
        self._calibrator, self._dense, self._stamp = calibrator, dense, stamp

    def _require_calibrator(self) -> Calibrator:
        if self._calibrator is None:
            raise ValueError(
                "this monitor has no calibrator for logits. Use `update(confidence, correct)`, or "
                "make it with a fitted Hoki, `from_validation(...)` or `load(path, calibrator)`."
            )
        return self._calibrator

    def _check_live(self) -> None:
        if self._state.merged is not None:
            raise ValueError(
                f"a merged monitor of {self._state.replicas} replicas cannot be fed. Feed the "
                "replicas and merge again."
            )

    def _check_mergeable(self, other: object) -> None:
        if not isinstance(other, CalibrationMonitor):
            raise TypeError(f"`merge` takes monitors; got {other!r}.")
        known = self._stamp is not None and other._stamp is not None
        pairs = {
            "options": (self.options, other.options),
            "calibrator": (self._stamp, other._stamp if known else self._stamp),
            "reference": tuple(each._state.evidence.allowance.tolist() for each in (self, other)),
        }
        for what, (own, others) in pairs.items():
            if own != others:
                raise ValueError(
                    f"monitors must have the same {what} to be merged; got {str(own)[:200]} and "
                    f"{str(others)[:200]}. Make each with the same calibrator, or the same "
                    "`Reference`, and with the same options."
                )

    @classmethod
    def _from_parts(
        cls,
        reference: Reference | None,
        state: MonitorState,
        stamp: Stamp | None,
        calibrator: Calibrator | None = None,
    ) -> CalibrationMonitor:
        monitor = cls.__new__(cls)
        monitor.reference, monitor._state = reference, state
        monitor._stamp, monitor._calibrator = stamp, calibrator
        return monitor


def _split_dense(given: Calibrator | Dense) -> tuple[Calibrator, Dense | None]:
    """The calibrator of rows, and the `Dense` that it is in, if any."""
    return (given, None) if isinstance(given, Calibrator) else (given.fitted_calibrator(), given)
