"""What was run, with which data, as an HTML list of terms."""

from __future__ import annotations

from html import escape
from typing import Any


def facts_html(data: dict[str, Any]) -> str:
    """Data with their hashes, versions, seed: enough to tell whether another run is the same."""
    origin, options = data["provenance"], data["options"]
    versions = ", ".join(f"{name} {number}" for name, number in origin["versions"].items())
    settings = (
        f"{options['n_bins']} bins; {options['n_resamples']} bootstrap resamples, "
        f"{options['level']:.0%} intervals ({options['interval']}), seed {options['seed']}; "
        f"bounds that fail with a chance of {options['delta']:.0%}"
    )
    rows = {
        "Validation data": _data_line(origin["validation"]),
        "Test data": _data_line(origin["test"]),
        "Settings": escape(settings),
        "Versions": escape(f"{versions}, on {origin['machine']}"),
    }
    return "\n".join(f"<div><dt>{term}</dt><dd>{text}</dd></div>" for term, text in rows.items())


def _data_line(facts: dict[str, Any]) -> str:
    shape = f"{facts['n_rows']:,} examples of {facts['n_classes']} classes, {facts['dtype']} logits"
    right = f"{facts['accuracy']:.2%} of the labels right"
    return (
        f"{escape(shape)}, {right}; <span>sha256 of logits and labels</span> "
        f"<code>{escape(facts['sha256'])}</code>"
    )
