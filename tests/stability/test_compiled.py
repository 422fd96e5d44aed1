"""Every compiled form against its portable twin, and what it may do with a buffer
that changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial.chebyshev import chebval, chebvander
from numpy.polynomial.polynomial import polyval

from hokical._core import runtime
from hokical._core.special import contract
from hokical.rules import Logits, as_logits
from hokical.stability import Gaussian, Uniform, gaussian, sampled, uniform
from hokical.stability.sampled import Draws
from hokical.stability.tables import POWER_RANGES, series_to_powers
from tests.conftest import max_examples, random_rows

pytest.importorskip("numba")

CLASSES = st.sampled_from([2, 3, 5, 17, 40, 100, 1000])
WIDTHS = st.sampled_from([0.05, 0.3, 1.0, 2.0, 7.0, 50.0])
SPREADS = st.sampled_from([1e-3, 0.1, 1.0, 5.0, 100.0, 1e4])
SEEDS = st.integers(0, 10**6)


def rows(c: int, spread: float, seed: int, dtype: str = "float64") -> Logits:
    """With an impossible class, and one alone."""
    values = random_rows(c, spread, seed, n=8).values.astype(dtype)
    values[2, -1] = -np.inf
    values[3, 1:] = -np.inf
    return as_logits(values)


@pytest.fixture(autouse=True)
def _always_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW_CLASSES", 1)


@given(
    CLASSES, WIDTHS, SPREADS, SEEDS, st.sampled_from(["float16", "float32", "float64"])
)
def test_gaussian(c: int, width: float, spread: float, seed: int, dtype: str) -> None:
    logits = rows(c, min(spread, 1e3), seed, dtype)
    slow, fast = (
        find(logits, 0.2 / width)
        for find in (gaussian.portable_moments, gaussian.chebyshev_moments)
    )
    np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-10)


@given(st.sampled_from([2, 3, 5, 17, 60, 90]), WIDTHS, SPREADS, SEEDS)
def test_uniform(c: int, width: float, spread: float, seed: int) -> None:
    logits = rows(c, spread, seed)
    slow, fast = (
        uniform.portable_stability(logits, width),
        uniform.stability(logits, width),
    )
    np.testing.assert_allclose(fast, slow, atol=1e-6 if c > 60 else 1e-7)
    slow, fast = (
        uniform.portable_distribution(logits, width),
        uniform.distribution(logits, width),
    )
    np.testing.assert_allclose(fast, slow, atol=2e-6)


@pytest.mark.slow
@given(
    st.sampled_from([2, 3, 23]),
    WIDTHS,
    SEEDS,
    st.sampled_from(["float16", "float32", "f8"]),
)
@max_examples(20)
def test_counts_are_the_same(c: int, width: float, seed: int, dtype: str) -> None:
    logits, draws = rows(c, 3.0, seed, dtype), Draws(Gaussian(width), seed, 150, c)
    expected = sampled.portable_survivals(logits, draws)
    np.testing.assert_array_equal(sampled.compiled_survivals(logits, draws), expected)


def test_an_exact_tie_after_noise_goes_to_the_first_class() -> None:
    """Coarse noise makes ties common: both counters must treat them as argmax does."""

    class Coarse(Uniform):
        def from_uniform(self, values: np.ndarray) -> np.ndarray:
            return np.floor(3.0 * values)

    logits = as_logits(
        np.random.default_rng(0).integers(0, 3, size=(80, 6)).astype(np.float32)
    )
    draws = Draws(Coarse(0, 1), 0, 130, 6)
    expected = sampled.portable_survivals(logits, draws)
    assert 0 < expected.min() < expected.max() < 130
    np.testing.assert_array_equal(sampled.compiled_survivals(logits, draws), expected)


@given(
    CLASSES,
    st.sampled_from([0.3, 4.0, 12.0]),
    SEEDS,
    st.sampled_from(["float32", "float64"]),
)
def test_probabilities_of_every_class(
    c: int, spread: float, seed: int, dtype: str
) -> None:
    logits = rows(c, spread, seed, dtype)
    falling = np.exp(-np.arange(25.0))
    series = np.random.default_rng(seed).normal(size=(logits.n_rows, 25)) * falling
    series[:, :2] -= [14.0, 4.0]  # logarithms of probabilities
    powers = series @ series_to_powers()
    fast = gaussian.probabilities_from_powers(logits, 0.7, powers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "FEW_CLASSES", c)
        slow = gaussian.probabilities_from_powers(logits, 0.7, powers)
    np.testing.assert_allclose(fast, slow, rtol=1e-11, atol=1e-250)
    assert (fast[logits.values == -np.inf] == 0.0).all()


@given(st.integers(1, 40), SEEDS)
@max_examples(20)
def test_lanes_sum_as_a_plain_product_does(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, given_rows = rng.normal(size=(25, 31)), rng.normal(size=(n, 25))
    found = gaussian.contract_in_lanes(given_rows, table, np)
    np.testing.assert_allclose(found, contract(given_rows, table, np), atol=1e-12)


def test_powers_are_those_of_the_series() -> None:
    series, t = np.random.default_rng(0).normal(size=25), np.linspace(-1.0, 1.0, 50)
    powers, basis = series @ series_to_powers(), chebvander(t, 4)
    found = sum(
        basis[:, j] * polyval(basis[:, 4], powers[slice(*part)])
        for j, part in enumerate(POWER_RANGES)
    )
    np.testing.assert_allclose(found, chebval(t, series), atol=1e-12)


@pytest.mark.slow
def test_a_buffer_that_changes_meanwhile_writes_nowhere_else(tmp_path: Path) -> None:
    """Row maxima of other numbers: margins are negative, or infinite."""
    script = """
import numpy as np
from hokical.rules import Logits
from hokical.stability import uniform
from hokical.stability.kernels import count_survivals, TILE
block = np.random.default_rng(0).normal(size=(50, 40))
for top in (-1e300, -5.0, 0.0, 1e300, np.nan, -np.inf, np.inf):
    logits = Logits(block, np.full(50, top))
    assert uniform.stability(logits, 0.5).shape == (50,)
    assert uniform.distribution(logits, 0.5).shape == (50, 40)
block[:] = np.nan
uniform.stability(Logits(block, np.zeros(50)), 0.5)
counts = np.empty(50, np.int64)
block[:] = -np.inf
tiles = np.zeros((1, 40, TILE))
count_survivals(block, np.zeros(50, np.int64), tiles, 9, np.zeros((2, 40)), counts)
assert ((counts >= 0) & (counts <= 9)).all()
"""
    # A cache of its own: whether indices are checked is no part of its key.
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_importing_compiles_nothing() -> None:
    script = (
        "import sys, hokical.stability; print([m for m in sys.modules if m in "
        "{'numba', 'scipy'}])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert found.stdout.strip() == "[]"
