"""Accuracy without labels and without label shift: three ways that go by the scores alone.

Each is right if the chance that a label is right depends on its score as it did at fit time
(covariate shift that the score sees). None can tell whether that is so.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._score_table import ScoreTable, group_of_level

#: By a new balance; the mean of confidence; accuracy at fit time by score, as common as scores are
#: now; the share of scores above a threshold, above which at fit time were as many as were right.
Method = Literal["label_shift", "mean_confidence", "importance", "threshold"]


@dataclass(frozen=True, eq=False)
class AccuracyEstimate:
    """The `accuracy` expected of labels, its `interval` (2,), and by which `method`.

    `holds` is whether what it assumes was tested and explains the rows; None if it was not tested.
    """

    accuracy: float
    interval: FloatArray
    method: Method
    holds: bool | None = None


def expected_accuracy(
    method: Method,
    confidence: FloatArray,
    levels: IntArray,
    weights: FloatArray,
    table: ScoreTable,
    delta: float,
    gain: FloatArray | None = None,
) -> AccuracyEstimate:
    """From confidences and levels of scores (n,), weights that sum to 1, and counts of the fit.

    Levels and counts are of the classifier's labels; `gain` (n,) is how much more likely those are
    that are predicted, if they are others.
    """
    if method == "mean_confidence":
        chance = confidence
    elif method == "importance":
        group = group_of_level(table.count)
        hits, trials = (
            sum_by(group, part.astype(np.float64), int(group[-1]) + 1)
            for part in (table.correct, table.count)
        )
        chance = ((hits + 0.5) / (trials + 1.0))[group[levels]]
    else:
        chance = _share_above(table)[levels]
    if gain is not None and method != "mean_confidence":
        chance = np.clip(chance + gain, 0.0, 1.0)
    value = float(weights @ chance)
    spread = float((weights**2 @ (chance * (1.0 - chance))) + (weights**2 @ (chance - value) ** 2))
    known = value * (1.0 - value) / table.total
    reach = NormalDist().inv_cdf(1.0 - delta / 2.0) * np.sqrt(spread + known)
    return AccuracyEstimate(value, np.clip([value - reach, value + reach], 0.0, 1.0), method)


def _share_above(table: ScoreTable) -> FloatArray:
    """What a row of each level counts, (levels,): 1 above the threshold, a share on its level."""
    above = np.cumsum(table.count[::-1])[::-1]
    wanted = table.correct.sum()
    part = (wanted - (above - table.count)) / np.maximum(table.count, 1)
    whole = (above <= wanted).astype(np.float64)
    return np.asarray(np.where(table.count > 0, np.clip(part, 0.0, 1.0), whole))
