"""Exact binomial tests and confidence intervals, with NumPy alone.

Tails of a binomial are tails of a Beta(a, b). In the log-odds u of its variable the density is
proportional to exp(a u - (a + b) log(1 + e^u)), which is log-concave for all a, b > 0. So a lower
tail is the density at its end times the integral of a fast decay, which one Gauss rule gives for
any number of trials; and Newton's method on its logarithm, which is concave, finds quantiles from
wherever it starts.
"""

import math
from functools import cache
from numbers import Real
from typing import Any

import numpy as np

from hokical._core.special import expit
from hokical._core.types import FloatArray

#: Nodes of the Gauss rule, and the log of the decay up to which it integrates.
_NODES, _DEPTH = 48, 37.0
#: Below the largest exponent whose exponential is finite.
_LARGE = 700.0
#: Error in the logarithm of a tail that the next Newton step squares.
_NEAR, _MAX_STEPS = 1e-7, 50
#: Up to so many events a sum has their own chances; of more, so many different ones.
_EVENTS, _CHANCES = 1024, 256


def sum_distribution(chances: FloatArray) -> tuple[int, FloatArray]:
    """Of independent events with `chances` (n,), a number k and P(k + 0, 1, ... of them happen).

    All other numbers together are as likely as rounding, 1e-10. From its characteristic function;
    of more than 1024 events, those whose chances agree to 1/256 have their mean, which can only
    widen the distribution (Hoeffding, 1956, doi:10.1214/aoms/1177728178), by about 1e-5.

    >>> first, found = sum_distribution(np.array([0.5, 0.5]))
    >>> found[-first : 3 - first].round(12)
    array([0.25, 0.5 , 0.25])
    """
    counts = np.ones(chances.size)
    if chances.size > _EVENTS:
        place = np.minimum((chances * _CHANCES).astype(np.int64), _CHANCES - 1)
        counts = np.bincount(place, minlength=_CHANCES).astype(np.float64)
        sums = np.bincount(place, chances, minlength=_CHANCES)[counts > 0]
        counts = counts[counts > 0]
        chances = np.clip(sums / counts, 0.0, 1.0)
    spread = math.sqrt(float(counts @ (chances * (1.0 - chances))))
    width = 1 << math.ceil(math.log2(24.0 * spread + 64.0))
    first = math.floor(float(counts @ chances)) - width // 2
    angle = 2.0 * np.pi / width * np.arange(width // 2 + 1)
    factors = 1.0 + chances[:, None] * (np.exp(-1j * angle) - 1.0)
    with np.errstate(divide="ignore"):  # a factor can be 0, and the product then is
        size = np.exp(counts @ np.log(np.abs(factors)))
    turned = size * np.exp(1j * (counts @ np.angle(factors) + first * angle))
    return first, np.clip(np.fft.irfft(turned, width), 0.0, 1.0)


def chance_of_so_few(hits: Any, trials: Any, share: float) -> FloatArray:
    """P(Binomial(trials, share) <= hits): the p-value of "the true share is at least `share`".

    >>> float(chance_of_so_few(0, 2, 0.5).round(12))
    0.25
    """
    pairs = np.asarray(hits, np.float64) + 1j * np.asarray(trials, np.float64)
    pairs, place = np.unique(pairs, return_inverse=True)  # levels without examples repeat others
    all_hit = pairs.real >= pairs.imag  # includes no trials at all
    a, b = np.where(all_hit, 1.0, pairs.imag - pairs.real), pairs.real + 1.0
    odds = np.log1p(-share) - np.log(share)
    high = odds > np.log(a / b)
    tail = _lower_tail(np.where(high, [b, a], [a, b]), np.where(high, -odds, odds))[0]
    chance = np.where(high, -np.expm1(tail), np.exp(tail))
    return np.asarray(np.where(all_hit, 1.0, chance)[place])


def clopper_pearson(hits: Any, trials: Any, *, delta: float = 0.05) -> FloatArray:
    """Exact confidence intervals (..., 2) for the share behind `hits` of `trials`, 0 <= hits <=
    trials.

    Whatever the true share is, the interval misses it with probability at most `delta`, at most
    half of that on either side. No trials give [0, 1].

    >>> clopper_pearson(9, 10).round(4)
    array([0.555 , 0.9975])
    """
    log_tail = math.log(check_chance("delta", delta)) - math.log(2.0)
    found, all_of = np.broadcast_arrays(
        np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    )
    if not ((found >= 0.0) & (found <= all_of)).all():
        raise ValueError(
            f"`hits` must lie between 0 and `trials`; got {hits!r} of {trials!r}. Pass counts, "
            "not rates."
        )
    counts = np.stack([found, all_of - found])
    low, missed = _quantile(np.stack([np.maximum(counts, 1.0), counts[::-1] + 1.0]), log_tail)
    # The upper end is a lower tail too, of the misses: so it is right for the smallest `delta`.
    ends = [np.where(counts[0] > 0.0, expit(low, np), 0.0)]
    ends.append(np.where(counts[1] > 0.0, expit(-missed, np), 1.0))
    return np.stack(ends, axis=-1)


def check_chance(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {value!r}.")
    return float(value)


def _quantile(shape: FloatArray, log_tail: float) -> FloatArray:
    """The log-odds (...) below which a Beta of the `shape` (2, ...) has this log-probability.

    The logarithm of the tail is concave: no step goes beyond the quantile, but for the first one.
    """
    odds, far = np.log(shape[0] / shape[1]), np.ones(shape.shape[1:], np.bool_)
    for _ in range(_MAX_STEPS):
        found, width = _lower_tail(shape, odds)
        odds = np.where(far, odds + (log_tail - found) * width, odds)
        far &= np.abs(log_tail - found) > _NEAR
        if not far.any():
            break
    return np.asarray(odds)


def _lower_tail(shape: FloatArray, odds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log P(log-odds <= `odds`) under Beta(a, b) of at least 1, and P / density there, (...).

    `shape` (2, ...) are a and b. Precise for odds of at most about the mode, log(a/b).
    """
    a, b = shape
    n = a + b
    width = _decay_integral(shape, expit(odds, np), expit(-odds, np))
    mode = 0.5 * np.log(a * b / (2.0 * math.pi * n)) + _beyond_stirling(n)
    mode -= _beyond_stirling(a) + _beyond_stirling(b)
    decay = _decay(shape, a / n, b / n, np.log(a / b) - odds)
    return mode - decay + np.log(width), width


def _decay(shape: FloatArray, x: FloatArray, y: FloatArray, step: FloatArray) -> FloatArray:
    """How far the log-density falls by a `step` down from the log-odds of x = 1 - y.

    It is a step + n log(y + x e^-step), written with the smaller one of x and y: what rounding
    leaves of it does not depend on the larger one of a and b.
    """
    low = x <= y
    slope, away = np.where(low, shape[0], -shape[1]), np.where(low, -step, step)
    log_ratio = np.log1p(np.minimum(x, y) * np.expm1(np.minimum(away, _LARGE)))
    log_ratio += np.maximum(away - _LARGE, 0.0)
    return np.asarray(slope * step + shape.sum(axis=0) * log_ratio)


def _decay_integral(shape: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """The integral of exp(-decay) over all steps, (...)."""
    a, n = shape[0], shape.sum(axis=0)
    last = np.minimum(_DEPTH / a + 9.0 / np.sqrt(np.maximum(n * x * y, 1e-300)), _LARGE)
    for _ in range(4):  # Newton's method for the step at which nothing is left
        slope = a - n * x / (x + y * np.exp(np.minimum(last, _LARGE)))
        last = last - (_decay(shape, x, y, last) - _DEPTH) / slope
    nodes, weights = _gauss_rule()
    x, y, steps = x[..., None], y[..., None], last[..., None] * nodes
    left = np.exp(-_decay(shape[..., None], x, y, steps))
    return np.asarray(last * (weights * left).sum(axis=-1))


@cache
def _gauss_rule() -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return 0.5 * (nodes + 1.0), 0.5 * weights


def _beyond_stirling(z: FloatArray) -> FloatArray:
    """log Gamma(z) - (z - 1/2) log z + z - log(2 pi)/2, for z >= 1, by its series at z + 8."""
    k, inverse = z[..., None] + np.arange(8.0), 1.0 / (z + 8.0)
    series = np.polyval([1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12], inverse**2)
    return np.asarray(((k + 0.5) * np.log1p(1.0 / k) - 1.0).sum(axis=-1) + inverse * series)
