"""Penalised log losses of scores that are linear in their coefficients, for the solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hokical._core.arrays import Array
from hokical._core.types import FloatArray
from hokical._fitting.linear_examples import LinearExamples
from hokical._fitting.newton_cg import Product


@dataclass(frozen=True, eq=False)
class LinearProblem(ABC):
    """Mean log loss + sum(penalty * (coef - centre)^2) / 2, all three of one shape."""

    examples: LinearExamples
    penalty: FloatArray
    centre: FloatArray

    def evaluate(self, coef: FloatArray) -> LinearPoint:
        proba, loss = self.examples.probabilities(coef)
        away = coef - self.centre
        penalty_gradient = self.penalty * away
        return LinearPoint(
            self, loss + 0.5 * float(np.vdot(penalty_gradient, away)), proba, penalty_gradient
        )

    @abstractmethod
    def invert_hessian(self, point: LinearPoint) -> Product:
        """About the inverse Hessian, to be multiplied with: cheap to make and to use."""


@dataclass(frozen=True, eq=False)
class LinearPoint:
    """The objective somewhere: its value, probabilities by blocks, and the penalty's gradient."""

    problem: LinearProblem
    value: float
    proba: list[Array]
    penalty_gradient: FloatArray

    @cached_property
    def gradient(self) -> FloatArray:
        return self.problem.examples.slope(self.proba) + self.penalty_gradient

    def curvature_along(self, direction: FloatArray) -> FloatArray:
        product = self.problem.examples.curvature(self.proba, direction)
        return product + self.problem.penalty * direction

    @cached_property
    def precondition(self) -> Product:
        return self.problem.invert_hessian(self)
