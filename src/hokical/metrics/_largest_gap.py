"""The largest standardised gap of any group and segment of confidence, by simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.portable import uniform_draws
from hokical._core.types import FloatArray, IntArray
from hokical.metrics._examples import Examples
from hokical.metrics._sum_test import sum_distribution

#: Segments of confidence in which the largest gap is looked for, beside all of it.
SEGMENTS = 4
#: The largest gap is looked for where the variance of the sum is at least this, as with fewer
#: mistakes to expect a single one is many standard deviations.
LEAST_VARIANCE = 5.0
#: Draws of the null distribution of the largest gap, and how many numbers to hold at a time.
DRAWS, _HELD = 999, 1 << 22
#: Variance, in squares of the largest weight, from which a weighted sum is drawn as normal.
_NORMAL = 100.0


@dataclass(frozen=True)
class LargestGap:
    """The largest standardised gap of any group and segment of confidence, and its p-value.

    The p-value is of all of them together: the share of `n_draws` in which outcomes, drawn with the
    predicted probabilities, have a gap as large anywhere.
    """

    name: str
    z: float
    p_value: float
    n_draws: int

    def of_several(self, n: int) -> Self:
        """The smallest p-value of n such gaps, corrected for their number."""
        return replace(self, p_value=min(1.0, n * self.p_value))


def standardise(gap: FloatArray, variance: FloatArray) -> FloatArray:
    """Gaps (cells, ...) in standard deviations; infinite where a certainty was wrong."""
    spread = np.sqrt(variance).reshape(-1, *(1,) * (gap.ndim - 1))
    certain = np.where(np.abs(gap) < 1e-9, 0.0, np.copysign(np.inf, gap))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0.0, gap / spread, certain)


def find_largest_gap(
    rows: Examples, codes: IntArray, cells: list[tuple[str, IntArray]], asked: str = ""
) -> LargestGap:
    """The largest standardised gap over groups and segments, and its null distribution.

    Rows with equal groups and segment are one atom, whose outcomes need not be distinguished.
    """
    from scipy.sparse import csr_array

    p = rows.confidence
    ends = np.quantile(p, np.arange(1, SEGMENTS) / SEGMENTS)
    segment = np.searchsorted(ends, p, side="right")
    parts = list(_with_segments(cells, segment, [0.0, *ends.tolist(), 1.0], asked))
    rows_of = np.column_stack([codes, segment])
    kinds, first, atom = np.unique(rows_of, axis=0, return_index=True, return_inverse=True)
    n_kinds, atom = len(kinds), atom.reshape(-1)
    weight = rows.filled_weight()
    columns = (weight * (rows.correct - p), weight**2 * p * (1.0 - p))
    gaps, variance = (sum_by(atom, column, n_kinds) for column in columns)
    place = np.full(p.size, -1)
    place[first] = np.arange(n_kinds)
    inside = [own[own >= 0] for own in (place[some] for _, some in parts)]
    starts = np.cumsum([0, *map(len, inside)])
    ones = np.ones(starts[-1])
    sums = csr_array((ones, np.concatenate(inside), starts), shape=(len(parts), n_kinds))
    spread = sums @ variance
    least = LEAST_VARIANCE * float(np.mean(weight**2))
    known = spread >= min(least, float(spread.max()))
    sums, spread = sums[np.flatnonzero(known)], spread[known]
    z = standardise(sums @ gaps, spread)
    worst = int(np.argmax(np.abs(z)))
    drawn = np.zeros((spread.size, DRAWS))
    for some, right in _simulate(rows, atom, n_kinds):
        drawn += sums[:, some] @ right
    reached = np.abs(standardise(drawn, spread)).max(axis=0) >= abs(z[worst]) - 1e-9
    name = parts[int(np.flatnonzero(known)[worst])][0]
    return LargestGap(name, float(abs(z[worst])), (1 + int(reached.sum())) / (1 + DRAWS), DRAWS)


def _with_segments(
    cells: list[tuple[str, IntArray]], segment: IntArray, edges: list[float], asked: str
) -> Iterator[tuple[str, IntArray]]:
    """The groups, and what of them lies in each segment of confidence."""
    about = f" ({asked})" if asked else ""
    yield from ((f"{name}{about}", own) for name, own in cells)
    for name, own in cells:
        for k in range(SEGMENTS):
            some = own[segment[own] == k]
            if 0 < some.size < own.size:
                yield f"{name}{about}, confidence {edges[k]:.2f} to {edges[k + 1]:.2f}", some


def _simulate(rows: Examples, atom: IntArray, n_atoms: int) -> Iterator[tuple[slice, FloatArray]]:
    """Gaps (some atoms, draws) if outcomes have the predicted probabilities; always the same."""
    order = np.argsort(atom, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(atom[order])) + 1)
    step = _HELD // DRAWS
    for start in range(0, n_atoms, step):
        some = slice(start, min(start + step, n_atoms))
        uniform = uniform_draws(start, (some.stop - start, DRAWS))
        drawn = zip(range(some.start, some.stop), members[some], uniform, strict=True)
        yield some, np.array([_draw_gaps(rows, own, row, k) for k, own, row in drawn])


def _draw_gaps(rows: Examples, own: IntArray, uniform: FloatArray, seed: int) -> FloatArray:
    """Gaps (draws,) of the rows of an atom.

    The number of right rows is drawn from its exact distribution; a weighted one row by row, or of
    large variance from a normal distribution.
    """
    from scipy.special import ndtri

    p = rows.confidence[own]
    if rows.weight is None:
        first, found = sum_distribution(p, np.ones(own.size, np.int64))
        hits = first + np.searchsorted(np.cumsum(found), uniform)
        return np.asarray(np.clip(hits, 0, own.size) - p.sum())
    weight = rows.weight[own]
    variance = float(weight**2 @ (p * (1.0 - p)))
    if variance >= _NORMAL * float(weight.max()) ** 2:
        return np.asarray(np.sqrt(variance) * ndtri(np.clip(uniform, 1e-16, 1.0 - 1e-16)))
    total, step = np.zeros(DRAWS), _HELD // DRAWS
    rng = np.random.default_rng([seed, own.size])
    for start in range(0, own.size, step):
        few = slice(start, start + step)
        happened = rng.random((p[few].size, DRAWS)) < p[few, None]
        total += weight[few] @ (happened - p[few, None])
    return total
