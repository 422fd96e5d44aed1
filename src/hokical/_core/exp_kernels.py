"""A fast exponential and logarithm for compiled loops."""

from typing import Any

import numpy as np

from hokical._core.jit import kernel

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453


@kernel
def exp_minus(x: float) -> float:
    """exp(-x) for 0 <= x <= 700, to about 1e-14; unlike the C library's, it vectorises (SIMD).

    x = k ln 2 - r with |r| <= ln(2)/2; exp(r) by its series, and 2^-k by writing the exponent.
    """
    k = int(x * _LOG2_E + 0.5)
    r = k * _LN_2 - x
    square = r * r  # three short sums side by side: one long one would wait for its own results
    low = 1.0 + r + square * (0.5 + r / 6.0)
    middle = 1.0 / 24.0 + r / 120.0 + square * (1.0 / 720.0 + r / 5040.0)
    high = 1.0 / 40320.0 + r / 362880.0 + square * (1.0 / 3628800.0 + r / 39916800.0)
    p = low + square * square * (middle + square * square * high)
    power: Any = np.int64((1023 - k) << 52)
    return p * power.view(np.float64)  # type: ignore[no-any-return]


#: The bits of sqrt(1/2).
_ROOT_HALF = 0x3FE6A09E667F3BCD


@kernel
def log_of(x: float) -> float:
    """log(x) for x of at least 1e-300, to about 1e-15; it vectorises too.

    x = 2^k m with sqrt(1/2) <= m < sqrt(2), and log(m) = 2 artanh((m - 1) / (m + 1)) by its series.
    """
    number: Any = np.float64(x)
    bits = number.view(np.int64)
    k = (bits - _ROOT_HALF) >> 52
    power: Any = np.int64(bits - (k << 52))
    m = power.view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    fourth = square * square
    low = 2.0 + square * (2.0 / 3.0) + fourth * (2.0 / 5.0 + square * (2.0 / 7.0))
    middle = 2.0 / 9.0 + square * (2.0 / 11.0) + fourth * (2.0 / 13.0 + square * (2.0 / 15.0))
    high = 2.0 / 17.0 + square * (2.0 / 19.0) + fourth * (2.0 / 21.0)
    series = low + fourth * fourth * (middle + fourth * fourth * high)
    return k * _LN_2 + s * series  # type: ignore[no-any-return]
