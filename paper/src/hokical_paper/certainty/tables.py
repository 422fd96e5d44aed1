"""The tables of `hokical paper certainty`: Hoki's wins by pair, and ranks of all
methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hokical_paper.certainty.contests import (
    Divisions,
    Share,
    is_lowest,
    mean_share,
    score_of,
    share_of,
)
from hokical_paper.running.methods import (
    EXACT,
    METHODS,
    NORMALISED,
    OWN_METHODS,
    PAPER_METHODS,
    RECAL,
    SAMPLED,
    title_of,
)
from hokical_paper.running.results import Results
from hokical_paper.running.stamp import made_note
from hokical_paper.tables.method_columns import heads_of
from hokical_paper.tables.table import Cell, Row, Table, mark_columns, number
from hokical_paper.tables.wins import CONTESTS, paper_methods

#: The paper's methods that can be fitted on a new division, with Hoki sampled or exact.
RIVALS = {
    SAMPLED: [name for name in paper_methods() if name != RECAL],
    EXACT: [name for name in paper_methods(exact=True) if name != RECAL],
}


def share_cell(share: Share) -> Cell:
    if not share.n or math.isnan(share.value):
        return Cell()
    return Cell(share.text, share.value, share.low, share.high)


def divisions_note(divisions: Divisions) -> str:
    """How many divisions there are, and which methods are not in all of them."""
    if not divisions.pairs:
        return "No new divisions are stored: `hokical paper certainty` computes them."
    counts = sorted({len(divisions.numbers(pair)) for pair in divisions.pairs})
    sizes = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    methods = (*RIVALS[SAMPLED], *NORMALISED.values(), *OWN_METHODS)
    fewer = [text for method in methods if (text := _divisions_of(divisions, method))]
    exceptions = f"; fewer times: {', '.join(fewer)}" if fewer else ""
    ran = {method for _, _, method in divisions.by_cell}
    none = [title_of(name) for name in RIVALS[SAMPLED] if name not in ran]
    exceptions += f"; on none: {', '.join(none)}" if none else ""
    exceptions += _on_fewer_networks(divisions)
    return (
        "Validation and test examples of each pair were pooled and divided anew, in "
        f"the pair's sizes, {sizes} times{exceptions}. recal does not take part, as it needs "
        "the images. A rival that is missing can only raise the shares of the others."
    )


def _on_fewer_networks(divisions: Divisions) -> str:
    """The paper's methods that ran on some networks only, by the number of these."""
    ran = {(pair, method) for pair, _, method in divisions.by_cell}
    total = len(divisions.pairs)
    by_count: dict[int, list[str]] = {}
    for method in RIVALS[SAMPLED]:
        count = sum((pair, method) in ran for pair in divisions.pairs)
        if 0 < count < total:
            by_count.setdefault(count, []).append(title_of(method))
    return "".join(
        f"; on {count} of {total} networks only: {', '.join(by_count[count])}"
        for count in sorted(by_count)
    )


def _divisions_of(divisions: Divisions, method: str) -> str:
    """A method that was run on some divisions of a pair, but not on all, with their
    number.
    """
    ran = [
        [
            (p, division, method) in divisions.by_cell
            for division in divisions.numbers(p)
        ]
        for p in divisions.pairs
    ]
    counts = [sum(row) for row in ran if any(row) and not all(row)]
    if not counts:
        return ""
    least = min(counts)
    most = max(counts)
    times = f"{least}" if least == most else f"{least} to {most}"
    return (
        f"{title_of(method)} ({times}, on {len(counts)} "
        f"{'pair' if len(counts) == 1 else 'pairs'})"
    )


def certainty_table(divisions: Divisions, results: Results) -> Table:
    """How probable it is that Hoki's score is the lowest, by pair and over pairs."""
    columns = {
        "sampled, ECE": is_lowest(SAMPLED, RIVALS[SAMPLED], score_of("ece")),
        **{
            f"exact, {title}": is_lowest(EXACT, RIVALS[EXACT], score_of(score))
            for score, title in CONTESTS.items()
        },
    }
    rows = []
    for pair in results.suite.pairs:
        if pair.name not in divisions.pairs:
            continue
        heads = heads_of(pair)
        shares = [
            share_of(divisions.hits(pair.name, question))
            for question in columns.values()
        ]
        n_divisions = max(share.n for share in shares)
        rows.append(
            Row(heads, f"{n_divisions} divisions", tuple(map(share_cell, shares)))
        )
        answers = [question(results.of(pair)) for question in columns.values()]
        texts = {None: "\N{EN DASH}", True: "won", False: "lost"}
        rows.append(Row(heads, "its own", tuple(Cell(texts[won]) for won in answers)))
    means = [
        mean_share([divisions.hits(p, question) for p in divisions.pairs])
        for question in columns.values()
    ]
    rows.append(Row(("all pairs", ""), "mean", tuple(map(share_cell, means))))
    notes = (
        divisions_note(divisions),
        "Share of divisions on which Hoki is lowest of the paper's methods, with a 95 "
        "% interval (Clopper and Pearson's for a pair, resampled pairs for the mean); "
        "its own: whether it is on the division that the other tables use. irm and "
        "irova_ts are in their published form.",
        made_note(r.made for r in divisions.by_cell.values()),
    )
    title = "How often Hoki has the lowest score"
    return Table("certainty", title, tuple(columns), tuple(rows), notes)


def ranks_table(divisions: Divisions) -> Table:
    """Mean rank, and share of divisions won, of each method; pairs count equally."""
    contests = {
        "the paper's": RIVALS[SAMPLED],
        "all": [m for m in METHODS if m != RECAL],
    }
    rows = []
    for contest, methods in contests.items():
        full = divisions.complete(methods)
        lines = {method: _rank_cells(full, method, methods) for method in methods}
        ran = {
            method: cells
            for method, cells in lines.items()
            if cells[0].value is not None
        }
        marked = mark_columns(list(ran.values()), range(len(CONTESTS)))
        for method, cells in zip(ran, marked, strict=True):
            source = "" if method in PAPER_METHODS else "hokical"
            rows.append(Row((contest, title_of(method)), source, cells))
    columns = (
        *(f"rank, {title}" for title in CONTESTS.values()),
        "won, ECE",
        "won, Brier score",
    )
    notes = (
        divisions_note(divisions),
        "Means over the divisions on which all methods of a pair were run. The "
        "paper's: irm and irova_ts in their published form.",
        made_note(r.made for r in divisions.by_cell.values()),
    )
    heads = ("among", "method")
    return Table(
        "ranks", "Mean rank over divisions", columns, tuple(rows), notes, heads
    )


def _rank_cells(
    divisions: Divisions, method: str, methods: Sequence[str]
) -> tuple[Cell, ...]:
    cells = []
    for score in CONTESTS:
        ranks = [
            divisions.mean_ranks(pair, methods, score_of(score)).get(method)
            for pair in divisions.pairs
        ]
        numbers = [rank for rank in ranks if rank is not None]
        cells.append(number(float(np.mean(numbers)) if numbers else None, 2))
    for score in ("ece", "brier"):
        question = is_lowest(method, methods, score_of(score))
        cells.append(
            share_cell(
                mean_share([divisions.hits(pair, question) for pair in divisions.pairs])
            )
        )
    return tuple(cells)
