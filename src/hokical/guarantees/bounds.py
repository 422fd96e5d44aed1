"""Upper bounds on the true calibration error from a held-out test set.

CE = sum_j |E[D 1_j]| with D = 1{correct} - confidence and 1_j = "the confidence lies in
bin j"; the measured ECE replaces expectations by means over N test examples.
`docs/theory.md` derives each bound; the tests check their coverage by simulation.

Binomial and chi-square tests, and exact confidence intervals, by SciPy's special
functions.
"""

import math
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import as_number, check_bins, check_choice, check_count, show
from hokical._core.reading import refuse, to_floats


def scipy_special() -> Any:
    """SciPy's special functions, which new guarantees need and predictions do not."""
    try:
        import scipy.special
    except ImportError as error:
        raise ImportError(
            "a new guarantee needs SciPy. Install it: pip install scipy."
        ) from error
    return scipy.special


def binomial_tail(hits: Any, trials: Any, share: float) -> FloatArray:
    """P(Binomial(trials, share) <= hits): the p-value of "the true share is at least
    `share`".

    >>> float(binomial_tail(0, 2, 0.5).round(12))
    0.25
    """
    hits = np.asarray(hits, np.float64)
    trials = np.asarray(trials, np.float64)
    all_hit = hits >= trials  # includes no trials at all
    tail = scipy_special().betainc(
        np.where(all_hit, 1.0, trials - hits), hits + 1.0, 1.0 - share
    )
    return np.asarray(np.where(all_hit, 1.0, tail))


def clopper_pearson(hits: Any, trials: Any, *, delta: float = 0.05) -> FloatArray:
    """Exact confidence intervals (..., 2) for the share behind `hits` of `trials`, 0 <=
    hits <= trials.

    Whatever the true share is, the interval misses it with probability at most `delta`,
    at most half of that on either side. No trials give [0, 1].

    >>> clopper_pearson(9, 10).round(4)
    array([0.555 , 0.9975])
    """
    # Where SciPy's quantiles of a Beta lose digits.
    if check_chance("delta", delta) < 1e-100:
        raise ValueError(f"`delta` must be at least 1e-100 here; got {delta!r}.")
    n_hits, n_trials = np.broadcast_arrays(
        to_floats(hits, "hits", "biuf"), to_floats(trials, "trials", "biuf")
    )
    if not ((n_hits >= 0.0) & (n_hits <= n_trials)).all():
        raise ValueError(
            f"`hits` must be counts from 0 to `trials`; got {hits!r} of {trials!r}."
        )
    counts = np.stack([n_hits, n_trials - n_hits])
    # The upper end is a lower tail too, of the misses: so it is right for the smallest
    # `delta`.
    quantiles = beta_quantile(
        np.where(counts > 0.0, counts, 1.0), counts[::-1] + 1.0, 0.5 * delta
    )
    low, missed = np.where(counts > 0.0, quantiles, 0.0)
    # SciPy 1.13 rounds its quantiles so that the share can come out outside.
    share = n_hits / np.where(n_trials > 0.0, n_trials, 1.0)
    return np.stack([np.minimum(low, share), np.maximum(1.0 - missed, share)], axis=-1)


