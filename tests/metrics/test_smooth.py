"""Smooth ECE: the integral, the fixed point, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical.metrics import smooth_ece
from tests.conftest import max_examples

from . import twins


@max_examples(25)
@given(twins.rows, st.floats(0.004, 2.0))
def test_given_bandwidth_is_the_integral(data: list, bandwidth: float) -> None:
    confidence, correct, weight = twins.unpack(data)
    found = smooth_ece(confidence, correct, bandwidth=bandwidth, sample_weight=weight)
    slow = twins.smooth_size(
        np.repeat(confidence, weight), np.repeat(correct, weight), bandwidth
    )
    assert found == pytest.approx(slow, rel=2e-4, abs=1e-9)


@given(twins.rows)
def test_own_bandwidth_is_a_fixed_point(data: list) -> None:
    confidence, correct, weight = twins.unpack(data)
    error = smooth_ece(confidence, correct, sample_weight=weight)
    assert 0.0 <= error <= 1.0
    if error > 1e-3:
        again = smooth_ece(confidence, correct, bandwidth=error, sample_weight=weight)
        assert again == pytest.approx(error, rel=1e-3)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("n", "power"), [(300, 1.5), (300, 1.0), (1000, 0.7)])
def test_fixed_point_of_the_slow_integral(n: int, power: float) -> None:
    confidence, correct = twins.model(n, seed=6, power=power)
    error = smooth_ece(confidence, correct)
    assert twins.smooth_size(confidence, correct, error) == pytest.approx(
        error, rel=2e-5
    )


@given(twins.rows)
def test_weight_two_is_the_row_twice(data: list) -> None:
    confidence, correct, weight = twins.unpack(data)
    long = smooth_ece(np.repeat(confidence, weight), np.repeat(correct, weight))
    assert smooth_ece(confidence, correct, sample_weight=weight) == pytest.approx(
        long, abs=1e-11
    )


@given(twins.rows, st.floats(0.0, 1e-3))
def test_it_is_continuous_in_the_confidence(data: list, step: float) -> None:
    """Moving every confidence by at most `step` moves it by about as much; ECE would
    jump.
    """
    confidence, correct, _ = twins.unpack(data)
    moved = np.clip(confidence + step, 0.0, 1.0)
    assert (
        abs(smooth_ece(moved, correct) - smooth_ece(confidence, correct))
        <= 2.5 * step + 1e-5
    )


def test_values_known_by_hand() -> None:
    assert smooth_ece([0.0, 1.0], [False, True]) == 0.0
    # One sign everywhere: smoothing cancels nothing, so it is the mean residual.
    assert smooth_ece([0.9, 0.4], [False, False]) == pytest.approx(0.65, rel=1e-12)
    assert smooth_ece([1e-6] * 5, [False] * 5) == pytest.approx(1e-6, rel=1e-9)
    # A bandwidth beyond all confidences leaves the mean.
    assert smooth_ece([0.9, 0.4], [True, False], bandwidth=50.0) == pytest.approx(0.15)


def test_it_is_no_smaller_than_the_mean_gap() -> None:
    confidence, correct = twins.model(5000, seed=7)
    assert smooth_ece(confidence, correct) >= abs((correct - confidence).mean())


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_bandwidth_is_named(bandwidth: float) -> None:
    with pytest.raises(
        ValueError, match="`bandwidth` must be a finite number above 0; got"
    ):
        smooth_ece([0.5], [True], bandwidth=bandwidth)
