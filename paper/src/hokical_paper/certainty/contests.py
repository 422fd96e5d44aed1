"""Contests over many divisions: who is lowest how often, with intervals for the
shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from hokical.guarantees import clopper_pearson
from hokical_paper.running.results import Result

_N_RESAMPLES = 4000
#: Networks without which a number over networks decides nothing.
FEWEST = 3

#: The number of a result that is compared: lower is better.
Measure = Callable[[Result], float]
#: The result of a method on one division, by its name.
Get = Callable[[str], Result | None]
#: Something about one division; None if the methods that it is about were not run.
Question = Callable[[Get], bool | None]


class Share(NamedTuple):
    """A share with its 95 % interval, and of how many divisions (of a pair) or pairs
    it is one.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def text(self) -> str:
        if not self.n:
            return "\N{EN DASH}"
        return f"{self.value:.0%} ({self.low:.0%}\N{EN DASH}{self.high:.0%})"


@dataclass(frozen=True, eq=False)
class Divisions:
    """The results of all divisions, by pair, number and method."""

    by_cell: Mapping[tuple[str, int, str], Result]
    pairs: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[Result], pairs: Sequence[str]) -> Divisions:
        by_cell = {
            (r.pair, r.division, r.method): r for r in results if r.division is not None
        }
        return cls(
            by_cell,
            tuple(pair for pair in pairs if any(key[0] == pair for key in by_cell)),
        )

    def numbers(self, pair: str) -> list[int]:
        return sorted({division for name, division, _ in self.by_cell if name == pair})

    def values(
        self, pair: str, division: int, methods: Sequence[str], measure: Measure
    ) -> list[float]:
        """The number of each method on one division; NaN where it was not run."""
        row = [self.by_cell.get((pair, division, method)) for method in methods]
        return [np.nan if result is None else measure(result) for result in row]

    def hits(self, pair: str, question: Question) -> list[bool]:
        """The answers on each division of a pair on which the question has one."""
        answers = [
            self.look(pair, division, question) for division in self.numbers(pair)
        ]
        return [answer for answer in answers if answer is not None]

    def look(self, pair: str, division: int, look: Callable[[Get], Any]) -> Any:
        """What a function of one division finds on it."""
        return look(lambda name: self.by_cell.get((pair, division, name)))

    def complete(self, methods: Sequence[str]) -> Divisions:
        """Only the divisions on which all these methods ran, of those that ran on
        the pair.
        """
        ran: dict[str, dict[str, set[int]]] = {pair: {} for pair in self.pairs}
        for pair, division, method in self.by_cell:
            if method in methods:
                ran[pair].setdefault(method, set()).add(division)
        common = {
            pair: set.intersection(*numbers.values())
            for pair, numbers in ran.items()
            if numbers
        }
        by_cell = {
            key: r
            for key, r in self.by_cell.items()
            if key[1] in common.get(key[0], ())
        }
        return Divisions(by_cell, self.pairs)

    def mean_ranks(
        self, pair: str, methods: Sequence[str], measure: Measure
    ) -> dict[str, float]:
        """Mean rank of each method that ran on a pair; divisions must be `complete`."""
        table = np.array(
            [
                self.values(pair, division, methods, measure)
                for division in self.numbers(pair)
            ]
        )
        if not table.size:
            return {}
        used = ~np.isnan(table).all(axis=0)
        ranks = rankdata(table[:, used], axis=1).mean(axis=0)
        names = [name for name, is_used in zip(methods, used, strict=True) if is_used]
        return dict(zip(names, ranks.tolist(), strict=True))


def is_lowest(method: str, rivals: Sequence[str], measure: Measure) -> Question:
    """Whether a method is lowest of those `rivals`, of which it is one, that were
    run.
    """

    def ask(get: Get) -> bool | None:
        ours = get(method)
        ran = [result for name in rivals if (result := get(name)) is not None]
        return None if ours is None else measure(ours) <= min(map(measure, ran))

    return ask


def is_among_best(
    method: str, rivals: Sequence[str], measure: Measure, among: int = 2
) -> Question:
    """Whether fewer than so many of those `rivals` that were run are lower than a
    method.
    """

    def ask(get: Get) -> bool | None:
        ours = get(method)
        scores = [
            measure(result) for name in rivals if (result := get(name)) is not None
        ]
        return None if ours is None else sum(x < measure(ours) for x in scores) < among

    return ask


def score_of(name: str) -> Measure:
    """The score of a result."""
    return lambda result: result.score(name)


def share_of(hits: Sequence[bool]) -> Share:
    """The share of a pair's divisions, with Clopper and Pearson's interval.

    >>> round(share_of([True, False, False, False]).high, 2)
    0.81
    """
    if not hits:
        return Share(np.nan, np.nan, np.nan, 0)
    low, high = clopper_pearson(sum(hits), len(hits)).tolist()
    return Share(sum(hits) / len(hits), low, high, len(hits))


def mean_share(hits: Sequence[Sequence[bool]]) -> Share:
    """The mean share over pairs; the interval resamples pairs, then divisions within
    each pair.

    Pairs are the independent unit: divisions of one pair share its examples.

    >>> mean_share([[True] * 20, [True] * 20]).low
    1.0
    """
    rows = [np.asarray(row, float) for row in hits if len(row)]
    if not rows:
        return Share(np.nan, np.nan, np.nan, 0)
    shares = np.array([row.mean() for row in rows])
    sizes = np.array([row.size for row in rows])
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(rows), size=(_N_RESAMPLES, len(rows)))
    means = (rng.binomial(sizes[chosen], shares[chosen]) / sizes[chosen]).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    return Share(float(shares.mean()), low, high, len(rows))


def bootstrap_pairs(
    rows: Sequence[Sequence[tuple[float, ...]]],
    statistic: Callable[[NDArray[np.float64]], float],
) -> Share:
    """A statistic over networks, the mean over divisions, with networks resampled for its
    interval.

    `rows` has a few numbers for each division of each network. For each number the
    statistic is of the networks' divisions of that number; numbers that some network
    lacks are left out. NaN over fewer than three networks.
    """
    least = min((len(row) for row in rows), default=0)
    if least == 0:
        return Share(np.nan, np.nan, np.nan, 0)
    if len(rows) < FEWEST:
        return Share(np.nan, np.nan, np.nan, len(rows))
    table = np.array([row[:least] for row in rows])  # (networks, divisions, numbers)
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(rows), size=(_N_RESAMPLES // 4, len(rows)))
    means = np.array(
        [_mean_over_divisions(table[sample], statistic) for sample in chosen]
    )
    defined = means[~np.isnan(means)]
    if not defined.size:
        return Share(np.nan, np.nan, np.nan, len(rows))
    low, high = np.quantile(defined, [0.025, 0.975]).tolist()
    return Share(_mean_over_divisions(table, statistic), low, high, len(rows))


def _mean_over_divisions(
    table: NDArray[np.float64], statistic: Callable[[NDArray[np.float64]], float]
) -> float:
    values = np.array(
        [statistic(table[:, division]) for division in range(table.shape[1])]
    )
    return float(np.nanmean(values)) if not np.isnan(values).all() else np.nan


def counts_by_division(hits: Mapping[str, Sequence[bool]]) -> NDArray[np.int64]:
    """On how many pairs each single division was won, (divisions that all pairs have,)."""
    least = min((len(row) for row in hits.values()), default=0)
    table = np.array([row[:least] for row in hits.values()], np.int64).reshape(
        len(hits), least
    )
    return np.asarray(table.sum(axis=0))
