"""Exact binomial tests and confidence intervals, by SciPy's incomplete beta functions."""

import math
from numbers import Real
from typing import Any

import numpy as np

from hokical._core.types import FloatArray

#: Below this probability SciPy's quantiles of a Beta distribution lose digits.
_LEAST_DELTA = 1e-100
#: Up to so many events a sum has their own probabilities; of more, so many different ones.
_EVENTS, _PROBABILITIES = 1024, 256


def scipy_special() -> Any:
    """SciPy's special functions, which new guarantees need and predictions do not."""
    try:
        import scipy.special
    except ImportError as error:
        raise ImportError(
            "a new guarantee needs SciPy, which is not installed; predictions do not. Install it: "
            "pip install scipy."
        ) from error
    return scipy.special


def sum_distribution(chances: FloatArray) -> tuple[int, FloatArray]:
    """The number of independent events that happen: a number k, and P(k + 0, 1, ...) of them.

    All other numbers together are as likely as rounding, 1e-10. From its characteristic function;
    of more than 1024 events, those whose probabilities agree to 1/256 have their mean, which can
    only widen the distribution (Hoeffding, 1956, doi:10.1214/aoms/1177728178), by about 1e-5.

    >>> first, found = sum_distribution(np.array([0.5, 0.5]))
    >>> found[-first : 3 - first].round(12)
    array([0.25, 0.5 , 0.25])
    """
    counts = np.ones(chances.size)
    if chances.size > _EVENTS:
        place = np.minimum((chances * _PROBABILITIES).astype(np.int64), _PROBABILITIES - 1)
        counts = np.bincount(place, minlength=_PROBABILITIES).astype(np.float64)
        sums = np.bincount(place, chances, minlength=_PROBABILITIES)[counts > 0]
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


def binomial_tail(hits: Any, trials: Any, share: float) -> FloatArray:
    """P(Binomial(trials, share) <= hits): the p-value of "the true share is at least `share`".

    >>> float(binomial_tail(0, 2, 0.5).round(12))
    0.25
    """
    hits, trials = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    all_hit = hits >= trials  # includes no trials at all
    tail = scipy_special().betaincc(hits + 1.0, np.where(all_hit, 1.0, trials - hits), share)
    return np.asarray(np.where(all_hit, 1.0, tail))


def clopper_pearson(hits: Any, trials: Any, *, delta: float = 0.05) -> FloatArray:
    """Exact confidence intervals (..., 2) for the share behind `hits` of `trials`, 0 <= hits <=
    trials.

    Whatever the true share is, the interval misses it with probability at most `delta`, at most
    half of that on either side. No trials give [0, 1].

    >>> clopper_pearson(9, 10).round(4)
    array([0.555 , 0.9975])
    """
    if check_chance("delta", delta) < _LEAST_DELTA:
        raise ValueError(f"`delta` must be at least {_LEAST_DELTA} here; got {delta!r}.")
    found, all_of = np.broadcast_arrays(
        np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    )
    if not ((found >= 0.0) & (found <= all_of)).all():
        raise ValueError(
            f"`hits` must lie between 0 and `trials`; got {hits!r} of {trials!r}. Pass counts, "
            "not rates."
        )
    counts = np.stack([found, all_of - found])
    # The upper end is a lower tail too, of the misses: so it is right for the smallest `delta`.
    ends = _beta_quantile(np.where(counts > 0.0, counts, 1.0), counts[::-1] + 1.0, 0.5 * delta)
    low, missed = np.where(counts > 0.0, ends, 0.0)
    return np.stack([low, 1.0 - missed], axis=-1)


def check_chance(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {value!r}.")
    return float(value)


def _beta_quantile(a: FloatArray, b: FloatArray, tail: float) -> FloatArray:
    """The number (...) below which Beta(a, b) has the probability `tail`."""
    special = scipy_special()
    found = np.asarray(special.betaincinv(a, b, tail))
    # SciPy 1.17 is wrong for Beta(1000, 1e9), among others: there, bisect what it inverts.
    wrong = ~(np.abs(special.betainc(a, b, found) / tail - 1.0) < 1e-4)
    low, high = np.zeros_like(a), np.ones_like(a)
    for _ in range(100 if wrong.any() else 0):
        middle = 0.5 * (low + high)
        below = special.betainc(a, b, middle) < tail
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(wrong, low, found)
