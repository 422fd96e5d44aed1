"""What transformed inputs change, over many divisions of the examples: the paper's
future work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hokical_paper.certainty.contests import Divisions
from hokical_paper.running.methods import AUTO_BESIDE, HOKI_BESIDE, INPUT, MIXED
from hokical_paper.running.results import Result
from hokical_paper.running.stamp import made_note
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.table import Cell, Row, Table

#: How transformed inputs are used: the method, the fact with its changes, the title.
USES = {
    "inputs in Hoki's recursion": (INPUT, "change"),
    "averaged in Hoki's recursion": (MIXED, "change"),
    "beside Hoki's confidence": (HOKI_BESIDE, "change"),
    "beside auto's confidence": (AUTO_BESIDE, "change"),
    "for scale: auto, from temps": (AUTO_BESIDE, "change_from_temps"),
}
_SCORES = {"brier": "Brier score", "log_loss": "log loss", "ece": "ECE"}
#: Standard errors of a 95 % interval of a mean.
_WIDTH = 1.96
_ALL = "all"


class Change(NamedTuple):
    """A mean change over networks with its 95 % interval."""

    value: float
    low: float
    high: float


def mean_change(changes: NDArray[np.float64], errors: NDArray[np.float64]) -> Change:
    """The mean over networks and divisions of `changes` (networks, divisions).

    `errors` (networks,) are standard errors of one division. Divisions of a network
    share its examples, and networks share their images, so neither is taken to average
    out what the examples add to the error; the spread over networks comes on top.

    >>> change = mean_change(np.array([[0.1, 0.3], [0.3, 0.5]]), np.array([0.1, 0.1]))
    >>> [round(number, 3) for number in change]
    [0.3, 0.023, 0.577]
    """
    means = changes.mean(axis=1)
    variance = float(errors.mean()) ** 2
    if means.size > 1:
        variance += float(means.var(ddof=1)) / means.size
    half = _WIDTH * math.sqrt(variance)
    mean = float(means.mean())
    return Change(mean, mean - half, mean + half)


def input_table(divisions: Divisions, pairs: Sequence[Pair]) -> Table:
    """The changes by data set, and over all networks."""
    groups: dict[str, list[str]] = {}
    for pair in pairs:
        groups.setdefault(pair.dataset_title, []).append(pair.name)
    groups[_ALL] = [pair.name for pair in pairs]
    heads = {
        title: (title, f"{len(names)} network{'s' * (len(names) > 1)}")
        for title, names in groups.items()
    }
    rows = [
        row
        for title, names in groups.items()
        for row in _rows(divisions, names, heads[title])
    ]
    title = "What transformed inputs change"
    return _table("inputs", title, rows, divisions)


def input_network_table(divisions: Divisions, pairs: Sequence[Pair]) -> Table:
    """The same for each network."""
    rows = [
        row
        for pair in pairs
        for row in _rows(divisions, [pair.name], (pair.dataset_title, pair.title))
    ]
    title = "What transformed inputs change, by network"
    return _table("inputs_by_network", title, rows, divisions)


def _table(name: str, title: str, rows: Sequence[Row], divisions: Divisions) -> Table:
    counts = {len(divisions.numbers(pair)) for pair in divisions.pairs}
    notes = (
        "Negative is better. The input stability of an image is the share of 20 copies, "
        "zoomed out to between 0.1 and 0.9 of its size, that keep its label. The first "
        "three rows are changes from Hoki on logits, the fourth from "
        "auto(keep_labels=True).",
        f"Means over {min(counts, default=0)} random divisions of each network's "
        "examples, with a 95 % interval: the standard error over the examples of one "
        "division (of the ECE: its deviation over divisions), and the spread over "
        "networks. Lower on: networks and divisions with a lower Brier score.",
        made_note(result.made for result in divisions.by_cell.values()),
    )
    columns = (*_SCORES.values(), "Brier score lower on")
    return Table(name, title, columns, tuple(rows), notes)


def _rows(
    divisions: Divisions, pairs: Sequence[str], heads: tuple[str, str]
) -> list[Row]:
    return [
        Row(heads, use, _cells(divisions, pairs, method, fact))
        for use, (method, fact) in USES.items()
    ]


def _cells(
    divisions: Divisions, pairs: Sequence[str], method: str, fact: str
) -> tuple[Cell, ...]:
    facts = [_facts(divisions, pair, method, fact) for pair in pairs]
    if not all(facts):
        return (Cell(),) * (len(_SCORES) + 1)
    cells = [_change_cell(facts, score) for score in _SCORES]
    lower = sum(change["brier"] < 0.0 for changes in facts for change in changes)
    return (*cells, Cell(f"{lower} of {sum(map(len, facts))}"))


def _facts(
    divisions: Divisions, pair: str, method: str, fact: str
) -> list[Mapping[str, float]]:
    """The changes on each division of a pair, as `score_changes` stored them."""
    results: list[Result | None] = [
        divisions.by_cell.get((pair, number, method))
        for number in divisions.numbers(pair)
    ]
    return [result.facts[fact] for result in results if result is not None]


def _change_cell(facts: Sequence[Sequence[Mapping[str, float]]], score: str) -> Cell:
    least = min(map(len, facts))
    changes = np.array([[change[score] for change in row[:least]] for row in facts])
    if not np.isfinite(changes).all():
        return Cell("infinite")
    if f"{score}_error" in facts[0][0]:
        squares = [[change[f"{score}_error"] ** 2 for change in row] for row in facts]
        errors = np.array([math.sqrt(np.mean(row)) for row in squares])
    else:
        errors = changes.std(axis=1, ddof=1) if least > 1 else np.zeros(len(facts))
    change = mean_change(changes, errors)
    text = f"{change.value:+.4f} ({change.low:+.4f} to {change.high:+.4f})"
    return Cell(text, *change)
