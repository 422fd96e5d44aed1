"""The status of a monitor: numbers, both drift tests, and a verdict."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from hokical.guarantees.bounds import calibration_bound
from hokical.metrics.binned_sums import BinnedSums
from hokical.metrics.summaries import Estimate
from hokical.monitoring.classes import ClassStatus
from hokical.monitoring.drift import Alarm
from hokical.monitoring.inputs import InputDrift
from hokical.monitoring.verdict import Verdict


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
        ECE of the window. The interval misses the true binned calibration error with probability
        at most `interval_delta`, at any number of examples (Bousquet's inequality; see
        `docs/bounds.md`), if the window's examples are i.i.d. It is valid for one look.
    ece_since_start : float
    calibration : CalibrationDrift
    inputs : InputDrift or None, if there is no reference, or too few predictions
    n_unlike : int or None
        Predictions of the window that are unlike any example of the fit (see `predict_support`), of
        `n_seen`; None if unknown.
    classes : tuple of ClassStatus, alarms first, then by evidence; at most 20
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
    n_seen: int
    n_unlike: int | None
    classes: tuple[ClassStatus, ...]
    verdict: Verdict

    @property
    def alarmed(self) -> bool:
        """Whether an alarm was raised, about all confidence or about a class."""
        alarms = [self.calibration.alarm, *(each.alarm for each in self.classes)]
        return any(alarm is not None for alarm in alarms)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts; None for what is unknown or not finite."""
        return dict(_finite_or_none(asdict(self)))

    def __str__(self) -> str:
        return f"{self.model}: {self.verdict}"


def window_numbers(sums: BinnedSums | None, delta: float) -> dict[str, Any]:
    """The fields of a status that come from the window's sums."""
    if sums is None:
        unknown = dict.fromkeys(("accuracy", "mean_confidence", "brier"), math.nan)
        return unknown | {"n_window": 0, "ece": Estimate(math.nan, 0.0, 1.0)}
    return {
        "n_window": int(sums.count.sum()),
        "accuracy": sums.overall_accuracy,
        "mean_confidence": sums.overall_confidence,
        "brier": sums.brier(),
        "ece": ece_interval(sums, delta),
    }


def ece_interval(sums: BinnedSums, delta: float) -> Estimate:
    """ECE, and an interval that misses the true binned error with probability `delta`.

    The bound is one on the *distance* between measured and true error, so it works on both sides.
    """
    value, n = min(sums.ece(), 1.0), int(sums.count.sum())
    brier = min(sums.brier(), 1.0)
    excess = calibration_bound(0.0, n, sums.n_bins, delta, method="bousquet", brier=brier)
    return Estimate(value, max(0.0, value - excess), min(1.0, value + excess))


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite_or_none(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
