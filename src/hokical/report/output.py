"""How results are shown in text: tables as CSV, Markdown and LaTeX, and paired
differences between methods.
"""

from __future__ import annotations

import csv
import io
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from hokical._core.checks import show
from hokical._core.storage import StrPath, as_path
from hokical.guarantees.bounds import check_chance
from hokical.metrics.groups import holm
from hokical.metrics.intervals import unskewed, worst_score
from hokical.metrics.risk_models import EVENT_COLUMNS, EVENT_METRICS
from hokical.metrics.summaries import METRICS

if TYPE_CHECKING:
    from hokical.report.results import Evaluation

#: The standard error of rounding: the difference between equal probabilities of
#: float32.
_ROUNDING = 1e-7
#: With fewer errors, differences have the intervals of two means that are not paired.
_FEW_ERRORS = 10.0
#: Columns that printed sentences are wrapped at.
TEXT_WIDTH = 80


class Cell(NamedTuple):
    """A cell of a table: its text, whether it is the best, and smaller lines below
    it.
    """

    text: str
    best: bool = False
    below: tuple[str, ...] = ()


#: Heads, and rows of cells.
TextCells = tuple[list[str], list[list[Cell]]]


#: What LaTeX would take for markup.
_LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


class TableOutput(ABC):
    """A result with a row for each method."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The numbers of each row, not rounded, by column; the first is "method"."""

    @abstractmethod
    def cells(self) -> TextCells:
        """A small table for readers."""

    def to_csv(self, path: StrPath | None = None) -> str:
        """One line per method, numbers not rounded; also written to `path`, if one
        is given.
        """
        rows = self.records()
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:  # only NaN differs from itself
            writer.writerow(
                {key: "" if value != value else value for key, value in row.items()}
            )
        return write_text(out.getvalue(), path)

    def to_pandas(self) -> Any:
        """The columns of `to_csv` as a DataFrame indexed by method; needs pandas."""
        import pandas  # type: ignore[import-untyped]

        return pandas.DataFrame(self.records()).set_index("method")

    def to_markdown(self, path: StrPath | None = None) -> str:
        """A table of the main scores, the best in bold; also written to `path`, if
        given.
        """
        return write_text(self._markdown(), path)

    def _markdown(self) -> str:
        heads, *rows = self._lines("**{}**", {"|": "\\|"})
        lines = (heads, [":--", *("--:" for _ in heads[1:])], *rows)
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _lines(self, mark: str, signs: dict[str, str]) -> list[list[str]]:
        """Heads and rows as texts, with other `signs`; the best cells in `mark`."""
        heads, rows = self.cells()
        table = str.maketrans(signs)
        lines = [[Cell(head) for head in heads], *rows]
        return [
            [
                (mark if cell.best else "{}").format(cell.text.translate(table))
                for cell in line
            ]
            for line in lines
        ]

    def to_latex(self, path: StrPath | None = None) -> str:
        """The same as a `tabular` of the package booktabs; also written to `path`,
        if given.
        """
        if path is not None and as_path(path).suffix.lower() != ".tex":
            raise ValueError(
                f"`path` must end in .tex; got {as_path(path).name}. For a PDF print the "
                "page of `to_html` from a browser."
            )
        lines = self._lines("\\textbf{{{}}}", _LATEX)
        head, *rows = (" & ".join(line) + " \\\\\n" for line in lines)
        columns = f"l{'r' * (len(lines[0]) - 1)}"
        top = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\\midrule\n"
        bottom = "\\bottomrule\n\\end{tabular}\n"
        return write_text(f"{top}{''.join(rows)}{bottom}", path)

    def __str__(self) -> str:
        return self.to_markdown()


def write_text(text: str, path: StrPath | None) -> str:
    """The text, also written to a file if one is given."""
    if path is not None:
        as_path(path).write_text(text, encoding="utf-8")
    return text


def wrap(text: str) -> str:
    """A sentence in lines of at most 80 columns."""
    return textwrap.fill(
        text, TEXT_WIDTH, break_long_words=False, break_on_hyphens=False
    )


