"""Newton's method with safeguards, for convex functions of many numbers.

A step is solved whole from the Hessian here, or by conjugate gradients in `newton_cg`, and then
shortened until the value falls enough.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from hokical._core.types import FloatArray
from hokical._fitting.solution import Solution, StopReason

Evaluation = tuple[float, FloatArray, FloatArray]

#: The drop in value that the last step of a dense search promises. What is left is its square.
_TOLERANCE = 5e-13
#: Largest slope at its minimum, by parameters in units that mean something: near a kink the
#: curvature is so high that even a steep way down promises nothing.
_FLAT = 1e-4
_ENOUGH_DROP = 1e-4
_MAX_HALVINGS = 40
#: What rounding may add to the value, relative: in any step, and in one that is not shortened.
_SLACK, _WHOLE_SLACK = 1e-14, 1e-12
#: What is added to a Hessian of unit diagonal until it is positive (Levenberg, Marquardt).
_DAMPINGS = (0.0, *(10.0**k for k in range(-14, 3, 2)))


class Slope(Protocol):
    """A function at one place x, an array of any shape: its value, and its gradient there."""

    @property
    def value(self) -> float: ...

    @property
    def gradient(self) -> FloatArray: ...


Place = TypeVar("Place", bound=Slope)


def minimize_newton(
    evaluate: Callable[[FloatArray], Place],
    start: FloatArray,
    newton_step: Callable[[Place], tuple[FloatArray, bool]],
    *,
    tol: float,
    max_iter: int,
    strict: bool = False,
) -> Solution[FloatArray]:
    """The minimum from `start`; every value is one that was evaluated.

    `newton_step` gives the step from a point, and whether it is Newton's own. It has converged
    where such a step promises a drop of at most `tol`; it is still taken. If that is `strict`, it
    must also end where all is flat, and a step that promises nothing may not raise the value: a
    real rise shows that all is rounding.
    """
    x, point = start, evaluate(start)
    for iteration in range(1, max_iter + 1):
        step, exact = newton_step(point)
        promise = -0.5 * float(np.vdot(point.gradient, step))
        if not 0.0 <= promise < math.inf:  # uphill, or not a number
            return Solution(x, point.value, iteration, StopReason.ROUNDING, point)
        if promise > 0.0 or not exact:
            whole = strict and promise <= _TOLERANCE
            found = _search_line(evaluate, x, step, point.value, promise, whole=whole)
            if found is None:
                return Solution(x, point.value, iteration, StopReason.ROUNDING, point)
            x, point = found
        if promise <= (tol if exact else min(tol, _TOLERANCE)):
            flat = not strict or bool(np.abs(point.gradient).max() <= _FLAT)
            reason = StopReason.CONVERGED if exact and flat else StopReason.ROUNDING
            return Solution(x, point.value, iteration, reason, point)
    return Solution(x, point.value, max_iter, StopReason.MAX_ITER, point)


def _search_line(
    evaluate: Callable[[FloatArray], Place],
    x: FloatArray,
    step: FloatArray,
    value: float,
    promise: float,
    *,
    whole: bool,
) -> tuple[FloatArray, Place] | None:
    """The first of whole, half, quarter ... steps that lowers the value enough, evaluated."""
    limit = value + (_WHOLE_SLACK if whole else _SLACK) * max(1.0, abs(value))
    for halvings in range(1 if whole else _MAX_HALVINGS):
        length = 0.5**halvings
        found = evaluate(x + length * step)
        if found.value <= limit - _ENOUGH_DROP * length * promise:
            return x + length * step, found
        del found
    return None


@dataclass(eq=False)
class _DensePoint:
    """Value, gradient (p,) and Hessian (p, p), which is let go once the step is known."""

    value: float
    gradient: FloatArray
    hessian: FloatArray | None

    def newton_step(self) -> tuple[FloatArray, bool]:
        """The step (p,), and whether the Hessian was positive as it is.

        Parameters are measured in units in which the Hessian's diagonal is 1: their curvatures can
        differ by more than floats can hold. The step is nan where that diagonal is not positive.
        """
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        hessian, self.hessian = self.hessian, None
        assert hessian is not None
        diagonal = np.diagonal(hessian).copy()
        if np.isfinite(hessian.sum()) and diagonal.min() > 0.0:
            unit = 1.0 / np.sqrt(diagonal)
            hessian *= unit[:, None]
            hessian *= unit
            for damping in _DAMPINGS:
                hessian.flat[:: unit.size + 1] = 1.0 + damping
                try:
                    factor = cho_factor(hessian, lower=True, check_finite=False)
                except LinAlgError:  # not positive beyond rounding
                    continue
                step = cho_solve(factor, unit * self.gradient, check_finite=False)
                return -unit * step, damping == 0.0
        return np.full(self.gradient.size, np.nan), False


def minimize_dense(
    evaluate: Callable[[FloatArray], Evaluation],
    start: FloatArray,
    max_iter: int,
    tol: float = _TOLERANCE,
) -> Solution[FloatArray]:
    """Minimise a function that gives its value, gradient (p,) and Hessian (p, p).

    The Hessian is overwritten, and let go before the next.
    """
    return minimize_newton(
        lambda x: _DensePoint(*evaluate(x)),
        start,
        _DensePoint.newton_step,
        tol=tol,
        max_iter=max_iter,
        strict=True,
    )
