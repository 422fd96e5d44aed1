"""On how many pairs each method has the lowest score."""

from __future__ import annotations

from collections.abc import Sequence

from hokical_paper.published import number_for
from hokical_paper.running.methods import (
    EXACT,
    NORMALISED,
    PAPER_METHODS,
    SAMPLED,
    published_column,
)
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.table import mark_best, number

#: The scores that methods are ranked by, lower is better, and their titles.
CONTESTS = {
    "ece": "ECE",
    "ece_mass": "equal-mass ECE",
    "smooth_ece": "smooth ECE",
    "brier": "Brier score",
    "log_loss": "log loss",
}


def paper_methods(*, exact: bool = False, normalised: bool = False) -> list[str]:
    """The paper's ten methods as it ran them; with exact Hoki, or with rows that sum
    to 1.
    """
    replaced = ({SAMPLED: EXACT} if exact else {}) | (NORMALISED if normalised else {})
    return [replaced.get(name, name) for name in PAPER_METHODS]


def winners(
    results: Results, pair: Pair, methods: Sequence[str], score: str
) -> list[str]:
    """The methods with the lowest score on a pair; several if they are equal as
    shown.
    """
    cells = mark_best([number(results.score(pair, name, score)) for name in methods])
    return [
        name for name, cell in zip(methods, cells, strict=True) if cell.mark == "best"
    ]


def wins(
    results: Results,
    methods: Sequence[str],
    score: str,
    pairs: Sequence[Pair] | None = None,
) -> dict[str, int]:
    """The number of pairs, of those given or of all, on which each method wins or
    ties.
    """
    pairs = results.suite.pairs if pairs is None else pairs
    names = [name for pair in pairs for name in winners(results, pair, methods, score)]
    return {name: names.count(name) for name in methods}


def published_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that the paper has too."""
    return [pair for pair in pairs if _published_eces(pair)]


def published_wins(pairs: Sequence[Pair]) -> int:
    """The number of pairs on which Hoki has the lowest ECE in the paper."""
    eces = [_published_eces(pair) for pair in published_pairs(pairs)]
    return sum(values[-1] == min(values) for values in eces)


def _published_eces(pair: Pair) -> list[float]:
    """The paper's ECEs on a pair, Hoki's last; empty if it does not have the pair."""
    columns = [published_column(name) or name for name in PAPER_METHODS]
    values = [number_for(pair, "ece_15_bins", name) for name in columns]
    return [value for value in values if value is not None]
