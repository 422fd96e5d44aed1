"""The verdict in words: what a person on call should read first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hokical.bins import bin_edges
from hokical.metrics.binned import BinnedSums
from hokical.monitoring.drift import DIRECTIONS, Alarm, Direction
from hokical.monitoring.inputs import InputDrift

Kind = Literal[
    "too few labels",
    "calibrated",
    "inputs shifted",
    "suspect",
    "as at fit time",
    "over-confident",
    "under-confident",
    "holds again",
]

#: By how many standard errors the window's gap must lie beyond the tolerance to be spoken of.
_ERRORS = 3.0


@dataclass(frozen=True)
class Verdict:
    """`kind` for programs, `text` for people."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Facts:
    """What a verdict is about.

    Attributes
    ----------
    n, least : int
        Labelled examples (in a window of time: those in it), and how many a verdict needs.
    window : BinnedSums or None
        Labelled examples in the window.
    inputs : InputDrift or None
    allowance : (2, 1 + J) float64
        By how much confidence may be too high and too low, overall and in each bin.
    tolerance : float
        The least of these; what is more was so at fit time.
    alarm : Alarm or None
    recent : BinnedSums or None
        The window's examples since the change that the alarm speaks of.
    """

    n: int
    least: int
    window: BinnedSums | None
    inputs: InputDrift | None
    allowance: NDArray[np.float64]
    tolerance: float
    alarm: Alarm | None
    recent: BinnedSums | None


def verdict(facts: Facts) -> Verdict:
    """What the numbers come to."""
    shifted = facts.inputs is not None and facts.inputs.shifted
    if facts.alarm is not None:
        return _alarmed(facts, facts.alarm, shifted)
    if facts.n < facts.least or facts.window is None:
        return _too_few(facts.n, facts.least, shifted)
    return _without_alarm(facts, facts.window, shifted)


def _without_alarm(facts: Facts, window: BinnedSums, shifted: bool) -> Verdict:
    says, right = _shares(window, None)
    gap, side = abs(says - right), 0 if says > right else 1
    off = f"{_names(DIRECTIONS[side])} by about {_points(gap)}"
    also = "; inputs have shifted" if shifted else ""
    sure = gap - _ERRORS * math.sqrt(window.brier() / window.total_weight)
    if sure > facts.allowance[side, 0]:
        return Verdict("suspect", f"perhaps {off}; not enough evidence for an alarm yet{also}")
    if sure > facts.tolerance:
        return Verdict("as at fit time", f"{off}, much as at fit time{also}")
    if shifted:
        return Verdict("inputs shifted", "inputs have shifted but confidence still holds")
    return Verdict("calibrated", f"calibrated: says {says:.1%}, right {right:.1%}")


def _too_few(n: int, least: int, shifted: bool) -> Verdict:
    count = f"({n:,}; at least {least:,} needed)"
    if not shifted:
        return Verdict("too few labels", f"too few labels yet {count}")
    text = f"inputs have shifted; too few labels yet to say whether confidence still holds {count}"
    return Verdict("too few labels", text)


def _alarmed(facts: Facts, alarm: Alarm, shifted: bool) -> Verdict:
    kind = _names(alarm.direction)
    where = _where(alarm, facts.allowance.shape[1] - 1) + _since(alarm)
    also = "; inputs have shifted too" if shifted else ""
    sums = facts.window if facts.recent is None else facts.recent
    if sums is None or not _weight(sums, alarm.bin):
        return Verdict(kind, f"{kind}{where}; no labels for it lately{also}")
    says, right = _shares(sums, alarm.bin)
    side, group = DIRECTIONS.index(alarm.direction), 0 if alarm.bin is None else 1 + alarm.bin
    excess = says - right if alarm.direction == "over" else right - says
    if excess <= facts.allowance[side, group]:
        past = f"was {kind}{where}; confidence holds again in the window{also}"
        return Verdict("holds again", past)
    return Verdict(kind, f"{kind} by about {_points(excess)}{where}{also}")


def _names(direction: Direction) -> Literal["over-confident", "under-confident"]:
    return "over-confident" if direction == "over" else "under-confident"


def _points(share: float) -> str:
    """Percentage points, whole where that says enough."""
    points = 100.0 * share
    number = f"{points:.0f}" if points >= 1.95 else f"{points:.1f}"
    return f"{number} point" if number in ("1", "1.0") else f"{number} points"


def _since(alarm: Alarm) -> str:
    if alarm.since_time is not None:
        return f" since {datetime.fromtimestamp(alarm.since_time, UTC):%Y-%m-%d %H:%M} UTC"
    return "" if alarm.since is None else f" since label {alarm.since + 1:,}"


def _where(alarm: Alarm, n_bins: int) -> str:
    if alarm.bin is None:
        return ""
    low, high = bin_edges(n_bins)[alarm.bin : alarm.bin + 2]
    return f" where it says {low:.0%} to {high:.0%}"


def _shares(sums: BinnedSums, bin_: int | None) -> tuple[float, float]:
    """Mean confidence and accuracy, of a bin or of all."""
    rows = slice(None) if bin_ is None else slice(bin_, bin_ + 1)
    right = float(sums.correct[rows].sum()) / _weight(sums, bin_)
    gap = float(sums.gap[rows].sum()) / _weight(sums, bin_)
    return right - gap, right


def _weight(sums: BinnedSums, bin_: int | None) -> float:
    return float(np.sum(sums.weight if bin_ is None else sums.weight[bin_]))
