"""How results are shown: tables as text, CSV and LaTeX, paired differences, and one
HTML page.

The page is the template with style, scripts and data inside. The data of its diagrams
are sums of bins and points of curves, not confidences, so a report of a million
examples is as small as one of a thousand. Its content security policy says that it
loads nothing and runs only our script, and browsers enforce that, whatever a method's
name or a note may contain.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from hokical._core.storage import StrPath, json_values, write_text_atomically
from hokical._core.version import VERSION
from hokical.guarantees.bounds import check_chance
from hokical.io.tables import check_output
from hokical.metrics.groups import GroupTable, holm
from hokical.metrics.intervals import unskewed, worst_score
from hokical.metrics.levels import Bins
from hokical.metrics.risk_models import EVENT_COLUMNS, EVENT_METRICS
from hokical.metrics.summaries import METRICS
from hokical.plots import EventPicture, RiskCoverage, axis_top, reliability

#: The standard error of rounding: the difference between equal probabilities of
#: float32.
_ROUNDING = 1e-7
#: With fewer errors, differences have the intervals of two means that are not paired.
_FEW_ERRORS = 10.0


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
        return _write(out.getvalue(), path)

    def to_pandas(self) -> Any:
        """The columns of `to_csv` as a DataFrame indexed by method; needs pandas."""
        import pandas  # type: ignore[import-untyped]

        return pandas.DataFrame(self.records()).set_index("method")

    def to_markdown(self, path: StrPath | None = None) -> str:
        """A table of the main scores, the best in bold; also written to `path`, if
        given.
        """
        return _write(self._markdown(), path)

    def _markdown(self) -> str:
        heads, *rows = self._lines("**{}**", {"|": "\\|"})
        lines = (heads, [":--", *("--:" for _ in heads[1:])], *rows)
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _lines(self, mark: str, signs: dict[str, str]) -> list[list[str]]:
        """Heads and rows as texts, with other `signs`; the best cells in `mark`."""
        (heads, rows), table = self.cells(), str.maketrans(signs)
        lines = [list(map(Cell, heads)), *rows]
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
        if path is not None and Path(path).suffix.lower() != ".tex":
            remedy = "For a PDF print the page of `to_html` from a browser."
            raise ValueError(
                f"`path` must end in .tex; got {Path(path).name}. {remedy}"
            )
        lines = self._lines("\\textbf{{{}}}", _LATEX)
        first, *rest = (" & ".join(line) + " \\\\\n" for line in lines)
        begin = f"\\begin{{tabular}}{{l{'r' * (len(lines[0]) - 1)}}}\n\\toprule\n{first}\\midrule\n"
        return _write(f"{begin}{''.join(rest)}\\bottomrule\n\\end{{tabular}}\n", path)

    def __str__(self) -> str:
        return self.to_markdown()


def _write(text: str, path: StrPath | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def main_columns(results: Sequence[Any]) -> list[str]:
    """What small tables show of the predicted label, in order."""
    vectors = all(found.summary.vectors for found in results)
    last = ["classwise_ece"] if vectors else []
    return ["mean_confidence", "accuracy", "ece", *last, "brier", "log_loss"]


def method_cells(
    results: Sequence[Any], columns: Sequence[str] = (), *, event: bool | None = None
) -> TextCells:
    """A row for each method, intervals below the values; small if no columns are named.

    Of the `event` or of the predicted label; None is of the event where there is one.
    """
    if event is None:
        event = all(each.binary is not None for each in results)
    heads = ["method"]
    rows = [[Cell(each.label)] for each in results]
    for name in columns or (EVENT_COLUMNS if event else main_columns(results)):
        metric = (EVENT_METRICS if event else METRICS)[name]
        best = best_of(results, name, event)
        heads.append(metric.full_title)
        for row, each in zip(rows, results, strict=True):
            found = (each.binary if event else each.summary)[name]
            value, ends = metric.show(found, "\N{EN DASH}")
            row.append(
                Cell(
                    value,
                    each.name in best,
                    (ends,) if math.isfinite(found.low) else (),
                )
            )
    return heads, rows


def best_of(results: Sequence[Any], name: str, event: bool = False) -> list[str]:
    """The names of the methods with the best score, as it is shown; none if it ranks
    none.

    Equal as shown is equal: readers cannot see which 0.0107 is lower. With `event`, the
    score is that of the event.
    """
    metric = (EVENT_METRICS if event else METRICS)[name]
    if not metric.ranking or (event and len(results) < 2):
        return []
    values = [(each.binary if event else each.summary)[name].value for each in results]
    if all(map(math.isinf, values)):
        return []
    best = metric.format(max(values) if metric.better == "higher" else min(values))
    return [
        r.name for r, v in zip(results, values, strict=True) if metric.format(v) == best
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


def paired_differences(
    results: Sequence[Any], base: Any, metric: str = "log_loss", delta: float = 0.05
) -> tuple[Difference, ...]:
    """Differences of every other evaluation to `base`; none of streams, whose rows
    are not kept.
    """
    check_chance("delta", delta)
    if not base.row_scores:
        return ()
    if metric not in base.row_scores:
        raise ValueError(
            f"`metric` must be one of {sorted(base.row_scores)}; got {metric!r}."
        )
    others = [result for result in results if result.name != base.name]
    pairs = [_pair_difference(result, base, metric, delta) for result in others]
    p_values = holm(np.array([p for *_, p in pairs])).tolist()
    found = []
    for result, (value, low, high, _), p in zip(others, pairs, p_values, strict=True):
        verdict = (
            "no clear difference" if p > delta else "better" if value < 0 else "worse"
        )
        verdict = "undefined" if math.isnan(value) else verdict
        found.append(
            Difference(result.name, base.name, metric, value, low, high, p, verdict)
        )
    return tuple(found)


def _pair_difference(
    result: Any, base: Any, metric: str, delta: float
) -> tuple[float, float, float, float]:
    """Mean difference, its interval and p-value, by Hall's transformed t statistic.

    One more error moves a difference of log losses by much: of samples with few errors
    the standard error in that direction is at least that of none seen, whose 95 % limit
    is 3.7 (1.9 standard errors). With fewer than `_FEW_ERRORS`, the interval is that of
    two means of their own.
    """
    rows = result.row_scores[metric]
    others = base.row_scores[metric]
    weight = base.weight
    share = (
        np.full(rows.size, 1.0 / rows.size) if weight is None else weight / weight.sum()
    )
    if not (np.isfinite(rows).all() and np.isfinite(others).all()):
        ends = float((share * rows).sum()), float((share * others).sum())
        if ends[0] == ends[1]:
            return math.nan, math.nan, math.nan, math.nan
        return ends[0] - ends[1], math.nan, math.nan, 0.0
    gap = rows - others
    mean = float((share * gap).sum())
    n = 1.0 / float((share**2).sum())
    spread = math.hypot(math.sqrt(float((share * (gap - mean) ** 2).sum())), 1e-300)
    a = float((share * ((gap - mean) / spread) ** 3).sum()) / math.sqrt(n)
    error = math.hypot(spread / math.sqrt(max(n - 1.0, 1.0)), _ROUNDING)
    step = 1.9 * (_one_more(result, metric) - _one_more(base, metric))
    below = math.hypot(error, min(step, 0.0))
    above = math.hypot(error, max(step, 0.0))
    t = mean / (below if mean > 0.0 else above)
    freedom = max(n - 1.0, 1.0)
    p = 2.0 * float(
        stdtr(freedom, -abs(t + a * (t**2 / 3.0 + a * t**3 / 27.0 + 1.0 / 6.0)))
    )
    far, near = unskewed(a, -float(stdtrit(freedom, 0.5 * delta)))
    low = mean - below * max(far, 0.0)
    high = mean - above * min(near, 0.0)
    alone = [each.summary[metric] for each in (result, base)]
    few = float(base.levels.errors.sum()) * base.levels.rows_per_weight < _FEW_ERRORS
    if few and not (math.isnan(alone[0].low) or np.array_equal(rows, others)):
        low = min(low, alone[0].low - alone[1].high)
        high = max(high, alone[0].high - alone[1].low)
    return (
        mean,
        low,
        high,
        p if low > 0.0 or high < 0.0 else max(p, math.nextafter(delta, 1.0)),
    )


def _one_more(result: Any, metric: str) -> float:
    """By how much one more error would raise the mean of a score."""
    levels = result.levels
    scores = METRICS[metric].scores
    assert scores is not None
    worst = worst_score(levels, *scores(levels.confidence))
    worst = 2.0 * worst if metric == "brier" and result.summary.vectors else worst
    return float(worst / (levels.total * levels.rows_per_weight))


#: Bin counts a reader can choose from; 15 is what the table's ECE uses.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)
SCHEMES: tuple[Bins, ...] = ("width", "mass")
#: Groups and classes that are shown; the worst, if there are more.
MOST_SHOWN = 20
#: Six decimals: finer than a pixel, and than the numbers shown.
DIGITS = 6
#: In the order of their dependencies.
_SCRIPTS = ("svg.js", "reliability.js", "risk.js", "event.js", "explorer.js")
#: Classes and sizes with fewer rows are not shown as the worst.
_FEW = 20
#: What a reliability diagram draws of its bins.
_BINS = (
    "ece",
    "count",
    "low",
    "high",
    "confidence",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
)
#: Columns of the page's table of the event.
_EVENT = (*EVENT_COLUMNS, "gini", "ks", "scaled_brier", "ici", "e90", "spiegelhalter_z")


def write_page(
    results: Sequence[Any],
    chosen: Any,
    path: StrPath,
    title: str | None,
    compared: Any = None,
) -> Path:
    """Write a report about `chosen` among evaluations, whole, to a file in a folder
    that exists.

    Those that were `compared` have validation data too, and methods that were left out.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        remedy = (
            "For a PDF print the page from a browser; for tables see `to_csv` and "
            "`to_latex`."
        )
        raise ValueError(
            f"`path` must end in .html or .htm; got {target.name}. {remedy}"
        )
    check_output(target)
    data = chosen.data
    options = chosen.summary.options
    all_classes = all(each.summary.vectors for each in results)
    (verdict, details), level = chosen.words(), f"{1.0 - options.delta:.0%}"
    details = f'<span id="details">{escape(details)}</span>'
    lead = f'<p class="lead">{details} Measured on {data.given}.</p>'
    if compared is not None and compared.tested_on_validation:
        lead += (
            '<p class="warning">Fitted and measured on the same examples: everything here looks '
            "better than it is. Measure on examples that nothing was fitted on.</p>"
        )
    event = label_head = ""
    if all(each.binary is not None for each in results):  # which the headline is about
        event = _event_section(results, lead, level)
        label_head = "<h2>The predicted label</h2>"
        lead = f'<p class="lead" id="label-lead">{escape(" ".join(chosen.words("label")))}</p>'
    notes = [(each.label, note) for each in results for note in each.notes]
    if compared is not None:
        notes += [
            (name, f"left out: {reason}.") for name, reason in compared.skipped.items()
        ]
    items = [
        f"<li><strong>{escape(name)}</strong>: {escape(note)}</li>"
        for name, note in notes
    ]
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    facts = {
        **({} if compared is None else {"Validation data": compared.validation.named}),
        "Test data": data.named,
        "Settings": f"{options.n_bins} bins, intervals and bounds at {level}",
        "Versions": f"hokical {VERSION}, python {platform.python_version()}, {libraries}",
        "Date": date.today().isoformat(),
    }
    style = asset("style.css")
    scripts = "\n".join(map(asset, _SCRIPTS))
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    )
    page = Template(asset("template.html")).substitute(
        policy=escape(policy),
        style=style,
        script=script,
        data=json_for_script(_script_data(results, chosen)),
        title=escape(
            title or "Calibration report" + (f": {data.name}" if data.name else "")
        ),
        headline=escape(verdict),
        lead=lead,
        table=_methods_table(results, chosen),
        notes=f'<ul class="notes">{"".join(items)}</ul>' if items else "",
        method_options=_options(
            {each.name: each.label for each in results}, chosen.name
        ),
        bin_options=_options({count: count for count in BIN_COUNTS}, 15),
        sets=_sets_section([each for each in results if each.sets is not None]),
        event=event,
        label_head=label_head,
        groups="labels" if data.what == "scores" else "groups",
        facts="\n".join(
            f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items()
        ),
        of_answers=" hidden" if data.what == "scores" else "",
        of_logits="" if data.what == "logits" else " hidden",
        of=f"of {'all classes' if all_classes else 'the predicted label'}",
        level=level,
    )
    write_text_atomically(target, page)
    return target


