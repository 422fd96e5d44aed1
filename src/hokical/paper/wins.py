"""Who wins: on how many pairs each method has the lowest score."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hokical.paper.methods import EXACT, PAPER_METHODS, SAMPLED
from hokical.paper.published import published_number
from hokical.paper.results import Results
from hokical.paper.suite import Pair

#: Scores in which methods compete, lower is better, and their titles.
CONTESTS = {
    "ece": "ECE",
    "ece_mass": "ECE, equal mass",
    "smooth_ece": "smooth ECE",
    "brier": "Brier",
    "log_loss": "log loss",
}


def paper_methods(*, exact: bool = False) -> list[str]:
    """The paper's ten, with Hoki as printed or exact."""
    return [EXACT if exact and name == SAMPLED else name for name in PAPER_METHODS]


def winner(results: Results, pair: Pair, methods: Sequence[str], score: str) -> str | None:
    """The method with the lowest score on a pair; None where none was run."""
    values = {name: results.score(pair, name, score) for name in methods}
    known = {name: value for name, value in values.items() if not math.isnan(value)}
    return min(known, key=lambda name: known[name]) if known else None


def wins(results: Results, methods: Sequence[str], score: str) -> dict[str, int]:
    """On how many pairs each method wins; every method is there."""
    found = [winner(results, pair, methods, score) for pair in results.suite.pairs]
    return {name: found.count(name) for name in methods}


def published_wins(pairs: Sequence[Pair]) -> tuple[int, int]:
    """On how many of the pairs that the paper has too its Hoki's ECE is lowest, and how many."""
    won = total = 0
    for pair in pairs:
        columns = [*paper_methods()[:-1], "hoki"]
        values = [
            published_number("ece_15_bins", pair.dataset, pair.network, name) for name in columns
        ]
        known = [value for value in values if value is not None]
        total += bool(known)
        won += bool(known) and known[-1] == min(known)
    return won, total
