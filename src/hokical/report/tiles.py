"""The three numbers a hurried reader takes away, before and after calibration."""

from __future__ import annotations

from html import escape
from typing import Any

_TILES = (("mean_confidence", "it says"), ("accuracy", "it is right"), ("ece", "calibration error"))


def tiles_html(data: dict[str, Any]) -> str:
    """One list item per number; before and after where there is a before."""
    methods = {method["name"]: method for method in data["methods"]}
    after = methods[data["chosen"]]
    before = methods.get(data["reference"], after)
    return "\n".join(_tile(name, title, before, after) for name, title in _TILES)


def _tile(name: str, title: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    first, last = (_text(name, method["scores"][name]["value"]) for method in (before, after))
    if first == last:
        return f"<li><span>{title}</span> <b>{last}</b></li>"
    then = f'<s>{first}</s> <span aria-hidden="true">→</span><span class="unseen">now</span>'
    return (
        f"<li><span>{title}</span> <b>{then} {last}</b>"
        f"<small>{escape(before['name'])} → {escape(after['name'])}</small></li>"
    )


def _text(name: str, value: float) -> str:
    return f"{value:.4f}" if name == "ece" else f"{value:.1%}"
