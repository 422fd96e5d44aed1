"""Tables as Markdown, CSV and HTML, and for the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Literal

from hokical_paper.tables.table import Cell, Row, Table

if TYPE_CHECKING:
    import rich.table

_MARKDOWN = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
_TERMINAL = {"best": "bold", "second": "underline", "": ""}
#: Labels and cells in a terminal are folded beyond these widths.
_WIDEST_LABEL = 20
_WIDEST_CELL = 24
#: Between the columns in a terminal.
_PADDING = 3
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
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
    heads = (*_label_titles(table), *table.columns)
    rule = "|" + "---|" * len(_label_titles(table))
    rule += "".join("--:|" if right else "---|" for right in _columns_of_numbers(table))
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
            labels = (table.name, *row.heads, row.source, column)
            writer.writerow((*labels, cell.text, *numbers, cell.mark))
    return out.getvalue()


def to_html(table: Table) -> str:
    """The table element alone: CSS classes for marks and sources, intervals below
    the values.
    """
    titles = (*_label_titles(table), *table.columns)
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
    for title in _label_titles(table):
        shown.add_column(title, max_width=_WIDEST_LABEL)
    for title, right in zip(table.columns, _columns_of_numbers(table), strict=True):
        justify: Literal["left", "right"] = "right" if right else "left"
        shown.add_column(title, justify=justify, max_width=_WIDEST_CELL)
    for row, labels in _label_rows(table):
        cells = [
            Text(_plain(cell.text), style=_TERMINAL[cell.mark]) for cell in row.cells
        ]
        shown.add_row(*labels, *cells, style="dim" if row.source == "paper" else "")
    return shown


def fit_width(table: Table, width: int) -> list[Table]:
    """The table as several ones with the same labels, none wider than the terminal.

    >>> row = Row(("CIFAR-10", "LeNet-5"), "", tuple(Cell("0.0123") for _ in "abcdef"))
    >>> parts = fit_width(Table("ece", "ECE", tuple("abcdef"), (row,)), 55)
    >>> [part.columns for part in parts]
    [('a', 'b', 'c'), ('d', 'e', 'f')]
    """
    titles = _label_titles(table)
    labels = [titles, *((*row.heads, row.source) for row in table.rows)]
    left = sum(_widest(column, _WIDEST_LABEL) for column in zip(*labels, strict=False))
    chunks: list[list[int]] = [[]]
    used = left
    for index, title in enumerate(table.columns):
        texts = [title, *(_plain(row.cells[index].text) for row in table.rows)]
        needed = _widest(texts, _WIDEST_CELL)
        if chunks[-1] and used + needed > width:
            chunks.append([])
            used = left
        chunks[-1].append(index)
        used += needed
    return [_columns_of(table, chunk) for chunk in chunks]


def without_column(table: Table, title: str) -> Table:
    """The table without one of its columns."""
    columns = enumerate(table.columns)
    return _columns_of(table, [index for index, column in columns if column != title])


def _widest(texts: Iterable[str], most: int) -> int:
    """The width of a column with its padding."""
    return min(max(map(len, texts)), most) + _PADDING


def _columns_of(table: Table, indices: Sequence[int]) -> Table:
    """The table with some of its columns."""
    columns = tuple(table.columns[index] for index in indices)
    rows = tuple(
        replace(row, cells=tuple(row.cells[index] for index in indices))
        for row in table.rows
    )
    return replace(table, columns=columns, rows=rows)


def _plain(text: str) -> str:
    """The text without the targets of its links."""
    return _LINK.sub(r"\1", text)


def _label_titles(table: Table) -> tuple[str, ...]:
    """The titles of the headings, and an empty one where rows tell their source."""
    return (*table.heads, "") if any(row.source for row in table.rows) else table.heads


def _columns_of_numbers(table: Table) -> list[bool]:
    """Which columns hold no more words than numbers, and are aligned to the right."""
    numbers = [[_is_number(cell.text) for cell in row.cells] for row in table.rows]
    return [
        2 * sum(row[index] for row in numbers) >= len(numbers)
        for index in range(len(table.columns))
    ]


def _is_number(text: str) -> bool:
    return text.startswith(tuple("0123456789+-\N{EN DASH}"))


def _label_rows(table: Table) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """Rows with their labels; headings that repeat the row above are left empty."""
    n_labels = len(_label_titles(table))
    above = ("", "")
    for row in table.rows:
        first = "" if row.heads[0] == above[0] else row.heads[0]
        second = "" if row.heads == above else row.heads[1]
        yield row, (first, second, row.source)[:n_labels]
        above = row.heads


def _markdown_line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html_row(row: Row, labels: tuple[str, ...]) -> str:
    kind = "paper" if row.source == "paper" else "ours"
    begins = " begins" if labels[1] else ""
    heads = "".join(f'<th scope="row">{escape(label)}</th>' for label in labels)
    return (
        f'<tr class="{kind}{begins}">{heads}{"".join(map(_html_cell, row.cells))}</tr>'
    )


def _html_cell(cell: Cell) -> str:
    interval = ""
    if cell.low is not None and cell.high is not None:
        interval = f"<small>{cell.low:.4f}\N{EN DASH}{cell.high:.4f}</small>"
    spoken = f'<span class="unseen"> ({cell.mark})</span>' if cell.mark else ""
    star = (
        '<span class="star" aria-hidden="true">★</span>' if cell.mark == "best" else ""
    )
    mark = f' class="{cell.mark}"' if cell.mark else ""
    return f"<td{mark}>{star}<span>{_keep_words_whole(cell.text)}</span>{spoken}{interval}</td>"


def _keep_words_whole(text: str) -> str:
    """Allow line breaks between words only, not inside `--slow`."""
    spans = [f'<span class="whole">{escape(piece)}</span>' for piece in text.split(" ")]
    return " ".join(spans) if len(spans) > 1 else escape(text)
