"""Tables with a column per method: heads, marks and cells, and the table of top-k
pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hokical_paper.published import number_for
from hokical_paper.running.methods import (
    EXACT,
    PAPER_METHODS,
    RECAL,
    SAMPLED,
    published_column,
    title_of,
)
from hokical_paper.running.results import Result, Results
from hokical_paper.running.stamp import made_note
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.table import Cell, Row, Table, mark_best, number

OURS = "ours"
PAPER = "paper"


def mark_methods(
    cells: Sequence[Cell], methods: Sequence[str], *, highest: bool = False
) -> tuple[Cell, ...]:
    """Mark the best two of the paper's methods, and of hokical's what is best of
    all.
    """
    owned = [method not in PAPER_METHODS for method in methods]
    ten = mark_best(
        [c for c, is_hokical in zip(cells, owned, strict=True) if not is_hokical],
        highest=highest,
    )
    everyone = mark_best(cells, highest=highest)
    rest = iter(ten)
    marked = [
        cell if is_hokical else next(rest)
        for cell, is_hokical in zip(everyone, owned, strict=True)
    ]
    return tuple(
        replace(cell, mark="") if is_hokical and cell.mark == "second" else cell
        for cell, is_hokical in zip(marked, owned, strict=True)
    )


def column_of(method: str) -> str:
    """The head of a method's column."""
    return title_of(method) + ("" if method in PAPER_METHODS else " \N{DAGGER}")


def published_cell(table: str | None, pair: Pair, method: str) -> Cell:
    """The paper's value; its Hoki is the sampled one, its IRM and IROvA-TS are the
    published.
    """
    column = published_column(method)
    if table is None or column is None:
        return Cell()
    digits = 2 if table == "learning_time_s" else 4
    return number(number_for(pair, table, column), digits)


def estimate_cell(result: Result, score: str) -> Cell:
    estimate = result.scores[score]
    return number(estimate.value, low=estimate.low, high=estimate.high)


def heads_of(pair: Pair) -> tuple[str, str]:
    """Data set and network, which says so if only its best classes are known."""
    suffix = "" if pair.top_k is None else f" (top {pair.top_k})"
    return (pair.dataset_title, pair.title + suffix)


def top_k_table(results: Results) -> Table:
    """ECE of pairs of which only the best classes are known."""
    methods = [name for name in results.methods if name not in (RECAL, SAMPLED)]
    pairs = [pair for pair in results.suite.pairs if pair.top_k is not None]
    methods = [
        name for name in methods if any(results.get(pair, name) for pair in pairs)
    ]
    rows = []
    for pair in pairs:
        fits = [results.get(pair, method) for method in methods]
        rows.append(
            Row(
                heads_of(pair),
                OURS,
                tuple(estimate_cell(r, "ece") if r else Cell() for r in fits),
            )
        )
        paper = [
            published_cell("ece_15_bins", pair, SAMPLED if m == EXACT else m)
            for m in methods
        ]
        if any(cell.value is not None for cell in paper):
            rows.append(Row(heads_of(pair), PAPER, tuple(paper)))
    notes = (
        "Only the best classes of each row are known, so methods that need all logits "
        "cannot be run; the paper's Hoki is under hoki exact.",
        made_note(r.made for r in results.by_cell.values()),
    )
    title = "ECE from the best classes"
    return Table("top_k", title, tuple(map(column_of, methods)), tuple(rows), notes)
