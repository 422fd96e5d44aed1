"""Binomial and chi-square tests, and exact confidence intervals, by SciPy's special functions."""

from numbers import Real
from typing import Any

import numpy as np

from hokical._core.types import FloatArray, IntArray

#: Below this probability SciPy's quantiles of a Beta distribution lose digits.
_LEAST_DELTA = 1e-100


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


def binomial_tail(hits: Any, trials: Any, share: float) -> FloatArray:
    """P(Binomial(trials, share) <= hits): the p-value of "the true share is at least `share`".

    >>> float(binomial_tail(0, 2, 0.5).round(12))
    0.25
    """
    hits, trials = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    all_hit = hits >= trials  # includes no trials at all
    tail = scipy_special().betainc(np.where(all_hit, 1.0, trials - hits), hits + 1.0, 1.0 - share)
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
    found, all_of = np.broadcast_arrays(np.asarray(hits, float), np.asarray(trials, float))
    if not ((found >= 0.0) & (found <= all_of)).all():
        raise ValueError(
            f"`hits` must lie between 0 and `trials`; got {hits!r} of {trials!r}. Pass counts, "
            "not rates."
        )
    counts = np.stack([found, all_of - found])
    # The upper end is a lower tail too, of the misses: so it is right for the smallest `delta`.
    ends = beta_quantile(np.where(counts > 0.0, counts, 1.0), counts[::-1] + 1.0, 0.5 * delta)
    low, missed = np.where(counts > 0.0, ends, 0.0)
    return np.stack([low, 1.0 - missed], axis=-1)


def check_chance(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {value!r}.")
    return float(value)


def beta_quantile(a: Any, b: Any, tail: float) -> FloatArray:
    """The number (...) below which Beta(a, b) has the probability `tail`."""
    special = scipy_special()
    found = np.asarray(special.betaincinv(a, b, tail))
    # SciPy 1.17 is wrong for Beta(1000, 1e9), among others: there, bisect what it inverts.
    wrong = ~(np.abs(special.betainc(a, b, found) / tail - 1.0) < 1e-4)
    low, high = np.zeros(found.shape), np.ones(found.shape)
    for _ in range(100 if wrong.any() else 0):
        middle = 0.5 * (low + high)
        below = special.betainc(a, b, middle) < tail
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(wrong, low, found)


def chi_square_tail(freedom: int, statistic: float) -> float:
    """The probability that a chi-square variable of `freedom` degrees exceeds the statistic.

    >>> round(chi_square_tail(1, 3.841), 3), round(chi_square_tail(2, 5.991), 3)
    (0.05, 0.05)
    """
    return float(scipy_special().chdtrc(freedom, statistic))


def merge_cells(expected: FloatArray, least: float) -> IntArray:
    """Groups (cells,) of neighbouring cells that each expect at least so many examples.

    >>> merge_cells(np.array([3.0, 3.0, 9.0, 2.0, 1.0]), 5.0)
    array([0, 0, 1, 1, 1])
    """
    group = np.zeros(expected.shape[0], dtype=np.int64)
    cell, held = 0, 0.0
    for place, weight in enumerate(expected):
        group[place], held = cell, held + weight
        if held >= least:
            cell, held = cell + 1, 0.0
    if held < least and cell > 0:  # too few are left over: they join the last full cell
        group[group == cell] = cell - 1
    return group
