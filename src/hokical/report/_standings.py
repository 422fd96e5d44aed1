"""Methods over several data sets: mean scores and ranks, intervals, critical differences."""

import csv
import io
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._metric import METRICS
from hokical.report._tables import as_latex, as_markdown

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
    `critical_difference` apart are not distinguished, at the level `delta` for all pairs at once
    (Nemenyi's test; Demsar, 2006). `comparisons` has each data set's own.
    """

    metric: str
    rows: tuple[Standing, ...]
    critical_difference: float
    delta: float
    comparisons: dict[str, Any] = field(default_factory=dict)

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
        """Which methods the ranks distinguish, in words."""
        best = self.rows[0]
        alike = [r.method for r in self.rows if r.rank - best.rank < self.critical_difference]
        known = f"{len(self.comparisons)} data sets"
        if not np.isnan(self.rows[0].mean_interval).any():
            known += f", {1.0 - self.delta:.0%} intervals"
        apart = f"critical difference of ranks {self.critical_difference:.2f}"
        end = f"{', '.join(alike)} do not clearly differ." if len(alike) > 1 else "One is ahead."
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
        """A table of mean scores and ranks, and the verdict."""
        return f"{as_markdown(*self._cells())}\n{self.verdict}"

    def to_latex(self) -> str:
        """The same table as a `tabular` of the package booktabs."""
        return as_latex(*self._cells())

    def to_pandas(self) -> Any:
        """The metric of every data set and method, with mean and rank, by method; needs pandas."""
        import pandas  # type: ignore[import-untyped]

        names = [row.method for row in self.rows]
        found = pandas.DataFrame(self.table().T, index=names, columns=[*self.comparisons])
        found["mean"] = [row.mean for row in self.rows]
        found["rank"] = [row.rank for row in self.rows]
        return found.rename_axis("method")

    def to_csv(self) -> str:
        """The numbers of `to_pandas`, one line per method, not rounded."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["method", *self.comparisons, "mean", "rank"])
        for row, scores in zip(self.rows, self.table().T.tolist(), strict=True):
            writer.writerow([row.method, *scores, row.mean, row.rank])
        return out.getvalue()

    __str__ = to_markdown

    def _cells(self) -> tuple[list[str], list[list[tuple[str, str]]]]:
        """Heads and cells of a table."""
        rows = []
        for row in self.rows:
            pairs = ((row.mean, row.mean_interval, 4), (row.rank, row.rank_interval, 2))
            rows.append([(row.method, "{}"), *((_with_ends(*pair), "{}") for pair in pairs)])
        return ["method", f"mean {METRICS[self.metric].full_title}", "mean rank"], rows


def _with_ends(value: float, ends: tuple[float, float], digits: int) -> str:
    """A number, and the interval where there is one."""
    low, high = (f"{end:.{digits}f}" for end in ends)
    return f"{value:.{digits}f}" + ("" if np.isnan(ends).any() else f" ({low} to {high})")


def rank_methods(
    found: dict[str, Any], metric: str, delta: float, n_resamples: int, random_state: int
) -> Standings:
    """Mean scores and ranks of the methods that every comparison has."""
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
