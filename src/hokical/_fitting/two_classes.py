"""Fits for two classes, as functions of one number of each row.

The scores of two classes count by their difference alone, the log-odds of class 1, and
the log loss is that of a logistic regression. So the parts of the default have short
forms: structured scaling has few coefficients, the level one, and what is left out
follows from numbers of rows in place of tables.

Structured scaling adds sum_i w_i x_i + m_0 z_0 + m_1 z_1 + b to z_1 - z_0, where x_i
are the differences of the shape terms, m_j = M_1j - M_0j and b = b_1 - b_0. Of all M
and b with these differences, those of least penalty are fitted.

Rows with a masked class have no part: their only possible class is certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hokical._core.arrays import Array, FloatArray, IntArray
from hokical._core.logits import Logits, per_row
from hokical._core.runtime import cut_rows
from hokical._core.special import expit
from hokical._fitting import searches
from hokical._fitting.examples import Examples, spaced_rows
from hokical._fitting.searches import Base, DensePoint
from hokical._fitting.structured import (
    FEW_LOGITS,
    LONG_STEP,
    REPEATS,
    Penalties,
    RidgeFits,
    make_rule,
)
from hokical.rules.scaling import N_SHAPES, shape_features

#: w, m_0, m_1 and b of the coefficients of `structured` with terms between classes,
#: which are w, then each class's row of M and its bias.
_DIFFERENCES = np.block(
    [
        [np.eye(N_SHAPES), np.zeros((N_SHAPES, 6))],
        [np.zeros((3, N_SHAPES)), -np.eye(3), np.eye(3)],
    ]
)
_COSTS = Penalties.of(2).of_coefficients(crossed=True)
#: Penalties of w, m_0, m_1 and b, by the strength of a ridge: the least for which the
#: coefficients have these differences. No coefficient is in two of them.
_PENALTIES = 1.0 / (np.abs(_DIFFERENCES) @ (1.0 / _COSTS))
#: Those coefficients, as multiples of w, m_0, m_1 and b.
_SPREAD = _DIFFERENCES.T * _PENALTIES / _COSTS[:, None]
#: A search ends with a Newton step that is expected to gain no more than this in mean
#: log loss, and has no more steps than the second.
TOLERANCE = 1e-8
MAX_ITER = 200
#: Numbers of tables (repeated rows, rows) that are held at a time.
_HELD_SIZE = 1 << 18
#: The longest step of a search for the level.
_LONGEST_STEP = 4.0


def log_odds(table: Array, logits: Logits) -> FloatArray:
    """Of class 1, (n,), from scores (n, 2)."""
    scores = logits.to_host(table)
    return np.asarray(scores[:, 1] - scores[:, 0])


class Outcomes(NamedTuple):
    """Labels as 0.0 and 1.0, (n,), and what each counts, (n,): nothing where a class
    is masked.
    """

    second: FloatArray
    share: FloatArray

    @classmethod
    def of(cls, examples: Examples) -> Outcomes:
        share = examples.share
        logits = examples.logits
        if not logits.all_possible:
            share = np.where(logits.to_host(logits.possible_counts) < 2, 0.0, share)
        return cls(examples.labels.astype(np.float64), share)

    def proba_and_loss(self, odds: FloatArray) -> tuple[FloatArray, float]:
        """The probability of class 1 at log-odds (n,), (n,); and the mean log loss."""
        rest = np.exp(-np.abs(odds))
        total = 1.0 + rest
        proba = np.where(odds < 0.0, rest, 1.0) / total
        # The log loss of a class is log(total), and its distance below the top.
        distance = np.maximum(odds, 0.0) - self.second * odds
        return proba, float(self.share @ (np.log1p(rest) + distance))


class PairMixture(NamedTuple):
    """Averages of log-odds (tables, n), as `default.Mixture` has them of scores."""

    odds: FloatArray
    outcomes: Outcomes

    @classmethod
    def of(cls, tables: list[Array], examples: Examples) -> PairMixture:
        odds = np.array([log_odds(table, examples.logits) for table in tables])
        return cls(odds, Outcomes.of(examples))

    def evaluate(self, weights: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Mean log loss, gradient (tables,) and Hessian (tables, tables)."""
        proba, loss = self.outcomes.proba_and_loss(weights @ self.odds)
        share = self.outcomes.share
        slope = self.odds @ (share * (proba - self.outcomes.second))
        hessian = (self.odds * (share * proba * (1.0 - proba))) @ self.odds.T
        return loss, slope, hessian


