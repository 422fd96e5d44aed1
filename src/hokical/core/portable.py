"""Random numbers that are bit-identical on every machine and NumPy version.

NumPy guarantees a stable stream of raw 64-bit words from a bit generator, but not the same normal
deviates across releases, and `log` differs in its last bit between maths libraries. So the raw
words are transformed with +, -, *, / and sqrt alone, which IEEE 754 rounds exactly. A calibrator
can then be stored as (seed, shape) instead of the draws themselves.
"""

import math
from functools import reduce

import numpy as np

from hokical.core.types import FloatArray

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # the leading 32 bits of ln 2: exact products
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # ln 2 - _LN2_HIGH
_SQRT_HALF = math.sqrt(0.5)


def uniform_draws(seed: int, shape: tuple[int, int]) -> FloatArray:
    """Numbers strictly inside (0, 1), 53 random bits each, from a Philox stream of `seed`."""
    words = np.random.Philox(key=seed).random_raw(shape[0] * shape[1])
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5).reshape(shape) * 2.0**-53


def log(x: FloatArray) -> FloatArray:
    """Natural logarithm of positive numbers, to about 1e-16 relative to max(1, |log x|).

    x = m 2^e with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh((m - 1)/(m + 1)).
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < _SQRT_HALF
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    power = exponent.astype(np.float64) - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    s2 = s * s
    series = _horner([2.0 / (2 * k + 1) for k in range(12, -1, -1)], s2)
    return power * _LN2_HIGH + (power * _LN2_LOW + s * series)


def normal_quantile(p: FloatArray) -> FloatArray:
    """Inverse of the standard normal distribution function.

    Algorithm AS 241 (PPND16) of Wichura, Applied Statistics 37, 1988, accurate to about 1e-16.
    """
    q = p - 0.5
    central = np.abs(q) <= 0.425
    inner = np.where(central, q, 0.0)
    r = 0.180625 - inner * inner
    middle = q * _horner(_CENTRE[0], r) / _horner(_CENTRE[1], r)
    tail = np.sqrt(-log(np.where(central, 0.5, np.minimum(p, 1.0 - p))))
    near = _horner(_NEAR_TAIL[0], tail - 1.6) / _horner(_NEAR_TAIL[1], tail - 1.6)
    far = _horner(_FAR_TAIL[0], tail - 5.0) / _horner(_FAR_TAIL[1], tail - 5.0)
    outer = np.where(tail <= 5.0, near, far)
    return np.where(central, middle, np.where(q < 0.0, -outer, outer))


def _horner(coefficients: list[float], x: FloatArray) -> FloatArray:
    """Polynomial with the highest power first, one rounding per operation."""
    start = np.full_like(x, coefficients[0])
    return reduce(lambda value, c: value * x + c, coefficients[1:], start)


_CENTRE = (
    [
        2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
        4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
        1.3314166789178437745e2, 3.3871328727963666080e0,
    ],
    [
        5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
        2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
        4.2313330701600911252e1, 1.0,
    ],
)  # fmt: skip
_NEAR_TAIL = (
    [
        7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
        1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
        4.63033784615654529590e0, 1.42343711074968357734e0,
    ],
    [
        1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
        1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
        2.05319162663775882187e0, 1.0,
    ],
)  # fmt: skip
_FAR_TAIL = (
    [
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
        2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
        5.46378491116411436990e0, 6.65790464350110377720e0,
    ],
    [
        2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
        7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
        5.99832206555887937690e-1, 1.0,
    ],
)  # fmt: skip
