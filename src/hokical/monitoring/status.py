"""What a monitor says of its stream: numbers, tests and a verdict in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from hokical._core import checks, storage
from hokical.metrics.summaries import Estimate
from hokical.monitoring.e_process import DIRECTIONS, Alarm, SetStatus
from hokical.monitoring.state import InputShift, MonitorState, PartStatus

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
_MENTIONED_ERRORS = 3.0


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
        alarms = [
            self.calibration.alarm,
            *(subset.alarm for subset in (*self.classes, *self.groups)),
            None if self.sets is None else self.sets.alarm,
        ]
        return any(alarm is not None for alarm in alarms)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts; None for what is unknown or not finite."""
        return dict(storage.json_values(asdict(self)))

    def __str__(self) -> str:
        return str(self.verdict)


def judge_stream(
    state: MonitorState, shifted: bool, classes: Parts, groups: Parts
) -> Verdict:
    """The verdict on a stream, from its window and all tests: of all rows, then of
    classes and groups.
    """
    verdict = _judge_all_rows(state, shifted)
    tolerance = state.options.class_tolerance
    verdict = _add_parts(verdict, groups, "group miscalibrated", "group", tolerance)
    verdict = _add_parts(
        verdict, classes, "class miscalibrated", "predicted class", tolerance
    )
    if state.sets is not None and state.sets.alarm is not None:
        return replace(verdict, text=f"{verdict}; {state.sets}")
    return verdict


def _add_parts(
    verdict: Verdict, parts: Parts, kind: VerdictKind, noun: str, tolerance: float
) -> Verdict:
    """The verdict, and classes or groups that are miscalibrated."""
    alarmed = [subset for subset in parts if subset.alarm is not None]
    # NaN without rows in the window: not off there.
    off = [
        subset
        for subset in alarmed
        if abs(subset.mean_confidence - subset.accuracy) > tolerance
    ]
    if not alarmed:
        return verdict
    if not off:
        text = f"{verdict}; a {noun} was miscalibrated, not in the window"
        return replace(verdict, text=text)
    worst = off[0]
    more = f" (and {len(off) - 1} more)" if len(off) > 1 else ""
    shares = f"confidence {worst.mean_confidence:.0%}, accuracy {worst.accuracy:.0%}"
    text = f"{noun} {worst.name}: {shares}{more}"
    if verdict.kind in ("over-confident", "under-confident", "group miscalibrated"):
        return replace(verdict, text=f"{verdict}; {text}")
    return Verdict(kind, f"{text}; overall {verdict}")


def _judge_all_rows(state: MonitorState, shifted: bool) -> Verdict:
    """The verdict on all rows together."""
    if state.test.alarm is not None:
        return _judge_alarm(state, state.test.alarm, shifted)
    n = state.n
    min_labels = state.options.min_labels
    if n < min_labels:
        text = "too few labels yet"
        if shifted:
            text = f"inputs have shifted; {text} to judge calibration"
        return Verdict(
            "too few labels", f"{text} ({n:,}; at least {min_labels:,} needed)"
        )
    confidence, accuracy = state.window.shares()
    gap = abs(confidence - accuracy)
    side = 0 if confidence > accuracy else 1
    finding = f"{DIRECTIONS[side]}-confident by about {_points(gap)}"
    inputs = "; inputs have shifted" if shifted else ""
    error = math.sqrt(state.window.brier / len(state.window))
    min_gap = gap - _MENTIONED_ERRORS * error
    if min_gap > state.test.allowance[side, 0]:
        return Verdict(
            "suspect",
            f"perhaps {finding}; not enough evidence for an alarm yet{inputs}",
        )
    if min_gap > state.options.tolerance:
        return Verdict("as at fit time", f"{finding}, much as at fit time{inputs}")
    if shifted:
        return Verdict(
            "inputs shifted", "inputs have shifted but confidence is still calibrated"
        )
    return Verdict(
        "calibrated",
        f"calibrated: confidence {confidence:.1%}, accuracy {accuracy:.1%}",
    )


def _judge_alarm(state: MonitorState, alarm: Alarm, shifted: bool) -> Verdict:
    """The verdict after an alarm, by the rows of the window since the change."""
    kind: VerdictKind = (
        "over-confident" if alarm.direction == "over" else "under-confident"
    )
    n_bins = state.options.n_bins
    start = ""
    if alarm.bin is not None:
        low, high = checks.bin_edges(n_bins)[alarm.bin : alarm.bin + 2]
        start = f" at confidences of {low:.0%} to {high:.0%}"
    start += f", started no later than label {alarm.n:,}"
    inputs = "; inputs have shifted too" if shifted else ""
    recent = state.window.take(slice(-(state.n - alarm.since + 1), None))
    confidence, accuracy = recent.shares(alarm.bin, n_bins)
    if math.isnan(confidence):
        return Verdict(kind, f"{kind}{start}; no labels there lately{inputs}")
    side = DIRECTIONS.index(alarm.direction)
    column = 0 if alarm.bin is None else 1 + alarm.bin
    excess = (accuracy - confidence) if side else (confidence - accuracy)
    if excess <= state.test.allowance[side, column]:
        text = f"was {kind}{start}; calibrated again in the window{inputs}"
        return Verdict("calibrated again", text)
    return Verdict(kind, f"{kind} by about {_points(excess)}{start}{inputs}")


def _points(share: float) -> str:
    """Percentage points, with a decimal if they are few."""
    points = 100.0 * share
    number = f"{points:.0f}" if points >= 1.95 else f"{points:.1f}"
    return f"{number} point" if number in ("1", "1.0") else f"{number} points"
