"""A report's data as one HTML page: the template, with style, scripts and data inside.

Its content security policy says that it loads nothing and runs only our script, and browsers
enforce that, whatever a method's name or a note may contain.
"""

import base64
import hashlib
import json
import os
import platform
from collections.abc import Iterable
from datetime import date
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from hokical._core.files import write_text_atomically
from hokical._core.version import VERSION
from hokical.io._tables import check_output
from hokical.metrics._metric import METRICS
from hokical.metrics._risk_models import EVENT_COLUMNS, EVENT_TITLES

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
    heads = ["method", *(EVENT_TITLES[name][0] for name in _EVENT)]
    rows = []
    for method in methods:
        event, cells = method["event"], [f'<th scope="row">{escape(method["label"])}</th>']
        for name in _EVENT:
            ends = f"<small>{event['ends'][name]}</small>" if event["ends"][name] else ""
            cells.append(f"<td>{event['estimates'][name]}{ends}</td>")
        rows.append((method["name"], cells))
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


def _lead(data: dict[str, Any]) -> str:
    """Shares, guarantee and data, after a warning if the test is none."""
    shown = _DATA[data["data"]["what"]].format(**data["data"])
    text = f'<p class="lead">{escape(data["headline"][1])} Measured on {shown}.</p>'
    if data["tested_on_validation"]:
        text += (
            '<p class="warning">Fitted and measured on the same examples: everything here looks '
            "better than it is. Measure on examples that nothing was fitted on.</p>"
        )
    return text


def _label_lead(data: dict[str, Any]) -> str:
    """What is said of the predicted label, where the headline is about the event."""
    return f'<p class="lead">{escape(data["label_headline"])}</p>'


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
    badges += [] if method["converged"] else ["not converged"]
    marks = "".join(f'<span class="badge">{text}</span>' for text in badges)
    yield f'<th scope="row">{escape(method["label"])}{marks}</th>'
    for column in data["columns"]:
        if column == "difference":
            yield _difference_cell(method["difference"])
        else:
            yield _cell(column, method["scores"][column], name in data["best"].get(column, []))
    yield f"<td>{'before' if seconds is None else f'{seconds:.2f} s'}</td>"


def _difference_cell(found: dict[str, Any] | None) -> str:
    """The difference in log loss to the headline's method, its interval and the verdict."""
    if found is None:
        return "<td>\u2013</td>"
    ends = [found[name] for name in ("value", "low", "high")]
    if None in ends:
        return f"<td>infinite<small>{found['verdict']}</small></td>"
    value, low, high = (f"{end:+.4f}" for end in ends)
    return f"<td>{value}<small>{low} to {high}</small><small>{found['verdict']}</small></td>"


def _cell(column: str, estimate: dict[str, float | None], is_best: bool) -> str:
    """A value, its interval, and if it is the best a mark that does not rely on colour."""
    ends = (estimate[name] for name in ("value", "low", "high"))
    value, low, high = map(METRICS[column].format, ends)
    interval = "" if estimate["low"] is None else f"<small>{low}\u2013{high}</small>"
    if is_best:
        mark = '<span class="star" aria-hidden="true">★</span>'
        return f'<td class="best">{mark}{value}<span class="unseen"> (best)</span>{interval}</td>'
    return f"<td>{value}{interval}</td>"


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
    ends = f"<small>{whole['low']:.1%}\u2013{whole['high']:.1%}</small>"
    sizes = f"<small>{found['size_low']:.2f}\u2013{found['size_high']:.2f}</small>"
    yield f'<th scope="row">{escape(method["label"])}</th><td>{whole["coverage"]:.1%}{ends}</td>'
    yield f"<td>{whole['mean_size']:.2f}{sizes}</td>"
    for name in ("class", "size"):
        rows = found[f"by_{name}"]
        many = [row for row in rows if row["n"] >= _FEW]  # shares of fewer are noise
        row = min(many or rows, key=lambda row: row["coverage"])
        about = f"{name} {escape(row['name'])}, {row['n']:,} rows"
        yield f"<td>{row['coverage']:.1%}<small>{about}</small></td>"


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
