"""The status of a monitor: numbers, both drift tests, and a verdict in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from hokical._core.bins import bin_edges
from hokical._core.storage import json_values
from hokical.guarantees._bounds import calibration_bound
from hokical.metrics._binned_sums import BinnedSums
from hokical.metrics._summaries import Estimate
from hokical.monitoring._class_watch import ClassStatus
from hokical.monitoring._coverage import SetStatus
from hokical.monitoring._drift import DIRECTIONS, Alarm, Direction
from hokical.monitoring._expected import Expected
from hokical.monitoring._reference import InputDrift
from hokical.monitoring._state import MonitorState

Kind = Literal[
    "too few labels", "calibrated", "inputs shifted", "suspect", "as at fit time",
    "over-confident", "under-confident", "holds again", "a class is off",
    "a group is off",
]  # fmt: skip
#: By how many standard errors the window's gap must exceed the tolerance to be mentioned.
_ERRORS = 3.0


@dataclass(frozen=True)
class Verdict:
    """`kind` for programs, `text` for people."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class CalibrationDrift:
    """Evidence that confidence is off by more than is allowed.

    An alarm is raised when `e_value` reaches `threshold` = 1/delta. As long as nothing is wrong,
    the probability that this ever happens is at most delta.
    """

    log_e: float
    threshold: float
    alarm: Alarm | None

    @property
    def e_value(self) -> float:
        """The factor by which the bet against calibration has grown, 1e307 at most; see `log_e`."""
        return math.exp(min(self.log_e, 307.0 * math.log(10.0)))


