"""Curves that never fall, from counts of any size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from hokical.rules.confidence import _make_rising


@pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
def test_it_is_the_isotonic_regression(spread: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.random(12)
    counts = spread ** rng.random(12)
    expected = isotonic_regression(values, weights=counts).x
    np.testing.assert_allclose(_make_rising(values, counts), expected, atol=1e-9)


@pytest.mark.parametrize("spread", [1e17, 1e200])
def test_counts_far_apart_lose_no_value(spread: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.random(12)
    rising = _make_rising(values, spread ** rng.random(12))
    assert (np.diff(rising) >= 0.0).all()
    assert values.min() <= rising[0] <= rising[-1] <= values.max()
