"""A comparison as tables: paired differences, CSV, Markdown, LaTeX, JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from hokical.core.types import FloatArray
from hokical.guarantees.binomial import check_chance
from hokical.metrics.classes import holm

if TYPE_CHECKING:
    from hokical.report.comparison import Comparison, MethodResult

#: Heading of each score, and its meaning in a few words.
HEADINGS = {
    "mean_confidence": ("says", "mean confidence"),
    "accuracy": ("right", "accuracy"),
    "ece": ("ECE", "equal width"),
    "ece_mass": ("ECE", "equal mass"),
    "smooth_ece": ("smooth ECE", "no bins"),
    "brier": ("Brier", "of the label"),
    "log_loss": ("log loss", "of the label"),
    "classwise_ece": ("classwise ECE", "mean of classes"),
    "brier_full": ("Brier", "all classes"),
    "log_loss_full": ("log loss", "all classes"),
}
SHARES = ("mean_confidence", "accuracy")


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


def differences(
    comparison: Comparison, metric: str | None, against: str, delta: float
) -> tuple[Difference, ...]:
    """See `Comparison.differences`."""
    known = comparison[against].row_scores
    name = metric or ("log_loss_full" if "log_loss_full" in known else "log_loss")
    if name not in known:
        raise ValueError(f"`metric` must be one of {sorted(known)}; got {metric!r}.")
    z = -float(ndtri(0.5 * check_chance("delta", delta)))
    others = [result for result in comparison.results if result.name != against]
    pairs = [_paired(result.row_scores[name], known[name]) for result in others]
    chances = holm(np.array([_chance(*pair) for pair in pairs]))
    return tuple(
        Difference(result.name, against, name, v, v - z * e, v + z * e, p, _verdict(v, p, delta))
        for result, (v, e), p in zip(others, pairs, chances.tolist(), strict=True)
    )


def flat_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat dict per method."""
    rows = []
    for result in comparison.results:
        row: dict[str, Any] = {"method": result.name, "title": result.to_dict()["title"]}
        for name, found in result.summary.estimates.items():
            row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        row |= {"true_ece_below": result.summary.bounds["bousquet"]}
        rows.append(row | {"fit_seconds": result.fit_seconds})
    return rows


def csv_text(comparison: Comparison) -> str:
    """See `Comparison.to_csv`."""
    rows, out = flat_rows(comparison), io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: "" if _missing(value) else value for key, value in row.items()} for row in rows
    )
    return out.getvalue()


def markdown_text(comparison: Comparison) -> str:
    """See `Comparison.to_markdown`."""
    columns = main_columns(comparison)
    lines = [["method", *(full_heading(name) for name in columns)]]
    lines.append([":--", *("--:" for _ in columns)])
    for result in comparison.results:
        cells = marked_cells(comparison, result, "**{}**")
        lines.append([result.label.replace("|", "\\|"), *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex_text(comparison: Comparison) -> str:
    """See `Comparison.to_latex`."""
    columns = main_columns(comparison)
    head = " & ".join(["method", *(full_heading(name) for name in columns)])
    body = "".join(
        f"{_latex(result.label)} & "
        + " & ".join(marked_cells(comparison, result, "\\textbf{{{}}}")).replace("%", "\\%")
        + " \\\\\n"
        for result in comparison.results
    )
    begin = f"\\begin{{tabular}}{{l{'r' * len(columns)}}}\n\\toprule\n{head} \\\\\n\\midrule\n"
    return f"{begin}{body}\\bottomrule\n\\end{{tabular}}\n"


def json_text(data: Any) -> str:
    """Strict JSON: NaN and infinities become null."""
    return json.dumps(_finite(data), indent=2, allow_nan=False)


def main_columns(comparison: Comparison) -> tuple[str, ...]:
    """What small tables show, in order."""
    full = "brier_full" in comparison.scores
    scores = ("classwise_ece", "brier_full", "log_loss_full") if full else ("brier", "log_loss")
    return (*SHARES, "ece", *scores)


def full_heading(name: str) -> str:
    """A heading without room for its meaning."""
    title, meaning = HEADINGS[name]
    return f"{title}, {meaning}" if meaning in ("all classes", "equal mass") else title


def format_score(name: str, value: float | None) -> str:
    """A score as shown; only a log loss can be infinite: a true class with probability 0."""
    if value is None or not math.isfinite(value):
        return "infinite"
    return f"{value:.1%}" if name in SHARES else f"{value:.4f}"


def marked_cells(comparison: Comparison, result: MethodResult, mark: str) -> list[str]:
    """The cells of a small table, the best of each score in `mark`.

    Equal as shown is equal: readers cannot see which 0.0107 is lower.
    """
    cells = []
    for name in main_columns(comparison):
        shown = format_score(name, result.score(name))
        best = "" if name in SHARES else format_score(name, comparison.best(name).score(name))
        cells.append(mark.format(shown) if shown == best else shown)
    return cells


def _paired(rows: FloatArray, others: FloatArray) -> tuple[float, float]:
    """Mean difference and its standard error; without error if one mean is infinite."""
    if not (np.isfinite(rows).all() and np.isfinite(others).all()):
        ends = float(rows.mean()), float(others.mean())
        return math.nan if ends[0] == ends[1] else ends[0] - ends[1], 0.0
    gap = rows - others
    return float(gap.mean()), float(gap.std() / math.sqrt(gap.shape[0]))


def _chance(value: float, error: float) -> float:
    """Two-sided p-value; without an error, the difference is certain."""
    if math.isnan(value):
        return math.nan
    return 2.0 * float(ndtr(-abs(value) / error)) if error else float(value == 0.0)


def _verdict(value: float, p_value: float, delta: float) -> str:
    if math.isnan(value):
        return "unknown"
    return "no clear difference" if p_value > delta else "better" if value < 0 else "worse"


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _latex(text: str) -> str:
    return "".join(
        {"\\": "\\textbackslash{}"}.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign)
        for sign in text
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
