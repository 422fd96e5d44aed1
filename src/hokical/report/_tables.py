"""Results as tables (CSV, pandas, Markdown, LaTeX), and methods ranked over several data sets."""

import csv
import io
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._metric import METRICS

#: What LaTeX would take for markup.
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
#: Heads, and rows of cells, each (text, mark around it).
Cells = tuple[Sequence[str], Sequence[Sequence[tuple[str, str]]]]

Location = str | os.PathLike[str]


class TableOutput(ABC):
    """A result with a row for each method."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The numbers of each row, not rounded, by column; the first is "method"."""

    @abstractmethod
    def cells(self, mark: str) -> Cells:
        """A small table for readers, the best cells in `mark`."""

    def to_csv(self, path: Location | None = None) -> str:
        """One line per method, numbers not rounded; also written to `path`, if one is given."""
        rows, out = self.records(), io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:  # only NaN differs from itself
            writer.writerow({key: "" if value != value else value for key, value in row.items()})
        return _write(out.getvalue(), path)

    def to_pandas(self) -> Any:
        """The columns of `to_csv` as a DataFrame indexed by method; needs pandas."""
        import pandas  # type: ignore[import-untyped]

        return pandas.DataFrame(self.records()).set_index("method")

    def to_markdown(self, path: Location | None = None) -> str:
        """A table of the main scores, the best in bold; also written to `path`, if given."""
        return _write(self._markdown(), path)

    def _markdown(self) -> str:
        heads, rows = self.cells("**{}**")
        lines = [heads, [":--", *("--:" for _ in heads[1:])]]
        lines += [[mark.format(text.replace("|", "\\|")) for text, mark in row] for row in rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_latex(self, path: Location | None = None) -> str:
        """The same as a `tabular` of the package booktabs; also written to `path`, if given."""
        if path is not None and Path(path).suffix.lower() != ".tex":
            raise ValueError(
                f"`path` must end in .tex, as the table is LaTeX; got {Path(path).name}. For a PDF "
                "print the page of `to_html` from a browser."
            )
        heads, rows = self.cells("\\textbf{{{}}}")
        body = [[mark.format(text.translate(_LATEX)) for text, mark in row] for row in rows]
        first, *rest = (
            " & ".join(line) + " \\\\\n" for line in ([h.translate(_LATEX) for h in heads], *body)
        )
        begin = f"\\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}\n\\toprule\n{first}\\midrule\n"
        return _write(f"{begin}{''.join(rest)}\\bottomrule\n\\end{{tabular}}\n", path)

    def __str__(self) -> str:
        return self.to_markdown()


def _write(text: str, path: Location | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


@dataclass(frozen=True)
class Standing:
    """A method over all data sets: its mean score with an interval, and mean rank (1: the best)."""

    method: str
    mean: float
    mean_interval: tuple[float, float]
    rank: float


@dataclass(frozen=True, eq=False)
class Standings(TableOutput):
    """The methods that ran on every data set, the best mean rank first.

    Intervals are Student's, over data sets. Two methods whose mean ranks are less than
    `critical_difference` apart are not distinguished, at the level `delta` for all pairs at once
    (Nemenyi's test; Demsar, 2006). `comparisons` has each data set's own.
    """

    metric: str
    rows: tuple[Standing, ...]
    critical_difference: float
    delta: float
    comparisons: dict[str, Any] = field(default_factory=dict)

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
        """Plain numbers and strings: of each method the metric on every data set, mean and rank."""
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
            own = {
                name: one[row.method].score(self.metric) for name, one in self.comparisons.items()
            }
            low, high = row.mean_interval
            means = {"mean": row.mean, "mean_low": low, "mean_high": high, "rank": row.rank}
            rows.append({"method": row.method, **own, **means})
        return rows

    def cells(self, mark: str) -> Cells:
        rows = []
        for row in self.rows:
            low, high = row.mean_interval
            ends = "" if math.isnan(low) else f" ({low:.4f} to {high:.4f})"
            texts = (row.method, f"{row.mean:.4f}{ends}", f"{row.rank:.2f}")
            rows.append([(text, "{}") for text in texts])
        return ["method", f"mean {METRICS[self.metric].full_title}", "mean rank"], rows


def rank_methods(found: dict[str, Any], metric: str, delta: float) -> Standings:
    """Mean scores and ranks of the methods that every comparison has."""
    from scipy.stats import rankdata

    names = [result.name for result in next(iter(found.values())).results]
    names = [name for name in names if all(name not in one.skipped for one in found.values())]
    table = np.array([[one[name].score(metric) for name in names] for one in found.values()])
    ranks = rankdata(table, axis=1)
    columns = zip(names, table.T, ranks.T, strict=True)
    rows = [
        Standing(name, float(own.mean()), mean_interval(own, delta), float(rank.mean()))
        for name, own, rank in columns
    ]
    rows.sort(key=lambda row: row.rank)
    least = critical_difference(len(names), len(found), delta)
    return Standings(metric, tuple(rows), least, delta, found)


def mean_interval(values: FloatArray, delta: float) -> tuple[float, float]:
    """Student's interval of the mean over data sets; NaN of one."""
    from scipy.special import stdtrit

    if values.size < 2:
        return math.nan, math.nan
    width = -stdtrit(values.size - 1, 0.5 * delta) * values.std(ddof=1) / math.sqrt(values.size)
    return float(values.mean() - width), float(values.mean() + width)


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
