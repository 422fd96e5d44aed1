"""The table of methods as HTML that needs no script to be read."""

from __future__ import annotations

from html import escape
from typing import Any

from hokical.report.data import COLUMNS

#: Heading of each column, and what it tells in a few words.
HEADINGS = {
    "mean_confidence": ("says", "mean confidence"),
    "accuracy": ("right", "accuracy"),
    "ece": ("ECE", "equal width"),
    "ece_mass": ("ECE", "equal mass"),
    "smooth_ece": ("smooth ECE", "no bins"),
    "brier": ("Brier", "squared error"),
    "log_loss": ("log loss", "of right or wrong"),
}
_SHARES = ("mean_confidence", "accuracy")


def table_html(data: dict[str, Any]) -> str:
    """One row per method, the best of each score marked, intervals under the values."""
    heads = "".join(
        f'<th scope="col">{title}<small>{meaning}</small></th>'
        for title, meaning in (HEADINGS[name] for name in COLUMNS)
    )
    head = f'<tr><th scope="col">method</th>{heads}<th scope="col">fit<small>time</small></th></tr>'
    rows = "\n".join(_row(method, data) for method in data["methods"])
    return f"<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>"


def notes_html(data: dict[str, Any]) -> str:
    """The notes under the table, by method; empty if there are none."""
    items = [
        f"<li><strong>{escape(method['name'])}</strong>: {escape(note)}</li>"
        for method in data["methods"]
        for note in method["notes"]
    ]
    return f'<ul class="notes">{"".join(items)}</ul>' if items else ""


def _row(method: dict[str, Any], data: dict[str, Any]) -> str:
    name = method["name"]
    cells = "".join(
        _cell(column, method["scores"][column], name in data["best"].get(column, []))
        for column in COLUMNS
    )
    head = f'<th scope="row">{escape(name)}{_badges(method)}</th>'
    fit = f"<td>{_seconds(method['fit_seconds'])}</td>"
    return f'<tr data-method="{escape(name)}">{head}{cells}{fit}</tr>'


def _badges(method: dict[str, Any]) -> str:
    badges = ["changes labels"] if method["may_change_labels"] else []
    badges += [] if method["converged"] else ["not converged"]
    return "".join(f'<span class="badge">{text}</span>' for text in badges)


def _cell(column: str, estimate: dict[str, float | None], is_best: bool) -> str:
    """A value, a mark that does not rest on colour if it is the best, and the interval."""
    low, high = estimate["low"], estimate["high"]
    known = low is not None and high is not None
    ends = f"<small>{_number(column, low)}\u2013{_number(column, high)}</small>" if known else ""
    value = _number(column, estimate["value"])
    if is_best:
        mark = '<span class="star" aria-hidden="true">★</span>'
        return f'<td class="best">{mark}{value}<span class="unseen"> (best)</span>{ends}</td>'
    return f"<td>{value}{ends}</td>"


def _number(column: str, value: float | None) -> str:
    if value is None:  # only a loss can fail to be finite: a wrong label called certain
        return "infinite"
    return f"{value:.1%}" if column in _SHARES else f"{value:.4f}"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
