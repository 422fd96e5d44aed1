"""What a monitor knows of its stream: its status, merged with others, exported, saved."""

from __future__ import annotations

import math
import os
import threading
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hokical._core.files import lock_file
from hokical._core.storage import (
    CalibratorFileError,
    fingerprint,
    read_document,
    storable,
    write_document,
)
from hokical._core.version import VERSION
from hokical.calibrators import Calibrator
from hokical.calibrators._beyond_logits import BeyondLogits
from hokical.calibrators._catalog import find_rule
from hokical.monitoring._class_watch import ClassStatus
from hokical.monitoring._coverage import CoverageMonitor
from hokical.monitoring._expected import Expected, expected_status
from hokical.monitoring._export import append_json_line, json_line
from hokical.monitoring._reference import Reference, input_drift
from hokical.monitoring._state import MonitorOptions, MonitorState
from hokical.monitoring._status import CalibrationDrift, Status, verdict, window_numbers

if TYPE_CHECKING:
    from hokical.dense import Dense

_KIND = "CalibrationMonitor"


class WatchedStream:
    """A stream of predictions that has been watched; `CalibrationMonitor` is fed them."""

    reference: Reference | None
    _state: MonitorState
    _calibrator: Calibrator | None = None
    _dense: Dense | None = None
    _stamp: Stamp | None = None
    #: Names of the classes for people, where known; a loaded calibrator may know them.
    class_names: tuple[str, ...] = ()
    #: One for all monitors, so that monitors can be copied, and merged without a deadlock.
    _lock = threading.RLock()

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
            inputs = None
            if seen is not None and self.reference and seen[:-2].sum() >= options.min_labels:
                inputs = input_drift(seen[:-2], self.reference.weight, options.delta)
            classes = state.classes.table(state.class_test()[1], self.class_names)
            groups: tuple[ClassStatus, ...] = ()
            if state.groups is not None:
                groups = state.groups.table(state.group_test()[1], state.group_names())
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
                verdict=verdict(state, window, inputs, classes, groups),
                groups=groups,
                sets=None if state.sets is None else state.sets.status(),
                expected=self._expected(),
                **window_numbers(window, options.interval_delta),
            )

    def _expected(self) -> Expected | None:
        """Of the window's sampled rows, if there are enough of them and the calibrator is known."""
        rows = None if self._state.rows is None else self._state.rows.total()
        known, options = self._calibrator, self.options
        if rows is None or known is None or rows.count < options.min_labels:
            return None
        return expected_status(rows, known, options.interval_delta, self.class_names)

    def merge(self, *others: Self) -> Self:
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
        merged = copy(self)
        with self._lock:
            merged._state = MonitorState.merge([each._state for each in monitors])
        merged._stamp = stamp
        return merged

    def to_json_line(self) -> str:
        """The status as one line of JSON, without the line's end."""
        return json_line(self.status())

    def append_json_line(self, path: str | os.PathLike[str]) -> None:
        """Append the status to a file of JSON lines, whole or not at all."""
        append_json_line(path, self.status())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor to a JSON file, atomically; `load` continues from it.

        Of the calibrator only a stamp is stored, to recognize it.
        """
        parts = {"reference": self.reference, "state": self._state, "stamp": self._stamp}
        with self._lock:
            write_document(path, {"kind": _KIND, "library_version": VERSION, **parts})

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        calibrator: Calibrator | Dense | BeyondLogits | None = None,
    ) -> Self:
        """A monitor as `save` left it; pass the calibrator again to feed logits.

        Any calibrator but the one it was made with is refused. Where several processes load,
        update and save one file, hold `CalibrationMonitor.lock(path)` meanwhile.
        """
        document = read_document(path, find_rule)
        if document.get("kind") != _KIND or not isinstance(document.get("state"), MonitorState):
            raise CalibratorFileError(
                f"{path} does not hold a {_KIND}. For a calibrator use `hokical.load`."
            )
        monitor = cls.__new__(cls)
        monitor.reference, monitor._state = document.get("reference"), document["state"]
        monitor._stamp = document.get("stamp")
        try:
            monitor.status()
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise CalibratorFileError(f"{path} has unusable numbers: {error}.") from error
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

    def _watch(self, given: Calibrator | Dense | BeyondLogits) -> None:
        """Watch a calibrator, unless it is another than before; one of confidences is noted."""
        if isinstance(given, BeyondLogits):
            self._check_stamp(Stamp(given.name, 0, fingerprint({"rule": given.rule_})))
            return
        calibrator, dense = split_dense(given)
        self._check_stamp(Stamp.of(calibrator))
        self._calibrator, self._dense = calibrator, dense
        options = self.options
        if options.coverage is not None and self._state.sets is None:
            allowed = options.delta, options.tolerance
            self._state.sets = CoverageMonitor.of(calibrator, options.coverage, *allowed)
        known = getattr(calibrator, "metadata", {}).get("classes")
        self.class_names = tuple(map(str, known or ())) or self.class_names

    def _check_stamp(self, stamp: Stamp) -> None:
        if self._stamp not in (None, stamp):
            raise ValueError(
                f"`calibrator` must be the one that this monitor was made with ({self._stamp}); "
                f"got {stamp}. Pass that one, or make a new monitor for the new calibrator."
            )
        self._stamp = stamp

    def _check_mergeable(self, other: object) -> None:
        if not isinstance(other, WatchedStream):
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


def split_dense(given: Calibrator | Dense) -> tuple[Calibrator, Dense | None]:
    """The calibrator of rows, and the `Dense` that it is in, if any."""
    return (given, None) if isinstance(given, Calibrator) else (given.fitted_calibrator(), given)


@storable("monitor-stamp")
@dataclass(frozen=True)
class Stamp:
    """A calibrator's method, its number of classes, and a hash of its rule.

    Neither the version of the library nor `certify` changes it.
    """

    method: str
    n_classes: int
    learned: str

    @classmethod
    def of(cls, calibrator: Calibrator) -> Stamp:
        """The stamp of a fitted calibrator; saving and loading it does not change it."""
        return cls(calibrator.name, calibrator.n_classes_, calibrator.stamp)

    def __str__(self) -> str:
        digest = self.learned.rpartition(":")[2][:8]
        classes = f" of {self.n_classes} classes" if self.n_classes else ""
        return f"{self.method}{classes}, stamp {digest}"
