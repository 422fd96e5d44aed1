"""Penalised log losses of scores that are linear in their coefficients, for the solver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from hokical.core.arrays import Array
from hokical.core.types import FloatArray
from hokical.fitting.newton_cg import OuterProducts
from hokical.fitting.odir_sums import LinearExamples

_LOCK = Lock()
#: The limit that is in force, once for every context that is open, in whatever thread.
_OPEN: list[Any] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which BLAS has one thread, until the last of those in it leaves.

    Blocks of rows run on our threads. BLAS threads would change the order of sums, and on a busy
    machine they mostly wait for each other.
    """
    with _LOCK:
        _OPEN.append(_OPEN[0] if _OPEN else _find_libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _LOCK:
            limit = _OPEN.pop()
            if not _OPEN:
                limit.restore_original_limits()


@cache
def _find_libraries() -> ThreadpoolController:
    """Takes milliseconds, as long as a small fit."""
    return ThreadpoolController()


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

    def inverse_hessian(self, proba: list[Array]) -> InverseHessian:
        """Cheap to make and to use, for conjugate gradients."""
        first, second = self.examples.moments(proba)
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
        return self.problem.inverse_hessian(self.proba)

    def precondition(self, residual: FloatArray) -> FloatArray:
        return self._inverse.solve(residual)
