"""Penalised log losses of scores that are linear in their coefficients, for the solver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from hokical.core.arrays import Array
from hokical.core.types import FloatArray
from hokical.fitting.newton_cg import OuterProducts
from hokical.fitting.odir_sums import LinearExamples


class InverseHessian(Protocol):
    """About the inverse of a Hessian."""

    def solve(self, residual: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """Mean log loss + sum(penalty * (coef - centre)^2) / 2, all three of one shape."""

    examples: LinearExamples
    penalty: FloatArray
    centre: FloatArray

    def evaluate(self, coef: FloatArray) -> LinearPoint:
        proba, loss = self.examples.probabilities(coef)
        away = coef - self.centre
        pull = self.penalty * away
        return LinearPoint(self, loss + 0.5 * float(np.vdot(pull, away)), proba, pull)

    def inverse_hessian(self, point: LinearPoint) -> InverseHessian:
        """Cheap to make and to use, for conjugate gradients."""
        first, second = self.examples.moments(point.proba)
        return OuterProducts(first[:, -1:], first, second, self.penalty)


@dataclass(frozen=True, eq=False)
class LinearPoint:
    """The objective somewhere: its value, probabilities by blocks, and the penalty's `pull`."""

    problem: LinearProblem
    value: float
    proba: list[Array]
    pull: FloatArray

    @cached_property
    def gradient(self) -> FloatArray:
        return self.problem.examples.slope(self.proba) + self.pull

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        product = self.problem.examples.curvature(self.proba, direction)
        return product + self.problem.penalty * direction

    @cached_property
    def _inverse(self) -> InverseHessian:
        return self.problem.inverse_hessian(self)

    def precondition(self, residual: FloatArray) -> FloatArray:
        return self._inverse.solve(residual)
