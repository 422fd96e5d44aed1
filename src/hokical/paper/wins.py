"""Who wins: on how many pairs each method has the lowest score."""

from __future__ import annotations

from collections.abc import Sequence

from hokical.paper.methods import EXACT, PAPER_METHODS, SAMPLED
from hokical.paper.published import number_beside
from hokical.paper.results import Results
from hokical.paper.suite import Pair
from hokical.paper.table_data import marked, number

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


def winners(results: Results, pair: Pair, methods: Sequence[str], score: str) -> list[str]:
    """The methods with the lowest score on a pair; several where values are equal as shown."""
    cells = marked([number(results.score(pair, name, score)) for name in methods])
    return [name for name, cell in zip(methods, cells, strict=True) if cell.mark == "best"]


def wins(
    results: Results, methods: Sequence[str], score: str, pairs: Sequence[Pair] | None = None
) -> dict[str, int]:
    """On how many of the pairs, else of all, each method wins, alone or with others."""
    pairs = results.suite.pairs if pairs is None else pairs
    found = [name for pair in pairs for name in winners(results, pair, methods, score)]
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
    values = [number_beside(pair, "ece_15_bins", name) for name in columns]
    return [value for value in values if value is not None]