@dataclass(frozen=True)
class Status:
    """The status of a monitor; NaN for what is not known yet.

    `n`, `n_window` and `n_observed` count labelled examples so far and in the window, and all
    predictions; `window` is in words, `time` the newest timestamp in seconds since 1970.
    `accuracy`, `mean_confidence`, `brier` and `ece` are of the window. The interval of the ECE
    misses the true binned calibration error with probability at most `interval_delta`, at any
    number of examples (Bousquet's inequality; see `docs/bounds.md`), if the window's examples are
    i.i.d.; it is valid for one look. `inputs` is None if there is no reference, or too few
    predictions. Of `n_seen` predictions `n_unlike` are unlike any example of the fit (see
    `predict_support`), None if unknown. `classes` are at most 20, alarms first, then by evidence.
    `sets` are watched if a `coverage` was given; of `groups`, too, at most 20 are shown.
    `expected` are accuracy and class balance without labels, None if unknown.
    """

    model: str
    n: int
    n_window: int
    n_observed: int
    replicas: int
    window: str
    time: float | None
    accuracy: float
    mean_confidence: float
    brier: float
    ece: Estimate
    ece_since_start: float
    calibration: CalibrationDrift
    inputs: InputDrift | None
    n_seen: int
    n_unlike: int | None
    classes: tuple[ClassStatus, ...]
    verdict: Verdict
    sets: SetStatus | None = None
    groups: tuple[ClassStatus, ...] = ()
    expected: Expected | None = None

    @property
    def alarmed(self) -> bool:
        """Whether an alarm was raised, about all confidence, a class, a group or sets."""
        parts: list[Any] = [
            self.calibration,
            *self.classes,
            *self.groups,
            *([] if self.sets is None else [self.sets]),
        ]
        return any(part.alarm is not None for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts; None for what is unknown or not finite."""
        return dict(json_values(asdict(self)))

    def __str__(self) -> str:
        return f"{self.model}: {self.verdict}"


def window_numbers(sums: BinnedSums | None, delta: float) -> dict[str, Any]:
    """The fields of a status that come from the window's sums; `delta` is the interval's."""
    if sums is None:
        unknown = dict.fromkeys(("accuracy", "mean_confidence", "brier"), math.nan)
        return unknown | {"n_window": 0, "ece": Estimate(math.nan, 0.0, 1.0)}
    n, value, brier = int(sums.count.sum()), min(sums.ece(), 1.0), sums.brier()
    # The bound is one on the distance between measured and true error: it works on both sides.
    bound = calibration_bound(0.0, n, sums.n_bins, delta, method="bousquet", brier=min(brier, 1.0))
    return {
        "n_window": n,
        "accuracy": sums.overall_accuracy,
        "mean_confidence": sums.overall_confidence,
        "brier": brier,
        "ece": Estimate(value, max(0.0, value - bound), min(1.0, value + bound)),
    }


def verdict(
    state: MonitorState,
    window: BinnedSums | None,
    inputs: InputDrift | None,
    classes: tuple[ClassStatus, ...],
    groups: tuple[ClassStatus, ...],
) -> Verdict:
    """The verdict on a stream, from the sums of its window and all tests."""
    found = _overall_verdict(state, window, inputs)
    found = _verdict_on_parts(found, state, groups, "a group is off", "rows of")
    found = _verdict_on_parts(found, state, classes, "a class is off", "rows labelled")
    sets = state.sets
    return found if sets is None or sets.alarm is None else replace(found, text=f"{found}; {sets}")


def _verdict_on_parts(
    whole: Verdict, state: MonitorState, parts: tuple[ClassStatus, ...], kind: Kind, rows: str
) -> Verdict:
    """The verdict with what is to say of classes, or of groups, whose `rows` are named."""
    alarms = [each for each in parts if each.alarm is not None]
    if not alarms:
        return whole
    tolerance = state.options.class_tolerance
    off = [each for each in alarms if each.n and abs(each.says - each.right) > tolerance]
    if not off:
        was = kind.replace("is", "was")
        return Verdict(whole.kind, f"{whole.text}; {was}, not so in the window")
    text = f"{rows} {off[0].name} say {off[0].says:.0%}, are right {off[0].right:.0%}"
    text += f" ({len(off) - 1} more off)" if len(off) > 1 else ""
    if whole.kind in ("over-confident", "under-confident", "a group is off"):
        return Verdict(whole.kind, f"{whole.text}; {text}")
    return Verdict(kind, f"{text}; overall {whole.text}")


def _overall_verdict(
    state: MonitorState, window: BinnedSums | None, inputs: InputDrift | None
) -> Verdict:
    """The verdict on all classes together."""
    shifted, alarm = inputs is not None and inputs.shifted, state.alarm()
    if alarm is not None:
        return _alarm_verdict(state, alarm, shifted)
    n = state.n
    if state.options.window.timed:  # a quiet hour says nothing
        n = 0 if window is None else int(window.count.sum())
    if n < state.options.min_labels or window is None:
        text = "too few labels yet"
        if shifted:
            text = f"inputs have shifted; {text} to say whether confidence still holds"
        needed = f"({n:,}; at least {state.options.min_labels:,} needed)"
        return Verdict("too few labels", f"{text} {needed}")
    return _calm_verdict(state, window, shifted)


def _calm_verdict(state: MonitorState, window: BinnedSums, shifted: bool) -> Verdict:
    """Without an alarm."""
    says, right = _shares(window, None)
    gap, side = abs(says - right), 0 if says > right else 1
    off = f"{_describe(DIRECTIONS[side])} by about {_points(gap)}"
    also = "; inputs have shifted" if shifted else ""
    sure = gap - _ERRORS * math.sqrt(window.brier() / window.total_weight)
    if sure > state.evidence.allowance[side, 0]:
        return Verdict("suspect", f"perhaps {off}; not enough evidence for an alarm yet{also}")
    if sure > state.options.tolerance:
        return Verdict("as at fit time", f"{off}, much as at fit time{also}")
    if shifted:
        return Verdict("inputs shifted", "inputs have shifted but confidence still holds")
    return Verdict("calibrated", f"calibrated: says {says:.1%}, right {right:.1%}")


def _alarm_verdict(state: MonitorState, alarm: Alarm, shifted: bool) -> Verdict:
    kind = _describe(alarm.direction)
    where = _where_and_since(alarm, state.options.n_bins)
    also = "; inputs have shifted too" if shifted else ""
    sums = state.sums_since(alarm)
    says, right = (math.nan, math.nan) if sums is None else _shares(sums, alarm.bin)
    if math.isnan(says):
        return Verdict(kind, f"{kind}{where}; no labels for it lately{also}")
    excess = says - right if alarm.direction == "over" else right - says
    if excess <= state.evidence.allowance[alarm.group]:
        past = f"was {kind}{where}; confidence holds again in the window{also}"
        return Verdict("holds again", past)
    return Verdict(kind, f"{kind} by about {_points(excess)}{where}{also}")


def _describe(direction: Direction) -> Literal["over-confident", "under-confident"]:
    return "over-confident" if direction == "over" else "under-confident"


def _points(share: float) -> str:
    """Percentage points, with a decimal if they are few."""
    points = 100.0 * share
    number = f"{points:.0f}" if points >= 1.95 else f"{points:.1f}"
    return f"{number} point" if number in ("1", "1.0") else f"{number} points"


def _where_and_since(alarm: Alarm, n_bins: int) -> str:
    """The bin, and the last moment at which the change can have come."""
    text = ""
    if alarm.bin is not None:
        low, high = bin_edges(n_bins)[alarm.bin : alarm.bin + 2]
        text = f" where it says {low:.0%} to {high:.0%}"
    if alarm.time is not None:
        when = f"{datetime.fromtimestamp(alarm.time, UTC):%Y-%m-%d %H:%M} UTC"
        return f"{text} since {when} or before"
    return text if alarm.n is None else f"{text} since label {alarm.n:,} or before"


def _shares(sums: BinnedSums, bin_: int | None) -> tuple[float, float]:
    """Mean confidence and accuracy, of a bin or of all; NaN where there are no examples."""
    rows = slice(None) if bin_ is None else slice(bin_, bin_ + 1)
    weight = float(sums.weight[rows].sum()) or math.nan
    right = float(sums.correct[rows].sum()) / weight
    return right - float(sums.gap[rows].sum()) / weight, right
