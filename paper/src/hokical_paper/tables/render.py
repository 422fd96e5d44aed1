"""Tables as Markdown, CSV and HTML, and for the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from hokical_paper.tables.table import Cell, Row, Table

if TYPE_CHECKING:
    import rich.table

_MARKDOWN = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
_TERMINAL = {"best": "bold", "second": "underline", "": ""}
_CSV = (
    "table",
    "head",
    "subhead",
    "source",
    "column",
    "text",
    "value",
    "low",
    "high",
    "mark",
)


def to_markdown(table: Table) -> str:
    """A heading, the table with best in bold and second best underlined, and the notes.

    >>> row = Row(
    ...     ("CIFAR-10", "ResNet-110"), "ours", (Cell("0.0123", 0.0123, mark="best"),)
    ... )
    >>> print(to_markdown(Table("ece", "ECE", ("temps",), (row,))))
    ### ECE
    <BLANKLINE>
    | data set | network |  | temps |
    |---|---|---|--:|
    | CIFAR-10 | ResNet-110 | ours | **0.0123** |
    <BLANKLINE>
    """
    heads = (*table.heads, "", *table.columns)
    rule = "|---|---|---|" + "--:|" * len(table.columns)
    lead = [table.lead, ""] if table.lead else []
    lines = [f"### {table.title}", "", *lead, _markdown_line(heads), rule]
    for row, labels in _label_rows(table):
        cells = [_MARKDOWN[cell.mark].format(cell.text) for cell in row.cells]
        lines.append(_markdown_line((*labels, *cells)))
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """One line per cell, with the unrounded number and its interval."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            numbers = (
                "" if x is None else repr(x) for x in (cell.value, cell.low, cell.high)
            )
            place = (table.name, *row.heads, row.source, column)
            writer.writerow((*place, cell.text, *numbers, cell.mark))
    return out.getvalue()


def to_html(table: Table) -> str:
    """The table element alone: CSS classes for marks and sources, intervals below
    the values.
    """
    titles = (*table.heads, "", *table.columns)
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    rows = "\n".join(_html_row(row, labels) for row, labels in _label_rows(table))
    caption = f'<caption class="unseen">{escape(table.title)}</caption>'
    return (
        f'<table class="methods results">\n{caption}\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )


def to_terminal(table: Table) -> rich.table.Table:
    """A `rich` table: best in bold, second best underlined, the paper's rows dimmed."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, title in enumerate((*table.heads, "", *table.columns)):
        shown.add_column(
            title, justify="left" if place < 3 else "right", no_wrap=place < 3
        )
    for row, labels in _label_rows(table):
        cells = [Text(cell.text, style=_TERMINAL[cell.mark]) for cell in row.cells]
        shown.add_row(*labels, *cells, style="dim" if row.source == "paper" else "")
    return shown


def _label_rows(table: Table) -> Iterator[tuple[Row, tuple[str, str, str]]]:
    """Rows with their labels; headings that repeat the row above are left empty."""
    above = ("", "")
    for row in table.rows:
        first = "" if row.heads[0] == above[0] else row.heads[0]
        second = "" if row.heads == above else row.heads[1]
        yield row, (first, second, row.source)
        above = row.heads


def _markdown_line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html_row(row: Row, labels: tuple[str, str, str]) -> str:
    kind = "paper" if row.source == "paper" else "ours"
    begins = " begins" if labels[1] else ""
    heads = "".join(f'<th scope="row">{escape(label)}</th>' for label in labels)
    return (
        f'<tr class="{kind}{begins}">{heads}{"".join(map(_html_cell, row.cells))}</tr>'
    )


def _html_cell(cell: Cell) -> str:
    ends = ""
    if cell.low is not None and cell.high is not None:
        ends = f"<small>{cell.low:.4f}\N{EN DASH}{cell.high:.4f}</small>"
    spoken = f'<span class="unseen"> ({cell.mark})</span>' if cell.mark else ""
    star = (
        '<span class="star" aria-hidden="true">★</span>' if cell.mark == "best" else ""
    )
    mark = f' class="{cell.mark}"' if cell.mark else ""
    return f"<td{mark}>{star}<span>{_keep_words_whole(cell.text)}</span>{spoken}{ends}</td>"


def _keep_words_whole(text: str) -> str:
    """Allow line breaks between words only, not inside `--slow`."""
    words = [f'<span class="whole">{escape(word)}</span>' for word in text.split(" ")]
    return " ".join(words) if len(words) > 1 else escape(text)
