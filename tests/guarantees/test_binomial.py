"""Binomial tails and Clopper-Pearson ends, against exact sums and SciPy."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaincinv

from hokical.guarantees import clopper_pearson

TINY = (1e-3, 1e-12, 1e-50, 1e-100)


def exact_tail(hits: int, trials: int, share: Fraction) -> Fraction:
    """P(Binomial <= hits) in rational numbers."""
    top, whole = share.numerator, share.denominator
    terms = (
        comb(trials, k) * top**k * (whole - top) ** (trials - k)
        for k in range(hits + 1)
    )
    return Fraction(sum(terms), whole**trials)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(1e-8, 0.99))
def test_intervals_are_scipys(a: int, b: int, delta: float) -> None:
    hits, trials = min(a, b), max(a, b)
    low, high = clopper_pearson(hits, trials, delta=delta)
    if hits:
        expected = betaincinv(hits, trials - hits + 1, delta / 2)
        assert low == pytest.approx(expected, rel=1e-9)
    if hits < trials:
        missed = betaincinv(trials - hits, hits + 1, delta / 2)
        assert high == pytest.approx(1.0 - missed, rel=1e-9)


@pytest.mark.parametrize("delta", TINY)
@pytest.mark.parametrize(
    ("hits", "trials"), [(1, 1), (2, 2), (20, 30), (1, 60), (59, 60)]
)
def test_a_tiny_delta_is_exact(hits: int, trials: int, delta: float) -> None:
    """An upper tail of 1 - delta/2 would round to 1."""
    low, _ = clopper_pearson(hits, trials, delta=delta)
    _, mirrored = clopper_pearson(trials - hits, trials, delta=delta)
    # So many hits or more are so many misses or fewer, of a share that rounding does
    # not touch.
    tail = exact_tail(trials - hits, trials, 1 - Fraction(float(low)))
    assert float(tail / Fraction(delta)) == pytest.approx(0.5, rel=1e-10)
    assert mirrored == pytest.approx(1.0 - low, rel=1e-15)


@pytest.mark.slow
def test_intervals_shrink_with_delta_and_hold_the_share() -> None:
    trials = np.array([1.0, 2.0, 10.0, 1e3, 1e6, 1e9, 1e15])[:, None]
    hits = np.floor(trials * np.array([0.0, 1e-6, 0.1, 0.5, 0.9, 1.0]))
    deltas = [0.99, 0.05, *TINY]
    found = np.array([clopper_pearson(hits, trials, delta=delta) for delta in deltas])
    low, high = np.moveaxis(found, -1, 0)
    assert np.isfinite(found).all()
    assert (
        (low >= 0.0) & (low <= hits / trials) & (hits / trials <= high) & (high <= 1.0)
    ).all()
    assert (np.diff(low, axis=0) <= 0.0).all()  # the smaller delta, the wider
    assert (np.diff(high, axis=0) >= 0.0).all()


def test_fractions_of_hits_are_taken_as_they_are() -> None:
    """Weighted examples of a monitor's reference count so."""
    found = clopper_pearson([2.5, 7.25], 10.0, delta=0.1)
    expected = [
        betaincinv([2.5, 7.25], [8.5, 3.75], 0.05),
        betaincinv([3.5, 8.25], [7.5, 2.75], 0.95),
    ]
    np.testing.assert_allclose(found, np.transpose(expected), rtol=1e-12)


def test_equal_counts_get_equal_bits_wherever_they_stand() -> None:
    assert (clopper_pearson([3, 9], [40, 9])[0] == clopper_pearson(3, 40)).all()
