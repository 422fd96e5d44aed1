"""How many confidences are distinct: the paper says, one for each example."""

from __future__ import annotations

from hokical_paper.running.methods import AUTO, EXACT, SAMPLED, title_of
from hokical_paper.running.results import Result, Results
from hokical_paper.running.stamp import made_note
from hokical_paper.tables.method_columns import OURS, heads_of
from hokical_paper.tables.table import Cell, Row, Table, number

_METHODS = (SAMPLED, EXACT, "temps", AUTO)


def distinct_table(results: Results) -> Table:
    """Distinct confidences of the test examples, and their deviation within bins."""
    rows = []
    for pair in results.suite.pairs:
        fits = [results.get(pair, method) for method in _METHODS]
        ran = [fit for fit in fits if fit is not None and "n_confidences" in fit.facts]
        if not ran:
            continue
        n_test = number(float(ran[0].diagram.count.sum()), 0)
        cells = [n_test, *map(_count, fits), *map(_deviation, fits)]
        rows.append(Row(heads_of(pair), OURS, tuple(cells)))
    titles = [title_of(method) for method in _METHODS]
    columns = (
        "test examples",
        *titles,
        *(f"{title}, deviation" for title in titles),
    )
    notes = (
        "Deviation: that of the confidences from the mean of their bin, 15 bins of equal "
        "width. 1000 draws have at most 1001 stabilities.",
        made_note(result.made for result in results.by_cell.values()),
    )
    title = "Distinct confidences"
    return Table("distinct", title, columns, tuple(rows), notes)


def _count(result: Result | None) -> Cell:
    if result is None or "n_confidences" not in result.facts:
        return Cell()
    return number(float(result.facts["n_confidences"]), 0)


def _deviation(result: Result | None) -> Cell:
    return number(None if result is None else result.facts.get("deviation_in_bins"))
