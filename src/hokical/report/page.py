"""A report as one HTML page, results as tables, and methods ranked over several data sets.

The page is the template with style, scripts and data inside. Its content security policy says that
it loads nothing and runs only our script, and browsers enforce that, whatever a method's name or a
note may contain.
"""

import base64
import csv
import hashlib
import io
import json
import math
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray
from hokical._core.storage import write_text_atomically
from hokical._core.version import VERSION
from hokical.guarantees.bounds import check_chance
from hokical.io.reading import Location
from hokical.io.tables import check_output
from hokical.metrics.risk_models import EVENT_COLUMNS, EVENT_METRICS
from hokical.metrics.summaries import METRICS

#: In the order of their dependencies.
_SCRIPTS = ("svg.js", "reliability.js", "risk.js", "event.js", "explorer.js")
#: What the data are, by what was given of them.
_DATA = {
    "logits": "{n_rows:,} examples of {n_classes} classes",
    "confidences": "{n_rows:,} confidences",
    "scores": "{n_rows:,} examples with {n_classes} labels, each a prediction of its own",
}
_SUFFIXES = (".html", ".htm")
#: Classes and sizes with fewer rows are not shown as the worst.
_FEW = 20


def write_page(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a report atomically to a file in a folder that exists."""
    target = Path(path)
    if target.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"`path` must end in .html or .htm, as a report is an HTML page; got {target.name}. "
            "For a PDF print the page from a browser; for tables see `to_csv` and `to_latex` of a "
            "comparison."
        )
    check_output(target)
    write_text_atomically(target, render_page(data))
    return target


def render_page(data: dict[str, Any]) -> str:
    """The whole page, as text."""
    style, scripts = asset("style.css"), "\n".join(asset(name) for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    what = data["data"]["what"]
    policy = f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}"
    return Template(asset("template.html")).substitute(
        policy=escape(policy),
        style=style,
        script=script,
        data=json_for_script(data),
        title=escape(data["title"]),
        headline=escape(data["headline"][0]),
        lead=_lead(data) if data["methods"][0]["event"] is None else _label_lead(data),
        table=methods_html(data),
        notes=notes_html(data),
        method_options=_options({m["name"]: m["label"] for m in data["methods"]}, data["chosen"]),
        bin_options=_options({count: count for count in data["bin_counts"]}, 15),
        sets=sets_html(data),
        event=event_html(data),
        label_head="" if data["methods"][0]["event"] is None else "<h2>The predicted label</h2>",
        groups="labels" if what == "scores" else "groups",
        facts=facts_html(data),
        of_answers=" hidden" if what == "scores" else "",
        of_logits="" if what == "logits" else " hidden",
        of="of all classes" if data["vectors"] else "of the predicted label",
        level=f"{1.0 - data['options']['delta']:.0%}",
    )


#: Columns of the table of the event, beside those of the methods' small table.
_EVENT = (*EVENT_COLUMNS, "gini", "ks", "scaled_brier", "ici", "e90", "spiegelhalter_z")


def event_html(data: dict[str, Any]) -> str:
    """The sections on the event of two classes; empty for more."""
    methods = data["methods"]
    if methods[0]["event"] is None:
        return ""
    heads = ["method", *(EVENT_METRICS[name].title for name in _EVENT)]
    rows = []
    for method in methods:
        values, ends = method["event"]["estimates"], method["event"]["ends"]
        cells = (_cell(values[name], ends[name]) for name in _EVENT)
        rows.append((method["name"], [_row_head(method), *cells]))
    event = methods[-1]["event"]
    remark = f"<p>{escape(event['remark'])}</p>" if event["remark"] else ""
    return Template(asset("event.html")).substitute(
        name=escape(event["name"]),
        events=f"{event['n_events']:,.10g}",
        level=f"{1.0 - data['options']['delta']:.0%}",
        table=table_html(heads, rows),
        remark=remark,
        lead=_lead(data),
    )


def json_for_script(data: Any) -> str:
    """JSON that an HTML parser cannot mistake for markup inside a script element.

    >>> json_for_script("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: no U+2028 either
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def digest(text: str) -> str:
    """What a content security policy calls a style or a script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def asset(name: str) -> str:
    """The text of a file of this package."""
    return (files("hokical.report") / name).read_text(encoding="utf-8")


def table_html(heads: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Head and body of a table, from the HTML of heads, and of names and cells of rows."""
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "\n".join(
        f'<tr data-method="{escape(name)}">{"".join(cells)}</tr>' for name, cells in rows
    )
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _cell(value: str, *below: str, mark: str = "") -> str:
    """A cell with smaller lines below its value."""
    lines = "".join(f"<small>{line}</small>" for line in below if line)
    return f"<td{mark}>{value}{lines}</td>"


def _row_head(method: dict[str, Any], badges: Iterable[str] = ()) -> str:
    marks = "".join(f'<span class="badge">{text}</span>' for text in badges)
    return f'<th scope="row">{escape(method["label"])}{marks}</th>'


def _lead(data: dict[str, Any]) -> str:
    """Shares, guarantee and data, after a warning if the test is none."""
    shown = _DATA[data["data"]["what"]].format(**data["data"])
    details = f'<span id="details">{escape(data["headline"][1])}</span>'
    text = f'<p class="lead">{details} Measured on {shown}.</p>'
    if data["tested_on_validation"]:
        text += (
            '<p class="warning">Fitted and measured on the same examples: everything here looks '
            "better than it is. Measure on examples that nothing was fitted on.</p>"
        )
    return text


def _label_lead(data: dict[str, Any]) -> str:
    """What is said of the predicted label, where the headline is about the event."""
    return f'<p class="lead" id="label-lead">{escape(data["label_headline"])}</p>'


def _options(texts: dict[Any, Any], chosen: Any) -> str:
    """Option elements of a select, from values to texts."""
    return "\n".join(
        f'<option value="{escape(str(value))}"{" selected" if value == chosen else ""}>'
        f"{escape(str(text))}</option>"
        for value, text in texts.items()
    )


def methods_html(data: dict[str, Any]) -> str:
    """One row per method, the best of each score marked, intervals under the values."""
    titles = {name: (metric.title, metric.detail) for name, metric in METRICS.items()}
    titles["difference"] = ("log loss against", escape(data["chosen_label"]))
    shown = [("method", ""), *(titles[name] for name in data["columns"]), ("fit", "time")]
    heads = (f"{title}<small>{meaning}</small>" for title, meaning in shown)
    return table_html(heads, ((each["name"], _cells(each, data)) for each in data["methods"]))


def _cells(method: dict[str, Any], data: dict[str, Any]) -> Iterable[str]:
    name, seconds = method["name"], method["fit_seconds"]
    badges = ["changes labels"] if method["may_change_labels"] else []
    yield _row_head(method, badges + ([] if method["converged"] else ["not converged"]))
    for column in data["columns"]:
        if column == "difference":
            yield _difference_cell(method["difference"])
        else:
            is_best = name in data["best"].get(column, [])
            yield _score_cell(column, method["scores"][column], is_best)
    yield _cell("before" if seconds is None else f"{seconds:.2f} s")


def _difference_cell(found: dict[str, Any] | None) -> str:
    """The difference in log loss to the headline's method, its interval and the verdict."""
    if found is None:
        return _cell("\u2013")
    ends = [found[name] for name in ("value", "low", "high")]
    if None in ends:
        return _cell("infinite", found["verdict"])
    value, low, high = (f"{end:+.4f}" for end in ends)
    return _cell(value, f"{low} to {high}", found["verdict"])


def _score_cell(column: str, estimate: dict[str, float | None], is_best: bool) -> str:
    """A value, its interval, and if it is the best a mark that does not rely on colour."""
    ends = (estimate[name] for name in ("value", "low", "high"))
    value, low, high = map(METRICS[column].format, ends)
    interval = "" if estimate["low"] is None else f"{low}\u2013{high}"
    if not is_best:
        return _cell(value, interval)
    star = f'<span class="star" aria-hidden="true">★</span>{value}'
    return _cell(f'{star}<span class="unseen"> (best)</span>', interval, mark=' class="best"')


def notes_html(data: dict[str, Any]) -> str:
    """The notes under the table, by method; empty if there are none."""
    notes = [(method["label"], note) for method in data["methods"] for note in method["notes"]]
    notes += [(name, f"left out: {reason}.") for name, reason in data["skipped"].items()]
    items = [f"<li><strong>{escape(name)}</strong>: {escape(note)}</li>" for name, note in notes]
    return f'<ul class="notes">{"".join(items)}</ul>' if items else ""


def sets_html(data: dict[str, Any]) -> str:
    """The section on prediction sets; empty where none were asked for."""
    methods = [method for method in data["methods"] if method["sets"] is not None]
    if not methods:
        return ""
    known = methods[-1]["sets"]
    heads = ("method", "covered", "mean size", "worst class", "worst size")
    table = table_html(heads, ((each["name"], _set_cells(each)) for each in methods))
    return (
        f"<section><h2>Prediction sets at {known['goal']:.0%}</h2><p>The classes that a row may "
        f'have. {escape(known["source"])}</p><div class="scroll">'
        f'<table class="methods">{table}</table></div></section>'
    )


def _set_cells(method: dict[str, Any]) -> Iterable[str]:
    found = method["sets"]
    whole = found["overall"]
    yield _row_head(method)
    yield _cell(f"{whole['coverage']:.1%}", f"{whole['low']:.1%}\u2013{whole['high']:.1%}")
    sizes = f"{found['size_low']:.2f}\u2013{found['size_high']:.2f}"
    yield _cell(f"{whole['mean_size']:.2f}", sizes)
    for name in ("class", "size"):
        rows = found[f"by_{name}"]
        many = [row for row in rows if row["n"] >= _FEW]  # shares of fewer are noise
        row = min(many or rows, key=lambda row: row["coverage"])
        about = f"{name} {escape(row['name'])}, {row['n']:,} rows"
        yield _cell(f"{row['coverage']:.1%}", about)


def facts_html(data: dict[str, Any]) -> str:
    """Data, settings, versions and date."""
    rows = {}
    for name, facts in (("Validation data", data["validation"]), ("Test data", data["data"])):
        if facts is not None:
            shown = _DATA[facts["what"]].format(**facts)
            rows[name] = shown if facts["name"] is None else f"{facts['name']}: {shown}"
    level = f"{1.0 - data['options']['delta']:.0%}"
    rows["Settings"] = f"{data['options']['n_bins']} bins, intervals and bounds at {level}"
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    rows["Versions"] = f"hokical {VERSION}, python {platform.python_version()}, {libraries}"
    rows["Date"] = date.today().isoformat()
    return "\n".join(
        f"<div><dt>{term}</dt><dd>{escape(text)}</dd></div>" for term, text in rows.items()
    )


#: What LaTeX would take for markup.
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
#: Heads, and rows of cells, each (text, mark around it).
TextCells = tuple[Sequence[str], Sequence[Sequence[tuple[str, str]]]]


class TableOutput(ABC):
    """A result with a row for each method."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The numbers of each row, not rounded, by column; the first is "method"."""

    @abstractmethod
    def cells(self, mark: str) -> TextCells:
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

    def cells(self, mark: str) -> TextCells:
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