def check_chance(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = as_number(value)
    if not 0.0 < number < 1.0:
        percent = 1.0 < number < 100.0
        remedy = f" For {value} % give {number / 100:g}." if percent else ""
        raise ValueError(
            f"`{name}` must lie strictly between 0 and 1; got {show(value)}.{remedy}"
        )
    return number


def check_probabilities(name: str, values: Any, source: str) -> FloatArray:
    """The values as float64 (m,), each in [0, 1]; an error names their `source`."""
    checked = to_floats(values, name, "biuf")
    if checked.ndim != 1 or not checked.size:
        raise ValueError(
            f"`{name}` must be (m,) numbers; got shape {checked.shape}. Use {source}."
        )
    outside = ~((checked >= 0.0) & (checked <= 1.0))
    refuse(outside, checked, f"`{name}` must lie in [0, 1]", f"Use {source}.")
    return checked


def beta_quantile(a: Any, b: Any, tail: float) -> FloatArray:
    """The number (...) below which Beta(a, b) has the probability `tail`."""
    special = scipy_special()
    quantiles = np.asarray(special.betaincinv(a, b, tail))
    # SciPy 1.17 is wrong for Beta(1000, 1e9), among others: there, bisect what it
    # inverts.
    wrong = ~(np.abs(special.betainc(a, b, quantiles) / tail - 1.0) < 1e-4)
    low = np.zeros(quantiles.shape)
    high = np.ones(quantiles.shape)
    for _ in range(100 if wrong.any() else 0):
        middle = 0.5 * (low + high)
        below = special.betainc(a, b, middle) < tail
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return np.where(wrong, low, quantiles)


def chi_square_tail(freedom: int, statistic: float) -> float:
    """The probability that a chi-square variable of `freedom` degrees exceeds the
    statistic.

    >>> round(chi_square_tail(1, 3.841), 3), round(chi_square_tail(2, 5.991), 3)
    (0.05, 0.05)
    """
    return float(scipy_special().chdtrc(freedom, statistic))


def merge_cells(expected: FloatArray, least: float) -> IntArray:
    """Groups (cells,) of neighbouring cells that each expect at least `least` examples.

    >>> merge_cells(np.array([3.0, 3.0, 9.0, 2.0, 1.0]), 5.0)
    array([0, 0, 1, 1, 1])
    """
    group = np.zeros(expected.shape[0], dtype=np.int64)
    cell = 0
    n_expected = 0.0
    for index, weight in enumerate(expected):
        group[index] = cell
        n_expected = n_expected + weight
        if n_expected >= least:
            cell = cell + 1
            n_expected = 0.0
    # Too few are left over: they join the last full cell.
    if n_expected < least and cell > 0:
        group[group == cell] = cell - 1
    return group


Method = Literal["mcdiarmid", "bousquet", "union", "paper"]


def calibration_bound(
    ece: float,
    n: int,
    n_bins: int = 15,
    delta: float = 0.05,
    *,
    method: Method = "mcdiarmid",
    brier: float | None = None,
) -> float:
    """An upper bound on the true calibration error that holds with probability 1 -
    delta.

    `ece` is the equal-width ECE over `n_bins` bins J, measured on `n` test examples N
    that were not used to fit anything; `delta` is the probability, over test sets, that
    the bound fails; `brier`, the mean of (1{correct} - confidence)^2 on the same
    examples, uses part of it. No bound exceeds 1, as no calibration error does. The
    `method` is one of

    - "mcdiarmid": ECE + sqrt(J/N) + sqrt(2 ln(1/delta)/N); with `brier` the first root
      shrinks to sqrt(J brier/N).
    - "bousquet": needs `brier`; the deviation term shrinks with it too. The tightest.
    - "union": Hoeffding in every bin and a union over the bins.
    - "paper": the paper's Theorem 2 as published. Its proof has gaps (a factor of J in the union
      over bins, and the range in Hoeffding's inequality), but for up to 116 bins it
      follows from "union", which is smaller there; beyond, nothing proves it.

    >>> round(calibration_bound(0.01, 10_000), 4)
    0.0732
    >>> round(calibration_bound(0.01, 10_000, method="bousquet", brier=0.05), 4)
    0.0271
    """
    for name, value in (("ece", ece), ("brier", 0.0 if brier is None else brier)):
        if not 0.0 <= as_number(value) <= 1.0:
            raise ValueError(f"`{name}` must lie in [0, 1]; got {show(value)}.")
    n = check_count("n", n)
    n_bins = check_bins(n_bins)
    delta = check_chance("delta", delta)
    check_choice("method", method, Method)
    if brier is not None and method in ("union", "paper"):
        raise ValueError(f'`brier` cannot be used by method="{method}"; leave it out.')
    if brier is None and method == "bousquet":
        raise ValueError(
            '`method="bousquet"` needs `brier`, the top-label Brier score; got None. '
            'Pass it, or use `method="mcdiarmid"`.'
        )
    mean_square = 1.0
    bound_delta = delta
    if brier is not None:  # a tenth of delta is spent on bounding the true Brier score
        mean_square = brier_upper_bound(brier, n, 0.1 * delta)
        bound_delta = 0.9 * delta
    expected = math.sqrt(n_bins * mean_square / n)
    log_term = math.log(1.0 / bound_delta)
    if method == "union":
        far = (n_bins + 1) * math.sqrt(math.log(2.0 * n_bins / delta) / (2.0 * n))
    elif method == "paper":
        far = (
            n_bins
            * math.sqrt(2.0 / n)
            * math.sqrt(2.0 * math.log(2.0) - math.log(delta))
        )
    elif method == "mcdiarmid":
        far = expected + math.sqrt(2.0 * log_term / n)
    else:
        reach = 2.0  # |f - E f| for the functions f = sum_j +-D 1_j in [-1, 1]
        spread = math.sqrt(2.0 * log_term * (mean_square + 2.0 * reach * expected) / n)
        far = expected + spread + reach * log_term / (3.0 * n)
    return min(1.0, float(ece) + far)


def brier_upper_bound(brier: float, n: int, delta: float) -> float:
    """True mean squared error bounded with probability 1 - delta (Chernoff, by
    inverting KL).
    """
    budget = -math.log(delta) / n
    low = float(brier)
    high = 1.0
    while low < (middle := 0.5 * (low + high)) < high:
        divergence = (1.0 - brier) * math.log((1.0 - brier) / (1.0 - middle))
        divergence += brier * math.log(brier / middle) if brier > 0.0 else 0.0
        low, high = (middle, high) if divergence <= budget else (low, middle)
    return high
