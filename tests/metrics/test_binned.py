"""Binned calibration errors: against exact fractions, under merging, weights and
permutation.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical._core.checks import bin_index
from hokical.metrics import brier, debiased_ece, ece
from hokical.metrics.calibration import class_gaps
from hokical.metrics.levels import Predictions
from hokical.plots import reliability

from . import twins


@given(twins.rows, st.integers(1, 20), st.sampled_from([1, 1.5, 2, 3, math.inf]))
def test_equal_width_is_the_fraction(data: list, n_bins: int, norm: float) -> None:
    confidence, correct, _ = twins.unpack(data)
    bins = [twins.width_bin(c, n_bins) for c in confidence]
    expected = twins.ece(confidence, correct, bins, norm)
    assert ece(confidence, correct, n_bins=n_bins, norm=norm) == pytest.approx(
        expected, rel=1e-13, abs=1e-16
    )


@given(twins.rows, st.integers(1, 20), st.sampled_from([1, 2, math.inf]))
def test_equal_mass_is_the_fraction(data: list, n_bins: int, norm: float) -> None:
    confidence, correct, _ = twins.unpack(data)
    expected = twins.ece(confidence, correct, twins.mass_bin(confidence, n_bins), norm)
    found = ece(confidence, correct, n_bins=n_bins, bins="mass", norm=norm)
    assert found == pytest.approx(expected, rel=1e-13, abs=1e-16)


def test_equal_mass_bins_hold_equal_mass() -> None:
    confidence, correct = twins.model(1007, seed=0)
    count = reliability(confidence, correct, n_bins=10, bins="mass").count
    assert count.sum() == 1007
    assert set(count) <= {100, 101}


def test_equal_mass_keeps_a_crowd_apart() -> None:
    confidence = np.array([0.3, 0.5] + [1.0] * 48)
    assert reliability(confidence, confidence > 0.4, bins="mass").count.tolist() == [
        2,
        48,
    ]


@given(twins.rows, st.integers(1, 20), st.sampled_from(["width", "mass"]))
def test_weight_two_is_the_row_twice(data: list, n_bins: int, bins: str) -> None:
    confidence, correct, weight = twins.unpack(data)
    twice = (np.repeat(confidence, weight), np.repeat(correct, weight))
    for metric in (ece, debiased_ece):
        weighted = metric(
            confidence, correct, n_bins=n_bins, bins=bins, sample_weight=weight
        )
        assert weighted == metric(*twice, n_bins=n_bins, bins=bins)
    assert brier(confidence, correct, sample_weight=weight) == brier(*twice)


def test_certain_and_right_is_perfect_and_certain_and_wrong_is_the_worst() -> None:
    ends = np.array([0.0, 1.0])
    for bins in ("width", "mass"):
        for norm in (1, 2, math.inf):
            assert ece(ends, ends == 1.0, bins=bins, norm=norm) == 0.0
            assert ece(ends, ends == 0.0, bins=bins, norm=norm) == 1.0


@given(twins.rows, st.integers(1, 20))
def test_norms_are_ordered(data: list, n_bins: int) -> None:
    confidence, correct, weight = twins.unpack(data)
    errors = [
        ece(confidence, correct, n_bins=n_bins, norm=p, sample_weight=weight)
        for p in (1, 2, 7.5, math.inf)
    ]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(errors))
    assert 0.0 <= errors[0] <= errors[-1] <= 1.0


def test_tiny_gaps_do_not_underflow() -> None:
    assert ece([1e-200], [False], norm=2) == pytest.approx(1e-200)
    assert ece([1e-12], [False], norm=50) == pytest.approx(1e-12, rel=1e-4)


def test_debiasing_removes_the_bias() -> None:
    """500 perfect data sets: the plug-in square is far above 0, the debiased one at
    0.
    """
    rng = np.random.default_rng(3)
    level = np.array([0.2, 0.5, 0.7, 0.9])  # one value per bin, as Kumar et al. assume
    plain, debiased = [], []
    for _ in range(500):
        confidence = rng.choice(level, size=200)
        correct = rng.uniform(size=200) < confidence
        plain.append(ece(confidence, correct, norm=2, n_bins=10) ** 2)
        debiased.append(debiased_ece(confidence, correct, n_bins=10, squared=True))
    error = np.std(debiased) / np.sqrt(500)
    assert abs(np.mean(debiased)) < 4 * error
    assert np.mean(plain) > 10 * error


def test_debiasing_formula_and_its_corner_cases() -> None:
    # One bin of four: gap 0.9 - 0.75, accuracy 3/4; and a lone example, which adds
    # nothing.
    confidence, correct = [0.9] * 4 + [0.1], [True, True, True, False, True]
    square = 4 / 5 * (0.15**2 - 0.75 * 0.25 / 3)
    assert debiased_ece(confidence, correct, squared=True) == pytest.approx(square)
    assert debiased_ece(confidence, correct) == 0.0
    assert debiased_ece([0.1], [True]) == 0.0


@pytest.mark.parametrize("n_bins", [1, 4, 15])
@pytest.mark.parametrize("n_classes", [2, 40])
def test_gaps_of_classes_are_sums_over_all_probabilities(
    n_classes: int, n_bins: int
) -> None:
    rng = np.random.default_rng(n_bins)
    proba = rng.dirichlet(np.full(n_classes, 0.2), 300)
    proba[0] = np.eye(n_classes)[1]
    proba[1] = 1.0 / n_classes
    labels = rng.integers(0, n_classes, 300)
    weight = rng.random(300)
    expected = np.zeros((n_classes, n_bins))
    for p, label, w in zip(proba, labels, weight, strict=True):
        for k, bin_of_class in enumerate(bin_index(p, n_bins)):
            expected[k, bin_of_class] += w * ((k == label) - p[k])
    for dtype in (np.float64, np.float32):
        rows = Predictions(proba.astype(dtype), labels, weight)
        tolerance = 1e-12 if dtype is np.float64 else 1e-5
        np.testing.assert_allclose(class_gaps(rows, n_bins), expected, atol=tolerance)
