"""The result of `predict_or_abstain`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.core.types import FloatArray, IntArray
from hokical.guarantees.risk import Evidence, Threshold, fewest_examples
from hokical.guarantees.scores import level_log_odds


@dataclass(frozen=True, eq=False)
class SelectivePrediction:
    """Labels, and which of them to give as answers.

    `labels`, `confidence` and `accepted` (n,) are of all examples, accepted or not; see
    `labels_or`. `threshold_log_odds` is the smallest accepted score, inf if nothing is accepted,
    and `coverage` the fraction that it accepts of the examples behind the guarantee: those of the
    "fit" (the score is the classifier's own softmax) or "held-out" ones (it is the calibrated
    confidence), as `certified_on` says. `guarantee` is the promise in words, or why nothing could
    be accepted.
    """

    labels: IntArray
    confidence: FloatArray
    accepted: NDArray[np.bool_]
    risk: float
    delta: float
    threshold_log_odds: float
    coverage: float
    certified_on: Evidence
    guarantee: str

    @property
    def threshold(self) -> float:
        """The threshold as a probability: of the softmax, or of the calibrated confidence."""
        return float(1.0 / (1.0 + np.exp(-self.threshold_log_odds)))

    def mapped(self, change: Callable[[Any], Any]) -> SelectivePrediction:
        """The same with `labels`, `confidence` and `accepted` converted, as to another library."""
        names = ("labels", "confidence", "accepted")
        return replace(self, **{name: change(getattr(self, name)) for name in names})

    def labels_or(self, abstained: int = -1) -> IntArray:
        """The labels (n,), with `abstained` where they are not accepted."""
        # Not np.where: these may be tensors.
        return self.labels * self.accepted + abstained * ~self.accepted

    def __str__(self) -> str:
        kept = int(self.accepted.sum())
        return f"{kept:,} of {math.prod(self.accepted.shape):,} accepted. {self.guarantee}"


def selective_prediction(
    labels: IntArray,
    confidence: FloatArray,
    levels: IntArray,
    chosen: Threshold,
    *,
    risk: float,
    delta: float,
    certified_on: Evidence,
    n_starts: int,
) -> SelectivePrediction:
    """Apply a threshold to the levels (n,) of new examples, and state its guarantee."""
    place = "the examples of the fit" if certified_on == "fit" else "the held-out examples"
    if chosen.level is None:
        accepted, threshold = np.zeros(levels.size, np.bool_), np.inf
        words = _why_nothing(chosen, place, risk, delta, n_starts)
    else:
        accepted, threshold = levels >= chosen.level, level_log_odds(chosen.level)
        words = _promise(chosen, place, risk, delta)
    return SelectivePrediction(
        labels=labels,
        confidence=confidence,
        accepted=accepted,
        risk=risk,
        delta=delta,
        threshold_log_odds=threshold,
        coverage=chosen.accepted / chosen.total,
        certified_on=certified_on,
        guarantee=words,
    )


def _promise(chosen: Threshold, place: str, risk: float, delta: float) -> str:
    return (
        f"With confidence {1.0 - delta:.4g}, at most {risk:.4g} of the accepted labels are wrong: "
        f"of {place} the same rule accepts {chosen.accepted:,} of {chosen.total:,}, and "
        f"{chosen.wrong:,} of those are wrong."
    )


def _why_nothing(chosen: Threshold, place: str, risk: float, delta: float, n_starts: int) -> str:
    needed = fewest_examples(risk, delta, n_starts)
    if chosen.total < needed:
        return (
            f"Nothing is accepted: to prove a risk of {risk:.4g} with confidence {1.0 - delta:.4g} "
            f"takes at least {needed:,} examples, even without a mistake; {place} are "
            f"{chosen.total:,}. Allow a larger `risk` or `delta`, or use more examples."
        )
    return (
        f"Nothing is accepted: {place} ({chosen.total:,}) do not prove for any threshold that the "
        f"error rate is at most {risk:.4g} with confidence {1.0 - delta:.4g}. Allow a larger "
        "`risk` or `delta`, or use more examples."
    )
