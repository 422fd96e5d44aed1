"""What a monitor has to say at a moment: numbers, both drift tests, and a verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from hokical.bounds import calibration_bound
from hokical.metrics.binned import BinnedSums
from hokical.metrics.exact import total
from hokical.metrics.summaries import Estimate
from hokical.monitoring.drift import Alarm
from hokical.monitoring.inputs import InputDrift
from hokical.monitoring.verdict import Verdict


@dataclass(frozen=True)
class CalibrationDrift:
    """Evidence that confidence is off by more than is allowed.

    An alarm is raised when `e_value` reaches `threshold` = 1/alpha; as long as nothing is wrong
    that happens, at any time at all, with a chance of at most alpha.
    """

    log_e: float
    threshold: float
    alarm: Alarm | None

    @property
    def e_value(self) -> float:
        """How many times over the bet against calibration has paid, inf beyond all numbers."""
        return math.exp(self.log_e) if self.log_e < 709.0 else math.inf


@dataclass(frozen=True)
class Status:
    """The state of a monitor; NaN stands for what is not known yet.

    Attributes
    ----------
    model : str
    n, n_window, n_observed : int
        Labelled examples so far and in the window; predictions seen so far, labelled or not.
    replicas : int
    window : str, in words
    time : float or None, the newest timestamp, in seconds since 1970
    accuracy, mean_confidence, brier : float, of the window
    ece : Estimate
        ECE of the window. The interval holds the true binned calibration error with the chance
        that was asked for, at any number of examples (Bousquet's inequality; see `docs/bounds.md`),
        if the window's examples are alike and independent. It is meant for one look.
    ece_since_start : float
    calibration : CalibrationDrift
    inputs : InputDrift or None, where there is no reference, or too few predictions
    verdict : Verdict
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
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts; None for what is not known or not finite."""
        return dict(_plain(asdict(self)))

    def __str__(self) -> str:
        return f"{self.model}: {self.verdict}"


def window_numbers(sums: BinnedSums | None, level: float) -> dict[str, Any]:
    """The part of a status that comes from the window's sums."""
    if sums is None:
        names = ("accuracy", "mean_confidence", "brier")
        unknown = dict.fromkeys(names, math.nan)
        return unknown | {"n_window": 0, "ece": Estimate(math.nan, 0.0, 1.0)}
    n = int(sums.count.sum())
    return {
        "n_window": n,
        "accuracy": float(sums.correct.sum()) / n,
        "mean_confidence": float(total(sums.confidence_words.sum(axis=1))) / n,
        "brier": sums.brier(),
        "ece": ece_interval(sums, level),
    }


def ece_interval(sums: BinnedSums, level: float) -> Estimate:
    """ECE of examples, and an interval that holds the true binned error with chance `level`.

    The bound's excess is one on the *distance* between measured and true error, so that it may be
    taken off below as well as added above.
    """
    value, n = min(sums.ece(), 1.0), int(sums.count.sum())
    brier = min(sums.brier(), 1.0)
    excess = calibration_bound(0.0, n, sums.n_bins, 1.0 - level, method="bousquet", brier=brier)
    return Estimate(value, max(0.0, value - excess), min(1.0, value + excess))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
