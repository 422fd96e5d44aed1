"""A report as one HTML page.

The page is the template with style, scripts and data inside. The data of its diagrams
are sums of bins and points of curves, not confidences, so a report of a million
examples is as small as one of a thousand. Its content security policy says that it
loads nothing and runs only our script, and browsers enforce that, whatever a method's
name or a note may contain.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import date
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from hokical._core.storage import json_values, write_text_atomically
from hokical._core.version import VERSION
from hokical.io.tables import check_output
from hokical.metrics.groups import GroupTable
from hokical.metrics.levels import Bins
from hokical.metrics.risk_models import EVENT_COLUMNS, EVENT_METRICS
from hokical.metrics.summaries import METRICS, SetRow, SetSummary
from hokical.plots import EventPicture, RiskCoverage, axis_top, reliability
from hokical.report.output import (
    Cell,
    Difference,
    main_columns,
    method_cells,
    paired_differences,
)

if TYPE_CHECKING:
    from hokical.report.results import Comparison, DataFacts, Evaluation

#: Bin counts a reader can choose from; 15 is what the table's ECE uses.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)
SCHEMES: tuple[Bins, ...] = ("width", "mass")
#: Groups and classes that are shown; the worst, if there are more.
MAX_SHOWN = 20
#: Six decimals: finer than a pixel, and than the numbers shown.
DIGITS = 6
#: In the order of their dependencies.
_SCRIPTS = ("svg.js", "reliability.js", "risk.js", "event.js", "explorer.js")
#: Classes and sizes with fewer rows are not shown as the worst.
_MIN_ROWS = 20
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
_REUSED = (
    '<p class="warning">Fitted and measured on the same examples: everything here looks '
    "better than it is. Measure on examples that nothing was fitted on.</p>"
)
#: The part on the predicted label, which for two classes is closed at first.
_LABEL_PART = (
    '<details class="label-part"><summary>The predicted label: is it right as often as '
    'its confidence says?</summary>\n<p id="label-lead">{}</p>'
)


def write_page(
    results: Sequence[Evaluation],
    chosen: Evaluation,
    path: Path,
    title: str | None,
    compared: Comparison | None = None,
) -> None:
    """Write a report about `chosen` among evaluations, whole, to a file in a folder
    that exists.

    Those that were `compared` have validation data too, and methods that were left out.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"`path` must end in .html or .htm; got {path.name}. For a PDF print the "
            "page from a browser; for tables see `to_csv` and `to_latex`."
        )
    check_output(path)
    data = chosen.data
    default_title = "Calibration report" + (f": {data.name}" if data.name else "")
    level = f"{1.0 - chosen.summary.options.delta:.0%}"
    texts = {
        **_program(results, chosen),
        **_header(chosen, compared),
        **_parts(results, chosen, compared, level),
        **_kinds(results, data),
        **_several(results),
        "title": escape(title or default_title),
        "level": level,
        "table": _methods_table(results, chosen),
        "method_options": _options(
            {result.name: result.label for result in results}, chosen.name
        ),
        "bin_options": _options({str(n): str(n) for n in BIN_COUNTS}, "15"),
        "sets": _sets_section(results),
        "facts": _facts(chosen, compared, level),
    }
    write_text_atomically(path, Template(asset("template.html")).substitute(texts))


def _program(results: Sequence[Evaluation], chosen: Evaluation) -> dict[str, str]:
    """Style, script and data of the page, and the policy that allows these alone."""
    style = asset("style.css")
    scripts = "\n".join(map(asset, _SCRIPTS))
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    )
    return {
        "policy": escape(policy),
        "style": style,
        "script": script,
        "data": json_for_script(_script_data(results, chosen)),
    }


def _header(chosen: Evaluation, compared: Comparison | None) -> dict[str, str]:
    """Verdict and finding, above all diagrams."""
    reused = compared is not None and compared.tested_on_validation
    return {
        "headline": escape(chosen.verdict),
        "finding": escape(chosen.finding),
        "reused": _REUSED if reused else "",
    }


