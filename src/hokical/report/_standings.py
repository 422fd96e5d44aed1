"""Methods over several data sets: mean scores and ranks, intervals, critical differences."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hokical._core.progress import track
from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._metric import METRICS
from hokical.report._comparison import Comparison, compare

Ends = tuple[float, float]


@dataclass(frozen=True)
class Standing:
    """A method over all data sets: its mean score and rank (1: the best), with intervals."""

    method: str
    mean: float
    mean_interval: Ends
    rank: float
    rank_interval: Ends


@dataclass(frozen=True, eq=False)
class Standings:
    """The methods that ran on every data set, the best mean rank first.

    Intervals are of resampled data sets. Two methods whose mean ranks are less than
    `critical_difference` apart are not told apart, at the level `delta` for all pairs at once
    (Nemenyi's test; Demsar, 2006). `comparisons` has each data set's own.
    """

    metric: str
    rows: tuple[Standing, ...]
    critical_difference: float
    delta: float
    comparisons: dict[str, Comparison] = field(default_factory=dict)

    def table(self) -> FloatArray:
        """The metric (data sets, methods), methods in the order of `rows`."""
        return np.array(
            [
                [one[row.method].score(self.metric) for row in self.rows]
                for one in self.comparisons.values()
            ]
        )

    @property
    def verdict(self) -> str:
        """What the ranks tell apart, in words."""
        best = self.rows[0]
        alike = [r.method for r in self.rows if r.rank - best.rank < self.critical_difference]
        known = f"{len(self.comparisons)} data sets"
        if not np.isnan(self.rows[0].mean_interval).any():
            known += f", {1.0 - self.delta:.0%} intervals"
        apart = f"critical difference of ranks {self.critical_difference:.2f}"
        end = f"{', '.join(alike)} are not told apart." if len(alike) > 1 else "One is ahead."
        return f"{known}; {apart}. {end}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings: the rows, and the metric of every data set and method."""
        names = [row.method for row in self.rows]
        scores = zip(self.comparisons, self.table().tolist(), strict=True)
        return {
            "metric": self.metric,
            "methods": [asdict(row) for row in self.rows],
            "critical_difference": self.critical_difference,
            "delta": self.delta,
            "verdict": self.verdict,
            "data_sets": {name: dict(zip(names, row, strict=True)) for name, row in scores},
        }

    def to_markdown(self) -> str:
        """A table, and what the ranks tell apart."""
        title = METRICS[self.metric].full_title
        lines = [f"| method | mean {title} | mean rank |", "|---|--:|--:|"]
        for row in self.rows:
            pairs = ((row.mean, row.mean_interval, 4), (row.rank, row.rank_interval, 2))
            cells = " | ".join(_with_ends(*pair) for pair in pairs)
            lines.append(f"| {row.method} | {cells} |")
        return "\n".join([*lines, "", self.verdict])

    __str__ = to_markdown


def _with_ends(value: float, ends: tuple[float, float], digits: int) -> str:
    """A number, and the interval where there is one."""
    low, high = (f"{end:.{digits}f}" for end in ends)
    return f"{value:.{digits}f}" + ("" if np.isnan(ends).any() else f" ({low} to {high})")


def compare_many(
    data: Mapping[str, tuple[tuple[Any, Any], tuple[Any, Any]]],
    methods: Iterable[Any] | Mapping[str, Any] | None = None,
    *,
    metric: str = "log_loss_full",
    delta: float = 0.05,
    n_resamples: int = 1000,
    random_state: int = 0,
    progress: bool | None = None,
) -> Standings:
    """`compare` on each of several data sets, and how the methods stand over all of them.

    Parameters
    ----------
    data : mapping of names to ((logits, labels), (logits, labels))
        Validation and test set of each data set. Those of one origin are not independent.
    methods
        As in `compare`; those that some data set does not allow are left out.
    metric : str
        What ranks: "log_loss_full", "brier_full", "log_loss", "brier", "ece" or any other metric
        that is better the lower.
    delta : float
        Level of the critical difference; intervals miss with this probability.
    n_resamples : int
        Resamples of the data sets, for the intervals.

    Examples
    --------
    >>> from hokical import compare_many
    >>> from hokical.demo import demo_logits
    >>> val, (logits, labels) = demo_logits()
    >>> parts = {f"part {k}": (val, (logits[k::3], labels[k::3])) for k in range(3)}
    >>> found = compare_many(parts, ["uncalibrated", "temps"])
    >>> [row.method for row in found.rows], [row.rank for row in found.rows]
    (['temps', 'uncalibrated'], [1.0, 2.0])
    """
    lower = [name for name, m in METRICS.items() if m.better == "lower" and not m.ordered]
    if metric not in lower:
        raise ValueError(f"`metric` must be one of {lower}; got {metric!r}.")
    options: dict[str, Any] = {"n_resamples": 0, "random_state": random_state, "progress": False}
    found = {
        name: compare(*data[name], methods, **options)
        for name in track(list(data), "Comparing on {}", len(data), progress)
    }
    if not found:
        raise ValueError("`data` must have at least one data set; got none.")
    names = [result.name for result in next(iter(found.values())).results]
    names = [name for name in names if all(name not in one.skipped for one in found.values())]
    table = np.array([[one[name].score(metric) for name in names] for one in found.values()])
    ranks, draws = ranks_of(table), draw_rows(np.arange(len(found)), n_resamples, random_state)
    rows = [
        Standing(
            name,
            float(table[:, k].mean()),
            interval(table[:, k], draws, delta),
            float(ranks[:, k].mean()),
            interval(ranks[:, k], draws, delta),
        )
        for k, name in enumerate(names)
    ]
    rows.sort(key=lambda row: row.rank)
    least = critical_difference(len(names), len(found), delta)
    return Standings(metric, tuple(rows), least, delta, found)


def ranks_of(table: FloatArray) -> FloatArray:
    """Rank of each method in each row, from 1, ties shared, (experiments, methods)."""
    below = (table[:, None, :] < table[:, :, None]).sum(axis=2)
    equal = (table[:, None, :] == table[:, :, None]).sum(axis=2)
    return np.asarray(below + (equal + 1) / 2.0)


def draw_rows(data_sets: Any, resamples: int, seed: int = 0) -> list[Any]:
    """Rows of experiments for each resample: all of a drawn data set, as often as it is drawn."""
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(data_sets == name) for name in np.unique(data_sets)]
    drawn = rng.integers(len(rows), size=(resamples, len(rows)))
    return [np.concatenate([rows[i] for i in draw]) for draw in drawn]


def interval(values: FloatArray, draws: list[Any], delta: float = 0.05) -> Ends:
    """Quantiles of the mean over resamples; NaN without any."""
    if not draws:
        return math.nan, math.nan
    means = [values[rows].mean() for rows in draws]
    low, high = np.quantile(means, [0.5 * delta, 1.0 - 0.5 * delta])
    return float(low), float(high)


def critical_difference(n_methods: int, n_data_sets: int, delta: float = 0.05) -> float:
    """How far mean ranks must be apart (Nemenyi).

    >>> round(critical_difference(4, 14), 2)  # Demsar (2006), table 6
    1.25
    """
    from scipy.stats import studentized_range

    if n_methods < 2:
        return math.nan
    q = studentized_range.ppf(1.0 - check_chance("delta", delta), n_methods, np.inf)
    return float(q / math.sqrt(2.0) * math.sqrt(n_methods * (n_methods + 1) / (6.0 * n_data_sets)))
