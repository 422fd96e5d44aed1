"""Random numbers that are bit-identical on every machine and NumPy version.

NumPy guarantees a stable stream of raw 64-bit words from a bit generator, but not the same normal
deviates across releases, and `log` differs in its last bit between maths libraries. So the raw
words are transformed with +, -, *, / and sqrt alone, which IEEE 754 rounds exactly. A calibrator
can then be stored as (seed, shape) instead of the draws themselves.
"""

import math
from functools import reduce

import numpy as np

from hokical._core.types import FloatArray

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
    [2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987,
     13731.69376550946, 1971.5909503065513, 133.14166789178438, 3.3871328727963665],
    [5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597,
     5394.196021424751, 687.1870074920579, 42.31333070160091, 1.0],
)  # fmt: skip
_NEAR_TAIL = (
    [0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684,
     3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835],
    [1.0507500716444169e-09, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008,
     0.6897673349851, 1.6763848301838038, 2.053191626637759, 1.0],
)  # fmt: skip
_FAR_TAIL = (
    [2.0103343992922881e-07, 2.7115555687434876e-05, 0.0012426609473880784, 0.026532189526576124,
     0.29656057182850487, 1.7848265399172913, 5.463784911164114, 6.657904643501103],
    [2.0442631033899397e-15, 1.421511758316446e-07, 1.8463183175100548e-05, 0.0007868691311456133,
     0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1.0],
)  # fmt: skip
