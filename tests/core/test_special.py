"""Functions that the array API lacks, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev
from scipy import special as scipy_special

from hokical._core import special
from tests.libraries import NAMES, get_library

WIDE = np.concatenate(
    [-np.geomspace(1e-9, 1e4, 3000), [0.0], np.geomspace(1e-9, 37.0, 3000)]
)


@pytest.mark.parametrize("name", NAMES)
def test_the_normal_distribution_function(name: str) -> None:
    library = get_library(name)
    with library.scope():
        x = library.make(WIDE.copy())
        xp = (
            x.__array_namespace__()
            if hasattr(x, "__array_namespace__")
            else torch_namespace()
        )
        logarithm = library.read(special.log_ndtr(x, xp))
        odds = library.read(special.expit(x, xp))
    close = {
        "rtol": 4e-14 if name == "jax" else 4e-15,
        "atol": 1e-300,
    }  # by its own log1p
    np.testing.assert_allclose(logarithm, scipy_special.log_ndtr(WIDE), **close)
    np.testing.assert_allclose(odds, scipy_special.expit(WIDE), **close)


def torch_namespace() -> object:
    return pytest.importorskip("array_api_compat.torch")


@given(st.floats(-30.0, 30.0), st.floats(1e-6, 5.0))
def test_log_ndtr_rises(x: float, more: float) -> None:
    low, high = special.log_ndtr(np.array([x, x + more]), np)
    assert low <= high <= 0.0


@given(st.floats(-1.0, 1.0), st.sampled_from([1, 2, 3, 5, 8, 24, 25]))
def test_chebyshev_polynomials(t: float, degree: int) -> None:
    points = np.array([[t, -t, 1.0], [-1.0, 0.0, 0.3]])
    found = special.chebyshev_polynomials(points, degree)
    expected = np.moveaxis(chebyshev.chebvander(points, degree), -1, 0)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert (found[:, 0, 2] == 1.0).all()  # classes out of reach count exactly alike


def test_the_log_of_what_does_not_happen() -> None:
    found = special.safe_log(np.array([0.0, -1e-17, 1.0, np.e]), np)
    np.testing.assert_allclose(found, [-np.inf, -np.inf, 0.0, 1.0])


def test_the_log_of_what_does_not_happen_has_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    chance = torch.tensor([0.0, 0.5], dtype=torch.float64, requires_grad=True)
    special.safe_log(chance, torch_namespace())[1].backward()
    assert chance.grad.tolist() == [0.0, 2.0]


@given(st.integers(1, 600), st.floats(0.0, 30.0), st.integers(0, 99))
def test_erfcx_of_few_numbers_and_of_many(n: int, most: float, seed: int) -> None:
    """Few are a product with a table of powers, many Horner's scheme."""
    y = np.random.default_rng(seed).uniform(0.0, most, n)
    many = special.erfcx(np.resize(y, 1000))[:n]
    np.testing.assert_allclose(special.erfcx(y), many, rtol=2e-15)
    np.testing.assert_allclose(special.erfcx(y), scipy_special.erfcx(y), rtol=1e-14)
