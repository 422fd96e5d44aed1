"""Do prediction sets still contain the true class as often as guaranteed; and sets that adapt."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from hokical._core import storage
from hokical._core.arrays import FloatArray, to_host, to_input_library
from hokical._core.checks import ArrayOf, Coefficient, check_count
from hokical._core.reading import as_labels, as_partial_labels
from hokical._core.version import VERSION
from hokical.calibrators import Calibrator
from hokical.guarantees.bounds import check_chance
from hokical.guarantees.planning import plan
from hokical.guarantees.scores import confidence_log_odds
from hokical.guarantees.sets import PredictionSets, SetOptions
from hokical.monitoring.e_process import Alarm, EProcess
from hokical.monitoring.rows import (
    as_ids,
    check_new_ids,
    check_waiting_ids,
    drop_oldest,
)

#: How far each tracker moves its threshold, in log-odds, for a miss; how fast trackers are weighed
#: by their loss, and the share of the weight that is dealt out again (ten classes, labels 200 rows
#: late, steady, drifting and after jumps).
_STEPS, _RATE, _RENEWED = np.array([0.01, 0.03, 0.1]), 0.3, 0.01
#: Misses beyond what is allowed at which sets hold every class, and those that can be saved up.
_MOST_DEBT, _MOST_SAVED = 100.0, 20.0
#: Labels of which the recent coverage is shown, and the largest log-odds that a score may have.
_RECENT, _FARTHEST = 1000, 40.0


@dataclass(frozen=True)
class SetStatus:
    """Of `n` labels, the share `covered` by sets that guarantee a `coverage`; an alarm stays."""

    coverage: float
    n: int
    covered: float
    alarm: Alarm | None


@storage.storable("set-monitor")
@dataclass(eq=False)
class CoverageMonitor:
    """A test of the coverage of prediction sets, which may be looked at after every label.

    `coverage` is what was guaranteed; `delta` the probability of ever raising a false alarm, as
    long as each set misses its class with probability at most 1 - coverage + `tolerance`, whatever
    came before. Labels may come late and in any order: only sets whose label is known count.
    `CalibrationMonitor(cal, coverage=0.9)` has one.

    >>> rng = np.random.default_rng(0)
    >>> monitor = CoverageMonitor(0.9)
    >>> monitor.update(rng.random(2000) < 0.9).alarm is None
    True
    >>> alarm = monitor.update(rng.random(2000) < 0.8).alarm
    >>> alarm is not None and 2000 < alarm.n < 2600
    True
    """

    coverage: float
    delta: float = 0.01
    tolerance: float = 0.01
    _covered: int = 0
    _test: EProcess = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        check_chance("delta", self.delta)
        if not 0.0 <= self.tolerance < 1.0:
            raise ValueError(f"`tolerance` must lie in [0, 1); got {self.tolerance!r}.")
        if self._test is None:  # sets that contain the class too often raise no alarm
            self._test = EProcess.start(np.array([[self.tolerance], [1.0]]), self.delta)

    @classmethod
    def of(
        cls, calibrator: Calibrator, coverage: float, delta: float = 0.01, tolerance: float = 0.01
    ) -> Self:
        """A monitor of `calibrator.predict_set(logits, coverage=coverage)`.

        Few certified examples may leave the true coverage below what was asked for, by the Beta
        distribution: what they cannot exclude with 95 % is tolerated, if that is more.
        """
        calibrator.predict_set(np.zeros((1, calibrator.n_classes_)), coverage=coverage)  # or raise
        known = calibrator.kept_.held_out_conformity or calibrator.kept_.fit_conformity
        assert known is not None
        n = max(1, int(known.counts.sum() / known.unit))
        low = plan(coverage=coverage, examples=(n,)).low[0]
        return cls(coverage, delta, max(tolerance, coverage - low))

    def update(self, covered: Any) -> Self:
        """Add whether sets contained the true class, (n,) bool, in the order of the labels."""
        given = np.atleast_1d(to_host(covered))
        if given.ndim != 1 or not np.isin(given, (0, 1)).all():
            raise ValueError("`covered` must be 1-D with True or False for each set.")
        hits = given.astype(np.bool_)
        if hits.size:
            self._test.add(np.full(hits.size, self.coverage), hits)
            self._covered += int(hits.sum())
        return self

    def update_sets(self, found: PredictionSets, labels: Any) -> Self:
        """Add sets and their true classes (n,); -1 or NaN where a label is not known yet."""
        members = to_host(found.members)
        truth = as_partial_labels(labels, *members.shape)
        rows = np.flatnonzero(truth >= 0)
        return self.update(members[rows, truth[rows]])

    @property
    def n(self) -> int:
        """Sets with a known label so far."""
        return self._test.n

    @property
    def alarm(self) -> Alarm | None:
        """When coverage was found to be too low; None as long as it is not."""
        return self._test.alarm

    def status(self) -> SetStatus:
        """What is known now."""
        share = self._covered / self.n if self.n else math.nan
        return SetStatus(self.coverage, self.n, share, self.alarm)

    def __str__(self) -> str:
        if not self.n:
            return f"no labels of sets yet; {self.coverage:.4g} was guaranteed"
        share = f"sets contain {self._covered / self.n:.1%} of {self.n:,} labels"
        if self.alarm is None:
            return f"{share}; {self.coverage:.4g} was guaranteed, no alarm"
        since = f"started no later than label {self.alarm.n:,}"
        return f"{share}; less than the guaranteed {self.coverage:.4g}, {since}"


class SavedStream:
    """What is known of a stream, with a lock of its own, in a file of its `kind`."""

    kind: ClassVar[str]

    def __init__(self, state: Any) -> None:
        self._state, self._lock = state, threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, stored: dict[str, Any]) -> None:
        vars(self).update(stored, _lock=threading.RLock())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file, atomically; `load` continues from it.

        Of the calibrator only a stamp is stored, to recognize it.
        """
        with self._lock:
            body = {"kind": self.kind, "library_version": VERSION, "state": self._state}
            storage.write_document(path, body)

    @classmethod
    def _read_state(cls, path: str | os.PathLike[str], expected: type[Any]) -> Any:
        """The state in a file that `save` wrote."""
        state = storage.read_document(path, _refuse_old_record, cls.kind).get("state")
        if not isinstance(state, expected):
            text = f"{path} does not hold a usable {cls.kind}. Make a new one."
            raise storage.CalibratorFileError(text)
        return state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self._state.n})"