class PairLevel(NamedTuple):
    """The log-odds (n,) that `level.fit_level` brings to the level of the labels by
    biases -b and b: p is the probability at them with 2 b added.
    """

    odds: FloatArray
    outcomes: Outcomes
    wanted: float
    ridge: float

    @classmethod
    def of(
        cls, table: Array, examples: Examples, even: float, ridge: float
    ) -> PairLevel:
        """For scores (n, 2), with the ridge in examples."""
        outcomes = Outcomes.of(examples)
        labels = np.bincount(examples.labels, outcomes.share, minlength=2)
        uniform = 0.5 * labels.sum()
        wanted = np.maximum((labels - even * uniform) / (1.0 - even), 0.0)
        odds = log_odds(table, examples.logits)
        difference = float(wanted[1] - wanted[0])
        return cls(odds, outcomes, difference, ridge / examples.effective_size)

    def fit(self) -> float:
        """The b where the mean of p - (1 - p), with the ridge, is what is wanted: by
        Newton's steps inside a bracket.
        """
        at = 0.0
        low = -np.inf
        high = np.inf
        for _ in range(MAX_ITER):
            slope, curvature = self.slope_and_curvature(at)
            step = float(np.clip(-slope / curvature, -_LONGEST_STEP, _LONGEST_STEP))
            if abs(slope * step) <= 2.0 * searches.TIGHT:
                return at + step
            low, high = (low, at) if slope > 0.0 else (at, high)
            at += step
            if not low < at < high:
                at = 0.5 * (low + high)
        return at

    def slope_and_curvature(self, bias: float) -> tuple[float, float]:
        """Of the penalised mean log loss as a function of b."""
        share = self.outcomes.share
        proba = expit(self.odds + 2.0 * bias, np)
        mean = float(share @ (2.0 * proba - 1.0))
        variance = float(share @ (proba * (1.0 - proba)))
        slope = mean - self.wanted + 2.0 * self.ridge * bias
        return slope, 4.0 * variance + 2.0 * self.ridge

    def without_each(self, bias: float) -> FloatArray:
        """The biases b (n,) by a fit without each example."""
        share = self.outcomes.share
        proba = expit(self.odds + 2.0 * bias, np)
        variance = share * proba * (1.0 - proba)
        curvature = float(np.sum(variance)) + self.ridge - variance
        step = share * (proba - self.outcomes.second) / curvature
        return np.asarray(bias + 0.5 * step)


