"""Exact binomial tests and confidence intervals."""

from numbers import Real
from typing import Any

import numpy as np

from hokical.core.types import FloatArray


def chance_of_so_few(hits: Any, trials: Any, share: float) -> FloatArray:
    """P(Binomial(trials, share) <= hits): the p-value of "the true share is at least `share`".

    >>> float(chance_of_so_few(0, 2, 0.5))
    0.25
    """
    from scipy.special import betainc

    hits, trials = np.broadcast_arrays(np.asarray(hits, np.float64), np.asarray(trials, np.float64))
    all_hit = hits >= trials  # includes no trials at all
    misses = np.where(all_hit, 1.0, trials - hits)
    return np.where(all_hit, 1.0, betainc(misses, hits + 1.0, 1.0 - share))


def clopper_pearson(hits: Any, trials: Any, *, delta: float = 0.05) -> FloatArray:
    """Exact confidence intervals (..., 2) for the share behind `hits` of `trials`, 0 <= hits <=
    trials.

    Whatever the true share is, the interval misses it with probability at most `delta`, at most
    half of that on either side. No trials give [0, 1].

    >>> clopper_pearson(9, 10).round(4)
    array([0.555 , 0.9975])
    """
    from scipy.special import betaincinv

    tail = 0.5 * check_chance("delta", delta)
    found, all_of = np.broadcast_arrays(
        np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    )
    if not ((found >= 0.0) & (found <= all_of)).all():
        raise ValueError(
            f"`hits` must lie between 0 and `trials`; got {hits!r} of {trials!r}. Pass counts, "
            "not rates."
        )
    missed = all_of - found
    low = betaincinv(np.maximum(found, 1.0), missed + 1.0, tail)
    high = betaincinv(found + 1.0, np.maximum(missed, 1.0), 1.0 - tail)
    ends = [np.where(found > 0.0, low, 0.0), np.where(missed > 0.0, high, 1.0)]
    return np.stack(ends, axis=-1)


def check_chance(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {value!r}.")
    return float(value)
