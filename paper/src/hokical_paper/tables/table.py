"""A table as data: the content of each cell, and which cells are best and second
best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Mark = Literal["", "best", "second"]
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Cell:
    """The text shown, its number and interval if there are any, and the mark."""

    text: str = NOTHING
    value: float | None = None
    low: float | None = None
    high: float | None = None
    mark: Mark = ""

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True)
class Row:
    """A row of a table: two headings, the source of its numbers, and its cells."""

    heads: tuple[str, str]
    source: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Rows of equal length under `columns`; rows with the same heads belong together.

    `lead` is what a reader must know before the table, `notes` come after it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    heads: tuple[str, str] = ("data set", "network")
    lead: str = ""

    def with_intervals(self) -> Table:
        """The same table with a row of intervals below each row that has some."""
        rows: list[Row] = []
        for row in self.rows:
            rows.append(row)
            if any(cell.has_interval for cell in row.cells):
                rows.append(Row(row.heads, "95 %", tuple(map(_interval, row.cells))))
        return replace(self, rows=tuple(rows))


def number(
    value: float | None,
    digits: int = 4,
    *,
    low: float = math.nan,
    high: float = math.nan,
) -> Cell:
    """A cell with one number, and its interval if both ends are finite.

    >>> number(0.01234).text, number(None).text == NOTHING
    ('0.0123', True)
    """
    if value is None or math.isnan(value):
        return Cell()
    is_finite = math.isfinite(low) and math.isfinite(high)
    return Cell(
        f"{value:.{digits}f}",
        value,
        low if is_finite else None,
        high if is_finite else None,
    )


def mark_best(cells: Sequence[Cell], *, highest: bool = False) -> tuple[Cell, ...]:
    """The cells with the best and the second best marked; lower is better unless
    `highest`.

    Numbers are compared as shown: a reader cannot see why one 0.0107 is better than
    another. Infinite values are never marked.

    >>> [
    ...     cell.mark
    ...     for cell in mark_best([number(0.3), number(0.1), number(0.2), Cell()])
    ... ]
    ['', 'best', 'second', '']
    """
    shown = {float(cell.text) for cell in cells if _is_ranked(cell)}
    ranked = sorted(shown, reverse=highest)[:2]
    marks: dict[float, Mark] = dict(zip(ranked, ("best", "second"), strict=False))
    return tuple(
        replace(cell, mark=marks.get(float(cell.text), ""))
        if _is_ranked(cell)
        else cell
        for cell in cells
    )


def mark_columns(
    rows: Sequence[Sequence[Cell]], columns: Iterable[int], *, highest: bool = False
) -> list[tuple[Cell, ...]]:
    """Mark the best and second best of each of these columns, over the rows."""
    marked_rows = [list(row) for row in rows]
    for column in columns:
        cells = mark_best([row[column] for row in rows], highest=highest)
        for row, cell in zip(marked_rows, cells, strict=True):
            row[column] = cell
    return [tuple(row) for row in marked_rows]


def _is_ranked(cell: Cell) -> bool:
    return cell.value is not None and math.isfinite(cell.value)


def _interval(cell: Cell) -> Cell:
    if cell.low is None or cell.high is None:
        return Cell("")
    digits = len(cell.text.partition(".")[2])
    return Cell(f"{cell.low:.{digits}f}\N{EN DASH}{cell.high:.{digits}f}")
