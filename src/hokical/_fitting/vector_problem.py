"""The penalised log loss of vector scaling, its units, and its minimum."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hokical._core.types import FloatArray, IntArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.likelihood import WeightedExamples, typical_spread
from hokical._fitting.newton import Evaluation, minimize_dense
from hokical._fitting.solution import Solution, StopReason
from hokical._fitting.temperature import base_temperature
from hokical._fitting.vector_sums import VectorPart

#: Above this many classes the Hessian costs more than the iterations it saves.
DENSE_CLASSES = 1000
#: Spreads of log-probabilities below the first are near their rounding errors; those above the
#: second leave no room for temperatures.
_SPREADS = (1e-6, 1e100)
#: The base temperature is sought between these multiples of the spread: a wild example or two can
#: ask for a very high one.
_REACH = (1e-5, 1e30)


@dataclass(frozen=True, eq=False)
class VectorProblem:
    """Penalised mean log loss as a function of theta = (unit (scale - 1/T), bias), (2 classes,).

    Its features x are log-probabilities divided by the unit.
    """

    examples: WeightedExamples
    ridge: float
    temperature: float
    unit: float

    def solve(self, max_iter: int) -> Solution[FloatArray]:
        start = np.zeros(2 * self.examples.n_classes)
        with one_blas_thread():
            if self.examples.n_classes <= DENSE_CLASSES:
                return minimize_dense(self.evaluate, start, max_iter)
            from scipy.optimize import minimize

            options = {"maxiter": max_iter, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-8}
            found = minimize(
                self.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options
            )
        reasons = (StopReason.CONVERGED, StopReason.MAX_ITER, StopReason.ROUNDING)
        return Solution(found.x, float(found.fun), int(found.nit), reasons[found.status])

    def scale(self, theta: FloatArray) -> FloatArray:
        """What multiplies the log-probabilities, (classes,)."""
        return np.asarray(1.0 / self.temperature + theta[: theta.size // 2] / self.unit)

    @cached_property
    def observed(self) -> FloatArray:
        """Weighted sums of the true classes' features, and of the classes, (2 classes,)."""
        return self._sums.observe()

    @property
    def class_weights(self) -> FloatArray:
        """How much of the weight each class has, (classes,)."""
        return self.observed[self.examples.n_classes :]

    def evaluate(self, theta: FloatArray) -> Evaluation:
        """Value, gradient (p,) and Hessian (p, p), p = 2 classes.

        The Hessian is the mean of diag(p) - p p' with features multiplied in, plus the ridge.
        """
        flat, size = self._sums.second_sums(theta), theta.size
        firsts, squares, products = np.split(flat, [1 + size, 1 + size + size // 2])
        scale, bias = np.arange(size // 2), np.arange(size // 2, size)
        hessian = -products.reshape(size, size)
        hessian[scale, scale] += squares + self.ridge
        hessian[bias, bias] += firsts[1 + bias] + self.ridge
        hessian[scale, bias] += firsts[1 + scale]
        hessian[bias, scale] += firsts[1 + scale]
        return *self._penalise(theta, firsts), hessian

    def value_and_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """The same without the Hessian, for very many classes."""
        return self._penalise(theta, self._sums.first_sums(theta))

    def losses(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """The mean log loss, and each class's against all others, (classes,)."""
        total = self._sums.class_losses(theta)
        return float(total[-1]), total[:-1]

    def separated_classes(self, theta: FloatArray, class_losses: FloatArray) -> IntArray:
        """Classes that occur and whose part of the penalty is at least their loss."""
        penalty = 0.5 * self.ridge * (theta.reshape(2, -1) ** 2).sum(axis=0)
        return np.flatnonzero((penalty >= class_losses) & (self.class_weights > 0.0))

    def _penalise(self, theta: FloatArray, sums: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient from the sums of the log losses and of [p x, p]."""
        value = float(sums[0]) + 0.5 * self.ridge * float(theta @ theta)
        return value, sums[1:] - self.observed + self.ridge * theta

    @property
    def _sums(self) -> VectorPart:
        return self.examples.keep(VectorPart, self.temperature, self.unit)


def choose_units(examples: WeightedExamples) -> tuple[float, float]:
    """The base temperature, and the unit of the scales: the smaller of it and the spread."""
    spread = min(max(typical_spread(examples), _SPREADS[0]), _SPREADS[1])
    temperature = base_temperature(examples, spread, _REACH)
    return temperature, min(temperature, spread)
