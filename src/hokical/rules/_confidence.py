"""The probability that an answer is right, as a curve over the confidence stated with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hokical._core.arrays import Array, Namespace
from hokical._core.groups import GroupCoding
from hokical._core.special import expit
from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray
from hokical.rules._checks import check_array, check_rising, store_float
from hokical.rules._isotonic import between_knots

#: Log-odds of answers are cut here: none is certain.
FARTHEST = 20.0
#: Features that can differ by group.
N_OWN = 3
#: Most numbers of curves that are stored in a graph.
_MOST_NUMBERS = 1 << 22


def confidence_keys(confidence: Array, xp: Namespace = np) -> Array:
    """Confidences (n,) as they are compared: rounded to float32, so that .9 is .9 everywhere."""
    return xp.astype(xp.astype(confidence, xp.float32), xp.float64)


def cut_logs(confidence: Array, closest: float, xp: Namespace = np) -> tuple[Array, Array]:
    """log p and log(1 - p), (n,) each, of confidences cut to [closest, 1 - closest]."""
    cut = xp.clip(confidence, closest, 1.0 - closest)
    return xp.log(cut), xp.log1p(-cut)


@storable("rule:signals")
@dataclass(frozen=True, eq=False)
class SignalCombination:
    """One confidence from several signals of an answer.

    Its log-odds are the mean log-odds of the signals, plus `intercept`, plus `rise` (k,) times
    their log p and `fall` (k,) times their log(1 - p), cut as those of a curve.
    """

    intercept: float
    rise: FloatArray
    fall: FloatArray
    closest: float

    def __post_init__(self) -> None:
        check_array("rise", self.rise, (None,))
        check_array("fall", self.fall, self.rise.shape)
        store_float(self, "intercept", -1e6, 1e6)
        store_float(self, "closest", 1e-12, 0.1)

    def combine(self, signals: FloatArray) -> FloatArray:
        """The confidence (n,) of signals (n, k)."""
        log_p, log_rest = cut_logs(signals, self.closest)
        odds = self.intercept + np.mean(log_p - log_rest, axis=1)
        odds = odds + log_p @ self.rise + log_rest @ self.fall
        return np.asarray(expit(np.clip(odds, -FARTHEST, FARTHEST), np))


@storable("rule:confidence")
@dataclass(frozen=True, eq=False)
class ConfidenceCurve:
    """Log-odds of the confidence plus `coef` times features, plus those of the groups.

    Confidences are cut to [`closest`, 1 - `closest`]: a stated 0 or 1 means no more. The features
    (n, 3 + knots + atoms) are 1, the log-odds and the log of p (1 - p), which span log p and
    log(1 - p), less their `centre` (2,); hinges of the log-odds at `knots`; and indicators of the
    confidences `atoms`. `tables` hold, for each column of `coding`, what the first three
    coefficients are changed by (groups + 1, 3); the last row, for an unknown group, is 0. Where a
    `grid` of confidences is given, with `counts` of examples, curves are made non-decreasing there.
    `pairs` of columns have tables too, after those of the columns: of all combinations of groups.
    `signals` combine several numbers per answer to the confidence.
    """

    name: ClassVar[str] = "confidence"

    coef: FloatArray
    centre: FloatArray
    knots: FloatArray
    atoms: FloatArray
    closest: float
    coding: GroupCoding | None = None
    tables: tuple[FloatArray, ...] = ()
    grid: FloatArray | None = None
    counts: FloatArray | None = None
    signals: SignalCombination | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        check_array("centre", self.centre, (2,))
        store_float(self, "closest", 1e-12, 0.1)
        for name in ("knots", "atoms", "grid"):
            points = getattr(self, name)
            if points is not None and np.size(points):
                check_array(name, points, (None,))
                check_rising(name, points)
        check_array("coef", self.coef, (N_OWN + self.knots.size + self.atoms.size,))
        sizes = list(self.coding.sizes) if self.coding else []
        if any(not 0 <= a < b < len(sizes) for a, b in self.pairs):
            raise ValueError(f"`pairs` must be of columns of groups; got {self.pairs!r}.")
        sizes += [sizes[a] * sizes[b] for a, b in self.pairs]
        if not isinstance(self.tables, tuple) or len(self.tables) != len(sizes):
            raise ValueError("`tables` must have one table for each column and pair of groups.")
        for table, size in zip(self.tables, sizes, strict=True):
            check_array("tables", table, (size, N_OWN))
        if self.grid is not None:
            check_array("counts", self.counts, self.grid.shape, 1e-300)

    def combine(self, stated: FloatArray) -> FloatArray:
        """One confidence (n,) per answer, of what is stated: that, or signals (n, k)."""
        return stated if self.signals is None else self.signals.combine(stated)

    def log_odds(self, confidence: Array, xp: Namespace = np) -> Array:
        """Those of the confidences (n,) themselves."""
        log_p, log_rest = cut_logs(confidence, self.closest, xp)
        return log_p - log_rest

    def features(self, confidence: Array, xp: Namespace = np) -> Array:
        """The features (n, c) of confidences (n,)."""
        log_p, log_rest = cut_logs(confidence, self.closest, xp)
        odds = log_p - log_rest
        parts = [xp.ones_like(odds)[:, None]]
        parts.append(xp.stack([odds, log_p + log_rest], axis=1) - self.centre)
        if self.knots.size:
            parts.append(xp.clip(odds[:, None] - self.knots, 0.0, None))
        if self.atoms.size:
            stated = xp.equal(confidence_keys(confidence, xp)[:, None], self.atoms)
            parts.append(xp.astype(stated, xp.float64))
        return xp.concat(parts, axis=1)

    def codes(self, groups: Any, n_rows: int) -> IntArray:
        """The code (n, columns) of the group of each row; groups of None are unknown."""
        if self.coding is None:
            return np.zeros((n_rows, 0), np.int64)
        if groups is None:
            return np.broadcast_to(
                np.array(self.coding.sizes) - 1, (n_rows, len(self.coding.sizes))
            )
        return self.coding.codes(groups, n_rows)

    def proba(self, confidence: FloatArray, codes: IntArray) -> FloatArray:
        """The probability (n,) that answers of this confidence and group are right."""
        if self.grid is None:
            return np.asarray(self._curve(confidence, codes))
        found = np.empty(confidence.size)
        cells, cell = np.unique(codes, axis=0, return_inverse=True)
        for k, code in enumerate(cells):
            rows = np.flatnonzero(cell.reshape(-1) == k)
            here = np.broadcast_to(code, (self.grid.size, code.size))
            rising = _make_rising(self._curve(self.grid, here), self.counts)
            found[rows] = np.interp(confidence_keys(confidence[rows]), self.grid, rising)
        return found

    def _curve(self, confidence: Array, codes: Array, xp: Namespace = np) -> Array:
        features = self.features(confidence, xp)
        odds = self.log_odds(confidence, xp) + xp.sum(features * self.coef, axis=1)
        places = [codes[:, k] for k in range(len(self.tables) - len(self.pairs))]
        sizes = self.coding.sizes if self.coding else ()
        places += [places[a] * sizes[b] + places[b] for a, b in self.pairs]
        for table, place in zip(self.tables, places, strict=True):
            own = xp.take(table, place, axis=0)
            odds = odds + xp.sum(features[:, :N_OWN] * own, axis=1)
        return expit(xp.clip(odds, -FARTHEST, FARTHEST), xp)

    def traced_proba(self, confidence: Array, codes: Array | None, xp: Namespace) -> Array:
        """`proba` for arrays that record a graph; curves of a grid are made beforehand.

        A code that no group has is that of an unknown one.
        """
        if self.signals is not None:
            raise ValueError(
                "`calibrator` must have been fitted on one confidence per answer to become a "
                f"graph; got {self.signals.rise.size} signals."
            )
        sizes = self.coding.sizes if self.coding else ()
        known = []
        for k, size in enumerate(sizes):
            own = codes[:, k]  # type: ignore[index]  # given where there is a coding
            known.append(xp.where((own < 0) | (own >= size), xp.full_like(own, size - 1), own))
        if self.grid is None:
            return self._curve(confidence, xp.stack(known, axis=1) if known else None, xp)
        n_cells = math.prod(sizes)
        if n_cells * self.grid.size > _MOST_NUMBERS:
            raise ValueError(
                f"`monotone` curves of {n_cells:,} combinations of groups are too many for a "
                "graph. Fit with fewer columns of groups, or without `monotone`."
            )
        cells = np.array([*np.ndindex(sizes)], np.int64).reshape(n_cells, len(sizes))
        curves = [
            _make_rising(self._curve(self.grid, np.tile(cell, (self.grid.size, 1))), self.counts)
            for cell in cells
        ]
        keys, row = confidence_keys(confidence, xp), 0
        for own, size in zip(known, sizes, strict=True):
            row = row * size + own
        count, first = xp.searchsorted(self.grid, keys, side="right"), row * self.grid.size
        left, right = xp.clip(count - 1, 0, None), xp.clip(count, None, self.grid.size - 1)
        knots, values = np.tile(self.grid, len(cells)), np.concatenate(curves)
        return between_knots(knots, values, left + first, right + first, keys, xp)


def _make_rising(values: FloatArray, counts: Any) -> FloatArray:
    """The non-decreasing sequence nearest to the values (m,), by weighted squares.

    Isotonic regression: at i it is the largest over a <= i of the least over b >= i of the means
    of a ... b.
    """
    sums, sizes = (np.append(0.0, np.cumsum(part)) for part in (values * counts, counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums[None, 1:] - sums[:-1, None]) / (sizes[None, 1:] - sizes[:-1, None])
    means[np.tril_indices(values.size, -1)] = np.inf
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    least[np.tril_indices(values.size, -1)] = -np.inf
    return np.asarray(least.max(axis=0))
