"""Upper bounds on the true calibration error from a held-out test set.

CE = sum_j |E[D 1_j]| with D = 1{correct} - confidence and 1_j = "the confidence lies in bin j";
the measured ECE replaces expectations by means over N test examples. `docs/theory.md` derives each
bound; the tests check their coverage by simulation.
"""

import math
from numbers import Real
from typing import Literal

from hokical._core.bins import check_choice, check_count
from hokical.guarantees._binomial import check_chance

Method = Literal["mcdiarmid", "bousquet", "union", "paper"]

#: The part of delta spent on bounding the true Brier score, where a measured one is given.
_BRIER_SHARE = 0.1


def calibration_bound(
    ece: float,
    n: int,
    n_bins: int = 15,
    delta: float = 0.05,
    *,
    method: Method = "mcdiarmid",
    brier: float | None = None,
) -> float:
    """An upper bound on the true calibration error that holds with probability 1 - delta.

    `ece` is the equal-width ECE over `n_bins` bins J, measured on `n` test examples N that were not
    used to fit anything; `delta` is the probability, over test sets, that the bound fails; `brier`,
    the mean of (1{correct} - confidence)^2 on the same examples, uses part of it. No bound exceeds
    1, as no calibration error does. The `method` is one of

    - "mcdiarmid": ECE + sqrt(J/N) + sqrt(2 ln(1/delta)/N); with `brier` the first root
      shrinks to sqrt(J brier/N).
    - "bousquet": needs `brier`; the deviation term shrinks with it too. The tightest.
    - "union": Hoeffding in every bin and a union over the bins.
    - "paper": Theorem 2 as published. Its proof has gaps (a factor of J in the union over bins,
      and the range in Hoeffding's inequality), but for up to 116 bins it follows from "union",
      which is smaller there; beyond, nothing proves it.

    >>> round(calibration_bound(0.01, 10_000), 4)
    0.0732
    >>> round(calibration_bound(0.01, 10_000, method="bousquet", brier=0.05), 4)
    0.0271
    """
    for name, value in (("ece", ece), ("brier", 0.0 if brier is None else brier)):
        if not isinstance(value, Real) or not 0.0 <= value <= 1.0:
            raise ValueError(f"`{name}` must lie in [0, 1]; got {value!r}.")
    n, n_bins, delta = check_count(n, name="n"), check_count(n_bins), check_chance("delta", delta)
    check_choice("method", method, Method)
    if brier is not None and method in ("union", "paper"):
        raise ValueError(f'`brier` cannot be used by method="{method}"; leave it out.')
    if brier is None and method == "bousquet":
        raise ValueError(
            '`method="bousquet"` needs `brier`, the top-label Brier score; got None. Pass it, or '
            'use `method="mcdiarmid"`.'
        )
    return min(1.0, float(ece) + _deviation(method, int(n), n_bins, delta, brier))


def brier_upper_bound(brier: float, n: int, delta: float) -> float:
    """True mean squared error bounded with probability 1 - delta (Chernoff, by inverting KL)."""
    budget = -math.log(delta) / n
    low, high = float(brier), 1.0
    while low < (middle := 0.5 * (low + high)) < high:
        divergence = (1.0 - brier) * math.log((1.0 - brier) / (1.0 - middle))
        divergence += brier * math.log(brier / middle) if brier > 0.0 else 0.0
        low, high = (middle, high) if divergence <= budget else (low, middle)
    return high


def _deviation(method: Method, n: int, n_bins: int, delta: float, brier: float | None) -> float:
    """How far the true error may lie above the measured one."""
    if method == "union":
        return (n_bins + 1) * math.sqrt(math.log(2.0 * n_bins / delta) / (2.0 * n))
    if method == "paper":
        return n_bins * math.sqrt(2.0 / n) * math.sqrt(2.0 * math.log(2.0) - math.log(delta))
    mean_square, rest = 1.0, delta
    if brier is not None:
        mean_square = brier_upper_bound(brier, n, _BRIER_SHARE * delta)
        rest = (1.0 - _BRIER_SHARE) * delta
    expected = math.sqrt(n_bins * mean_square / n)
    log_term = math.log(1.0 / rest)
    if method == "mcdiarmid":
        return expected + math.sqrt(2.0 * log_term / n)
    reach = 2.0  # |f - E f| for the functions f = sum_j +-D 1_j in [-1, 1]
    spread = math.sqrt(2.0 * log_term * (mean_square + 2.0 * reach * expected) / n)
    return expected + spread + reach * log_term / (3.0 * n)
