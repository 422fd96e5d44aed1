"""CalibrationMonitor: predictions in, verdicts out."""

from __future__ import annotations

import math
import os
from datetime import timedelta
from typing import Any, Self

import numpy as np

import hokical
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.hoki import Hoki
from hokical.metrics.binned import BinnedSums
from hokical.monitoring.arrivals import as_examples_or_none, as_times, has_no_rows
from hokical.monitoring.drift import Alarm, allowances
from hokical.monitoring.export import append_json_line, json_line, prometheus_text
from hokical.monitoring.inputs import InputDrift, input_drift
from hokical.monitoring.options import Options
from hokical.monitoring.reference import Reference, judged
from hokical.monitoring.stamp import Stamp
from hokical.monitoring.status import CalibrationDrift, Status, window_numbers
from hokical.monitoring.tally import Tally
from hokical.monitoring.verdict import Facts, Verdict, verdict
from hokical.storage import (
    CalibratorFileError,
    read_document,
    write_document,
    write_text_atomically,
)

_KIND = "CalibrationMonitor"


class CalibrationMonitor:
    """Watch the confidence of a model in service.

    Feed it predictions as they arrive, in batches of any size: nothing it says depends on how the
    stream was cut. It keeps sums, never examples, so its size does not grow.

    Parameters
    ----------
    reference : fitted Hoki, Reference or None
        What was known at fit time. A fitted `Hoki` carries it; for other calibrators use
        `CalibrationMonitor.from_validation`. None: nothing was, so shifts of the inputs cannot be
        seen.
    window : int or timedelta
        What counts as now: the last so many labelled examples (and as many predictions, for the
        inputs), or those of the last stretch of time. It slides in steps of 2 %.
    n_bins : int
        Number of equal-width bins of confidence.
    alpha : float
        Chance of *ever* raising a false alarm about calibration; and level of the test for shifted
        inputs at each look.
    tolerance : float
        By how much confidence may be off without being called dishonest. Where the reference is too
        small to know a gap that well, what it cannot exclude is allowed.
    level : float
        Chance with which the interval of the ECE holds the true error, at each look.
    min_labels : int
        Labelled examples before which nothing is said about calibration (unless an alarm is
        raised), and predictions before which nothing is said about inputs.
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

    def __init__(
        self,
        reference: Hoki | Reference | None,
        *,
        window: int | timedelta = 5000,
        n_bins: int = 15,
        alpha: float = 0.01,
        tolerance: float = 0.01,
        level: float = 0.95,
        min_labels: int = 200,
        model: str = "model",
    ) -> None:
        self.options = Options.checked(window, n_bins, alpha, tolerance, level, min_labels, model)
        self.reference = _as_reference(reference, self.options.n_bins)
        allowance = allowances(self.reference, self.options.n_bins, self.options.tolerance)
        self._tally = Tally(self.options, allowance)
        self._calibrator: BaseCalibrator | None = None
        self._stamp: Stamp | None = None
        if isinstance(reference, Hoki):
            self._watch(reference)

    @classmethod
    def from_validation(
        cls, calibrator: BaseCalibrator, logits: Any, labels: Any, **options: Any
    ) -> Self:
        """A monitor of any fitted calibrator, with labelled examples as its reference.

        `logits` (n, classes) and `labels` (n,) may be those of the fit; others are better, because
        a calibrator looks more honest on what it was fitted to. The options are the class's own.
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
            What was said of each prediction, in [0, 1].
        correct : bool or array-like of shape (n,)
            Whether it was right.
        timestamp : float, datetime or array-like of shape (n,), optional
            When: seconds since 1970, a datetime with a time zone, or datetime64 (read as UTC).
            Needed if the window is a time.
        observed : bool
            True if `observe` has seen these predictions already, before their labels came.
        """
        self._check_live()
        examples = as_examples_or_none(confidence, correct)
        if examples is not None:
            times = as_times(timestamp, examples.n_rows, self.options.layout)
            if not observed:
                self._tally.count_inputs(examples.confidence, times)
            self._tally.count_labelled(examples, times)
        return self

    def update_logits(
        self, logits: Any, labels: Any, timestamp: Any = None, *, observed: bool = False
    ) -> Self:
        """`update` with the calibrator's confidence for logits (n, classes) and labels (n,)."""
        calibrator = self._known_calibrator()
        if has_no_rows(logits) and has_no_rows(labels):
            return self.update([], [])
        confidence, correct = judged(calibrator, logits, labels)
        return self.update(confidence, correct, timestamp, observed=observed)

    def observe(self, confidence: Any, timestamp: Any = None) -> Self:
        """Add predictions whose labels are not known (yet), (n,): they show shifts of the inputs.

        When the labels come, pass them to `update` with `observed=True`.
        """
        self._check_live()
        known = as_examples_or_none(confidence, np.zeros(np.shape(confidence), dtype=bool))
        if known is not None:
            times = as_times(timestamp, known.n_rows, self.options.layout)
            self._tally.count_inputs(known.confidence, times)
        return self

    def observe_logits(self, logits: Any, timestamp: Any = None) -> Self:
        """`observe` with the calibrator's confidence for logits (n, classes)."""
        calibrator = self._known_calibrator()
        if has_no_rows(logits):
            return self.observe([])
        return self.observe(calibrator.predict_confidence(logits), timestamp)

    @property
    def calibrator(self) -> BaseCalibrator | None:
        """Whose confidence is watched; None where that is not known."""
        return self._calibrator

    @property
    def n(self) -> int:
        """Labelled examples so far."""
        return self._tally.n

    def status(self) -> Status:
        """Where things stand, up to the newest example."""
        options, tally, reading = self.options, self._tally, self._tally.reading()
        window = tally.labelled.total()
        inputs, alarm = self._input_drift(), tally.alarm()
        return Status(
            model=options.model,
            n=tally.n,
            n_observed=tally.n_observed,
            replicas=tally.replicas,
            window=str(options.layout),
            time=tally.time,
            ece_since_start=math.nan if tally.sums is None else tally.sums.ece(),
            calibration=CalibrationDrift(reading.log_e, 1.0 / options.alpha, alarm),
            inputs=inputs,
            verdict=self._verdict(window, inputs, alarm),
            **window_numbers(window, options.level),
        )

    def merge(self, *others: CalibrationMonitor) -> CalibrationMonitor:
        """One reading of several replicas, each with a stream of its own; none is changed.

        Sums add and evidence multiplies, to the bit the same in any order. A window of examples
        holds the last of *each* replica, one of time those of that time. The result is a reading:
        it can be saved, merged and exported, but the replicas are what is fed.

        An alarm of a replica stays. One that only all together give is of the moment: it may be
        gone when they are merged again later.
        """
        for other in others:
            self._check_mergeable(other)
        both = self._twin()
        stamps = (monitor._stamp for monitor in (self, *others))
        both._stamp = next((stamp for stamp in stamps if stamp is not None), None)
        both._tally = Tally.of_replicas([self._tally, *(other._tally for other in others)])
        return both

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
        """Write all but the calibrator to a JSON file, atomically; `load` goes on from it.

        The calibrator's stamp is kept, so that `load` knows it again.
        """
        body = {"kind": _KIND, "library_version": hokical.__version__, "state": self._state()}
        write_document(path, body)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], calibrator: BaseCalibrator | None = None
    ) -> CalibrationMonitor:
        """A monitor as `save` left it; give the calibrator again if logits are to be fed.

        Any other than the one it was made with is refused.
        """
        document = read_document(path)
        if document.get("kind") != _KIND:
            raise CalibratorFileError(
                f"{path} holds a {document.get('kind')!r}, not a {_KIND}. Use `hokical.load`."
            )
        try:
            monitor = cls._from_state(document["state"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise CalibratorFileError(f"{path} does not hold a usable {_KIND}: {error}") from error
        if calibrator is not None:
            monitor._watch(calibrator)
        return monitor

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.options.model!r}, n={self.n})"

    def _input_drift(self) -> InputDrift | None:
        counts = self._tally.inputs.total()
        if counts is None or self.reference is None or counts.sum() < self.options.min_labels:
            return None
        return input_drift(counts, self.reference.weight, self.options.alpha)

    def _verdict(
        self, window: BinnedSums | None, inputs: InputDrift | None, alarm: Alarm | None
    ) -> Verdict:
        since = None if alarm is None else self._first_pane(alarm)
        in_window = 0 if window is None else int(window.count.sum())
        facts = Facts(
            n=in_window if self.options.layout.timed else self.n,  # a quiet hour says nothing
            least=self.options.min_labels,
            window=window,
            inputs=inputs,
            allowance=self._tally.evidence.allowance,
            tolerance=self.options.tolerance,
            alarm=alarm,
            recent=None if since is None else self._tally.labelled.total(since),
        )
        return verdict(facts)

    def _first_pane(self, alarm: Alarm) -> int | None:
        """The pane in which the change seems to have begun, where that can be told."""
        layout = self.options.layout
        if layout.timed:
            return None if alarm.since_time is None else int(alarm.since_time // layout.pane)
        merged = self._tally.merged is not None  # whose panes are counted from the newest
        return None if merged or alarm.since is None else alarm.since // int(layout.pane)

    def _watch(self, calibrator: BaseCalibrator) -> None:
        """Take a calibrator, unless another is watched."""
        stamp = Stamp.of(calibrator)
        if self._stamp is not None and self._stamp != stamp:
            raise ValueError(
                f"`calibrator` must be the one that this monitor was made with ({self._stamp}); "
                f"got {stamp}. Give that one, or make a new monitor for the new calibrator."
            )
        self._calibrator, self._stamp = calibrator, stamp

    def _known_calibrator(self) -> BaseCalibrator:
        if self._calibrator is None:
            raise ValueError(
                "this monitor has no calibrator for logits. Use `update(confidence, correct)`, or "
                "make it with a fitted Hoki, `from_validation(...)` or `load(path, calibrator)`."
            )
        return self._calibrator

    def _check_live(self) -> None:
        if self._tally.merged is not None:
            raise ValueError(
                f"a merged monitor of {self._tally.replicas} replicas cannot be fed. Feed the "
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
        if not np.array_equal(self._tally.evidence.allowance, other._tally.evidence.allowance):
            raise ValueError(
                "monitors must have the same reference to be merged. Make each with the same "
                "calibrator, or the same `Reference`."
            )

    def _twin(self) -> CalibrationMonitor:
        """A monitor like this one that has seen nothing."""
        twin = CalibrationMonitor(self.reference, **self.options.as_arguments())
        twin._calibrator, twin._stamp = self._calibrator, self._stamp
        return twin

    def _state(self) -> dict[str, Any]:
        reference = None if self.reference is None else self.reference.to_dict()
        return {
            "options": self.options.to_dict(),
            "calibrator": None if self._stamp is None else self._stamp.to_dict(),
            "reference": reference,
            "tally": self._tally.to_dict(),
        }

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> CalibrationMonitor:
        stored = state["reference"]
        options = Options.from_dict(state["options"])
        monitor = cls(None if stored is None else Reference(**stored), **options.as_arguments())
        stamp = state.get("calibrator")  # files of earlier versions have none
        monitor._stamp = None if stamp is None else Stamp(**stamp)
        monitor._tally.restore(state["tally"])
        return monitor


def _as_reference(reference: Any, n_bins: int) -> Reference | None:
    if isinstance(reference, Hoki):
        return Reference.from_hoki(reference, n_bins=n_bins)
    if isinstance(reference, BaseCalibrator):
        raise ValueError(
            f"{type(reference).__name__} does not keep its fit-time examples. Use "
            "`CalibrationMonitor.from_validation(calibrator, logits, labels)`."
        )
    if reference is not None and not isinstance(reference, Reference):
        raise TypeError(
            f"`reference` must be a fitted Hoki, a `Reference` or None; got {reference!r}."
        )
    if reference is not None and reference.n_bins != n_bins:
        raise ValueError(
            f"`reference` must have {n_bins} bins like the monitor; got {reference.n_bins}. Make "
            "it with the same `n_bins`."
        )
    return reference
