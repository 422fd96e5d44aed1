"""The lowest threshold whose error rate is proven: exact tests, in an order fixed in advance.

`docs/guarantees.md` has the proof, and the simulations behind the choice of this procedure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hokical.core.types import IntArray
from hokical.guarantees.binomial import chance_of_so_few
from hokical.guarantees.score_table import ScoreTable
from hokical.guarantees.scores import LEVELS, score_levels

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
    p_values = chance_of_so_few(wrong, accepted, risk)
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
    modest = min(risk, 0.5)
    return score_levels(_TEMPERATURES * math.log((1.0 - modest) / modest))


def fewest_examples(risk: float, delta: float, n_starts: int) -> int:
    """Number of accepted examples, none of them wrong, that the first test needs to pass."""
    return math.ceil(math.log(delta / n_starts) / math.log1p(-risk))