def align(heads: list[str], rows: list[list[Cell]]) -> list[str]:
    """The lines of a table, each column as wide as its texts.

    >>> align(["metric", "auto"], [[Cell("ECE"), Cell("0.0103")]])
    ['metric    auto', 'ECE     0.0103']
    """
    lines = [heads, *([cell.text for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = []
    for name, *texts in lines:
        cells = [name.ljust(widths[0])]
        cells += [text.rjust(n) for text, n in zip(texts, widths[1:], strict=True)]
        aligned.append("  ".join(cells).rstrip())
    return aligned


def main_columns(results: Sequence[Evaluation]) -> list[str]:
    """What small tables show of the predicted label, in order."""
    of_vectors = all(result.summary.vectors for result in results)
    classwise = ["classwise_ece"] if of_vectors else []
    return ["mean_confidence", "accuracy", "ece", *classwise, "brier", "log_loss"]


def method_cells(
    results: Sequence[Evaluation],
    columns: Sequence[str] = (),
    *,
    event: bool | None = None,
) -> TextCells:
    """A row for each method, intervals below the values; small if no columns are named.

    Of the `event` or of the predicted label; None is of the event where there is one.
    """
    if event is None:
        event = all(result.binary is not None for result in results)
    heads = ["method"]
    rows = [[Cell(result.label)] for result in results]
    for name in columns or (EVENT_COLUMNS if event else main_columns(results)):
        metric = (EVENT_METRICS if event else METRICS)[name]
        best = best_of(results, name, event)
        heads.append(metric.full_title)
        for row, result in zip(rows, results, strict=True):
            estimate = result.estimate(name, event)
            to = " to " if estimate.low < 0.0 else "\N{EN DASH}"  # a minus is no dash
            value, low_high = metric.show(estimate, to)
            below = (low_high,) if math.isfinite(estimate.low) else ()
            row.append(Cell(value, result.name in best, below))
    return heads, rows


def best_of(results: Sequence[Evaluation], name: str, event: bool = False) -> list[str]:
    """The names of the methods with the best score, as it is shown; none if it ranks
    none.

    Equal as shown is equal: readers cannot see which 0.0107 is lower. With `event`, the
    score is that of the event.
    """
    metric = (EVENT_METRICS if event else METRICS)[name]
    if not metric.ranking or len(results) < 2:
        return []
    values = [result.estimate(name, event).value for result in results]
    if all(map(math.isinf, values)):
        return []
    best = metric.format(max(values) if metric.better == "higher" else min(values))
    return [
        result.name
        for result, value in zip(results, values, strict=True)
        if metric.format(value) == best
    ]


@dataclass(frozen=True)
class Difference:
    """metric(method) - metric(against) on the same examples: below 0, the method is
    better.

    `p_value` is corrected by Holm for the number of methods, and so is the `verdict`;
    the interval is for this difference alone. NaN and "undefined" if both scores are
    infinite; if one is, the difference is infinite and has no interval.
    """

    method: str
    against: str
    metric: str
    value: float
    low: float
    high: float
    p_value: float
    verdict: str


class _Gap(NamedTuple):
    """A mean difference, its interval, and the p-value of no difference."""

    value: float
    low: float
    high: float
    p_value: float


def paired_differences(
    results: Sequence[Evaluation],
    base: Evaluation,
    metric: str = "log_loss",
    delta: float = 0.05,
) -> tuple[Difference, ...]:
    """Differences of every other evaluation to `base`; none of streams, whose rows
    are not kept.
    """
    check_chance("delta", delta)
    if not base.row_scores:
        return ()
    if not isinstance(metric, str) or metric not in base.row_scores:
        raise ValueError(
            f"`metric` must be one of {sorted(base.row_scores)}; got {show(metric)}."
        )
    compared = [result for result in results if result.name != base.name]
    gaps = [_paired_gap(result, base, metric, delta) for result in compared]
    p_values = holm(np.array([gap.p_value for gap in gaps])).tolist()
    return tuple(
        Difference(
            method=result.name,
            against=base.name,
            metric=metric,
            value=gap.value,
            low=float(gap.low),
            high=float(gap.high),
            p_value=p_value,
            verdict=_verdict(gap.value, p_value, delta),
        )
        for result, gap, p_value in zip(compared, gaps, p_values, strict=True)
    )


def _verdict(value: float, p_value: float, delta: float) -> str:
    if math.isnan(value):
        return "undefined"
    if p_value > delta:
        return "no clear difference"
    return "better" if value < 0 else "worse"


def _paired_gap(
    result: Evaluation, base: Evaluation, metric: str, delta: float
) -> _Gap:
    """Mean difference, its interval and p-value, by Hall's transformed t statistic.

    One more error moves a difference of log losses by much: of samples with few errors
    the standard error in that direction is at least that of none seen, whose 95 % limit
    is 3.7 (1.9 standard errors). With fewer than `_FEW_ERRORS`, the interval is that of
    two means that are not paired.
    """
    scores = result.row_scores[metric]
    base_scores = base.row_scores[metric]
    weight = base.weight
    share = (
        np.full(scores.size, 1.0 / scores.size)
        if weight is None
        else weight / weight.sum()
    )
    if not (np.isfinite(scores).all() and np.isfinite(base_scores).all()):
        return _infinite_gap(
            float((share * scores).sum()), float((share * base_scores).sum())
        )
    gap = scores - base_scores
    mean = float((share * gap).sum())
    n = 1.0 / float((share**2).sum())
    spread = math.hypot(math.sqrt(float((share * (gap - mean) ** 2).sum())), 1e-300)
    skewness = float((share * ((gap - mean) / spread) ** 3).sum()) / math.sqrt(n)
    freedom = max(n - 1.0, 1.0)
    error = math.hypot(spread / math.sqrt(freedom), _ROUNDING)
    step = 1.9 * (_one_more(result, metric) - _one_more(base, metric))
    below = math.hypot(error, min(step, 0.0))
    above = math.hypot(error, max(step, 0.0))
    t = mean / (below if mean > 0.0 else above)
    p_value = _hall_p_value(t, skewness, freedom)
    far, near = unskewed(skewness, -float(stdtrit(freedom, 0.5 * delta)))
    low = mean - below * max(far, 0.0)
    high = mean - above * min(near, 0.0)
    alone = result.summary[metric]
    base_alone = base.summary[metric]
    n_errors = float(base.levels.errors.sum()) * base.levels.rows_per_weight
    same = np.array_equal(scores, base_scores)
    if n_errors < _FEW_ERRORS and not (math.isnan(alone.low) or same):
        low = min(low, alone.low - base_alone.high)
        high = max(high, alone.high - base_alone.low)
    if low <= 0.0 <= high:
        p_value = max(p_value, math.nextafter(delta, 1.0))
    return _Gap(mean, float(low), float(high), float(p_value))


def _infinite_gap(mean: float, base_mean: float) -> _Gap:
    """A difference of means that are not both finite."""
    if mean == base_mean:
        return _Gap(math.nan, math.nan, math.nan, math.nan)
    return _Gap(mean - base_mean, math.nan, math.nan, 0.0)


def _hall_p_value(t: float, a: float, freedom: float) -> float:
    """Two-sided p-value of a t statistic with skewness / root n of `a`."""
    transformed = t + a * (t**2 / 3.0 + a * t**3 / 27.0 + 1.0 / 6.0)
    return 2.0 * float(stdtr(freedom, -abs(transformed)))


def _one_more(result: Evaluation, metric: str) -> float:
    """By how much one more error would raise the mean of a score."""
    levels = result.levels
    facts = METRICS[metric]
    assert facts.scores is not None
    worst = worst_score(levels, *facts.scores.of_confidence(levels.confidence))
    if facts.upper_of_label is not None and result.summary.vectors:
        worst *= facts.upper / facts.upper_of_label
    return float(worst / (levels.total * levels.rows_per_weight))