def _refuse_old_record(name: str) -> None:
    """Say why a record of a monitor's file cannot be read; for `read_document`."""
    if name.startswith(("monitor-", "coverage-monitor")):
        raise ValueError(
            "monitors of hokical 0.3 counted otherwise and cannot be continued. Make a new monitor"
        )


@dataclass(frozen=True)
class OnlineStatus:
    """Of `n` labels the share `covered`, of the newest 1000 the `recent` share (NaN: none yet).

    `threshold` is the least probability of a class in the next set. `most_missed` bounds the share
    that is missed of these labels, whatever the stream is; `n_waiting` sets have no label yet.
    """

    coverage: float
    n: int
    covered: float
    recent: float
    threshold: float
    most_missed: float
    n_waiting: int

    def __str__(self) -> str:
        if not self.n:
            return f"no labels yet; the goal is {self.coverage:.4g}, {self.n_waiting:,} sets wait"
        return (
            f"{self.covered:.1%} of {self.n:,} labels covered, {self.recent:.1%} of the newest; "
            f"the goal is {self.coverage:.4g}, {self.n_waiting:,} sets wait"
        )


@storage.storable("online-sets")
@dataclass(eq=False)
class OnlineState:
    """Thresholds (3,) of the trackers as log-odds against a class, their weights, what waits.

    A waiting row has the log-odds (3 + classes,) of the trackers' thresholds and then against each
    class, and whether each class was in its set.
    """

    coverage: float
    max_waiting: int
    stamp: str
    thresholds: Annotated[FloatArray, ArrayOf((_STEPS.size,), -_FARTHEST, _FARTHEST)]
    weights: Annotated[FloatArray, ArrayOf((_STEPS.size,), 0.0, 1.0)]
    debt: Coefficient = 0.0
    n: int = 0
    n_missed: int = 0
    most_waiting: int = 0
    recent: list[bool] = field(default_factory=list)
    rows: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    labelled: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_chance("coverage", self.coverage)
        self.max_waiting = check_count(self.max_waiting, name="max_waiting")
        self.rows = {each: (row[0], row[1] != 0) for each, row in self.rows.items()}

    def to_stored(self) -> dict[str, Any]:
        rows = {
            k: [storage.pack_array(a), storage.pack_array(b.astype(np.int8))]
            for k, (a, b) in self.rows.items()
        }
        return vars(self) | {"rows": rows}

    @property
    def allowed(self) -> float:
        """The share of misses that is aimed at now: less, the more were missed before."""
        return (1.0 - self.coverage) * (1.0 - self.debt / _MOST_DEBT)

    @property
    def threshold(self) -> float:
        """The largest log-odds against a class of a set; inf where every class is needed."""
        return float(self.weights @ self.thresholds) if self.allowed > 0.0 else math.inf

    def add(self, odds: FloatArray, covered: bool, label: int) -> None:
        """Count a set's label: move every tracker, and weigh them by the loss of a quantile."""
        self.n, self.n_missed = self.n + 1, self.n_missed + (not covered)
        debt = self.debt + (not covered) - (1.0 - self.coverage)
        self.debt = max(debt, -_MOST_SAVED)
        self.recent = [*self.recent[1 - _RECENT :], covered]
        share = max(self.allowed, 0.0)
        own, score = odds[: _STEPS.size], float(odds[_STEPS.size + label])
        missed = score > own
        loss = np.where(missed, (1.0 - share) * (score - own), share * (own - score))
        weights = self.weights * np.exp(-_RATE * (loss - loss.min()))
        self.weights = (1.0 - _RENEWED) * weights / weights.sum() + _RENEWED / weights.size
        moved = self.thresholds + _STEPS * (missed - share)
        self.thresholds = np.clip(moved, -_FARTHEST, _FARTHEST)


