"""When to answer: the lowest threshold whose error rate is proven, and what it accepts.

Thresholds are tested exactly, in an order fixed in advance; `docs/guarantees.md` has the proof, and
the simulations behind the choice of this procedure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np

from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._binomial import binomial_tail
from hokical.guarantees._score_table import ScoreTable
from hokical.guarantees._scores import LEVELS, level_log_odds, score_levels

#: The examples behind a guarantee: those of `fit`, or those passed to `certify`.
Evidence = Literal["fit", "held-out"]

#: Temperatures by which a classifier's own log-odds may be miscalibrated.
_TEMPERATURES = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
#: Fractions of the allowed risk; a calibrated confidence is its own probability of error.
_SHARES = np.array([0.125, 0.25, 0.5, 1.0])


@dataclass(frozen=True)
class Threshold:
    """Accept from `level` up (None: nothing); how many of `total` examples that accepts."""

    level: int | None
    accepted: int
    wrong: int
    total: int


def choose_threshold(table: ScoreTable, risk: float, delta: float, starts: IntArray) -> Threshold:
    """Test the levels from the highest down and take the lowest one that passes.

    "The error rate above this level exceeds `risk`" is tested at every level. `delta` is divided
    equally among the `starts`; a level may use the share of its start, plus what the level above it
    used if that passed (the fallback procedure). With probability 1 - delta no level passes whose
    error rate exceeds `risk`, so any that passed may be used.
    """
    accepted, wrong = (np.cumsum(part[::-1])[::-1] for part in (table.count, table.wrong))
    p_values = binomial_tail(wrong, accepted, risk)
    budget = np.bincount(starts, minlength=LEVELS) * (delta / starts.size)
    lowest: int | None = None
    carried = 0.0
    for level in range(LEVELS - 1, -1, -1):
        allowed = carried + budget[level]
        passed = allowed > 0.0 and p_values[level] <= allowed
        carried = allowed if passed else 0.0
        lowest = level if passed else lowest
    if lowest is None:
        return Threshold(None, 0, 0, table.total)
    return Threshold(lowest, int(accepted[lowest]), int(wrong[lowest]), table.total)


def starting_levels(risk: float, source: Evidence) -> IntArray:
    """Where testing may start: near the log-odds of 1 - risk.

    They depend on the risk alone. A calibrated confidence should be close to its true value; the
    classifier's own softmax may be off by a temperature.
    """
    if source == "held-out":
        return score_levels(np.log1p(-risk * _SHARES) - np.log(risk * _SHARES))
    smoothed = min(risk, 0.5)
    return score_levels(_TEMPERATURES * math.log((1.0 - smoothed) / smoothed))


@lru_cache(maxsize=16)  # a service asks with the same table, `risk` and `delta` again and again
def _proven_threshold(table: ScoreTable, risk: float, delta: float, source: Evidence) -> Threshold:
    return choose_threshold(table, risk, delta, starting_levels(risk, source))


def fewest_examples(risk: float, delta: float, n_starts: int) -> int:
    """Number of accepted examples, none of them wrong, that the first test needs to pass."""
    return math.ceil(math.log(delta / n_starts) / math.log1p(-risk))


@dataclass(frozen=True, eq=False)
class SelectivePrediction:
    """Labels, and which of them to give as answers.

    `labels`, `confidence` and `accepted` (n,) are of all examples, accepted or not; see
    `labels_or`. `threshold_log_odds` is the smallest accepted score, inf if nothing is accepted,
    and `coverage` the fraction that it accepts of the examples behind the guarantee: those of the
    "fit" (the score is the classifier's own softmax) or "held-out" ones (it is the calibrated
    confidence), as `certified_on` says. `guarantee` is the promise in words, or why nothing could
    be accepted. Examples of the fit test the classifier's own labels: of rows that reach the
    threshold, those whose label calibration has changed are not accepted.
    """

    labels: IntArray
    confidence: FloatArray
    accepted: BoolArray
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

    def map_arrays(self, change: Callable[[Any], Any]) -> Self:
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
    table: ScoreTable,
    *,
    risk: float,
    delta: float,
    certified_on: Evidence,
    untested: BoolArray | None = None,
) -> SelectivePrediction:
    """Apply the threshold that the table proves to the levels (n,) of new examples.

    `untested` labels (n,) are others than those that the table counts, and are not accepted. Then
    the risk is that of a wrong label among rows that reach the threshold, accepted or not: it
    cannot exceed that of the labels that were counted.
    """
    chosen = _proven_threshold(table, risk, delta, certified_on)
    needed = fewest_examples(risk, delta, starting_levels(risk, certified_on).size)
    place = "the examples of the fit" if certified_on == "fit" else "the held-out examples"
    sure = f"confidence {1.0 - delta:.4g}"
    more = "Allow a larger `risk` or `delta`, or use more examples."
    accepted, threshold = np.zeros(levels.size, np.bool_), np.inf
    if chosen.level is not None:
        accepted, threshold = levels >= chosen.level, level_log_odds(chosen.level)
        words = (
            f"With {sure}, at most {risk:.4g} of the accepted labels are "
            f"wrong: of {place} the same rule accepts {chosen.accepted:,} of {chosen.total:,}, and "
            f"{chosen.wrong:,} of those are wrong."
        )
        if untested is not None:
            accepted &= ~untested
            words = (
                f"With {sure}, at most {risk:.4g} of the rows that reach the threshold get a wrong "
                f"label that is accepted: of {place} {chosen.accepted:,} of {chosen.total:,} reach "
                f"it, and the classifier's label is wrong for {chosen.wrong:,} of those. A label "
                "that calibration has changed is not accepted; `certify` tests such labels too."
            )
    elif chosen.total < needed:
        words = (
            f"Nothing is accepted: to prove a risk of {risk:.4g} with {sure} takes at least "
            f"{needed:,} examples, even without a mistake; {place} are {chosen.total:,}. {more}"
        )
    else:
        words = (
            f"Nothing is accepted: {place} ({chosen.total:,}) do not prove for any threshold that "
            f"the error rate is at most {risk:.4g} with {sure}. {more}"
        )
    coverage = chosen.accepted / chosen.total
    promise = (risk, delta, threshold, coverage, certified_on, words)
    return SelectivePrediction(labels, confidence, accepted, *promise)
