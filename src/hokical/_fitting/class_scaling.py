"""A scale and a bias for each of many classes, shrunk twice: by a ridge, and by held-out log loss.

With x = margins / temperature, the scores are -x (1 + v) + b. The objective is the mean log loss
plus strength K / (2 n) (|v|^2 + |b|^2), for n examples of K classes, minimised by Newton steps with
one (2, 2) block of the Hessian per class: what ties classes together fades as they become many.
The same blocks give the scores of each example by a fit without it. A share of (v, b) is used: the
one of least held-out log loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import sum_over_blocks
from hokical._core.logits import Logits
from hokical._core.types import FloatArray
from hokical._fitting.base_fit import BaseFit
from hokical._fitting.floor import choose_base
from hokical._fitting.likelihood import WeightedExamples, effective_size
from hokical._fitting.temperature import steps_without_each
from hokical.rules._auto import ClassScaling
from hokical.rules._probabilities import softmax

#: Strength of the ridge, in examples.
STRENGTH = 0.3
#: The fit ends with a step that promises no more than this in mean log loss.
TOLERANCE, MAX_ITER = 1e-5, 20
#: Before any example is seen, so many speak against a scale and a bias; a share below is left out.
PRIOR_EXAMPLES, LEAST_SHARE = 6.0, 0.01
#: The share is found on about this many logits, at least so many rows.
SHARE_LOGITS, SHARE_ROWS = 1 << 17, 2500
#: Scales stay above this, so that the order of a class's margins is kept.
LEAST_SCALE = 0.05


def fit_class_scaling(examples: WeightedExamples) -> BaseFit:
    """Fit a floor, the temperature, and then scales and biases."""
    floor, found, floored = choose_base(examples)
    n_examples = effective_size(examples.weights)
    problem = _Problem(floored, found.x, STRENGTH * examples.n_classes / n_examples)
    fitted = problem.minimize()
    plain = problem.scores_without_each()
    scaled = problem.left_out(fitted)
    share = problem.best_share(plain, scaled, PRIOR_EXAMPLES / n_examples)
    scale, bias = 1.0 + share * fitted[0], share * fitted[1]
    logits, xp = floored.logits, floored.logits.xp
    values = plain if share == 0.0 else plain + share * (scaled - plain)
    values = xp.where(logits.possible, values, -xp.inf)
    shares = {"temps": 1.0 - share} | ({"class scaling": share} if share > 0.0 else {})
    return BaseFit(
        ClassScaling(found.x, np.maximum(scale, LEAST_SCALE), bias),
        floor,
        examples,
        n_examples,
        Logits(values, xp.max(values, axis=1), logits.backend),
        shares,
        {},
        found.converged,
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """Coefficients are (2, classes): v, then b."""

    examples: WeightedExamples
    temperature: float
    penalty: float

    def minimize(self) -> FloatArray:
        coef = np.zeros((2, self.examples.n_classes))
        value, step, promise = self._evaluate(coef)
        for _ in range(MAX_ITER):
            length = 1.0
            trial = self._evaluate(coef + step)
            while trial[0] > value and length > 1e-3:  # blocks alone can overshoot
                length *= 0.5
                trial = self._evaluate(coef + length * step)
            coef, done = coef + length * step, promise <= TOLERANCE
            if done:
                break
            value, step, promise = trial
        return coef

    def _evaluate(self, coef: FloatArray) -> tuple[float, FloatArray, float]:
        """The objective, the step (2, classes) by blocks of the Hessian, and what it promises."""
        loss, slope, hessian = self._sums(coef)
        value = loss + 0.5 * self.penalty * float(np.vdot(coef, coef))
        slope = slope + self.penalty * coef
        square, cross, count = hessian
        determinant = square * count - cross * cross
        step = -np.stack([count * slope[0] - cross * slope[1], square * slope[1] - cross * slope[0]])
        step /= determinant
        return value, step, -0.5 * float(np.vdot(slope, step))

    def _sums(self, coef: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Mean log loss, its slope (2, classes), and the penalised blocks (3, classes)."""
        logits = self.examples.logits
        there = logits.from_host(coef)

        def work(rows: slice, block: Logits) -> Array:
            xp = block.xp
            z, residual, variance, weights, losses = self._rows(rows, block, there)
            heavy, moved = variance * weights, residual * weights
            sums = [moved * z, moved, heavy * z * z, heavy * z, heavy]
            found = xp.stack([xp.sum(part, axis=0) for part in sums])
            loss = xp.sum(losses * weights[:, 0])
            return xp.concat([found, xp.zeros_like(found[:1, :]) + loss], axis=0)

        found = sum_over_blocks(logits, work)
        hessian = found[2:5] + self.penalty * np.array([[1.0], [0.0], [1.0]])
        return float(found[5, 0]), found[:2], hessian

    def _rows(self, rows: slice, block: Logits, coef: Array) -> tuple[Array, ...]:
        """z, p - y, p (1 - p), weights (rows, 1) and log losses (rows,) of a block."""
        xp = block.xp
        z = self._z(block)
        proba = softmax(z * (1.0 + coef[0, :]) + coef[1, :], block)
        truth = block.from_host(self.examples.labels[rows])
        is_true = block.columns[None, :] == truth[:, None]
        own = xp.sum(xp.where(is_true, proba, xp.zeros_like(proba)), axis=1)
        weights = block.from_host(self.examples.weights[rows])[:, None]
        residual = xp.where(is_true, proba - 1.0, proba)
        return z, residual, proba * (1.0 - proba), weights, -xp.log(xp.clip(own, 1e-300, None))

    def _z(self, block: Logits) -> Array:
        """Minus the margins in temperatures, 0 for masked classes, (rows, classes)."""
        xp, margins = block.xp, block.margins
        return xp.where(block.possible, margins * (-1.0 / self.temperature), xp.zeros_like(margins))

    def scores_without_each(self) -> Array:
        """z (n, classes) at the temperature that suits all other examples: one Newton step.

        See `best_temperature` for the equation that it solves.
        """
        logits, weights = self.examples.logits, self.examples.weights
        z = self._z(logits)
        xp, proba = logits.xp, softmax(z, logits)
        mean = xp.sum(proba * -z, axis=1)
        variance = logits.to_host(xp.sum(proba * z * z, axis=1) - mean * mean)
        true = self.examples.true_margins / self.temperature
        moments = np.stack([logits.to_host(mean), true, variance])
        sharper = steps_without_each(moments, weights)
        return z * logits.from_host(sharper)[:, None]

    def left_out(self, coef: FloatArray) -> Array:
        """Scores (n, classes) of each example by a fit without it."""
        logits = self.examples.logits
        square, cross, count = self._sums(coef)[2]
        inverse = np.stack([count, -2.0 * cross, square]) / (square * count - cross * cross)
        there, table = logits.from_host(coef), logits.from_host(inverse)
        rows = slice(0, logits.n_rows)
        z, residual, variance, weights, _ = self._rows(rows, logits, there)
        spread = ((z * table[0, :] + table[1, :]) * z + table[2, :]) * weights
        own = z * (1.0 + there[0, :]) + there[1, :]
        return own + spread * residual / (1.0 - spread * variance)

    def best_share(self, plain: Array, scaled: Array, prior: float) -> float:
        """The share of the class terms, 0 to 1, of least held-out log loss."""
        some = _Share.of(self.examples, plain, scaled, prior)
        share = 0.5
        for _ in range(MAX_ITER):
            slope, curvature = some.derivatives(share)
            moved = min(max(share - slope / curvature, 0.1 * share), 0.9 + 0.1 * share)
            share, before = moved, share
            if abs(share - before) <= 0.1 * LEAST_SHARE:
                break
        return share if share >= LEAST_SHARE else 0.0