class OnlineSets(SavedStream):
    """Prediction sets whose coverage is kept by feedback, whatever the stream does.

    The threshold starts where `certify` puts it and moves with every label that arrives, late and
    in any order: adaptive conformal inference with three step sizes, weighed by how well each did
    (Gibbs and Candes, 2021 and 2024). Where sets have missed more than they may, fewer misses are
    aimed at; 100 misses beyond that, sets hold every class. So of any n labels that came, at most
    (1 - coverage) n + 100 + w were missed, where w sets waited for a label at once at most: for
    any sequence of rows and labels, without a distribution. Nothing is said of sets whose label
    never comes, nor of a part of the stream. All methods may be called from several threads.

    Parameters
    ----------
    calibrator : fitted Calibrator, after `certify`
    coverage : float
        The share of sets that is to contain the true class, in the long run.
    max_waiting : int
        Sets that may wait for a label, with a number for each class; beyond it the oldest are
        dropped.

    Examples
    --------
    >>> from hokical import make
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (logits, labels) = demo_logits()
    >>> cal = make("temps").fit(val_logits[::2], val_labels[::2])
    >>> online = OnlineSets(cal.certify(val_logits[1::2], val_labels[1::2]), coverage=0.98)
    >>> for first in range(0, 10_000, 100):  # every day's rows; their labels come in the evening
    ...     rows = range(first, first + 100)
    ...     found = online.predict_set(logits[rows], ids=rows)
    ...     _ = online.add_labels(rows, labels[rows])
    >>> print(online.status())
    98.0% of 10,000 labels covered, 98.1% of the newest; the goal is 0.98, 0 sets wait
    """

    kind: ClassVar[str] = "OnlineSets"

    def __init__(
        self, calibrator: Calibrator, coverage: float = 0.9, *, max_waiting: int = 10_000
    ) -> None:
        if not isinstance(calibrator, Calibrator):
            raise TypeError(f"`calibrator` must be a fitted calibrator; got {calibrator!r}.")
        asked = calibrator._certified_sets(SetOptions(check_chance("coverage", coverage)))
        if asked.certified_on == "fit":
            raise ValueError(
                "`calibrator` must be certified: its sets after `fit` are by the classifier's own "
                "scores. Call `certify(logits, labels)` first, with examples that nothing was "
                "fitted on."
            )
        start = _against(np.minimum(-asked.thresholds.values, 1.0))[0]
        thresholds, weights = np.full(_STEPS.size, start), np.full(_STEPS.size, 1.0 / _STEPS.size)
        stamp, self.calibrator = calibrator._stamp(), calibrator
        super().__init__(OnlineState(float(coverage), max_waiting, stamp, thresholds, weights))

    def predict_set(self, logits: Any, *, ids: Any, groups: Any = None) -> PredictionSets:
        """Sets for logits (n, classes), which wait for their labels under the `ids` (n,).

        All rows of a call get the same threshold; the likeliest class is in every set.
        """
        proba = to_host(self.calibrator.predict_proba(logits, groups=groups)).astype(np.float64)
        keys, odds = as_ids(ids, len(proba)), _against(proba)
        with self._lock:
            state = self._state
            check_new_ids(keys, state.rows, state.labelled)
            members = odds <= state.threshold
            members[np.arange(len(proba)), proba.argmax(axis=1)] = True
            for key, own, inside in zip(keys, odds, members, strict=True):
                state.rows[key] = np.append(state.thresholds, own), inside
            drop_oldest(state.rows, len(state.rows) - state.max_waiting)
            state.most_waiting = max(state.most_waiting, len(state.rows))
            least, words = self.status().threshold, self._guarantee()
        inside, sizes = (to_input_library(a, logits) for a in (members, members.sum(axis=1)))
        names, least_of = self.calibrator.class_names or None, np.array([least])
        options = SetOptions(state.coverage)
        return PredictionSets(inside, sizes, options, "held-out", words, least_of, classes=names)

    def add_labels(self, ids: Any, labels: Any) -> Self:
        """Add true classes (n,) of sets that wait under these `ids` (n,), in order of arrival.

        An id that is unknown, labelled already or given twice is refused, and then none counts.
        """
        keys, known = as_ids(ids), self.calibrator
        truth = as_labels(labels, len(keys), known.n_classes_, classes=known.class_names)
        with self._lock:
            state = self._state
            check_waiting_ids(keys, state.rows, state.labelled, state.max_waiting)
            for key, label in zip(keys, truth.tolist(), strict=True):
                odds, inside = state.rows.pop(key)
                state.add(odds, bool(inside[label]), label)
            state.labelled.update(dict.fromkeys(keys))
            drop_oldest(state.labelled, len(state.labelled) - state.max_waiting)
        return self

    def status(self) -> OnlineStatus:
        """What is known now."""
        with self._lock:
            state = self._state
            n = state.n or math.nan
            beyond = _MOST_DEBT + state.most_waiting
            return OnlineStatus(
                state.coverage,
                state.n,
                1.0 - state.n_missed / n,
                float(np.mean(state.recent)) if state.recent else math.nan,
                1.0 / (1.0 + math.exp(min(state.threshold, 700.0))),
                min(1.0, 1.0 - state.coverage + beyond / n) if state.n else 1.0,
                len(state.rows),
            )

    def _guarantee(self) -> str:
        beyond = int(_MOST_DEBT) + self._state.most_waiting
        return (
            f"In the long run at least {self._state.coverage:.4g} of the sets whose label arrives "
            "contain it, whatever the stream is: at most "
            f"{1.0 - self._state.coverage:.4g} n + {beyond:,} of any n are missed."
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], calibrator: Calibrator) -> Self:
        """Sets as `save` left them; pass the calibrator that they were made with."""
        state = cls._read_state(path, OnlineState)
        if state.stamp != calibrator._stamp():
            raise ValueError(
                "`calibrator` must be the one that these sets were made with. Pass that one, or "
                "make new ones."
            )
        found = cls.__new__(cls)
        found.calibrator = calibrator
        SavedStream.__init__(found, state)
        return found


def _against(proba: FloatArray) -> FloatArray:
    """The log-odds (...) against classes of these probabilities."""
    return np.clip(-confidence_log_odds(proba), -_FARTHEST, _FARTHEST)
