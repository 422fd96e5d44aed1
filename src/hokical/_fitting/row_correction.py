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

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hokical._core.blocks import block_rows, per_row
from hokical._core.logits import Logits
from hokical._core.parallel import map_slices
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import minimize_newton
from hokical._fitting.softmax_moments import moment_sums
from hokical.rules._row_correction import (
    LARGEST_LOG_SCALE,
    LARGEST_SHIFT,
    N_FEATURES,
    RowCorrection,
    row_features,
    standardise,
)

#: Ridges on standardised coefficients, in examples. Each fit starts from the one before.
RIDGES = (300.0, 30.0, 3.0)
#: A fit ends with a step that promises no more than this in the sum of all log losses; Newton
#: squares what is left.
TOLERANCE, MAX_ITER = 0.05, 50
#: No correction is used where "none" has more weight than this.
MOST_FOR_NONE = 0.5
#: A gain is clear beyond this many standard errors, which are doubled with so many examples: of
#: calibration over none, and of the row correction, which gains less and was seen to overfit more.
ERRORS, FEW_EXAMPLES, FEW_TO_CORRECT = 0.5, 85.0, 150.0
_LIMITS = np.array([LARGEST_LOG_SCALE, LARGEST_SHIFT])


@dataclass(frozen=True, eq=False)
class HeldOutCorrection:
    """The correction, or None; and each row's (log a, b) by a fit without it, (n, 2)."""

    correction: RowCorrection | None
    held_out: FloatArray


def fit_row_correction(examples: Examples, temperature: float = 1.0) -> HeldOutCorrection:
    """Fit a correction of logits divided by a temperature."""
    problem = CorrectionProblem.of(examples, temperature)
    unchanged = np.zeros((examples.labels.size, 2))
    point = problem.at(np.zeros((2, 1 + N_FEATURES)), 0.0)
    found, left_out, scores = [], [unchanged], [0.0]
    for ridge in RIDGES:
        point = problem.fit(ridge, point)
        gain, error = problem.gain(point.left_out)
        scores.append(examples.effective_size * (gain - error))
        found.append(point.coef)
        left_out.append(point.left_out)
    weights = np.exp(np.array(scores) - max(scores))
    weights /= weights.sum()
    if weights[0] > MOST_FOR_NONE:
        return HeldOutCorrection(None, unchanged)
    mean = np.einsum("r,rij->ij", weights[1:], np.array(found))
    correction = RowCorrection(problem.centre, problem.spread, mean[0], mean[1])
    return HeldOutCorrection(correction, np.einsum("r,rni->ni", weights, np.array(left_out)))


@dataclass(frozen=True, eq=False)
class CorrectionProblem:
    """Rows with features (n, 8), the true class's margin and whether it is the label, (n,)."""

    logits: Logits
    share: FloatArray
    n_examples: float
    design: FloatArray
    centre: FloatArray
    spread: FloatArray
    true_margins: FloatArray
    correct: FloatArray
    temperature: float

    @classmethod
    def of(cls, examples: Examples, temperature: float) -> CorrectionProblem:
        logits, share = examples.logits, examples.share
        features = per_row(lambda block: row_features(block, temperature).T, logits)
        centre = share @ features
        spread = np.sqrt(np.maximum(share @ (features - centre) ** 2, 1e-6))
        return cls(
            logits,
            share,
            examples.effective_size,
            standardise(features.T, centre, spread, np).T,
            centre,
            spread,
            examples.true_margins / temperature,
            examples.correct.astype(np.float64),
            temperature,
        )

    @cached_property
    def counts(self) -> FloatArray:
        """What each row counts, (n,)."""
        return self.share * self.n_examples

    def fit(self, ridge: float, start: CorrectionPoint) -> CorrectionPoint:
        """The minimum with a ridge, from that with another."""
        found = minimize_newton(
            lambda coef: start.with_ridge(ridge) if coef is start.coef else self.at(coef, ridge),
            start.coef,
            CorrectionPoint.newton_step,
            tol=TOLERANCE,
            max_iter=MAX_ITER,
        )
        point: CorrectionPoint = found.point
        return point

    def at(self, coef: FloatArray, ridge: float) -> CorrectionPoint:
        """The objective at coefficients (2, 8)."""
        raw = self.design @ coef.T
        pair = np.clip(raw, -_LIMITS, _LIMITS)
        free = (np.abs(raw) < _LIMITS).astype(np.float64)
        return CorrectionPoint(self, ridge, coef, pair, free, self.moments(pair))

    def moments(self, pair: FloatArray) -> FloatArray:
        """Sums over the other classes of exp(-x), x exp(-x) and x^2 exp(-x), (3, n)."""
        logits, beta = self.logits, np.exp(pair[:, 0]) / self.temperature

        def work(rows: slice) -> FloatArray:
            found = moment_sums(logits.take(rows), logits.from_host(beta[rows]))
            return logits.to_host(logits.xp.stack(list(found)))

        step = block_rows(logits, logits.n_columns)
        parts = map_slices(work, logits.n_rows, step, threads=logits.is_numpy)
        found = np.concatenate(parts, axis=1)
        found[0] -= 1.0  # the label's
        return found

    def losses(self, pair: FloatArray, rest: FloatArray | None = None) -> FloatArray:
        """Log loss (n,) of rows with (log a, b) (n, 2)."""
        rest = self.moments(pair)[0] if rest is None else rest
        log_scale, shift = pair.T
        true = np.exp(log_scale) * self.true_margins
        return np.asarray(np.log(np.exp(shift) + rest) + true - shift * self.correct)

    def gain(self, pair: FloatArray) -> tuple[float, float]:
        """How much (log a, b) (n, 2) lower the mean log loss, and the standard error of that."""
        zeroth, first, second = self._uncorrected
        gains = self.losses(np.zeros_like(pair), zeroth) - self.losses(pair)
        # The variance of each gain if the probabilities without a correction are right.
        more, shift = np.exp(pair[:, 0]) - 1.0, pair[:, 1]
        label = 1.0 / (1.0 + zeroth)
        mean = (shift - more * first) * label
        square = (shift * shift + more * more * second) * label
        error = standard_error(gains, square - mean * mean, self.share, FEW_TO_CORRECT)
        return float(self.share @ gains), error

    @cached_property
    def _uncorrected(self) -> FloatArray:
        return self.moments(np.zeros((self.share.size, 2)))


