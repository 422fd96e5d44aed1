"""Rules of yes-or-no outcomes: is an answer right, by the confidence stated with it?
Which labels?

The labels do not exclude each other, and have one score each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from hokical._core.arrays import (
    Array,
    Backend,
    BoolArray,
    FloatArray,
    IntArray,
    Namespace,
    to_float64,
)
from hokical._core.checks import ArrayOf, Checked, Within, check_array
from hokical._core.groups import GroupCoding, combine_codes
from hokical._core.special import expit
from hokical._core.storage import storable
from hokical.rules.binary_isotonic import between_knots

#: Log-odds of answers are cut here: none is certain.
FARTHEST = 20.0
#: Features that can differ by group.
N_OWN = 3
#: Maximum numbers of all curves that are stored in a graph.
_MAX_NUMBERS = 1 << 22
#: Confidences are cut to this distance from 0 and 1.
Closest = Annotated[float, Within(1e-12, 0.1)]


def confidence_keys(confidence: Array, xp: Namespace = np) -> Array:
    """Confidences (n,) as they are compared: rounded to float32, so that .9 is .9
    everywhere.
    """
    return xp.astype(xp.astype(confidence, xp.float32), xp.float64)


def cut_logs(
    confidence: Array, closest: float, xp: Namespace = np
) -> tuple[Array, Array]:
    """log p and log(1 - p), (n,) each, of confidences cut to [closest, 1 - closest]."""
    cut = xp.clip(confidence, closest, 1.0 - closest)
    return xp.log(cut), xp.log1p(-cut)


@storable("rule:signal_moments")
@dataclass(frozen=True, eq=False)
class SignalMoments(Checked):
    """Mean (k,) and covariance (k, k) of the log-odds of the signals of answers.

    A signal that is not given has the mean that the others let expect, as if log-odds
    were normal, and adds its coefficient of `absence` (k,) to the log-odds.
    """

    mean: Annotated[FloatArray, ArrayOf(("signals",))]
    covariance: Annotated[FloatArray, ArrayOf(("signals", "signals"))]
    absence: Annotated[FloatArray, ArrayOf(("signals",))]

    def __post_init__(self) -> None:
        super().__post_init__()
        symmetric = np.array_equal(self.covariance, self.covariance.T)
        if not symmetric or np.linalg.eigvalsh(self.covariance).min() <= 0.0:
            raise ValueError("`covariance` must be symmetric and positive definite.")

    def complete(self, log_odds: FloatArray) -> FloatArray:
        """Log-odds (n, k) without NaN: the conditional means of what is missing."""
        completed = log_odds.copy()
        for pattern, rows in missing_patterns(log_odds):
            missing = np.flatnonzero(pattern)
            present = np.flatnonzero(~pattern)
            slopes = self.regression(present, missing)
            for j, slope in zip(missing, slopes.T, strict=True):
                # One signal after another, so that no row depends on its batch.
                expected = np.full(len(rows), self.mean[j])
                for k, weight in zip(present, slope, strict=True):
                    expected += weight * (log_odds[rows, k] - self.mean[k])
                completed[rows, j] = expected
        return completed

    def regression(self, present: IntArray, missing: IntArray) -> FloatArray:
        """The slopes (present, missing) of missing signals by those that are given."""
        within = self.covariance[np.ix_(present, present)]
        across = self.covariance[np.ix_(present, missing)]
        return np.asarray(np.linalg.solve(within, across), np.float64)


def missing_patterns(signals: FloatArray) -> Iterator[tuple[BoolArray, IntArray]]:
    """Each set of signals (k,) that is missing together, with the rows where it is."""
    missing = np.isnan(signals)
    incomplete = np.flatnonzero(missing.any(axis=1))
    patterns, of_row = np.unique(missing[incomplete], axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield pattern, incomplete[of_row.ravel() == number]


@storable("rule:signals")
@dataclass(frozen=True, eq=False)
class SignalCombination(Checked):
    """One confidence from several signals of an answer, of which some may be missing.

    Its log-odds are the mean log-odds of the signals, plus `intercept`, plus `rise`
    (k,) times their log p and `fall` (k,) times their log(1 - p), cut as those of a
    curve. `moments` complete the signals that are NaN; without them these have the mean
    log-odds of the others.
    """

    intercept: Annotated[float, Within(-1e6, 1e6)]
    rise: Annotated[FloatArray, ArrayOf(("signals",))]
    fall: Annotated[FloatArray, ArrayOf(("signals",))]
    closest: Closest
    moments: SignalMoments | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moments is not None and self.moments.mean.size != self.rise.size:
            raise ValueError("`moments` must be of the signals.")

    def combine(self, signals: FloatArray) -> FloatArray:
        """The confidence (n,) of signals (n, k), NaN where they are not given."""
        log_p, log_rest = cut_logs(self.complete(signals), self.closest)
        odds = self.intercept + np.mean(log_p - log_rest, axis=1)
        # Not `@`, whose last bits depend on the number of rows.
        odds = odds + np.sum(log_p * self.rise + log_rest * self.fall, axis=1)
        if self.moments is not None:
            for k, coefficient in enumerate(self.moments.absence):
                odds = odds + np.where(np.isnan(signals[:, k]), coefficient, 0.0)
        return np.asarray(expit(np.clip(odds, -FARTHEST, FARTHEST), np))

    def complete(self, signals: FloatArray) -> FloatArray:
        """Signals (n, k) without NaN."""
        missing = np.isnan(signals)
        if not missing.any():
            return signals
        log_p, log_rest = cut_logs(signals, self.closest)
        log_odds = log_p - log_rest
        if self.moments is None:
            expected = np.nanmean(log_odds, axis=1, keepdims=True)
        else:
            expected = self.moments.complete(log_odds)
        return np.where(missing, expit(expected, np), signals)


@storable("rule:confidence")
@dataclass(frozen=True, eq=False)
class ConfidenceCurve(Checked):
    """Log-odds of the confidence plus `coef` times features, plus those of the groups.

    Confidences are cut to [`closest`, 1 - `closest`]: a stated 0 or 1 means no more.
    The features (n, 3 + knots + atoms) are 1, the log-odds and the log of p (1 - p),
    which span log p and log(1 - p), less their `centre` (2,); hinges of the log-odds at
    `knots`; and indicators of the confidences `atoms`. `tables` hold, for each column
    of `coding`, what the first three coefficients are changed by (groups + 1, 3); the
    last row, for an unknown group, is 0. Where a `grid` of confidences is given, with
    `counts` of examples, curves are made non-decreasing there. `pairs` of columns have
    tables too, after those of the columns: of all combinations of groups. `signals`
    combine several numbers per answer to the confidence.
    """

    name: ClassVar[str] = "confidence"

    coef: FloatArray
    centre: Annotated[FloatArray, ArrayOf((2,))]
    knots: FloatArray
    atoms: FloatArray
    closest: Closest
    coding: GroupCoding | None = None
    tables: tuple[FloatArray, ...] = ()
    grid: FloatArray | None = None
    counts: FloatArray | None = None
    signals: SignalCombination | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("knots", "atoms", "grid"):
            points = getattr(self, name)
            if points is not None and np.size(points):
                check_array(name, points, (None,), rising=True)
        check_array("coef", self.coef, (N_OWN + self.knots.size + self.atoms.size,))
        if any(not 0 <= a < b < len(self.sizes) for a, b in self.pairs):
            raise ValueError(
                f"`pairs` must be of columns of groups; got {self.pairs!r}."
            )
        if not isinstance(self.tables, tuple) or len(self.tables) != len(self._terms):
            raise ValueError(
                "`tables` must have one table for each column and pair of groups."
            )
        for table, term in zip(self.tables, self._terms, strict=True):
            check_array(
                "tables", table, (math.prod(self.sizes[k] for k in term), N_OWN)
            )
        if self.grid is not None:
            check_array("counts", self.counts, self.grid.shape, 1e-300)

    #: As of a `Rule`.
    needed_groups = property(attrgetter("coding"))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each column of groups has."""
        return self.coding.sizes if self.coding else ()

    @property
    def _terms(self) -> list[tuple[int, ...]]:
        """The columns of each table."""
        return [*((k,) for k in range(len(self.sizes))), *self.pairs]

    def combine(self, stated: FloatArray) -> FloatArray:
        """One confidence (n,) per answer, of what is stated: that, or signals (n,
        k).
        """
        return stated if self.signals is None else self.signals.combine(stated)

    def log_odds(self, confidence: Array, xp: Namespace = np) -> Array:
        """Those of the confidences (n,) themselves."""
        log_p, log_rest = cut_logs(confidence, self.closest, xp)
        return log_p - log_rest

    def features(self, confidence: Array, xp: Namespace = np) -> Array:
        """The features (n, c) of confidences (n,)."""
        log_p, log_rest = cut_logs(confidence, self.closest, xp)
        odds = log_p - log_rest
        columns = [xp.ones_like(odds)[:, None]]
        columns.append(xp.stack([odds, log_p + log_rest], axis=1) - self.centre)
        if self.knots.size:
            columns.append(xp.clip(odds[:, None] - self.knots, 0.0, None))
        if self.atoms.size:
            stated = xp.equal(confidence_keys(confidence, xp)[:, None], self.atoms)
            columns.append(xp.astype(stated, xp.float64))
        return xp.concat(columns, axis=1)

    def codes(self, groups: Any, n_rows: int) -> IntArray:
        """The code (n, columns) of the group of each row; groups of None are
        unknown.
        """
        if self.coding is not None and groups is not None:
            return self.coding.codes(groups, n_rows)
        return np.tile(np.array(self.sizes, np.int64) - 1, (n_rows, 1))

    def proba(self, confidence: Array, codes: Array, xp: Namespace = np) -> Array:
        """The probability (n,) that answers of this confidence and group are right."""
        if self.grid is None:
            return self._curve(confidence, codes, xp)
        size = self.grid.size
        keys = confidence_keys(confidence, xp)
        cells, cell = self._cells(codes, xp)
        curves = [self._curve(self.grid, np.tile(row, (size, 1))) for row in cells]
        rising = [_make_rising(curve, self.counts) for curve in curves]
        count = xp.searchsorted(self.grid, keys, side="right")
        knots = np.tile(self.grid, len(cells))
        return between_knots(
            knots, np.array(rising).ravel(), count, cell * size, size, keys, xp
        )

    def _cells(self, codes: Array, xp: Namespace) -> tuple[IntArray, Array]:
        """Combinations of groups (cells, columns), and the number (n,) of each row's.

        Those that occur; all, where a graph is traced.
        """
        if xp is np:
            cells, cell = np.unique(codes, axis=0, return_inverse=True)
            return cells, cell.reshape(-1)
        n_cells = math.prod(self.sizes)
        n_columns = len(self.sizes)
        if self.grid is not None and n_cells > _MAX_NUMBERS // self.grid.size:
            raise ValueError(
                f"`monotone` curves of {n_cells:,} combinations of groups are too many "
                "for a graph. Fit with fewer columns of groups, or without `monotone`."
            )
        cells = np.array([*np.ndindex(self.sizes)], np.int64)
        columns = [codes[:, k] for k in range(n_columns)]
        return cells.reshape(n_cells, n_columns), combine_codes(columns, self.sizes, xp)

    def _curve(self, confidence: Array, codes: Array, xp: Namespace = np) -> Array:
        odds = self.curve_log_odds(confidence, codes, xp)
        return expit(xp.clip(odds, -FARTHEST, FARTHEST), xp)

    def curve_log_odds(
        self, confidence: Array, codes: Array, xp: Namespace = np
    ) -> Array:
        """Calibrated log-odds (n,), before curves are made non-decreasing."""
        features = self.features(confidence, xp)
        odds = self.log_odds(confidence, xp) + xp.sum(features * self.coef, axis=1)
        for table, term in zip(self.tables, self._terms, strict=True):
            columns = [codes[:, k] for k in term]
            sizes = [self.sizes[k] for k in term]
            change = xp.take(table, combine_codes(columns, sizes, xp), axis=0)
            odds = odds + xp.sum(features[:, :N_OWN] * change, axis=1)
        return odds