@dataclass(frozen=True, eq=False)
class _Share:
    """The held-out log loss of plain + share * (scaled - plain), with a prior for 0."""

    examples: WeightedExamples
    plain: Array
    change: Array
    prior: float

    @classmethod
    def of(
        cls, examples: WeightedExamples, plain: Array, scaled: Array, prior: float
    ) -> _Share:
        logits = examples.logits
        step = min(logits.size // SHARE_LOGITS, logits.n_rows // SHARE_ROWS)
        if step < 2:
            return cls(examples, plain, scaled - plain, prior)
        rows = examples.every_rows(step)
        some, xp = examples.take(rows), logits.xp
        there = logits.from_host(rows)
        plain, scaled = (xp.take(table, there, axis=0) for table in (plain, scaled))
        return cls(some, plain, scaled - plain, prior)

    @cached_property
    def _weights(self) -> Array:
        return self.examples.logits.from_host(
            self.examples.weights / self.examples.weights.sum()
        )

    def derivatives(self, share: float) -> tuple[float, float]:
        logits, change = self.examples.logits, self.change
        xp = logits.xp
        proba = softmax(self.plain + share * change, logits)
        mean = xp.sum(proba * change, axis=1)
        variance = xp.sum(proba * change * change, axis=1) - mean * mean
        truth = logits.from_host(self.examples.labels)[:, None]
        own = xp.take_along_axis(change, truth, axis=1)[:, 0]
        slope = float(xp.sum(self._weights * (mean - own))) + self.prior / (1.0 - share)
        curvature = float(xp.sum(self._weights * variance)) + self.prior / (1.0 - share) ** 2
        return slope, curvature
