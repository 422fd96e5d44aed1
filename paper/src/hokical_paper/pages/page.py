"""All tables, figures and findings on one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

import hokical
from hokical_paper.running.methods import EXACT, SAMPLED, title_of
from hokical_paper.running.results import Results
from hokical_paper.tables.findings import findings
from hokical_paper.tables.render import to_html
from hokical_paper.tables.table import Table
from hokical_paper.tables.wins import CONTESTS, paper_methods, wins


def render_page(
    results: Results,
    tables: Mapping[str, Table],
    figures: Mapping[str, tuple[str, bytes]],
) -> str:
    """The page; `figures` has a caption and a PNG by name."""
    style = _asset("hokical.report", "style.css") + _asset(
        "hokical_paper.pages", "page.css"
    )
    sentences = findings(results)
    return Template(_asset("hokical_paper.pages", "page.html")).substitute(
        policy=escape(_policy(style)),
        style=style,
        headline=escape(sentences[0]),
        lead=escape(_lead(results)),
        tiles="\n".join(_tiles(results)),
        findings="\n".join(f"<li>{escape(text)}</li>" for text in sentences[1:]),
        contents="\n".join(_link(name, table.title) for name, table in tables.items()),
        tables="\n".join(_section(name, table) for name, table in tables.items()),
        figures="\n".join(_figure(name, *figure) for name, figure in figures.items()),
        pairs=_pairs(results),
        notes=_notes(results),
        version=escape(hokical.__version__),
    )


def _lead(results: Results) -> str:
    n_pairs = len(results.suite.pairs)
    n_methods = len(results.methods)
    return (
        f"{n_methods} methods, fitted on the validation logits of {n_pairs} pairs of "
        "network and data set and measured on their test logits, next to the numbers "
        "of the paper."
    )


def _tiles(results: Results) -> list[str]:
    """The most important numbers: of the pairs on which a form of Hoki ran."""
    facts = []
    for name, score in ((SAMPLED, "ece"), (EXACT, "ece"), (EXACT, "brier")):
        ran = [pair for pair in results.suite.pairs if results.get(pair, name)]
        among = paper_methods(exact=name == EXACT)
        won = wins(results, among, score, ran)[name]
        title = f"{title_of(name)}: lowest {CONTESTS[score]}"
        facts.append((title, f"{won} of {len(ran)}"))
    small = "<small>among those of the paper's ten that ran</small>"
    return [
        f"<li><span>{escape(name)}</span> <b>{text}</b>{small}</li>"
        for name, text in facts
    ]


def _link(name: str, title: str) -> str:
    return f'<li><a href="#{escape(name)}">{escape(title)}</a></li>'


def _section(name: str, table: Table) -> str:
    title = f"{name}-title"
    lead = f"<p>{escape(table.lead)}</p>\n" if table.lead else ""
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    return (
        f'<section id="{escape(name)}" aria-labelledby="{title}">\n'
        f'<h2 id="{title}">{escape(table.title)}</h2>\n{lead}'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{title}">\n'
        f"{to_html(table)}\n</div>\n{notes}\n</section>"
    )


def _figure(name: str, caption: str, png: bytes) -> str:
    data = base64.b64encode(png).decode("ascii")
    text = escape(caption)
    return (
        f'<figure id="figure-{escape(name)}"><img alt="{text}" '
        f'src="data:image/png;base64,{data}"><figcaption><p>{text}</p></figcaption></figure>'
    )


def _pairs(results: Results) -> str:
    """The pairs and how their logits were computed."""
    heads = ("data set", "network", "classes", "accuracy", "how it was made")
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    rows = []
    for pair in results.suite.pairs:
        accuracy = pair.entry.get("test_accuracy")
        cells = (
            pair.dataset_title,
            pair.title,
            str(pair.n_classes),
            "" if accuracy is None else f"{accuracy:.2%}",
            str(pair.entry.get("how", "")),
        )
        rows.append(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        )
    body = "".join(rows)
    return (
        f'<table class="pairs"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _notes(results: Results) -> str:
    """The warnings of the fits."""
    items = [
        f"<li><strong>{escape(pair.name)}, {escape(result.method)}</strong>: "
        f"{escape(note)}</li>"
        for pair in results.suite.pairs
        for result in results.of_pair(pair)
        for note in result.notes
    ]
    return f'<ul class="notes">{"".join(items)}</ul>' if items else ""


def _policy(style: str) -> str:
    """Content security policy: the page loads nothing, and only its own style
    applies.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'"


def _asset(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")