def _make_rising(values: FloatArray, counts: Any) -> FloatArray:
    """The non-decreasing sequence nearest to the values (m,), by weighted squares.

    Isotonic regression: at i it is the largest over a <= i of the least over b >= i of
    the means of a ... b.
    """
    # Below this share of the largest a count is lost in differences of sums.
    counts = np.maximum(counts, 1e-12 * np.max(counts))
    sums = np.append(0.0, np.cumsum(values * counts))
    sizes = np.append(0.0, np.cumsum(counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums[None, 1:] - sums[:-1, None]) / (
            sizes[None, 1:] - sizes[:-1, None]
        )
    means[np.tril_indices(values.size, -1)] = np.inf
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    least[np.tril_indices(values.size, -1)] = -np.inf
    return np.asarray(least.max(axis=0))


#: Scores and calibrated log-odds are cut here.
FARTHEST_SCORE = 30.0


def _widest() -> FloatArray:
    return np.array([-FARTHEST_SCORE, FARTHEST_SCORE])


def score_features(
    scores: Array, backend: Backend, edges: Array, ends: Array
) -> tuple[Array, Array, Array, Array]:
    """Of scores of any shape: log-odds, the log of p (1 - p), and what lies outside
    either edge.

    Log-odds are cut to the `ends` (2,).
    """
    xp = backend.namespace(scores)
    wide = to_float64(scores, xp)
    odds = xp.minimum(xp.maximum(wide, ends[0]), ends[1])
    size = xp.abs(odds)
    return (
        odds,
        -(size + 2.0 * xp.log1p(xp.exp(-size))),
        wide < edges[0],
        wide > edges[1],
    )


PerLabel = Annotated[FloatArray, ArrayOf(("labels",))]
Limits = Annotated[FloatArray, ArrayOf((2,), -FARTHEST_SCORE, FARTHEST_SCORE)]


@storable("rule:multilabel")
@dataclass(frozen=True, eq=False)
class MultilabelCurves(Checked):
    """Log-odds of label k: `shift`, `slope` times the score, `tilt` times the log of p
    (1 - p).

    Each is (labels,). Scores are cut to the `ends` (2,). Those outside the `edges`
    (2,), where the scores of the fit pile up as rounded ones do, add the `jumps` (2,
    labels), or (2, 1).
    """

    name: ClassVar[str] = "multilabel"
    #: Labels are calibrated without groups.
    needed_groups: ClassVar[None] = None

    shift: PerLabel
    slope: PerLabel
    tilt: PerLabel
    edges: Limits = field(default_factory=_widest)
    ends: Limits = field(default_factory=_widest)
    jumps: Annotated[FloatArray, ArrayOf((2, None))] = field(
        default_factory=lambda: np.zeros((2, 1))
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jumps.shape[1] not in (1, self.shift.size):
            raise ValueError("`jumps` must be (2, labels), or (2, 1).")

    def proba(self, scores: Array, backend: Backend) -> Array:
        """Probabilities (n, labels), float64, of scores (n, labels)."""
        numbers = {
            f.name: backend.from_host(getattr(self, f.name), scores)
            for f in fields(self)
        }
        return curve_proba(scores, backend, SimpleNamespace(**numbers))

    def clipped(self, size: float) -> Self:
        """The same probabilities of scores that were clipped to +-`size` before."""
        edges = np.where(np.abs(self.edges) >= size, _widest(), self.edges)
        return replace(self, edges=edges, ends=np.clip(self.ends, -size, size))


def curve_proba(scores: Array, backend: Backend, rule: Any) -> Array:
    """The same with the attributes of a rule that are where the scores are."""
    xp = backend.namespace(scores)
    odds, spread, low, high = score_features(scores, backend, rule.edges, rule.ends)
    eta = rule.shift + rule.slope * odds + rule.tilt * spread
    eta = eta + xp.where(low, rule.jumps[0], 0.0) + xp.where(high, rule.jumps[1], 0.0)
    return expit(xp.clip(eta, -FARTHEST_SCORE, FARTHEST_SCORE), xp)
