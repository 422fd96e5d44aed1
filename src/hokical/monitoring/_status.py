"""The status of a monitor: numbers, tests, and a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from hokical._core.bins import bin_edges, bin_index
from hokical._core.storage import json_values
from hokical.guarantees._bounds import calibration_bound
from hokical.metrics._summaries import Estimate
from hokical.monitoring._coverage import SetStatus
from hokical.monitoring._e_process import DIRECTIONS, Alarm, Direction, PartStatus
from hokical.monitoring._state import InputShift, MonitorState, input_shift

Kind = Literal[
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

    kind: Kind
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
        return dict(json_values(asdict(self)))

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
    whole: Verdict, tolerance: float, parts: tuple[PartStatus, ...], kind: Kind, noun: str
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
    where += f" since label {alarm.n:,} or before"
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
