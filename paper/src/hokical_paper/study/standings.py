"""Methods ranked over several data sets: mean scores and ranks, and the critical
difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import stdtrit
from scipy.stats import rankdata, studentized_range

from hokical import compare
from hokical_paper.core import check_chance
from hokical_paper.core.reports import METRICS, Cell, Comparison, TableOutput, TextCells
from hokical_paper.types import FloatArray


def compare_data_sets(
    validation: Mapping[str, Any],
    test: Mapping[str, Any],
    methods: Any = None,
    *,
    metric: str = "log_loss",
    delta: float = 0.05,
    **options: Any,
) -> Standings:
    """`hokical.compare` on each of several data sets, (logits, labels) by name in both
    mappings.

    `metric`, one that is better the lower, ranks the methods. `delta` is the
    probability that an interval of a mean misses, and the level of the critical
    difference. Other options are those of `hokical.compare`.

    >>> from hokical.demo import demo_logits
    >>> val, (logits, labels) = demo_logits()
    >>> tests = {f"part {k}": (logits[k::3], labels[k::3]) for k in range(3)}
    >>> found = compare_data_sets(
    ...     {name: val for name in tests}, tests, ["uncalibrated", "temps"]
    ... )
    >>> [(row.method, row.rank) for row in found.rows]
    [('temps', 1.0), ('uncalibrated', 2.0)]
    """
    if set(validation) != set(test) or not validation:
        raise ValueError(
            "`validation` and `test` must have the same data sets, at least one; got "
            f"{list(validation)} and {list(test)}."
        )
    lower = [name for name, known in METRICS.items() if known.better == "lower"]
    if metric not in lower:
        raise ValueError(f"`metric` must be one of {lower}; got {metric!r}.")
    options = {"progress": False} | options
    comparisons = {
        name: compare(validation[name], test[name], methods, **options)
        for name in validation
    }
    return rank_methods(comparisons, metric, delta)


@dataclass(frozen=True)
class Standing:
    """A method over all data sets: its mean score with an interval, and mean rank
    (1: the best).
    """

    method: str
    mean: float
    mean_interval: tuple[float, float]
    rank: float


@dataclass(frozen=True, eq=False)
class Standings(TableOutput):
    """The methods that ran on every data set, the best mean rank first.

    Intervals are Student's, over data sets. Two methods whose mean ranks are less than
    `critical_difference` apart are not distinguished, at the level `delta` for all
    pairs at once (Nemenyi's test; Demsar, 2006). `comparisons` has each data set's own.
    """

    metric: str
    rows: tuple[Standing, ...]
    critical_difference: float
    delta: float
    comparisons: dict[str, Comparison] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Which methods the ranks distinguish, in words."""
        best = self.rows[0]
        alike = [
            r.method for r in self.rows if r.rank - best.rank < self.critical_difference
        ]
        basis = f"{len(self.comparisons)} data sets"
        if not np.isnan(self.rows[0].mean_interval).any():
            basis += f", {1.0 - self.delta:.0%} intervals"
        apart = f"critical difference of ranks {self.critical_difference:.2f}"
        conclusion = (
            f"{', '.join(alike)} do not clearly differ."
            if len(alike) > 1
            else "One is ahead."
        )
        return f"{basis}; {apart}. {conclusion}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings: of each method the metric on every data set,
        mean and rank.
        """
        return {
            "metric": self.metric,
            "methods": self.records(),
            "critical_difference": self.critical_difference,
            "delta": self.delta,
            "verdict": self.verdict,
        }

    def _markdown(self) -> str:
        """A table of mean scores and ranks, and the verdict."""
        return f"{super()._markdown()}\n{self.verdict}"

    def records(self) -> list[dict[str, Any]]:
        """The metric of every data set, with mean and rank, by method."""
        rows = []
        for row in self.rows:
            scores = {
                name: comparison[row.method].score(self.metric)
                for name, comparison in self.comparisons.items()
            }
            low, high = row.mean_interval
            means = {
                "mean": row.mean,
                "mean_low": low,
                "mean_high": high,
                "rank": row.rank,
            }
            rows.append({"method": row.method, **scores, **means})
        return rows

    def cells(self) -> TextCells:
        rows = []
        for row in self.rows:
            low, high = row.mean_interval
            interval = "" if math.isnan(low) else f" ({low:.4f} to {high:.4f})"
            texts = (row.method, f"{row.mean:.4f}{interval}", f"{row.rank:.2f}")
            rows.append([Cell(text) for text in texts])
        return ["method", f"mean {METRICS[self.metric].full_title}", "mean rank"], rows


def rank_methods(
    comparisons: dict[str, Comparison], metric: str, delta: float
) -> Standings:
    """Mean scores and ranks of the methods that every comparison has."""
    names = [result.name for result in next(iter(comparisons.values())).results]
    names = [
        name
        for name in names
        if all(name not in comparison.skipped for comparison in comparisons.values())
    ]
    table = np.array(
        [
            [comparison[name].score(metric) for name in names]
            for comparison in comparisons.values()
        ]
    )
    ranks = rankdata(table, axis=1)
    columns = zip(names, table.T, ranks.T, strict=True)
    rows = [
        Standing(
            name, float(scores.mean()), mean_interval(scores, delta), float(rank.mean())
        )
        for name, scores, rank in columns
    ]
    rows.sort(key=lambda row: row.rank)
    least = critical_difference(len(names), len(comparisons), delta)
    return Standings(metric, tuple(rows), least, delta, comparisons)


def mean_interval(values: FloatArray, delta: float) -> tuple[float, float]:
    """Student's interval of the mean over data sets; NaN of one."""
    if values.size < 2:
        return math.nan, math.nan
    width = (
        -stdtrit(values.size - 1, 0.5 * delta)
        * values.std(ddof=1)
        / math.sqrt(values.size)
    )
    return float(values.mean() - width), float(values.mean() + width)


def critical_difference(n_methods: int, n_data_sets: int, delta: float = 0.05) -> float:
    """How far mean ranks must be apart (Nemenyi).

    >>> round(critical_difference(4, 14), 2)  # Demsar (2006), table 6
    1.25
    """
    if n_methods < 2:
        return math.nan
    q = studentized_range.ppf(1.0 - check_chance("delta", delta), n_methods, np.inf)
    return float(
        q
        / math.sqrt(2.0)
        * math.sqrt(n_methods * (n_methods + 1) / (6.0 * n_data_sets))
    )
