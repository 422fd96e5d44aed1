"""Paired differences of methods on the same rows, with verdicts for all of them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._sum_test import holm


@dataclass(frozen=True)
class Difference:
    """metric(method) - metric(against) on the same examples: below 0, the method is better.

    `p_value` is corrected by Holm for the number of methods, and so is the `verdict`; the interval
    is for this difference alone. NaN and "unknown" if both scores are infinite.
    """

    method: str
    against: str
    metric: str
    value: float
    low: float
    high: float
    p_value: float
    verdict: str


def paired_differences(
    results: Sequence[Any], base: Any, metric: str = "log_loss", delta: float = 0.05
) -> tuple[Difference, ...]:
    """Differences of every other evaluation to `base`; none of streams, whose rows are not kept."""
    z = -float(ndtri(0.5 * check_chance("delta", delta)))
    if not base.row_scores:
        return ()
    if metric not in base.row_scores:
        raise ValueError(f"`metric` must be one of {sorted(base.row_scores)}; got {metric!r}.")
    others = [result for result in results if result.name != base.name]
    own = base.row_scores[metric]
    pairs = [_pair_difference(each.row_scores[metric], own, base.weight) for each in others]
    values, errors = np.array(pairs).reshape(-1, 2).T
    with np.errstate(divide="ignore", invalid="ignore"):  # an infinite difference is certain
        p = np.where(values == 0.0, 1.0, 2.0 * ndtr(-np.abs(values) / errors))
    columns = (values, values - z * errors, values + z * errors, holm(p))
    rows: Any = np.transpose(columns).tolist()
    return tuple(
        Difference(result.name, base.name, metric, v, low, high, p, _verdict(v, p, delta))
        for result, (v, low, high, p) in zip(others, rows, strict=True)
    )


def _pair_difference(
    rows: FloatArray, others: FloatArray, weight: FloatArray | None
) -> tuple[float, float]:
    """Mean difference and its standard error; without error if one mean is infinite."""
    share = np.full(rows.size, 1.0 / rows.size) if weight is None else weight / weight.sum()
    if not (np.isfinite(rows).all() and np.isfinite(others).all()):
        ends = float((share * rows).sum()), float((share * others).sum())
        return math.nan if ends[0] == ends[1] else ends[0] - ends[1], 0.0
    gap = rows - others
    mean = float((share * gap).sum())
    return mean, math.sqrt(float((share**2 * (gap - mean) ** 2).sum()))


def _verdict(value: float, p_value: float, delta: float) -> str:
    if math.isnan(value):
        return "unknown"
    return "no clear difference" if p_value > delta else "better" if value < 0 else "worse"
