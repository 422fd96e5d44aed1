"""CalibrationMonitor: predictions in, verdicts out."""

from __future__ import annotations

import math
import os
from datetime import timedelta
from typing import Any, Self

import numpy as np

from hokical.calibrators import Calibrator
from hokical.calibrators.catalog import find_rule
from hokical.core.files import write_text_atomically
from hokical.core.storage import CalibratorFileError, read_document, write_document
from hokical.core.version import VERSION
from hokical.monitoring.arrivals import as_examples_or_none, as_times, has_no_rows
from hokical.monitoring.drift import allowances
from hokical.monitoring.export import append_json_line, json_line, prometheus_text
from hokical.monitoring.inputs import InputDrift, input_drift
from hokical.monitoring.reference import Reference, as_reference, judge
from hokical.monitoring.stamp import Stamp
from hokical.monitoring.state import MonitorOptions, MonitorState
from hokical.monitoring.status import CalibrationDrift, Status, window_numbers
from hokical.monitoring.verdict import verdict
from hokical.monitoring.windows import Window

_KIND = "CalibrationMonitor"


class CalibrationMonitor:
    """Watch the confidence of a model in service.

    Feed it predictions as they arrive, in batches of any size: results do not depend on how the
    stream was cut. It keeps sums, never examples, so its size does not grow.

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
        Probability of *ever* raising a false alarm about calibration; and of a false alarm about
        inputs at each look.
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
    _stamp: Stamp | None = None

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
    ) -> None:
        cut = Window.from_option(window)
        options = MonitorOptions(cut, n_bins, delta, tolerance, interval_delta, min_labels, model)
        self.reference = as_reference(reference, options.n_bins)
        allowance = allowances(self.reference, options.n_bins, tolerance)
        self._state = MonitorState.start(options, allowance)
        if isinstance(reference, Calibrator):
            self._watch(reference)

    @classmethod
    def from_validation(
        cls, calibrator: Calibrator, logits: Any, labels: Any, **options: Any
    ) -> Self:
        """A monitor of any fitted calibrator, with labelled examples as its reference.

        `logits` (n, classes) and `labels` (n,) may be those of the fit; others are better, because
        a calibrator looks better on what it was fitted to. Options are those of the class.
        """
        n_bins = options.get("n_bins", 15)
        reference = Reference.from_validation(calibrator, logits, labels, n_bins=n_bins)
        monitor = cls(reference, **options)
        monitor._watch(calibrator)
        return monitor

    def update(
        self, confidence: Any, correct: Any, timestamp: Any = None, *, observed: bool = False
    ) -> Self:
        """Add labelled predictions, in order of arrival.

        Parameters
        ----------
        confidence : float or array-like of shape (n,)
            The confidence of each prediction, in [0, 1].
        correct : bool or array-like of shape (n,)
            Whether it was right.
        timestamp : float, datetime or array-like of shape (n,), optional
            When: seconds since 1970, a datetime with a time zone, or datetime64 (read as UTC).
            Needed if the window is a time.
        observed : bool
            True if these predictions were passed to `observe` before their labels arrived.
        """
        self._check_live()
        examples = as_examples_or_none(confidence, correct)
        if examples is not None:
            times = as_times(timestamp, examples.n_rows, self.options.window)
            if not observed:
                self._state.count_inputs(examples.confidence, times)
            self._state.count_labelled(examples, times)
        return self

    def update_logits(
        self, logits: Any, labels: Any, timestamp: Any = None, *, observed: bool = False
    ) -> Self:
        """`update` with the calibrator's confidence for logits (n, classes) and labels (n,)."""
        calibrator = self._require_calibrator()
        if has_no_rows(logits) and has_no_rows(labels):
            return self.update([], [])
        confidence, correct = judge(calibrator, logits, labels)
        return self.update(confidence, correct, timestamp, observed=observed)

    def observe(self, confidence: Any, timestamp: Any = None) -> Self:
        """Add predictions without labels (yet), (n,), to detect shifts of the inputs.

        When the labels arrive, pass them to `update` with `observed=True`.
        """
        self._check_live()
        known = as_examples_or_none(confidence, np.zeros(np.shape(confidence), dtype=bool))
        if known is not None:
            times = as_times(timestamp, known.n_rows, self.options.window)
            self._state.count_inputs(known.confidence, times)
        return self

    def observe_logits(self, logits: Any, timestamp: Any = None) -> Self:
        """`observe` with the calibrator's confidence for logits (n, classes)."""
        calibrator = self._require_calibrator()
        if has_no_rows(logits):
            return self.observe([])
        return self.observe(calibrator.predict_confidence(logits), timestamp)

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
        options, state = self.options, self._state
        window, inputs = state.labelled.total(), self._input_drift()
        return Status(
            model=options.model,
            n=state.n,
            n_observed=state.n_observed,
            replicas=state.replicas,
            window=str(options.window),
            time=state.time,
            ece_since_start=math.nan if state.sums is None else state.sums.ece(),
            calibration=CalibrationDrift(state.reading().log_e, 1.0 / options.delta, state.alarm()),
            inputs=inputs,
            verdict=verdict(state, window, inputs),
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
        write_document(path, {"kind": _KIND, "library_version": VERSION, **parts})

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], calibrator: Calibrator | None = None
    ) -> CalibrationMonitor:
        """A monitor as `save` left it; pass the calibrator again to feed logits.

        Any calibrator but the one it was made with is refused.
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.options.model!r}, n={self.n})"

    def _input_drift(self) -> InputDrift | None:
        counts = self._state.inputs.total()
        if counts is None or self.reference is None or counts.sum() < self.options.min_labels:
            return None
        return input_drift(counts, self.reference.weight, self.options.delta)

    def _watch(self, calibrator: Calibrator) -> None:
        """Watch a calibrator, unless it is another than before."""
        stamp = Stamp.of(calibrator)
        if self._stamp is not None and self._stamp != stamp:
            raise ValueError(
                f"`calibrator` must be the one that this monitor was made with ({self._stamp}); "
                f"got {stamp}. Pass that one, or make a new monitor for the new calibrator."
            )
        self._calibrator, self._stamp = calibrator, stamp

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
        if self.options != other.options:
            raise ValueError(
                "monitors must have the same options to be merged; got "
                f"{self.options} and {other.options}."
            )
        if self._stamp and other._stamp and self._stamp != other._stamp:
            raise ValueError(
                "monitors must watch the same calibrator to be merged; got "
                f"{self._stamp} and {other._stamp}."
            )
        if not np.array_equal(self._state.evidence.allowance, other._state.evidence.allowance):
            raise ValueError(
                "monitors must have the same reference to be merged. Make each with the same "
                "calibrator, or the same `Reference`."
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
