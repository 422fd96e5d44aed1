"""Sampled stability: the draws themselves, and counting over them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import CalibratorFileError, TopK, label_stability
from hokical._core.storage import read_document, write_document
from hokical.rules import as_logits
from hokical.stability import Gaussian, Noise, Uniform
from hokical.stability.sampled import Draws, below_top, survivals
from tests.conftest import encoded, max_examples, random_rows, write_encoded
from tests.stability.examples import each_noise


def slow_survivals(values: np.ndarray, draws: Draws) -> np.ndarray:
    """Row by row and draw by draw."""
    dtype = np.float64 if values.dtype == np.float64 else np.float32
    noise = draws.values.astype(dtype)
    kept = []
    for row in values:
        below = (row.astype(np.float64) - row.max()).astype(dtype)
        kept.append(sum(np.argmax(below + vector) == row.argmax() for vector in noise))
    return np.array(kept)


@each_noise
def test_sampled_lies_within_five_standard_errors(noise: Noise) -> None:
    m = 20_000
    logits = random_rows(12, 2.0, seed=1, n=200).values
    exact = label_stability(logits, noise)
    estimate = label_stability(logits, noise, draws=m, random_state=4)
    error = np.sqrt(exact * (1.0 - exact) / m)
    assert np.all(np.abs(estimate - exact) <= 5.0 * error + 1e-9)
    assert np.abs(estimate - exact).max() > 0.0


@each_noise
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_counts_are_the_slow_ones(noise: Noise, dtype: type) -> None:
    values = random_rows(5, 3.0, seed=2, n=12).values.astype(dtype)
    values[5:9, 3] = -np.inf
    draws = Draws(noise, 3, 150, 5)
    np.testing.assert_array_equal(
        survivals(as_logits(values), draws), slow_survivals(values, draws)
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_sums_are_as_precise_whatever_the_order_of_the_bytes(order: str) -> None:
    values = random_rows(5, 3.0, seed=2, n=12).values
    for kind, expected in (("f2", "float32"), ("f4", "float32"), ("f8", "float64")):
        logits = as_logits(values.astype(np.dtype(order + kind)))
        assert below_top(logits).dtype == expected


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
@max_examples(10)
def test_draws_come_back_from_a_file(n_draws: int, seed: int) -> None:
    draws = Draws(Gaussian(2.0, mean=3.0), seed, n_draws, 4)
    again = Draws.from_stored(draws.to_stored())
    assert again == draws
    np.testing.assert_array_equal(again.values, draws.values)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(draws)).values, draws.values
    )
    assert len(pickle.dumps(draws)) < 1000


def test_other_noise_than_that_of_the_fit_is_refused(tmp_path) -> None:
    path = tmp_path / "draws.json"
    draws = Draws(Uniform(0.0, 2.0), 7, 20, 3)
    write_document(path, {"draws": draws})
    assert read_document(path)["draws"] == draws

    class Altered(Draws):
        def fingerprint(self) -> str:
            return "0" * 64

    with pytest.raises(ValueError, match="is not the noise of the fit"):
        Altered.from_stored(draws.to_stored())


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("n_draws", 0),
        ("n_draws", 10**7 + 1),
        ("n_draws", True),
        ("n_classes", 1),
        ("n_classes", 10**9),
        ("noise", "gaussian"),
    ],
)
def test_numbers_that_no_fit_makes_are_refused(field: str, bad: object) -> None:
    good = {"noise": Gaussian(1.0), "seed": 3, "n_draws": 10, "n_classes": 4}
    with pytest.raises(ValueError, match=f"`{field}` must be"):
        Draws(**good | {field: bad})


def test_a_damaged_file_is_named(tmp_path) -> None:
    path = tmp_path / "draws.json"
    stored = Draws(Gaussian(1.0), 7, 20, 3).to_stored()
    write_encoded(
        path, {"draws": {"$record": "draws", **encoded(stored), "n_draws": 21}}
    )
    with pytest.raises(CalibratorFileError, match="is not the noise of the fit"):
        read_document(path)


def test_every_class_must_be_seen() -> None:
    cut = TopK.from_logits(np.random.default_rng(0).normal(size=(3, 9)), 4)
    with pytest.raises(ValueError, match="`draws` needs the logit of every class"):
        label_stability(cut, Gaussian(1.0), draws=10, random_state=0)


def test_generators_give_seeds() -> None:
    values = random_rows(4, 1.0, seed=0).values
    for make in (np.random.default_rng, np.random.RandomState):
        one = label_stability(values, Gaussian(1.0), draws=40, random_state=make(5))
        same = label_stability(values, Gaussian(1.0), draws=40, random_state=make(5))
        np.testing.assert_array_equal(one, same)
