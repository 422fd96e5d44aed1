"""The fit of the row correction: on held-out probabilities, averaged over ridges and "none".

With the margins d_k of a row, x_k = a d_k and the label's score b, the log loss of the true class y
is log(exp(b) + sum of exp(-x_k) over the others) + x_y, or - b if y is the label. It depends on the
row by two numbers, (log a, b), which are linear in eight features; so a fit has 16 coefficients
whatever the number of classes. The Hessian is replaced by its expectation (Fisher scoring).

Leaving out an example changes its own two numbers, by one Newton step, by

    S (I - W S)^-1 g,    S = F H^-1 F',

with g (2,) and W (2, 2) the derivatives of its own log loss, and F (2, 16) its features.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from hokical._core.blocks import block_rows, per_row
from hokical._core.parallel import map_slices
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import minimize_newton
from hokical._fitting.temperature import host_moments
from hokical.rules._row_correction import (
    LARGEST_LOG_SCALE,
    LARGEST_SHIFT,
    RowCorrection,
    row_features,
    standardise,
)

#: Ridges on standardised coefficients, in examples. Each fit starts from the one before.
CORRECTION_RIDGES = (300.0, 30.0, 3.0)
#: A fit ends with a step that promises no more than this in the sum of all log losses; Newton
#: squares what is left.
TOLERANCE, MAX_ITER = 0.05, 50
#: No correction is used where "none" has more weight than this, or where no ridge is better.
MOST_FOR_NONE = 0.5
#: Standard errors of the gain are doubled with so many examples.
FEW_TO_CORRECT = 50.0
_LIMITS = np.array([LARGEST_LOG_SCALE, LARGEST_SHIFT])


def fit_row_correction(
    examples: Examples, temperature: float = 1.0, features: FloatArray | None = None
) -> tuple[RowCorrection | None, FloatArray]:
    """A correction of logits divided by a temperature, or None.

    And each row's (log a, b) by a fit without it, (n, 2). The `features` (n, 7) are those of the
    logits by default; of logits that are held out, they would tell their labels.
    """
    problem = CorrectionProblem(examples, temperature, features)
    rows = problem.uncorrected
    found, left_out, scores = [], [rows.raw], [0.0]
    for ridge in CORRECTION_RIDGES:
        point = problem.fit(ridge, rows)
        rows = point.rows
        left_out.append(problem.leave_out(point))
        gain, error = problem.gain(left_out[-1])
        scores.append(examples.effective_size * (gain - error))
        found.append(rows.coef)
    weights = np.exp(np.array(scores) - max(scores))
    weights /= weights.sum()
    if weights[0] > MOST_FOR_NONE or max(scores) <= 0.0:
        return None, left_out[0]
    mean = np.einsum("r,rij->ij", weights[1:], np.array(found))
    correction = RowCorrection(problem.centre, problem.spread, mean[0], mean[1])
    return correction, np.einsum("r,rni->ni", weights, np.array(left_out))


class _Rows(NamedTuple):
    """Every row's (log a, b) by coefficients (2, 8), not yet clipped, (n, 2); its log loss (n,);
    and the derivatives of that by the two numbers, (n, 2), and second ones, (n, 2, 2).
    """

    coef: FloatArray
    raw: FloatArray
    losses: FloatArray
    slopes: FloatArray
    curvatures: FloatArray


class _Point(NamedTuple):
    """The penalised sum of log losses, its gradient (2, 8) and Hessian (16, 16)."""

    value: float
    gradient: FloatArray
    hessian: FloatArray
    rows: _Rows


class CorrectionProblem:
    """Rows with a `design` of features (n, 8), and what each counts, (n,)."""

    def __init__(
        self, examples: Examples, temperature: float, features: FloatArray | None = None
    ) -> None:
        self.examples, self.temperature = examples, temperature
        share = examples.share
        if features is None:
            features = per_row(lambda block: row_features(block, temperature).T, examples.logits)
        self.centre = share @ features
        self.spread = np.sqrt(np.maximum(share @ (features - self.centre) ** 2, 1e-6))
        self.design = standardise(features.T, self.centre, self.spread, np).T
        self.counts = share * examples.effective_size

    @cached_property
    def uncorrected(self) -> _Rows:
        return self.at(np.zeros((2, self.design.shape[1])))

    def fit(self, ridge: float, start: _Rows) -> _Point:
        """The minimum with a ridge, from that with another."""

        def evaluate(coef: FloatArray) -> _Point:
            return self.penalise(start if coef is start.coef else self.at(coef), ridge)

        def newton_step(point: _Point) -> tuple[FloatArray, bool]:
            step = np.linalg.solve(point.hessian, -point.gradient.ravel())
            return np.asarray(step.reshape(point.gradient.shape)), True

        found = minimize_newton(evaluate, start.coef, newton_step, tol=TOLERANCE, max_iter=MAX_ITER)
        point: _Point = found.point
        return point

    def at(self, coef: FloatArray, raw: FloatArray | None = None) -> _Rows:
        """The rows at coefficients (2, 8), or at (log a, b) (n, 2)."""
        raw = self.design @ coef.T if raw is None else raw
        pair = np.clip(raw, -_LIMITS, _LIMITS)
        zeroth, first, second = self._moments(np.exp(pair[:, 0]) / self.temperature)
        correct, shift, odds = self.examples.correct, pair[:, 1], np.exp(pair[:, 1])
        true = np.exp(pair[:, 0]) * (self.examples.true_margins / self.temperature)
        total = odds + zeroth - 1.0  # without the label's own
        label, mean, square = odds / total, first / total, second / total
        log_scale_free, shift_free = (np.abs(raw) < _LIMITS).astype(np.float64).T
        curvatures = np.empty((shift.size, 2, 2))
        curvatures[:, 0, 0] = (square - mean * mean) * log_scale_free
        curvatures[:, 0, 1] = curvatures[:, 1, 0] = label * mean * log_scale_free * shift_free
        curvatures[:, 1, 1] = label * (1.0 - label) * shift_free
        return _Rows(
            coef,
            raw,
            np.log(total) + true - shift * correct,
            np.stack([(true - mean) * log_scale_free, (label - correct) * shift_free], axis=1),
            curvatures,
        )

    def _moments(self, beta: FloatArray) -> FloatArray:
        """Sums over the classes of exp(-x), x exp(-x) and x^2 exp(-x), (3, n)."""
        logits = self.examples.logits

        def work(rows: slice) -> FloatArray:
            whole = rows == slice(0, logits.n_rows)  # whose margins are known
            block = logits if whole else logits.take(rows)
            return host_moments(block, logits.from_host(beta[rows]))

        step = block_rows(logits, logits.n_columns)
        parts = map_slices(work, logits.n_rows, step, threads=logits.is_numpy)
        return np.concatenate(parts, axis=1)

    def penalise(self, rows: _Rows, ridge: float) -> _Point:
        design, counts, size = self.design, self.counts, rows.coef.size
        hessian = ridge * np.eye(size).reshape(*rows.coef.shape, *rows.coef.shape)
        for i, j in np.ndindex(2, 2):
            hessian[i, :, j] += design.T @ (design * (rows.curvatures[:, i, j] * counts)[:, None])
        return _Point(
            float(counts @ rows.losses) + 0.5 * ridge * float(np.vdot(rows.coef, rows.coef)),
            (rows.slopes * counts[:, None]).T @ design + ridge * rows.coef,
            hessian.reshape(size, size),
            rows,
        )

    def gain(self, pair: FloatArray) -> tuple[float, float]:
        """How much (log a, b) (n, 2) lower the mean log loss, and the standard error of that."""
        share, none = self.examples.share, self.uncorrected
        gains = none.losses - self.at(none.coef, pair).losses
        # The variance of each gain if the probabilities without a correction are right.
        change = np.stack([np.exp(pair[:, 0]) - 1.0, pair[:, 1]], axis=1)
        variances = np.einsum("ni,nij,nj->n", change, none.curvatures, change)
        return float(share @ gains), standard_error(gains, variances, share, FEW_TO_CORRECT)

    def leave_out(self, point: _Point) -> FloatArray:
        """(log a, b) of each row by a fit without it, (n, 2)."""
        design, rows, (n_numbers, size) = self.design, point.rows, point.rows.coef.shape
        inverse = np.linalg.inv(point.hessian).reshape(n_numbers, size, n_numbers, size)
        spread = np.empty_like(rows.curvatures)
        for i, j in np.ndindex(2, 2):
            spread[:, i, j] = np.einsum("np,np->n", design @ inverse[i, :, j], design)
        spread *= self.counts[:, None, None]
        (a, b), (c, d) = np.moveaxis(np.eye(2) - rows.curvatures @ spread, 0, -1)
        first, second = rows.slopes.T
        solved = np.stack([d * first - b * second, a * second - c * first]) / (a * d - b * c)
        away = np.einsum("nij,jn->ni", spread, solved)
        return np.asarray(np.clip(rows.raw + away, -_LIMITS, _LIMITS))


def standard_error(
    gains: FloatArray, variances: FloatArray, share: FloatArray, few: float = 0.0
) -> float:
    """Standard error of the mean of gains (n,) in log loss, doubled with `few` examples.

    It is the larger of two: by the gains themselves, and by the `variances` (n,) that gains have if
    the probabilities without the change are right, which counts mistakes that are yet to come.
    """
    squares = share * share
    with np.errstate(over="ignore", invalid="ignore"):  # of logits without any calibration
        own = np.sum(squares * (gains - share @ gains) ** 2)
        expected = np.sum(squares * np.maximum(variances, 0.0))
    n_examples = 1.0 / np.sum(squares)
    return float(np.sqrt(max(own, expected)) * (1.0 + (few / n_examples) ** 2))
