"""Calibration by group: a good average can hide people, subjects or sites it is wrong about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.groups import GroupCoding, count_rows
from hokical._core.labels import as_weights
from hokical._core.portable import uniform_draws
from hokical._core.reading import to_numpy
from hokical._core.types import FloatArray, IntArray
from hokical.guarantees._binomial import check_chance, clopper_pearson, sum_distribution
from hokical.metrics._by_class import holm
from hokical.metrics._examples import Examples, as_examples, as_predictions

#: Pairs of groups with fewer examples are left out: they can prove next to nothing.
LEAST_OF_PAIR = 20
#: Segments of confidence in which the largest gap is looked for, beside all of it.
SEGMENTS = 4
#: The largest gap is looked for where the variance of the sum is at least this, as with fewer
#: mistakes to expect a single one is many standard deviations.
LEAST_VARIANCE = 5.0
#: Draws of the null distribution of the largest gap, and how many numbers to hold at a time.
DRAWS, _HELD = 999, 1 << 22


@dataclass(frozen=True)
class GroupRow:
    """The `n` rows of a group: mean confidence, accuracy with its interval, and the test.

    `z` is the sum of what is right less what is said, in standard deviations; `p_value` the chance
    of such a sum, exactly, if every row were right with the probability that it says. It is
    `flagged` if that is ruled out, allowing for the number of groups.
    """

    name: str
    n: int
    says: float
    right: float
    low: float
    high: float
    z: float
    p_value: float
    flagged: bool

    @property
    def gap(self) -> float:
        """What is said less what is true; above 0 where it is over-confident."""
        return self.says - self.right


@dataclass(frozen=True)
class LargestGap:
    """The largest standardised gap of any group and segment of confidence, and its p-value.

    The p-value is of all of them together: the share of `n_draws` in which outcomes, drawn with the
    probabilities that are said, have a gap as large anywhere.
    """

    name: str
    z: float
    p_value: float
    n_draws: int


@dataclass(frozen=True)
class GroupTable:
    """One row per group, and per pair of groups of different columns; see `group_table`."""

    rows: tuple[GroupRow, ...]
    largest: LargestGap
    delta: float

    @property
    def flagged(self) -> tuple[GroupRow, ...]:
        """The groups about which it is certainly wrong, the worst first."""
        return tuple(row for row in self.worst() if row.flagged)

    def worst(self, limit: int | None = None) -> tuple[GroupRow, ...]:
        """The rows by how certain it is that they are off."""
        return tuple(sorted(self.rows, key=lambda row: (row.p_value, -abs(row.z)))[:limit])

    def __getitem__(self, name: str) -> GroupRow:
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise KeyError(f"no group is called {name!r}; there are {', '.join([*found][:20])}")
        return found[name]

    @property
    def verdict(self) -> str:
        """In words, for all groups at once."""
        bad, largest = self.flagged, self.largest
        if not bad:
            found = f"standardised gap {largest.z:.1f}, p {largest.p_value:.2g}"
            if largest.p_value <= self.delta:
                return f"no whole group is certainly off, but a part is: {largest.name}, {found}"
            name = largest.name
            return (
                f"no group of {len(self.rows)} is certainly off; the largest gap: {name}, {found}"
            )
        row = bad[0]
        return (
            f"wrong about {len(bad)} of {len(self.rows)} groups, most certainly about {row.name}: "
            f"{row.n:,} rows say {row.says:.1%} and are right {row.right:.1%} of the time"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {"verdict": self.verdict, **asdict(self)}

    def __str__(self) -> str:
        width = max(len("group"), *(len(row.name) for row in self.rows))
        lines = [
            f"{row.name:{width}} {row.n:>8,} {row.says:>7.1%} {row.right:>7.1%} "
            f"({row.low:.1%} to {row.high:.1%}){'  off' if row.flagged else ''}"
            for row in self.rows
        ]
        head = f"{'group':{width}} {'rows':>8} {'says':>7} {'right':>7}"
        return "\n".join([head, *lines, f"{self.verdict[0].upper()}{self.verdict[1:]}."])


def group_table(
    proba: Any, labels: Any, groups: Any, *, sample_weight: Any = None, delta: float = 0.05
) -> GroupTable:
    """For each group: how many rows, what they say, how often they are right, and a verdict.

    Parameters
    ----------
    proba : array of shape (n, classes), or confidence of shape (n,)
        Of probabilities, the label is the likeliest class, and its probability the confidence.
    labels : array of shape (n,)
        The true classes; with a confidence (n,), whether each answer was right.
    groups : array of shape (n,), or several columns
        Text or numbers; a mapping, a DataFrame, a structured array or (n, columns) for several
        columns, whose groups overlap. Then pairs of groups of two columns, of at least 20 rows, are
        looked at too. Numbers with more than 20 different values are cut at deciles, but for
        whole numbers (n,) alone, which are names.
    sample_weight : array of shape (n,), optional
        How much each row counts, as in a survey. Shares are weighted; tests are then by the normal
        approximation, and intervals as of so many rows as the weights are worth.
    delta : float
        Probability that any group is flagged if every row is right with the probability it says
        (Holm's method on exact p-values, which holds however groups overlap). Intervals of the
        accuracy (Clopper and Pearson's) are at 1 - delta each.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> site = rng.choice(["north", "south", "west"], size=3000)
    >>> confidence = rng.uniform(0.6, 1.0, size=3000)
    >>> right = rng.uniform(size=3000) < confidence - 0.1 * (site == "west")
    >>> table = group_table(confidence, right, site)
    >>> [row.name for row in table.flagged], table.largest.name, table.largest.p_value
    (['west'], 'west', 0.001)
    """
    check_chance("delta", delta)
    weights = None if sample_weight is None else as_weights(sample_weight, count_rows(labels))
    seen = slice(None) if weights is None else weights > 0.0
    rows = _top_label(proba, labels, weights)
    coding = GroupCoding.learn(groups, count_rows(labels), weights)
    codes = coding.codes(groups, count_rows(labels))[seen]
    cells = list(_cells(coding, codes))
    tests = [(_test if weights is None else _test_weighted)(rows, own) for _, own in cells]
    n, worth, says, right, z, p = (np.array(column) for column in zip(*tests, strict=True))
    hits = np.minimum(np.round(right * worth, 9), worth)
    low, high = clopper_pearson(hits, worth, delta=delta).T
    columns = (n, says, right, low, high, z, p, holm(p) <= delta)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    found = tuple(GroupRow(name, *row) for (name, _), row in zip(cells, numbers, strict=True))
    return GroupTable(found, _largest_gap(rows, codes, cells), delta)


def _top_label(proba: Any, labels: Any, weights: FloatArray | None) -> Examples:
    """What is said of the label, and whether it is right."""
    if to_numpy(proba, "proba").ndim == 1:
        return as_examples(proba, labels, weights)
    given = as_predictions(proba, labels, weights)
    confidence = np.minimum(given.proba.max(axis=1).astype(np.float64), 1.0)
    right = given.proba.argmax(axis=1) == given.labels
    return Examples(confidence, right, given.weight)


def _cells(coding: GroupCoding, codes: IntArray) -> Iterator[tuple[str, IntArray]]:
    """The groups that occur, then pairs of groups of two columns: name, and numbers of rows."""
    names = [coding.full_names(k) for k in range(len(coding.columns))]
    for k, own in enumerate(names):
        yield from ((own[c], rows) for c, rows in _split(codes[:, k]) if rows.size)
    for i, j in combinations(range(len(names)), 2):
        for cell, rows in _split(codes[:, i] * len(names[j]) + codes[:, j]):
            if rows.size >= LEAST_OF_PAIR:
                first, second = divmod(cell, len(names[j]))
                yield f"{names[i][first]}, {names[j][second]}", rows


def _split(codes: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Each code that occurs, with the numbers of its rows."""
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield int(codes[rows[0]]), rows


def _test(rows: Examples, own: IntArray) -> tuple[float, ...]:
    """Of a group: rows, what they are worth, what they say, are right, gap in deviations, p."""
    says, hits = rows.confidence[own], int(rows.correct[own].sum())
    first, chances = sum_distribution(says)
    place = max(hits - first, 0)
    tail = min(float(chances[: place + 1].sum()), float(chances[place:].sum()))
    gap, variance = np.array([hits - says.sum()]), np.array([np.sum(says * (1.0 - says))])
    z = float(_standardise(gap, variance)[0])
    p = min(max(2.0 * tail, 1e-10), 1.0)
    return own.size, own.size, float(says.mean()), hits / own.size, z, p


def _test_weighted(rows: Examples, own: IntArray) -> tuple[float, ...]:
    """The same of rows that count by their weights, in the normal approximation."""
    from scipy.special import ndtr

    says, weight = rows.confidence[own], rows.filled_weight()[own]
    share = weight / weight.sum()
    right, variance = float(share @ rows.correct[own]), np.sum(share**2 * says * (1.0 - says))
    said = float(share @ says)
    z = float(_standardise(np.array([right - said]), np.array([variance]))[0])
    p = min(max(2.0 * float(ndtr(-abs(z))), 1e-10), 1.0)
    return own.size, 1.0 / float(share @ share), said, right, z, p


def _standardise(gap: FloatArray, variance: FloatArray) -> FloatArray:
    """Gaps (cells, ...) in standard deviations; infinite where a certainty was wrong."""
    spread = np.sqrt(variance).reshape(-1, *(1,) * (gap.ndim - 1))
    certain = np.where(np.abs(gap) < 1e-9, 0.0, np.copysign(np.inf, gap))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0.0, gap / spread, certain)


def _largest_gap(rows: Examples, codes: IntArray, cells: list[tuple[str, IntArray]]) -> LargestGap:
    """The largest standardised gap over groups and segments, and its null distribution.

    Rows with equal groups and segment are one atom, whose outcomes need not be told apart.
    """
    from scipy.sparse import csr_array

    says = rows.confidence
    ends = np.quantile(says, np.arange(1, SEGMENTS) / SEGMENTS)
    segment = np.searchsorted(ends, says, side="right")
    parts = list(_with_segments(cells, segment, [0.0, *ends.tolist(), 1.0]))
    rows_of = np.column_stack([codes, segment])
    kinds, first, atom = np.unique(rows_of, axis=0, return_index=True, return_inverse=True)
    n_kinds, atom = len(kinds), atom.reshape(-1)
    weight = rows.filled_weight()
    columns = (weight * (rows.correct - says), weight**2 * says * (1.0 - says))
    gaps, variance = (sum_by(atom, column, n_kinds) for column in columns)
    place = np.full(says.size, -1)
    place[first] = np.arange(n_kinds)
    inside = [own[own >= 0] for own in (place[some] for _, some in parts)]
    starts = np.cumsum([0, *map(len, inside)])
    ones = np.ones(starts[-1])
    sums = csr_array((ones, np.concatenate(inside), starts), shape=(len(parts), n_kinds))
    spread = sums @ variance
    least = LEAST_VARIANCE if rows.weight is None else LEAST_VARIANCE * float(np.mean(weight**2))
    known = spread >= min(least, float(spread.max()))
    sums, spread = sums[np.flatnonzero(known)], spread[known]
    z = _standardise(sums @ gaps, spread)
    worst = int(np.argmax(np.abs(z)))
    drawn = np.zeros((spread.size, DRAWS))
    spreads = None if rows.weight is None else np.sqrt(variance)
    for some, right in _simulate(says, atom, n_kinds, spreads):
        drawn += sums[:, some] @ right
    reached = np.abs(_standardise(drawn, spread)).max(axis=0) >= abs(z[worst]) - 1e-9
    name = parts[int(np.flatnonzero(known)[worst])][0]
    return LargestGap(name, float(abs(z[worst])), (1 + int(reached.sum())) / (1 + DRAWS), DRAWS)


def _with_segments(
    cells: list[tuple[str, IntArray]], segment: IntArray, edges: list[float]
) -> Iterator[tuple[str, IntArray]]:
    """The groups, and what of them lies in each segment of confidence."""
    yield from cells
    for name, own in cells:
        for k in range(SEGMENTS):
            some = own[segment[own] == k]
            if 0 < some.size < own.size:
                yield f"{name}, confidence {edges[k]:.2f} to {edges[k + 1]:.2f}", some


def _simulate(
    says: FloatArray, atom: IntArray, n_atoms: int, spreads: FloatArray | None
) -> Iterator[tuple[slice, FloatArray]]:
    """Gaps (some atoms, draws) if outcomes have the probabilities that are said; always the same.

    The number of right rows of an atom is drawn from its exact distribution; weighted sums, of
    which `spreads` (atoms,) are the standard deviations, from a normal one.
    """
    from scipy.special import ndtri

    members = [rows for _, rows in _split(atom)]
    step = _HELD // DRAWS
    for start in range(0, n_atoms, step):
        some = slice(start, min(start + step, n_atoms))
        uniform = uniform_draws(start, (some.stop - start, DRAWS))
        if spreads is not None:
            yield some, spreads[some, None] * ndtri(np.clip(uniform, 1e-16, 1.0 - 1e-16))
            continue
        found = [
            _draw_sums(says[rows], draw) - says[rows].sum()
            for rows, draw in zip(members[some], uniform, strict=True)
        ]
        yield some, np.array(found)


def _draw_sums(says: FloatArray, uniform: FloatArray) -> IntArray:
    first, chances = sum_distribution(says)
    found = first + np.searchsorted(np.cumsum(chances), uniform)
    return np.clip(found, 0, says.size)