def _script_data(results: Sequence[Any], chosen: Any) -> Any:
    """What the page's script draws, of each method; non-finite numbers become None.

    A bound is told only of the chosen method, for which alone it holds. Diagrams of an
    event have common axes.
    """
    event = all(each.binary is not None for each in results)
    top = max(axis_top(each.binary) for each in results) if event else 1.0
    methods = []
    for each in results:
        bound = each.name == chosen.name
        delta = each.summary.options.delta
        levels = each.levels
        risk = RiskCoverage.from_levels(levels)
        found = {
            "name": each.name,
            "label": each.label,
            "headline": each.words(bound=bound),
            "label_headline": " ".join(each.words("label", bound=bound)),
            "scores": {
                name: asdict(score) for name, score in each.summary.estimates.items()
            },
            "classes": _group_rows(each.classes),
            "groups": _group_rows(each.groups),
            "reliability": {
                scheme: {
                    n: _round(
                        reliability(levels, None, n_bins=n, bins=scheme, delta=delta),
                        *_BINS,
                    )
                    for n in BIN_COUNTS
                }
                for scheme in SCHEMES
            },
            "risk": _round(risk, *vars(risk)),
            "event": None,
        }
        if event:
            picture = EventPicture.from_summary(each.binary, top=top)
            known = each.binary
            decision = _round(picture.decision, "threshold", "net_benefit", "treat_all")
            found["event"] = {
                "top": picture.top,
                "estimates": {n: m.show(known[n])[0] for n, m in EVENT_METRICS.items()},
                "curve": picture.curve and _round(picture.curve, *vars(picture.curve)),
                "bands": picture.bands.to_dict(),
                "decision": decision | {"prevalence": known["prevalence"].value},
                **_round(
                    picture, "edges", "events", "others", "rug_events", "rug_others"
                ),
            }
        methods.append(found)
    before = (
        "uncalibrated" if any(each.name == "uncalibrated" for each in results) else None
    )
    return json_values({"chosen": chosen.name, "reference": before, "methods": methods})


