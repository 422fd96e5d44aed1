"""Functions that ONNX lacks, or has in float32 alone: from plain operators, to rounding or nearly.

Coefficients of polynomials are fitted when a graph is made, to what SciPy says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from hokical.integrations.onnx.builder import Value

FloatArray = NDArray[np.float64]

#: `erfc` and `log_erfc` are good from here on.
TAIL_FROM = 3.75
#: Beyond this exp(-x^2) is 0.
_TAIL_END = 40.0
_TAIL_DEGREE = 8
#: Where `log_loss_of_normal` is good, and the degree of its polynomial.
NORMAL_RANGE = (-1.5, 12.5)
_NORMAL_DEGREE = 30
#: Below this four terms of the exponential's series are enough.
_TINY = 1e-3


def log1p(x: Value) -> Value:
    """log(1 + x) for x > -1, precise where x is tiny: the rounding of 1 + x is divided out."""
    total = x + 1.0
    step = total - 1.0
    lost = step.equals(0.0)
    return lost.where(x, total.log() * x / lost.where(1.0, step))


def one_minus_exp(x: Value) -> Value:
    """1 - exp(-x) for x >= 0, precise where x is tiny."""
    tiny = x.at_most(_TINY)
    few_terms = tiny * (1.0 - tiny * (0.5 - tiny * (1.0 / 6.0 - tiny * (1.0 / 24.0))))
    return (x < _TINY).where(few_terms, 1.0 - (-x).exp())


def erfc(x: Value) -> Value:
    """1 - erf(x) for x >= TAIL_FROM, to 1e-11 of itself; what is smaller counts as TAIL_FROM."""
    x = x.clipped(TAIL_FROM, _TAIL_END)
    squared = x * x
    return _tail_factor(squared) * (-squared).exp() / x


def log_erfc(x: Value) -> Value:
    """log erfc(x), for the same x."""
    x = x.clipped(TAIL_FROM, _TAIL_END)
    squared = x * x
    return (_tail_factor(squared) / x).log() - squared


def _tail_factor(squared: Value) -> Value:
    """erfc(x) exp(x^2) x: all but a polynomial in 1/x^2."""
    t = (2.0 * TAIL_FROM**2) / squared - 1.0
    powers = chebyshev.cheb2poly(_tail_series()).tolist()
    factor = t * powers[-1] + powers[-2]
    for power in powers[-3::-1]:
        factor = factor * t + power
    return factor


def log_loss_of_normal(x: Value) -> Value:
    """log(-log Phi(x)) on NORMAL_RANGE, to 2e-7; what lies outside counts as its ends."""
    low, high = NORMAL_RANGE
    t = (x.clipped(low, high) - low) * (2.0 / (high - low)) - 1.0
    return series(t, _normal_series())


def series(t: Value, coefficients: FloatArray) -> Value:
    """sum_r c_r T_r(t) by Clenshaw's recurrence."""
    twice = 2.0 * t
    current = t * 0.0 + float(coefficients[-1])
    before: Value | float = 0.0
    for coefficient in coefficients[-2:0:-1]:
        current, before = twice * current - before + float(coefficient), current
    return t * current - before + float(coefficients[0])


@cache
def _tail_series() -> FloatArray:
    """erfcx(x) x as a series in t = 2 TAIL_FROM^2/x^2 - 1."""

    def smooth(t: FloatArray) -> FloatArray:
        x = TAIL_FROM * np.sqrt(2.0 / (t + 1.0))
        return np.asarray(erfcx(x) * x)

    return _interpolated(smooth, _TAIL_DEGREE)


@cache
def _normal_series() -> FloatArray:
    low, high = NORMAL_RANGE

    def smooth(t: FloatArray) -> FloatArray:
        return np.asarray(np.log(-log_ndtr(low + (t + 1.0) * 0.5 * (high - low))))

    return _interpolated(smooth, _NORMAL_DEGREE)


def _interpolated(function: Callable[[FloatArray], FloatArray], degree: int) -> FloatArray:
    points = chebyshev.chebpts1(degree + 1)
    values_to_series = np.linalg.inv(chebyshev.chebvander(points, degree))
    return np.asarray(values_to_series @ function(points), np.float64)
