"""A report's data as one HTML page: the template, with style, scripts and data inside.

Its content security policy says that it loads nothing and runs only our script, and browsers
enforce that, whatever a method's name or a note may contain.
"""

import base64
import hashlib
import json
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from hokical._core.files import write_text_atomically
from hokical.metrics._metric import METRICS
from hokical.report._groups import groups_html
from hokical.report._sets import sets_html

#: In the order of their dependencies.
_SCRIPTS = ("svg.js", "reliability.js", "risk.js", "explorer.js")
#: What the data are, by what was given of them, and what else a reader has to know.
_DATA = {
    "logits": "{n_rows:,} examples of {n_classes} classes",
    "confidences": "{n_rows:,} confidences",
    "scores": "{n_rows:,} examples with {n_classes} labels",
}
_OF_LABELS = (
    " Every label of every example is a prediction of its own: its confidence is the probability "
    "of the label, and accuracy the share of labels that are there."
)
_TILES = {"mean_confidence": "confidence", "accuracy": "accuracy", "ece": "calibration error"}
_SUFFIXES = (".html", ".htm")


def write_page(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a report atomically to a file in a folder that exists."""
    target = Path(path)
    if target.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"`path` must end in .html or .htm, as a report is an HTML page; got {target.name}. "
            "For a PDF print the page from a browser; for tables see `to_csv` and `to_latex` of a "
            "comparison."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"`path` must name a file in an existing folder; got {target}. Create {target.parent} "
            "first."
        )
    if target.is_dir():
        raise IsADirectoryError(f"`path` must name a file; {target} is a folder.")
    write_text_atomically(target, render_page(data))
    return target


def render_page(data: dict[str, Any]) -> str:
    """The whole page, as text."""
    style, scripts = asset("style.css"), "\n".join(asset(name) for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    what = data["provenance"]["test"]["what"]
    policy = f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}"
    return Template(asset("template.html")).substitute(
        policy=escape(policy),
        style=style,
        script=script,
        data=json_for_script(data),
        title=escape(data["title"]),
        headline=escape(data["headline"]),
        lead=escape(_lead(data)),
        tiles=tiles_html(data),
        table=table_html(data),
        notes=notes_html(data),
        method_options=_options({m["name"]: m["label"] for m in data["methods"]}, data["chosen"]),
        bin_options=_options({count: count for count in data["bin_counts"]}, 15),
        sets=sets_html(data),
        groups=groups_html(data),
        facts=facts_html(data),
        of_answers=" hidden" if what == "scores" else "",
        of_logits="" if what == "logits" else " hidden",
        of="of all classes" if data["vectors"] else "of the predicted label",
        level=f"{1.0 - data['options']['delta']:.0%}",
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


def _lead(data: dict[str, Any]) -> str:
    test, validation = data["provenance"]["test"], data["provenance"]["validation"]
    if validation is None:
        shown = _DATA[test["what"]].format(**test)
        return f"Measured on {shown}.{_OF_LABELS * (test['what'] == 'scores')}"
    n_methods = len(data["methods"])
    compared = "One method" if n_methods == 1 else f"{n_methods} methods"
    fitted = f"{compared}, fitted on {validation['n_rows']:,} validation examples"
    if data["provenance"]["tested_on_validation"]:
        return (
            f"{fitted} and measured on the same ones, {test['n_classes']} classes. Everything here "
            "looks better than it is: measure on examples that nothing was fitted on."
        )
    return f"{fitted} and measured on {test['n_rows']:,} other ones, {test['n_classes']} classes."


def _options(texts: dict[Any, Any], chosen: Any) -> str:
    """Option elements of a select, from values to texts."""
    return "\n".join(
        f'<option value="{escape(str(value))}"{" selected" if value == chosen else ""}>'
        f"{escape(str(text))}</option>"
        for value, text in texts.items()
    )


def tiles_html(data: dict[str, Any]) -> str:
    """The three most important numbers, before and after calibration if there is a before."""
    methods = {method["name"]: method for method in data["methods"]}
    after = methods[data["chosen"]]
    before = methods.get(data["reference"], after)
    tiles = []
    there = data["provenance"]["test"]["what"] == "scores"
    for name, title in (_TILES | ({"accuracy": "labels there"} if there else {})).items():
        values = (method["scores"][name]["value"] for method in (before, after))
        first, last = map(METRICS[name].format, values)
        if first == last:
            tiles.append(f"<li><span>{title}</span> <b>{last}</b></li>")
            continue
        then = f'<s>{first}</s> <span aria-hidden="true">→</span><span class="unseen">now</span>'
        names = f"<small>{escape(before['label'])} → {escape(after['label'])}</small>"
        tiles.append(f"<li><span>{title}</span> <b>{then} {last}</b>{names}</li>")
    return "\n".join(tiles)


def table_html(data: dict[str, Any]) -> str:
    """One row per method, the best of each score marked, intervals under the values."""
    titles = {name: (metric.title, metric.detail) for name, metric in METRICS.items()}
    titles["difference"] = ("log loss against", escape(data["chosen_label"]))
    heads = "".join(
        f'<th scope="col">{title}<small>{meaning}</small></th>'
        for title, meaning in (titles[name] for name in data["columns"])
    )
    head = f'<tr><th scope="col">method</th>{heads}<th scope="col">fit<small>time</small></th></tr>'
    rows = "\n".join(_row(method, data) for method in data["methods"])
    return f"<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>"


def notes_html(data: dict[str, Any]) -> str:
    """The notes under the table, by method; empty if there are none."""
    notes = [(method["label"], note) for method in data["methods"] for note in method["notes"]]
    notes += [(name, f"left out: {reason}.") for name, reason in data["skipped"].items()]
    items = [f"<li><strong>{escape(name)}</strong>: {escape(note)}</li>" for name, note in notes]
    return f'<ul class="notes">{"".join(items)}</ul>' if items else ""


def facts_html(data: dict[str, Any]) -> str:
    """Data, settings and versions."""
    origin, options = data["provenance"], data["options"]
    versions = ", ".join(f"{name} {number}" for name, number in origin["versions"].items())
    settings = (
        f"{options['n_bins']} bins; {options['n_resamples']} bootstrap resamples, "
        f"{1.0 - options['delta']:.0%} intervals, seed {options['seed']}; "
        f"bounds that fail with a probability of {options['delta']:.0%}"
    )
    rows = {
        "Date": escape(origin["date"]),
        **{
            f"{name.capitalize()} data": _data_line(origin[name])
            for name in ("validation", "test")
            if origin[name] is not None
        },
        "Settings": escape(settings),
        "Versions": escape(f"{versions}, on {origin['machine']}"),
    }
    return "\n".join(f"<div><dt>{term}</dt><dd>{text}</dd></div>" for term, text in rows.items())


def _row(method: dict[str, Any], data: dict[str, Any]) -> str:
    name, seconds = method["name"], method["fit_seconds"]
    badges = ["changes labels"] if method["may_change_labels"] else []
    badges += [] if method["converged"] else ["not converged"]
    marks = "".join(f'<span class="badge">{text}</span>' for text in badges)
    cells = "".join(
        _difference_cell(method["difference"])
        if column == "difference"
        else _cell(column, method["scores"][column], name in data["best"].get(column, []))
        for column in data["columns"]
    )
    time = "before" if seconds is None else f"{seconds:.1f} s"
    time = f"{1000 * seconds:.0f} ms" if seconds is not None and seconds < 1 else time
    head = f'<th scope="row">{escape(method["label"])}{marks}</th>'
    return f'<tr data-method="{escape(name)}">{head}{cells}<td>{time}</td></tr>'


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
    shown = {name: METRICS[column].format(number) for name, number in estimate.items()}
    value, ends = shown["value"], ""
    if estimate["low"] is not None and estimate["high"] is not None:
        ends = f"<small>{shown['low']}\u2013{shown['high']}</small>"
        if estimate["corrected"] is not None:
            ends += f"<small>corrected {shown['corrected']}</small>"
    if is_best:
        mark = '<span class="star" aria-hidden="true">★</span>'
        return f'<td class="best">{mark}{value}<span class="unseen"> (best)</span>{ends}</td>'
    return f"<td>{value}{ends}</td>"


def _data_line(facts: dict[str, Any]) -> str:
    shape = f"{_DATA[facts['what']].format(**facts)}, {facts['dtype']} {facts['what']}"
    right = "of the labels are there" if facts["what"] == "scores" else "accuracy"
    name = "" if facts["name"] is None else f"<strong>{escape(facts['name'])}</strong>: "
    return f"{name}{escape(shape)}, {facts['accuracy']:.2%} {right}"