def _parts(
    results: Sequence[Evaluation],
    chosen: Evaluation,
    compared: Comparison | None,
    level: str,
) -> dict[str, str]:
    """The sections on the event of two classes, if any, before a closed part on the
    predicted label.
    """
    notes_list = _notes(results, compared)
    details = (
        f'<p><span id="details">{escape(chosen.details)}</span> '
        f"Measured on {escape(chosen.data.description)}.</p>"
    )
    if not has_event(results):
        return {
            "event": "",
            "label_details": details,
            "label_begin": "",
            "label_end": "",
            "notes": notes_list,
            "skip": "explore",
        }
    headline = escape(" ".join(chosen.words("label")))
    return {
        "event": _event_section(results, details, notes_list, level),
        "label_details": "",
        "label_begin": _LABEL_PART.format(headline),
        "label_end": "</details>",
        "notes": "",
        "skip": "event",
    }


def _kinds(results: Sequence[Evaluation], data: DataFacts) -> dict[str, str]:
    """What depends on the kind of the scores."""
    of_vectors = all(result.summary.vectors for result in results)
    return {
        "groups": "labels" if data.kind == "scores" else "groups",
        "of_answers": " hidden" if data.kind == "scores" else "",
        "of_logits": "" if data.kind == "logits" else " hidden",
        "of": f"of {'all classes' if of_vectors else 'the predicted label'}",
    }


def _several(results: Sequence[Evaluation]) -> dict[str, str]:
    """What is said of several methods, and of one alone."""
    if len(results) < 2:
        return {"methods_title": "The scores", "best": "", "difference": ""}
    best = (
        ", and the best of each is marked ★; log loss and Brier score tell which "
        "method is better, ECE alone does not"
    )
    difference = (
        " The difference in log loss is measured on the same examples: below 0 is "
        "better."
    )
    return {"methods_title": "The methods", "best": best, "difference": difference}


def _facts(chosen: Evaluation, compared: Comparison | None, level: str) -> str:
    """What was run: data, settings and versions."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    facts = {}
    if compared is not None and compared.validation is not None:
        facts["Validation data"] = compared.validation.named_description
    facts["Test data"] = chosen.data.named_description
    n_bins = chosen.summary.options.n_bins
    facts["Settings"] = f"{n_bins} bins, intervals and bounds at {level}"
    python = platform.python_version()
    facts["Versions"] = f"hokical {VERSION}, python {python}, {libraries}"
    facts["Date"] = date.today().isoformat()
    return "\n".join(
        f"<div><dt>{name}</dt><dd>{escape(fact)}</dd></div>"
        for name, fact in facts.items()
    )


def _notes(results: Sequence[Evaluation], compared: Comparison | None) -> str:
    """Remarks on methods, as a list: one line for all that may change labels, and one
    for each reason to leave methods out.
    """
    remarks = [_label_changes(results)] if _changing(results) else []
    for result in results:
        remarks += [(result.label, problem) for problem in result.problems]
    left_out: dict[str, list[str]] = {}
    for name, reason in {} if compared is None else compared.skipped.items():
        left_out.setdefault(reason, []).append(name)
    remarks += [
        (", ".join(names), f"left out: {reason}.") for reason, names in left_out.items()
    ]
    items = "".join(
        f"<li><strong>{escape(subject)}</strong>: {escape(remark)}</li>"
        for subject, remark in remarks
    )
    return f'<ul class="notes">{items}</ul>' if items else ""


def _changing(results: Sequence[Evaluation]) -> list[Evaluation]:
    return [result for result in results if result.may_change_labels]


def _label_changes(results: Sequence[Evaluation]) -> tuple[str, str]:
    """One note for all methods that may change labels, with the share of right labels
    of each.
    """
    changing = _changing(results)
    shares = "; ".join(
        f"{result.label} {result.score('accuracy'):.2%}" for result in changing
    )
    remark = f"share of right test labels: {shares}"
    before = changing[0].before
    if before is not None:
        remark += f"; all others {before.score('accuracy'):.2%}"
    return "May change labels", f"{remark}."


def has_event(results: Sequence[Evaluation]) -> bool:
    """Whether the page is about the event of two classes."""
    return all(result.binary is not None for result in results)


def _script_data(results: Sequence[Evaluation], chosen: Evaluation) -> Any:
    """What the page's script draws, of each method; non-finite numbers become None.

    Diagrams of an event have common axes.
    """
    summaries = [result.binary for result in results if result.binary is not None]
    of_event = len(summaries) == len(results)
    top = max(map(axis_top, summaries)) if of_event else None
    uncalibrated = [result.name for result in results if result.is_uncalibrated]
    values = {
        "chosen": chosen.name,
        "reference": uncalibrated[0] if uncalibrated else None,
        "methods": [
            _method_data(result, top, bound=result.name == chosen.name)
            for result in results
        ],
    }
    return json_values(values)


def _method_data(result: Evaluation, top: float | None, *, bound: bool) -> Any:
    """What the page's script draws of a method; of an event on axes from 0 to `top`.

    A `bound` is told only of the chosen method, for which alone it holds.
    """
    scores = {
        name: asdict(estimate) for name, estimate in result.summary.estimates.items()
    }
    risk = RiskCoverage.from_levels(result.levels)
    return {
        "name": result.name,
        "label": result.label,
        "headline": result.words(bound=bound),
        "finding": result.finding,
        "label_headline": " ".join(result.words("label", bound=bound)),
        "scores": scores,
        "classes": _group_rows(result.classes),
        "groups": _group_rows(result.groups),
        "reliability": {scheme: _diagrams(result, scheme) for scheme in SCHEMES},
        "risk": _round(risk),
        "event": None if top is None else _event_data(result, top),
    }


def _diagrams(result: Evaluation, scheme: Bins) -> dict[int, dict[str, Any]]:
    """The reliability diagrams of a method, by number of bins."""
    delta = result.summary.options.delta
    return {
        n_bins: _round(
            reliability(result.levels, None, n_bins=n_bins, bins=scheme, delta=delta),
            *_BINS,
        )
        for n_bins in BIN_COUNTS
    }


def _event_data(result: Evaluation, top: float) -> dict[str, Any]:
    """What the page's script draws of the event, on axes from 0 to `top`."""
    summary = result.binary
    if summary is None:
        raise ValueError(f"{result.name} has no event to draw.")
    picture = EventPicture.from_summary(summary, top=top)
    decision = _round(picture.decision, "threshold", "net_benefit", "treat_all")
    decision["prevalence"] = summary["prevalence"].value
    estimates = {
        name: metric.show(summary[name])[0] for name, metric in EVENT_METRICS.items()
    }
    histograms = ("edges", "events", "others", "rug_events", "rug_others")
    return {
        "top": picture.top,
        "estimates": estimates,
        "curve": None if picture.curve is None else _round(picture.curve),
        "bands": picture.bands.to_dict(),
        "decision": decision,
        **_round(picture, *histograms),
    }


