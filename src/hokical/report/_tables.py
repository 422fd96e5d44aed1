"""A comparison as tables: paired differences, CSV, Markdown, LaTeX, JSON."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._by_class import holm
from hokical.metrics._metric import METRICS
from hokical.report._results import MethodResult

#: What LaTeX would take for markup.
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


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


class Tables:
    """What a comparison gives others: differences, CSV, Markdown, LaTeX, JSON, a DataFrame."""

    results: tuple[MethodResult, ...]
    subject: str

    def differences(
        self, metric: str | None = None, *, against: str | None = None, delta: float = 0.05
    ) -> tuple[Difference, ...]:
        """Paired differences of every other method to one, with intervals and verdicts.

        `metric` is "log_loss_full", "brier_full", "log_loss", "brier" or "ece"; None: the log loss
        of all classes, or of the label if only that is known. `against` None is the subject.
        `delta` is the probability that an interval misses, and the level of verdicts, which allow
        for the number of methods (Holm).
        """
        base = self[against or self.subject]
        name = metric or ("log_loss_full" if self.has_vectors else "log_loss")
        if name not in base.row_scores:
            raise ValueError(f"`metric` must be one of {sorted(base.row_scores)}; got {metric!r}.")
        z = -float(ndtri(0.5 * check_chance("delta", delta)))
        others = [result for result in self.results if result.name != base.name]
        pairs = [
            _pair_difference(result.row_scores[name], base.row_scores[name]) for result in others
        ]
        values, errors = np.array(pairs).reshape(-1, 2).T
        with np.errstate(divide="ignore", invalid="ignore"):  # an infinite difference is certain
            chances = np.where(values == 0.0, 1.0, 2.0 * ndtr(-np.abs(values) / errors))
        columns = (values, values - z * errors, values + z * errors, holm(chances))
        rows: Any = np.transpose(columns).tolist()
        return tuple(
            Difference(result.name, base.name, name, v, low, high, p, _verdict(v, p, delta))
            for result, (v, low, high, p) in zip(others, rows, strict=True)
        )

    @property
    def has_vectors(self) -> bool:
        """Whether the probabilities of all classes are known."""
        return all("brier_full" in result.row_scores for result in self.results)

    @property
    def main_columns(self) -> tuple[str, ...]:
        """What small tables show, in order."""
        full = tuple(
            name for name, metric in METRICS.items() if metric.all_classes and metric.ranking
        )
        last = full if self.has_vectors else ("brier", "log_loss")
        return ("mean_confidence", "accuracy", "ece", *last)

    def __getitem__(self, name: str) -> MethodResult:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(f"no method {name!r} here; there are {[r.name for r in self.results]}.")

    def best(self, score: str) -> MethodResult:
        """The method with the lowest value of a score."""
        return min(self.results, key=lambda result: result.score(score))

    def to_csv(self) -> str:
        """One line per method: every metric and its interval, the difference to the subject.

        Numbers are not rounded.
        """
        rows, out = self._flat_rows(), io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:  # only NaN differs from itself
            writer.writerow({key: "" if value != value else value for key, value in row.items()})
        return out.getvalue()

    def to_pandas(self) -> Any:
        """The columns of `to_csv` as a DataFrame indexed by method; needs pandas."""
        import pandas  # type: ignore[import-untyped]

        return pandas.DataFrame(self._flat_rows()).set_index("method")

    def to_markdown(self) -> str:
        """A table of the main scores, the best in bold."""
        head, *body = self._lines("**{}**", lambda text: text.replace("|", "\\|"))
        rule = [":--", *("--:" for _ in self.main_columns)]
        return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))

    def to_latex(self) -> str:
        """The same as a `tabular` of the package booktabs."""
        lines = self._lines("\\textbf{{{}}}", lambda text: text.translate(_LATEX))
        head, *body = (" & ".join(line) + " \\\\\n" for line in lines)
        columns = f"l{'r' * len(self.main_columns)}"
        begin = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\\midrule\n"
        return f"{begin}{''.join(body)}\\bottomrule\n\\end{{tabular}}\n"

    def _lines(self, mark: str, quote: Callable[[str], str]) -> list[list[str]]:
        """The cells of a small table, its head first, quoted for a language."""
        head = ["method", *(METRICS[name].full_title for name in self.main_columns)]
        rows = ([quote(r.label), *self.marked_cells(r, mark, quote)] for r in self.results)
        return [head, *rows]

    def marked_cells(
        self, result: MethodResult, mark: str, quote: Callable[[str], str] = str
    ) -> list[str]:
        """The quoted cells of a small table, the best of each score in `mark`.

        Equal as shown is equal: readers cannot see which 0.0107 is lower.
        """
        cells = []
        for name in self.main_columns:
            metric = METRICS[name]
            shown, best = (metric.format(r.score(name)) for r in (result, self.best(name)))
            is_best = metric.ranking and shown == best
            cells.append(mark.format(quote(shown)) if is_best else quote(shown))
        return cells

    def _flat_rows(self) -> list[dict[str, Any]]:
        rows = []
        verdicts = {found.method: found for found in self.differences()}
        for result in self.results:
            row: dict[str, Any] = {"method": result.name, "title": result.title}
            for name, found in result.summary.estimates.items():
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            row["true_ece_below"] = result.summary.bounds.get("bousquet", math.nan)
            against = verdicts.get(result.name)
            row |= {
                f"difference_{field}": "" if against is None else getattr(against, field)
                for field in ("against", "metric", "value", "low", "high", "p_value", "verdict")
            }
            rows.append(row | {"fit_seconds": result.fit_seconds})
        return rows


def _pair_difference(rows: FloatArray, others: FloatArray) -> tuple[float, float]:
    """Mean difference and its standard error; without error if one mean is infinite."""
    if not (np.isfinite(rows).all() and np.isfinite(others).all()):
        ends = float(rows.mean()), float(others.mean())
        return math.nan if ends[0] == ends[1] else ends[0] - ends[1], 0.0
    gap = rows - others
    return float(gap.mean()), float(gap.std() / math.sqrt(gap.shape[0]))


def _verdict(value: float, p_value: float, delta: float) -> str:
    if math.isnan(value):
        return "unknown"
    return "no clear difference" if p_value > delta else "better" if value < 0 else "worse"