def _round(record: Any, *names: str) -> dict[str, Any]:
    return {name: np.round(getattr(record, name), DIGITS) for name in names}


def _group_rows(table: GroupTable | None) -> dict[str, Any] | None:
    """The rows of a table, those of the smallest p-values if there are many, and the
    verdict.
    """
    if table is None:
        return None
    shown = table.rows if len(table.rows) <= MOST_SHOWN else table.worst(MOST_SHOWN)
    rows = [
        asdict(row) | {"full_name": row.full_name}
        for row in (*shown, *table.segments[:5])
    ]
    return {
        "rows": rows,
        "n_left_out": len(table.rows) - len(shown),
        "verdict": table.verdict,
    }


def json_for_script(data: Any) -> str:
    """JSON that an HTML parser cannot mistake for markup inside a script element.

    >>> json_for_script("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(
        data, allow_nan=False, separators=(",", ":")
    )  # ASCII: no U+2028 either
    return re.sub("[<>&]", lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _digest(text: str) -> str:
    """What a content security policy calls a style or a script by."""
    return (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    )


def asset(name: str) -> str:
    """The text of a file of this package."""
    return (files("hokical.report") / name).read_text(encoding="utf-8")


def _options(texts: dict[Any, Any], chosen: Any) -> str:
    """Option elements of a select, from values to texts."""
    return "\n".join(
        f'<option value="{escape(str(value))}"{" selected" if value == chosen else ""}>'
        f"{escape(str(text))}</option>"
        for value, text in texts.items()
    )


def _table(heads: Iterable[str], results: Sequence[Any], rows: list[list[Cell]]) -> str:
    """Head and body of a table of methods, from the HTML of heads; lines below a name
    are badges.

    The best are marked by more than a colour.
    """
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    lines = []
    for each, (first, *cells) in zip(results, rows, strict=True):
        badges = "".join(f'<span class="badge">{text}</span>' for text in first.below)
        line = f'<th scope="row">{escape(first.text)}{badges}</th>'
        for text, best, below in cells:
            value = escape(text)
            if best:
                star = '<span class="star" aria-hidden="true">★</span>'
                value = f'{star}{value}<span class="unseen"> (best)</span>'
            mark = ' class="best"' if best else ""
            small = "".join(f"<small>{escape(part)}</small>" for part in below)
            line += f"<td{mark}>{value}{small}</td>"
        lines.append(f'<tr data-method="{escape(each.name)}">{line}</tr>')
    body = "\n".join(lines)
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _methods_table(results: Sequence[Any], chosen: Any) -> str:
    """One row per method, with intervals, the difference to the chosen one, and the
    fit's time.
    """
    main = main_columns(results)
    more = [
        name
        for name, metric in METRICS.items()
        if metric.ranking
        and name not in main
        and all(name in r.summary.estimates for r in results)
    ]
    titles = [
        f"{METRICS[name].title}<small>{METRICS[name].detail}</small>"
        for name in main + more
    ]
    titles.insert(len(main), f"log loss against<small>{escape(chosen.label)}</small>")
    _, rows = method_cells(results, main + more, event=False)
    gaps = {found.method: found for found in paired_differences(results, chosen)}
    for each, row in zip(results, rows, strict=True):
        badges = {
            "changes labels": each.may_change_labels,
            "not converged": not each.converged,
        }
        row[0] = Cell(
            each.label, below=tuple(text for text, is_so in badges.items() if is_so)
        )
        difference = Cell("\N{EN DASH}")
        if (gap := gaps.get(each.name)) is not None:
            difference = Cell(
                METRICS["log_loss"].format(gap.value), below=(gap.verdict,)
            )
            if math.isfinite(gap.value):
                ends = f"{gap.low:+.4f} to {gap.high:+.4f}"
                difference = Cell(f"{gap.value:+.4f}", below=(ends, gap.verdict))
        row.insert(len(main) + 1, difference)
        row.append(
            Cell("before" if each.fit_seconds is None else f"{each.fit_seconds:.2f} s")
        )
    return _table(
        ["method<small></small>", *titles, "fit<small>time</small>"], results, rows
    )


def _event_section(results: Sequence[Any], lead: str, level: str) -> str:
    """The sections on the event of two classes."""
    found, (_, rows) = results[0].binary, method_cells(results, _EVENT, event=True)
    plain = [[cell._replace(best=False) for cell in row] for row in rows]
    heads = ["method", *(EVENT_METRICS[name].title for name in _EVENT)]
    return Template(asset("event.html")).substitute(
        name=escape(found.event),
        events=f"{found.n_events:,.10g}",
        level=level,
        table=_table(heads, results, plain),
        remark=f"<p>{escape(found.remark)}</p>" if found.remark else "",
        lead=lead,
    )


def _sets_section(results: Sequence[Any]) -> str:
    """The section on prediction sets; empty where none were asked for."""
    rows = []
    for each in results:
        found = each.sets
        whole = each.sets.overall
        ends = f"{whole.low:.1%}\u2013{whole.high:.1%}"
        sizes = f"{found.size_low:.2f}\u2013{found.size_high:.2f}"
        row = [Cell(each.label), Cell(f"{whole.coverage:.1%}", below=(ends,))]
        row.append(Cell(f"{whole.mean_size:.2f}", below=(sizes,)))
        for name, parts in (("class", found.by_class), ("size", found.by_size)):
            many = [
                part for part in parts if part.n >= _FEW
            ]  # shares of fewer are noise
            worst = min(many or parts, key=lambda part: part.coverage)
            about = f"{name} {worst.name}, {worst.n:,} rows"
            row.append(Cell(f"{worst.coverage:.1%}", below=(about,)))
        rows.append(row)
    if not rows:
        return ""
    heads = ("method", "covered", "mean size", "worst class", "worst size")
    known = results[-1].sets
    return (
        f"<section><h2>Prediction sets at {known.goal:.0%}</h2><p>The classes that a "
        "row may "
        f'have. {escape(known.source)}</p><div class="scroll">'
        f'<table class="methods">{_table(heads, results, rows)}</table></div></section>'
    )