@dataclass(frozen=True, eq=False)
class CorrectionPoint:
    """The penalised sum of log losses at coefficients (2, 8).

    `pair` (n, 2) is (log a, b) of each row, `free` (n, 2) 0 where it is clipped, and `moments`
    (3, n) are the sums over other classes there.
    """

    problem: CorrectionProblem
    ridge: float
    coef: FloatArray
    pair: FloatArray
    free: FloatArray
    moments: FloatArray

    def with_ridge(self, ridge: float) -> CorrectionPoint:
        """The same coefficients under another ridge: no pass over the logits."""
        return replace(self, ridge=ridge)

    @cached_property
    def value(self) -> float:
        losses = self.problem.losses(self.pair, self.moments[0])
        penalty = 0.5 * self.ridge * float(np.vdot(self.coef, self.coef))
        return float(self.problem.counts @ losses) + penalty

    @cached_property
    def _expected(self) -> FloatArray:
        """The label's probability, and mean and mean square of the margins, (3, n)."""
        odds = np.exp(self.pair[:, 1])
        zeroth, first, second = self.moments
        return np.asarray(np.stack([odds, first, second]) / (odds + zeroth))

    @cached_property
    def slopes(self) -> FloatArray:
        """Derivatives (n, 2) of each row's log loss by its two numbers."""
        problem, (label, mean, _) = self.problem, self._expected
        true = np.exp(self.pair[:, 0]) * problem.true_margins
        return np.stack([true - mean, label - problem.correct], axis=1) * self.free

    @cached_property
    def curvatures(self) -> FloatArray:
        """Expected second derivatives (n, 2, 2)."""
        label, mean, square = self._expected
        found = np.empty((label.size, 2, 2))
        found[:, 0, 0] = (square - mean * mean) * self.free[:, 0]
        found[:, 0, 1] = found[:, 1, 0] = label * mean * self.free[:, 0] * self.free[:, 1]
        found[:, 1, 1] = label * (1.0 - label) * self.free[:, 1]
        return found

    @cached_property
    def gradient(self) -> FloatArray:
        weighted = self.slopes * self.problem.counts[:, None]
        return weighted.T @ self.problem.design + self.ridge * self.coef

    @cached_property
    def hessian(self) -> FloatArray:
        """(16, 16)"""
        design, counts = self.problem.design, self.problem.counts
        size = design.shape[1]
        found = self.ridge * np.eye(2 * size)
        for i, j in ((0, 0), (0, 1), (1, 1)):
            part = design.T @ (design * (self.curvatures[:, i, j] * counts)[:, None])
            found[i * size : (i + 1) * size, j * size : (j + 1) * size] += part
        found[size:, :size] = found[:size, size:].T
        return found

    def newton_step(self) -> tuple[FloatArray, bool]:
        step = np.asarray(np.linalg.solve(self.hessian, -self.gradient.ravel()), np.float64)
        return step.reshape(self.coef.shape), True

    @cached_property
    def left_out(self) -> FloatArray:
        """(log a, b) of each row by a fit without it, (n, 2)."""
        design, counts = self.problem.design, self.problem.counts[:, None, None]
        size = design.shape[1]
        inverse = np.linalg.inv(self.hessian).reshape(2, size, 2, size)
        spread = np.empty((design.shape[0], 2, 2))
        for i, j in np.ndindex(2, 2):
            spread[:, i, j] = np.einsum("np,np->n", design @ inverse[i, :, j, :], design)
        spread *= counts
        (a, b), (c, d) = np.moveaxis(np.eye(2) - self.curvatures @ spread, 0, -1)
        first, second = self.slopes.T
        solved = np.stack([d * first - b * second, a * second - c * first]) / (a * d - b * c)
        away = np.einsum("nij,jn->ni", spread, solved)
        return np.asarray(np.clip(design @ self.coef.T + away, -_LIMITS, _LIMITS))


def standard_error(
    gains: FloatArray, variances: FloatArray, share: FloatArray, few: float = FEW_EXAMPLES
) -> float:
    """Standard error of the mean of gains (n,) in log loss, doubled with `few` examples.

    It is the larger of two: by the gains themselves, and by the `variances` (n,) that gains have if
    the probabilities without the change are right, which counts mistakes that are yet to come.
    """
    squares = share * share
    own = np.sum(squares * (gains - share @ gains) ** 2)
    expected = np.sum(squares * np.maximum(variances, 0.0))
    n_examples = 1.0 / np.sum(squares)
    return float(np.sqrt(max(own, expected)) * (1.0 + (few / n_examples) ** 2))
