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
    "ece_mass": "equal-mass ECE",
    "smooth_ece": "smooth ECE",
    "brier": "Brier score",
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


def wins(
    results: Results, methods: Sequence[str], score: str, pairs: Sequence[Pair] | None = None
) -> dict[str, int]:
    """On how many of the pairs, else of all, each method wins; every method is there."""
    pairs = results.suite.pairs if pairs is None else pairs
    found = [winner(results, pair, methods, score) for pair in pairs]
    return {name: found.count(name) for name in methods}


def published_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Those of the pairs that the paper has too."""
    return [pair for pair in pairs if _published_eces(pair)]


def published_wins(pairs: Sequence[Pair]) -> int:
    """On how many pairs the paper's Hoki has the paper's lowest ECE."""
    found = [_published_eces(pair) for pair in published_pairs(pairs)]
    return sum(values[-1] == min(values) for values in found)


def _published_eces(pair: Pair) -> list[float]:
    """The paper's ECEs on a pair, Hoki's last; empty where it does not have the pair."""
    columns = [*paper_methods()[:-1], "hoki"]
    values = [published_number("ece_15_bins", pair.dataset, pair.network, name) for name in columns]
    return [value for value in values if value is not None]
