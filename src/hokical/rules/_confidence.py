"""The probability that an answer is right, as a curve over the confidence stated with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.groups import GroupCoding
from hokical._core.special import expit
from hokical._core.storage import storable
from hokical._core.types import FloatArray, IntArray
from hokical.rules._checks import check_array, check_rising, store_float

#: Log-odds of answers are cut here: none is certain.
FARTHEST = 20.0
#: Features that can differ by group.
N_OWN = 3


def confidence_keys(confidence: FloatArray) -> FloatArray:
    """Confidences (n,) as they are compared: rounded to float32, so that .9 is .9 everywhere."""
    return confidence.astype(np.float32).astype(np.float64)


def cut_logs(confidence: FloatArray, closest: float) -> tuple[FloatArray, FloatArray]:
    """log p and log(1 - p), (n,) each, of confidences cut to [closest, 1 - closest]."""
    cut = np.clip(confidence, closest, 1.0 - closest)
    return np.log(cut), np.log1p(-cut)


@storable("rule:confidence")
@dataclass(frozen=True, eq=False)
class ConfidenceCurve:
    """Log-odds of the confidence plus `coef` times features, plus those of the groups.

    Confidences are cut to [`closest`, 1 - `closest`]: a stated 0 or 1 says no more. The features
    (n, 3 + knots + atoms) are 1, the log-odds and the log of p (1 - p), which span log p and
    log(1 - p), less their `centre` (2,); hinges of the log-odds at `knots`; and indicators of the
    confidences `atoms`. `tables` hold, for each column of `coding`, what the first three
    coefficients are changed by (groups + 1, 3); the last row, for an unknown group, is 0. Where a
    `grid` of confidences is given, with `counts` of examples, curves are made non-decreasing there.
    """

    coef: FloatArray
    centre: FloatArray
    knots: FloatArray
    atoms: FloatArray
    closest: float
    coding: GroupCoding | None = None
    tables: tuple[FloatArray, ...] = ()
    grid: FloatArray | None = None
    counts: FloatArray | None = None

    def __post_init__(self) -> None:
        check_array("centre", self.centre, (2,))
        store_float(self, "closest", 1e-12, 0.1)
        for name in ("knots", "atoms", "grid"):
            points = getattr(self, name)
            if points is not None and np.size(points):
                check_array(name, points, (None,))
                check_rising(name, points)
        check_array("coef", self.coef, (N_OWN + self.knots.size + self.atoms.size,))
        sizes = self.coding.sizes if self.coding else ()
        if not isinstance(self.tables, tuple) or len(self.tables) != len(sizes):
            raise ValueError("`tables` must have one table for each column of groups.")
        for table, size in zip(self.tables, sizes, strict=True):
            check_array("tables", table, (size, N_OWN))
        if self.grid is not None:
            check_array("counts", self.counts, self.grid.shape, 1e-300)

    def log_odds(self, confidence: FloatArray) -> FloatArray:
        """Those of the confidences (n,) themselves."""
        log_p, log_rest = cut_logs(confidence, self.closest)
        return log_p - log_rest

    def features(self, confidence: FloatArray) -> FloatArray:
        """The features (n, c) of confidences (n,)."""
        log_p, log_rest = cut_logs(confidence, self.closest)
        odds = log_p - log_rest
        first = np.stack([odds, log_p + log_rest], axis=1) - self.centre
        hinges = np.maximum(odds[:, None] - self.knots, 0.0)
        stated = confidence_keys(confidence)[:, None] == self.atoms
        return np.concatenate([np.ones((odds.size, 1)), first, hinges, stated], axis=1)

    def codes(self, groups: Any, n_rows: int) -> IntArray:
        """The code (n, columns) of the group of each row; groups of None are unknown."""
        if self.coding is None:
            return np.zeros((n_rows, 0), np.int64)
        if groups is None:
            return np.broadcast_to(np.array(self.coding.sizes) - 1, (n_rows, len(self.tables)))
        return self.coding.codes(groups, n_rows)

    def proba(self, confidence: FloatArray, codes: IntArray) -> FloatArray:
        """The probability (n,) that answers of this confidence and group are right."""
        if self.grid is None:
            return self._curve(confidence, codes)
        found = np.empty(confidence.size)
        cells, cell = np.unique(codes, axis=0, return_inverse=True)
        for k, code in enumerate(cells):
            rows = np.flatnonzero(cell.reshape(-1) == k)
            here = np.broadcast_to(code, (self.grid.size, code.size))
            rising = _make_rising(self._curve(self.grid, here), self.counts)
            found[rows] = np.interp(confidence_keys(confidence[rows]), self.grid, rising)
        return found

    def _curve(self, confidence: FloatArray, codes: IntArray) -> FloatArray:
        features = self.features(confidence)
        odds = self.log_odds(confidence) + (features * self.coef).sum(axis=1)
        for code, table in zip(codes.T, self.tables, strict=True):
            odds += (features[:, :N_OWN] * table[code]).sum(axis=1)
        return np.asarray(expit(np.clip(odds, -FARTHEST, FARTHEST), np))


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
