"""How `predict_or_abstain` chooses its threshold, against other ways: coverage, and risk exceeded.

    python benchmarks/bench_guarantees.py

Scores are drawn whose probability of error is known, so the true risk of every threshold is. Shown
per setting: mean coverage as a share of what knowing all risks would accept, and how often the risk
was exceeded, which must stay below delta = 0.1. `docs/guarantees.md` has the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hokical.guarantees._binomial import binomial_tail
from hokical.guarantees._score_table import ScoreTable
from hokical.guarantees._scores import LEVELS, score_levels
from hokical.guarantees._selective import choose_threshold, starting_levels

DELTA = 0.1
#: Mean and deviation of the true log-odds, and what the score multiplies them by.
MODELS = {
    "calibrated": (3.0, 2.0, 1.0),
    "overconfident": (4.0, 2.5, 2.5),
    "underconfident": (2.5, 1.5, 0.5),
    "hard": (1.5, 1.5, 1.5),
}

Rule = Callable[[ScoreTable, float], int | None]


def from_top(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(values[::-1])[::-1]


def p_values(table: ScoreTable, risk: float) -> NDArray[np.float64]:
    return binomial_tail(from_top(table.wrong), from_top(table.count), risk)


def fallback_fit(table: ScoreTable, risk: float) -> int | None:
    return choose_threshold(table, risk, DELTA, starting_levels(risk, "fit")).level


def fallback_held_out(table: ScoreTable, risk: float) -> int | None:
    return choose_threshold(table, risk, DELTA, starting_levels(risk, "held-out")).level


def separate_starts(table: ScoreTable, risk: float) -> int | None:
    """Fixed-sequence testing from every start by itself, with its share of delta."""
    p, starts = p_values(table, risk), starting_levels(risk, "fit")
    lowest: int | None = None
    for start in starts:
        level = int(start)
        while level >= 0 and p[level] <= DELTA / starts.size:
            lowest = level if lowest is None else min(lowest, level)
            level -= 1
    return lowest


def bonferroni(table: ScoreTable, risk: float) -> int | None:
    """24 thresholds by rank, each tested at delta / 24."""
    p, accepted = p_values(table, risk), from_top(table.count)
    ranks = np.unique(np.geomspace(20, table.total, 24).astype(np.int64))
    levels = np.searchsorted(-accepted, -ranks, side="left")  # accepts at most so many
    good = levels[(levels < LEVELS) & (p[np.minimum(levels, LEVELS - 1)] <= DELTA / ranks.size)]
    return int(good.min()) if good.size else None


def untested(table: ScoreTable, risk: float) -> int | None:
    """The lowest threshold whose measured error rate is within the risk: no guarantee."""
    accepted = from_top(table.count)
    good = np.flatnonzero((accepted > 0) & (from_top(table.wrong) <= risk * accepted))
    return int(good[0]) if good.size else None


RULES: dict[str, Rule] = {
    "fallback, starts of `fit`": fallback_fit,
    "fallback, starts of `certify`": fallback_held_out,
    "separate starts": separate_starts,
    "Bonferroni over ranks": bonferroni,
    "untested": untested,
}


class Nature:
    """One of the models, and the true coverage and risk of every level."""

    def __init__(self, name: str) -> None:
        self.mean, self.deviation, self.stretch = MODELS[name]
        level, error = self.draw(np.random.default_rng(0), 1_000_000)
        count = np.bincount(level, minlength=LEVELS)
        self.coverage = from_top(count) / level.size
        wrong = np.cumsum(np.bincount(level, error, LEVELS)[::-1])[::-1]
        self.risk = wrong / np.maximum(from_top(count), 1)

    def draw(
        self, rng: np.random.Generator, n: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        log_odds = np.abs(rng.normal(self.mean, self.deviation, n))
        return score_levels(self.stretch * log_odds), 1.0 / (1.0 + np.exp(log_odds))

    def trial(self, rng: np.random.Generator, n: int) -> ScoreTable:
        level, error = self.draw(rng, n)
        return ScoreTable.from_examples(level, rng.random(n) < error)


def measure(nature: Nature, rule: Rule, n: int, risk: float, repeats: int) -> tuple[float, float]:
    """Mean coverage as a share of the best possible, and how often the risk was exceeded."""
    rng = np.random.default_rng([n, round(1000 * risk)])
    best = nature.coverage[nature.risk <= risk].max()
    found = [rule(nature.trial(rng, n), risk) for _ in range(repeats)]
    coverage = sum(nature.coverage[level] for level in found if level is not None)
    broken = sum(nature.risk[level] > risk for level in found if level is not None)
    return float(coverage / repeats / best), float(broken / repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    settings = [(n, risk) for n in (500, 5000) for risk in (0.02, 0.05)]
    for name in MODELS:
        nature = Nature(name)
        print(
            f"\n{name}: coverage / broken at", *(f"n={n} risk={r}" for n, r in settings), sep=" | "
        )
        for title, rule in RULES.items():
            cells = [measure(nature, rule, n, risk, repeats) for n, risk in settings]
            print(
                f"{title:30}",
                *(f"{share:.2f} / {broken:.2f}" for share, broken in cells),
                sep=" | ",
            )


if __name__ == "__main__":
    main()