def _round(record: Any, *names: str) -> dict[str, Any]:
    """The numbers of a record under these names, or all of them, as precise as a page
    needs.
    """
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: np.round(values[name], DIGITS) for name in names or values}


def _group_rows(table: GroupTable | None) -> dict[str, Any] | None:
    """The rows of a table, those of the smallest p-values if there are many, and the
    verdict.
    """
    if table is None:
        return None
    shown = table.rows if len(table.rows) <= MAX_SHOWN else table.worst(MAX_SHOWN)
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
    # ASCII, so without U+2028 too.
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _digest(text: str) -> str:
    """What a content security policy calls a style or a script by."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def asset(name: str) -> str:
    """The text of a file of this package."""
    return (files("hokical.report") / name).read_text(encoding="utf-8")


def _options(texts: Mapping[str, str], chosen: str) -> str:
    """Option elements of a select, from values to texts."""
    return "\n".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>'
        f"{escape(text)}</option>"
        for value, text in texts.items()
    )


def _table(
    heads: Iterable[str], results: Sequence[Evaluation], rows: list[list[Cell]]
) -> str:
    """Head and body of a table of methods, from the HTML of heads."""
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    body = "\n".join(
        f'<tr data-method="{escape(result.name)}">{_table_row(row)}</tr>'
        for result, row in zip(results, rows, strict=True)
    )
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _table_row(row: list[Cell]) -> str:
    """The cells of a row; lines below a name are badges.

    The best are marked by more than a color.
    """
    name, *cells = row
    badges = "".join(f'<span class="badge">{text}</span>' for text in name.below)
    elements = [f'<th scope="row">{escape(name.text)}{badges}</th>']
    for cell in cells:
        value = escape(cell.text)
        mark = ""
        if cell.best:
            star = '<span class="star" aria-hidden="true">★</span>'
            value = f'{star}{value}<span class="unseen"> (best)</span>'
            mark = ' class="best"'
        small = "".join(f"<small>{escape(line)}</small>" for line in cell.below)
        elements.append(f"<td{mark}>{value}{small}</td>")
    return "".join(elements)


def _methods_table(results: Sequence[Evaluation], chosen: Evaluation) -> str:
    """One row per method, with intervals, the difference to the chosen one, and the
    fit's time.
    """
    main = main_columns(results)
    more = [
        name
        for name, metric in METRICS.items()
        if metric.ranking
        and name not in main
        and all(name in result.summary.estimates for result in results)
    ]
    titles = [
        f"{METRICS[name].title}<small>{METRICS[name].detail}</small>"
        for name in main + more
    ]
    several = len(results) > 1
    if several:
        against = f"log loss against<small>{escape(chosen.label)}</small>"
        titles.insert(len(main), against)
    _, rows = method_cells(results, main + more, event=False)
    differences = {
        difference.method: difference
        for difference in paired_differences(results, chosen)
    }
    for result, row in zip(results, rows, strict=True):
        badges = ["changes labels"] if result.may_change_labels else []
        badges += [] if result.converged else ["not converged"]
        seconds = result.fit_seconds
        row[0] = Cell(result.label, below=tuple(badges))
        if several:
            row.insert(len(main) + 1, _difference_cell(differences.get(result.name)))
        row.append(Cell("before" if seconds is None else f"{seconds:.2f} s"))
    heads = ["method<small></small>", *titles, "fit<small>time</small>"]
    return _table(heads, results, rows)


def _difference_cell(difference: Difference | None) -> Cell:
    """A difference with its interval and verdict; a dash for the chosen method."""
    if difference is None:
        return Cell("\N{EN DASH}")
    if not math.isfinite(difference.value):
        value = METRICS["log_loss"].format(difference.value)
        return Cell(value, below=(difference.verdict,))
    low_high = f"{difference.low:+.4f} to {difference.high:+.4f}"
    return Cell(f"{difference.value:+.4f}", below=(low_high, difference.verdict))


def _event_section(
    results: Sequence[Evaluation], details: str, notes: str, level: str
) -> str:
    """The sections on the event of two classes."""
    summary = results[0].binary
    if summary is None:
        raise ValueError("an event needs two classes.")
    _, rows = method_cells(results, _EVENT, event=True)
    unmarked = [[cell._replace(best=False) for cell in row] for row in rows]
    heads = ["method", *(EVENT_METRICS[name].title for name in _EVENT)]
    return Template(asset("event.html")).substitute(
        name=escape(summary.event),
        events=f"{summary.n_events:,.10g}",
        level=level,
        table=_table(heads, results, unmarked),
        remark=f"<p>{escape(summary.remark)}</p>" if summary.remark else "",
        details=details,
        notes=notes,
    )


def _sets_section(results: Sequence[Evaluation]) -> str:
    """The section on prediction sets; empty where none were asked for."""
    with_sets = [result for result in results if result.sets is not None]
    summaries = [result.sets for result in with_sets if result.sets is not None]
    if not summaries:
        return ""
    rows = [
        _sets_row(result.label, sets)
        for result, sets in zip(with_sets, summaries, strict=True)
    ]
    heads = ("method", "covered", "mean size", "worst class", "worst size")
    goal = summaries[-1].goal
    title = "Prediction sets" if goal is None else f"Prediction sets at {goal:.0%}"
    return (
        f"<section><h2>{title}</h2><p>The classes that a row may have. "
        f"{escape(summaries[-1].source)}</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Prediction sets">'
        f'<table class="methods">{_table(heads, with_sets, rows)}</table></div></section>'
    )


def _sets_row(label: str, sets: SetSummary) -> list[Cell]:
    """Coverage and size of a method's sets, and where they cover least."""
    overall = sets.overall
    low_high = f"{overall.low:.1%}\N{EN DASH}{overall.high:.1%}"
    sizes = f"{sets.size_low:.2f}\N{EN DASH}{sets.size_high:.2f}"
    return [
        Cell(label),
        Cell(f"{overall.coverage:.1%}", below=(low_high,)),
        Cell(f"{overall.mean_size:.2f}", below=(sizes,)),
        _worst_coverage("class", sets.by_class),
        _worst_coverage("size", sets.by_size),
    ]


def _worst_coverage(kind: str, rows: Sequence[SetRow]) -> Cell:
    """The least coverage among rows of sets; shares of few rows are noise."""
    large = [row for row in rows if row.n >= _MIN_ROWS]
    worst = min(large or rows, key=lambda row: row.coverage)
    return Cell(
        f"{worst.coverage:.1%}", below=(f"{kind} {worst.name}, {worst.n:,} rows",)
    )
