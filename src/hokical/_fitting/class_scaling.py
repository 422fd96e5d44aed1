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
from hokical._core.blocks import block_rows, by_blocks, sum_over_blocks
from hokical._core.logits import Logits
from hokical._core.parallel import map_slices
from hokical._core.types import FloatArray
from hokical._fitting.base_fit import BaseFit
from hokical._fitting.floor import choose_base
from hokical._fitting.likelihood import WeightedExamples, effective_size, moment_sums
from hokical._fitting.temperature import steps_without_each
from hokical.rules._auto import ClassScaling
from hokical.rules._probabilities import LEAST, softmax

#: Strength of the ridge, in examples.
STRENGTH = 0.3
#: The fit ends with a step that promises no more than this in mean log loss.
TOLERANCE, MAX_ITER = 3e-4, 20
#: Before any example is seen, so many speak against a scale and a bias; a share below is left out.
PRIOR_EXAMPLES, LEAST_SHARE = 6.0, 0.01
#: The share is found on about this many logits, at least so many rows.
SHARE_LOGITS, SHARE_ROWS = 1 << 17, 2500
#: Scales stay above this, so that the order of a class's margins is kept.
LEAST_SCALE = 0.05


def fit_class_scaling(examples: WeightedExamples) -> BaseFit:
    """Fit a floor, the temperature, and then scales and biases."""
    floor, found, floored = choose_base(examples, for_noise=False)  # the row correction is
    n_examples = effective_size(examples.weights)
    problem = _Problem(floored, found.x, STRENGTH * examples.n_classes / n_examples)
    fitted, hessian = problem.minimize()
    plain = problem.scores_without_each()
    scaled = problem.left_out(fitted, hessian)
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

    @cached_property
    def z(self) -> Array:
        """Minus the margins in temperatures, 0 for masked classes, (n, classes)."""
        logits = self.examples.logits

        def work(block: Logits) -> Array:
            z = block.margins * (-1.0 / self.temperature)
            return z if block.all_possible else block.xp.where(block.possible, z, 0.0 * z)

        return by_blocks(work, logits)

    def minimize(self) -> tuple[FloatArray, FloatArray]:
        """The coefficients, and the blocks of the Hessian there, (3, classes)."""
        coef = np.zeros((2, self.examples.n_classes))
        here = self._evaluate(coef)
        for _ in range(MAX_ITER):
            length, trial = 1.0, self._evaluate(coef + here.step)
            while trial.value > here.value and length > 1e-3:  # blocks alone can overshoot
                length *= 0.5
                trial = self._evaluate(coef + length * here.step)
            coef, before, here = coef + length * here.step, here, trial
            if before.promise <= TOLERANCE:
                break
        return coef, here.hessian

    def _evaluate(self, coef: FloatArray) -> _Place:
        """The objective and its derivatives."""
        logits = self.examples.logits
        there = logits.from_host(coef)

        def work(rows: slice, block: Logits) -> Array:
            xp = block.xp
            z, weights = self.z[rows, ...], block.from_host(self.examples.weights[rows])
            residual, variance, losses = self._derivatives(rows, block, there)
            heavy = variance * z
            tables = (residual * z, residual, heavy * z, heavy, variance)
            sums = xp.stack([weights @ table for table in tables])
            return xp.concat([sums, xp.zeros_like(sums[:1, :]) + weights @ losses], axis=0)

        found = sum_over_blocks(logits, work)
        value = float(found[5, 0]) + 0.5 * self.penalty * float(np.vdot(coef, coef))
        hessian = found[2:5] + self.penalty * np.array([[1.0], [0.0], [1.0]])
        return _Place(value, found[:2] + self.penalty * coef, hessian)

    def _derivatives(self, rows: slice, block: Logits, coef: Array) -> tuple[Array, Array, Array]:
        """p - y and p (1 - p), (rows, classes), and log losses (rows,) of a block."""
        xp = block.xp
        proba = softmax(self.z[rows, ...] * (1.0 + coef[0, :]) + coef[1, :], block)
        variance = proba - proba * proba
        truth = self.examples.labels[rows]
        if block.is_numpy:
            place = np.arange(truth.size), truth
            losses = -np.log(np.maximum(proba[place], LEAST))
            proba[place] -= 1.0
            return proba, variance, losses
        is_true = block.columns[None, :] == block.from_host(truth)[:, None]
        own = xp.sum(xp.where(is_true, proba, xp.zeros_like(proba)), axis=1)
        return xp.where(is_true, proba - 1.0, proba), variance, -xp.log(xp.clip(own, LEAST, None))

    def scores_without_each(self) -> Array:
        """z (n, classes) at the temperature that suits all other examples."""
        logits = self.examples.logits
        moments = self._margin_moments()
        sharper = steps_without_each(moments, self.examples.weights)
        return self.z * logits.from_host(sharper)[:, None]

    def _margin_moments(self) -> FloatArray:
        """Expected and true margin, and the variance of the margin, in temperatures, (3, n)."""
        logits = self.examples.logits
        zeroth, first, second = (
            logits.to_host(part) for part in moment_sums(logits, 1.0 / self.temperature)
        )
        mean = first / zeroth
        true = self.examples.true_margins / self.temperature
        return np.stack([mean, true, second / zeroth - mean * mean])

    def left_out(self, coef: FloatArray, hessian: FloatArray) -> Array:
        """Scores (n, classes) of each example by a fit without it."""
        logits = self.examples.logits
        square, cross, count = hessian
        inverse = np.stack([count, -2.0 * cross, square]) / (square * count - cross * cross)
        there, (a, b, c) = logits.from_host(coef), logits.from_host(inverse)

        def work(rows: slice) -> Array:
            block, z = logits.take(rows), self.z[rows, ...]
            residual, variance, _ = self._derivatives(rows, block, there)
            spread = (z * a + b) * z + c
            spread *= block.from_host(self.examples.weights[rows])[:, None]
            return (
                z * (1.0 + there[0, :])
                + there[1, :]
                + spread * residual / (1.0 - spread * variance)
            )

        step = block_rows(logits, logits.n_columns)
        parts = map_slices(work, logits.n_rows, step, threads=logits.is_numpy)
        return logits.xp.concat(parts, axis=0)

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
class _Place:
    """The objective, its slope (2, classes), and penalised blocks of its Hessian (3, classes)."""

    value: float
    slope: FloatArray
    hessian: FloatArray

    @cached_property
    def step(self) -> FloatArray:
        """Newton's step (2, classes), class by class."""
        square, cross, count = self.hessian
        (v, b), determinant = self.slope, square * count - cross * cross
        return np.asarray(np.stack([cross * b - count * v, cross * v - square * b]) / determinant)

    @property
    def promise(self) -> float:
        """How much the step is to lower the objective."""
        return -0.5 * float(np.vdot(self.slope, self.step))


@dataclass(frozen=True, eq=False)
class _Share:
    """The held-out log loss of plain + share * (scaled - plain), with a prior for 0."""

    examples: WeightedExamples
    plain: Array
    change: Array
    prior: float

    @classmethod
    def of(cls, examples: WeightedExamples, plain: Array, scaled: Array, prior: float) -> _Share:
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
        return self.examples.logits.from_host(self.examples.weights / self.examples.weights.sum())

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