class RidgeProblem:
    """Structured scaling as a logistic regression: log-odds at the start (n,), and
    features (p, n) of coefficients w, m and b.
    """

    def __init__(self, base: Base, bias_factor: float) -> None:
        examples = base.examples
        self.outcomes = Outcomes.of(examples)
        tables = per_row(
            lambda block: _features(block, base.temperature.x), examples.logits
        )
        *columns, self.start = np.ascontiguousarray(tables.T)
        self.features = np.array(columns)
        self.penalty = _PENALTIES / examples.effective_size
        self.penalty[-1] *= bias_factor

    def evaluate(
        self, coef: FloatArray, ridge: float
    ) -> tuple[float, FloatArray, FloatArray]:
        """The value, gradient (p,) and Hessian (p, p) of the penalised mean log loss."""
        share = self.outcomes.share
        odds = self.log_odds(coef)
        proba, loss = self.outcomes.proba_and_loss(odds)
        pull = ridge * self.penalty * coef
        value = loss + 0.5 * float(pull @ coef)
        gradient = self.features @ (share * (proba - self.outcomes.second)) + pull
        variance = share * proba * (1.0 - proba)
        hessian = (self.features * variance) @ self.features.T
        hessian.flat[:: coef.size + 1] += ridge * self.penalty
        return value, gradient, hessian

    def log_odds(self, coef: FloatArray) -> FloatArray:
        """(n,), by coefficients (p,)."""
        return np.asarray(self.start + coef @ self.features)

    def log_odds_left_out(
        self, point: DensePoint, ridge: float, rows: IntArray
    ) -> FloatArray:
        """Of some rows (rows,), each by the fit without it: by one Newton step, and by
        several where that is long and examples are few.
        """
        odds = self.log_odds(point.x)
        proba = expit(odds, np)
        inverse: FloatArray = np.asarray(np.linalg.inv(point.hessian), np.float64)
        left_out = LeftOut.of(self, proba, inverse, rows)
        change = left_out.spread * left_out.residual / left_out.lever
        if 2 * odds.size <= FEW_LOGITS:
            long = np.flatnonzero(np.abs(change) > LONG_STEP)
            for slots in cut_rows(long.size, max(1, _HELD_SIZE // odds.size)):
                repeated = left_out.take(long[slots])
                away = self._repeat_steps(repeated, odds, ridge)
                change[long[slots]] = np.einsum("np,np->n", repeated.features, away)
        return np.asarray(odds[rows] + change)

    def _repeat_steps(
        self, left_out: LeftOut, odds: FloatArray, ridge: float
    ) -> FloatArray:
        """The coefficients (rows, p) of fits without each of some rows, less those of
        the fit at whose end the log-odds are `odds` (n,).
        """
        share = self.outcomes.share
        proba = expit(odds, np)
        left_out_entries = np.arange(left_out.rows.size), left_out.rows
        gone = left_out.features * (left_out.weight * left_out.residual)[:, None]
        away = left_out.solve(gone)
        for _ in range(REPEATS):
            change = expit(odds + away @ self.features, np) - proba
            change *= share
            change[left_out_entries] = 0.0
            slopes = change @ self.features.T + ridge * self.penalty * away
            away = away - left_out.solve(slopes - gone)
        return away

    def minimize(
        self, start: FloatArray, ridge: float
    ) -> searches.Solution[FloatArray]:
        return searches.minimize_newton(
            lambda coef: DensePoint(*self.evaluate(coef, ridge), coef),
            start,
            # The step overwrites its Hessian, which the last point is asked for.
            lambda point: searches.dense_step(point.gradient, point.hessian.copy()),
            tol=TOLERANCE,
            max_iter=MAX_ITER,
        )


class LeftOut(NamedTuple):
    """Rows by number (rows,), with features (rows, p); p - y, weights and the spread
    w x'H^-1 x (rows,), H (p, p) being the Hessian, whose `inverse` is given; and
    1 - spread * p (1 - p).
    """

    rows: IntArray
    features: FloatArray
    residual: FloatArray
    weight: FloatArray
    spread: FloatArray
    lever: FloatArray
    inverse: FloatArray

    @classmethod
    def of(
        cls,
        problem: RidgeProblem,
        proba: FloatArray,
        inverse: FloatArray,
        rows: IntArray,
    ) -> LeftOut:
        """At probabilities (n,) of the whole fit."""
        features = problem.features.T[rows]
        weight = problem.outcomes.share[rows]
        p = proba[rows]
        spread = weight * np.einsum("np,np->n", features @ inverse, features)
        lever = 1.0 - spread * p * (1.0 - p)
        residual = p - problem.outcomes.second[rows]
        return cls(rows, features, residual, weight, spread, lever, inverse)

    def take(self, some: IntArray) -> LeftOut:
        return self._replace(
            rows=self.rows[some],
            features=self.features[some],
            residual=self.residual[some],
            weight=self.weight[some],
            spread=self.spread[some],
            lever=self.lever[some],
        )

    def solve(self, slopes: FloatArray) -> FloatArray:
        """Slopes (rows, p) times the inverse Hessian without each row, by the
        Sherman-Morrison formula.
        """
        steps = slopes @ self.inverse
        along = np.einsum("np,np->n", self.features, steps)
        curvature = (1.0 - self.lever) / self.spread
        tilt = self.weight * curvature * along / self.lever
        return np.asarray(steps + (tilt[:, None] * self.features) @ self.inverse)


def _features(block: Logits, temperature: float) -> Array:
    """Features and log-odds of a block's rows, (rows, p + 1)."""
    xp = block.xp
    z, *shapes = shape_features(block.margins * (-1.0 / temperature), block)
    columns = [shape[:, 1] - shape[:, 0] for shape in shapes]
    columns += [z[:, 0], z[:, 1], xp.ones_like(z[:, 0]), z[:, 1] - z[:, 0]]
    return xp.stack(columns, axis=1)


def fit_ridges(
    base: Base, ridges: Sequence[float], step: int, bias_factor: float = 1.0
) -> RidgeFits:
    """`structured.fit_ridges` of two classes: the same minima and scores held out."""
    examples = base.examples
    problem = RidgeProblem(base, bias_factor)
    rows = spaced_rows(0, examples.n_rows, max(step, 1))
    coef = np.zeros(_PENALTIES.size)
    rules = []
    tables = []
    converged = True
    for ridge in ridges:
        solution = problem.minimize(coef, ridge)
        coef = solution.x
        rules.append(make_rule(base, _SPREAD @ coef, 2, crossed=True))
        odds = problem.log_odds_left_out(solution.point, ridge, rows)
        tables.append(as_table(odds, examples.logits))
        converged &= solution.converged
    return rules, tables, rows, converged


def as_table(odds: FloatArray, logits: Logits) -> Array:
    """Scores (n, 2) of log-odds (n,)."""
    return logits.from_host(np.stack([-0.5 * odds, 0.5 * odds], axis=1))
