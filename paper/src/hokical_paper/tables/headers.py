"""Which of the paper's tables has rotated headers: the evidence, from the methods run
again.

The main table (15 bins) and the supplement's tables (other numbers of bins) disagree
about the columns of four baselines. Compared with each other they fit if either is
rotated, so only the methods themselves can tell: for each reading, the mean over
networks of |log(our ECE / printed)|.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hokical_paper.published import BIN_COUNTS, SUPPLEMENT, number_for
from hokical_paper.running.methods import IRM, IROVA_TS, RECAL
from hokical_paper.running.results import Results
from hokical_paper.running.stamp import made_note
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.table import Cell, Row, Table, mark_columns, number

#: The four baselines as the paper ran them, by their column.
METHODS = {"ets": "ets", "irm": IRM, "irova_ts": IROVA_TS, "recal": RECAL}
#: What the columns are if the main table is right, and if the supplement is: for each
#: method, the column of `published` that has its numbers.
READINGS = {
    "the supplement's": {name: name for name in SUPPLEMENT},
    "the main table's": {printed: name for name, printed in SUPPLEMENT.items()},
}
_N_RESAMPLES = 4000
#: An interval over fewer networks would be one number, or two.
_FEWEST = 3


def headers_table(results: Results) -> Table:
    """Per number of bins and reading: mean absolute log ratio of each method, and of
    all four.
    """
    pairs = [pair for pair in results.suite.pairs if _is_complete(results, pair)]
    rows = []
    for bins in BIN_COUNTS if pairs else ():
        ratios = {
            name: log_ratios(results, pairs, bins, columns_of)
            for name, columns_of in READINGS.items()
        }
        excess = np.subtract(*reversed(ratios.values())).mean(axis=1)
        means = [(*ratio.mean(axis=0), ratio.mean()) for ratio in ratios.values()]
        lines = [[number(float(x), 3) for x in row] for row in means]
        marked = mark_columns(lines, range(len(METHODS) + 1))
        for reading, cells, more in zip(
            READINGS, marked, (Cell(), _mean(excess)), strict=True
        ):
            best = [
                replace(cell, mark="") if cell.mark == "second" else cell
                for cell in cells
            ]
            rows.append(Row((f"{bins} bins", reading), "", (*best, more)))
    notes = (
        "Mean over networks of |log(our ECE / the paper's)|, irm and irova_ts in "
        "their published form: smaller fits better. Each row says whose headers are "
        "taken to be rotated. The last column is by how much the second reading is "
        "worse, all four methods together, with a 95 % interval (networks resampled). "
        f"{_count(len(pairs))}: those of the paper with recal.",
        made_note(r.made for r in results.by_cell.values()),
    )
    heads = ("ECE with", "rotated headers")
    title = "Which headers are rotated"
    return Table(
        "headers", title, (*METHODS, "all four", "worse by"), tuple(rows), notes, heads
    )


def _count(n_networks: int) -> str:
    if n_networks >= _FEWEST:
        return f"{n_networks} networks"
    return f"Too few networks for an interval, {n_networks}"


def log_ratios(
    results: Results, pairs: list[Pair], bins: int, columns: dict[str, str]
) -> NDArray[np.float64]:
    """|log(ours / printed)|, (pairs, methods), with the column of each method in a
    reading.
    """
    table = f"ece_{bins}_bins"
    rows = []
    for pair in pairs:
        fits = [results.by_cell[pair.name, method] for method in METHODS.values()]
        ours = [result.ece_by_bins[bins] for result in fits]
        printed = [number_for(pair, table, columns[name]) for name in METHODS]
        rows.append(np.abs(np.log(np.array(ours) / np.array(printed, np.float64))))
    return np.array(rows)


def _is_complete(results: Results, pair: Pair) -> bool:
    is_published = number_for(pair, "ece_15_bins", "ets") is not None
    return is_published and all(
        results.get(pair, method) for method in METHODS.values()
    )


def _mean(values: NDArray[np.float64]) -> Cell:
    """The mean with its interval, networks resampled, unless they are too few."""
    if values.size < _FEWEST:
        return number(float(values.mean()), 3)
    rng = np.random.default_rng(0)
    means = values[rng.integers(values.size, size=(_N_RESAMPLES, values.size))].mean(
        axis=1
    )
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    mean = float(values.mean())
    return Cell(f"{mean:.3f} ({low:.3f}\N{EN DASH}{high:.3f})", mean, low, high)
