"""Exact stability against slow quadrature, and what must not change it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from hokical import label_distribution, label_stability, threads
from hokical.stability import Gaussian, Gumbel, Noise, Uniform, gaussian, uniform
from tests import references
from tests.conftest import random_rows
from tests.stability.examples import NOISES, each_noise

n_classes = st.sampled_from([2, 3, 5, 17, 100, 1000])
scales = st.sampled_from([0.05, 0.3, 1.0, 2.0, 7.0, 50.0])
spreads = st.sampled_from([1e-3, 0.1, 1.0, 5.0, 100.0, 1e4])
seeds = st.integers(0, 10**6)


@pytest.mark.slow
@given(n_classes, scales, spreads, seeds)
def test_gaussian_agrees_with_quadrature(
    c: int, scale: float, spread: float, seed: int
) -> None:
    logits = random_rows(c, spread, seed, n=4)
    expected = references.gaussian_stability(logits.values, scale)
    np.testing.assert_allclose(gaussian.stability(logits, scale), expected, atol=5e-7)


@pytest.mark.parametrize(
    ("c", "error"), [(2, 2e-7), (50, 2e-7), (1000, 3e-7), (20_000, 4e-6)]
)
def test_gaussian_with_all_classes_at_one_margin(c: int, error: float) -> None:
    """The hardest case: the errors of all classes are the same and add up. Sweep the
    margin.
    """
    margins = np.concatenate([np.linspace(0.0, 9.5, 60), [1e-8, 8.99, 9.01, 50.0, 1e4]])
    rows = np.repeat(-margins[:, None], c, axis=1)
    rows[:, 0] = 0.0
    u = np.linspace(-9.0, 9.0, 3601)
    density = np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)
    log_phi = special.log_ndtr(u + margins[:, None])
    expected = np.trapezoid(density * np.exp((c - 1) * log_phi), u, axis=1)
    np.testing.assert_allclose(
        label_stability(rows, Gaussian(1.0)), expected, atol=error
    )


@given(st.sampled_from([2, 3, 5, 17, 60]), scales, spreads, seeds)
def test_uniform_agrees_with_quadrature(
    c: int, width: float, spread: float, seed: int
) -> None:
    logits = random_rows(c, spread, seed, n=4)
    expected = references.uniform_stability(logits.values, width)
    np.testing.assert_allclose(
        uniform.portable_stability(logits, width), expected, atol=2e-6
    )


@given(st.sampled_from([2, 3, 5, 16, 21]), scales, seeds)
def test_uniform_is_exact_to_rounding_with_few_classes(
    c: int, width: float, seed: int
) -> None:
    """Twin: the antiderivative of the polynomial on every piece."""
    logits = random_rows(c, 1.0, seed)
    margins = np.sort(np.minimum(logits.margins / width, 1.0), axis=1)
    expected = [exact_uniform(row[1:]) for row in margins]
    np.testing.assert_allclose(
        uniform.portable_stability(logits, width), expected, atol=1e-13
    )


def exact_uniform(rivals: np.ndarray) -> float:
    ends, total = [1.0, *(1.0 - rivals), 0.0], 0.0
    for j, (high, low) in enumerate(pairwise(ends)):
        middle, half = (
            0.5 * (high + low),
            0.5 * (high - low),
        )  # around the middle: no cancellation
        product = np.polynomial.Polynomial([1.0])
        for d in rivals[:j]:
            product *= np.polynomial.Polynomial([middle + d, half])
        total += half * (product.integ()(1.0) - product.integ()(-1.0))
    return total


@given(st.sampled_from([2, 3, 17, 40, 80]), scales, spreads, seeds)
def test_uniform_stability_is_its_entry_of_the_distribution(
    c: int, width: float, spread: float, seed: int
) -> None:
    logits = random_rows(c, spread, seed)
    pi = uniform.portable_distribution(logits, width)
    own = pi[np.arange(logits.n_rows), logits.labels]
    np.testing.assert_allclose(
        own, uniform.portable_stability(logits, width), atol=1e-6
    )
    np.testing.assert_allclose(pi.sum(axis=1), 1.0, atol=1e-12)
    assert (pi[logits.margins >= width] == 0.0).all()


@pytest.mark.slow
def test_uniform_with_thousands_of_near_ties() -> None:
    """Margins of about 1e-5 widths: neither the sort nor the pieces may become
    quadratic.
    """
    values = 1e-5 * np.random.default_rng(0).normal(size=(2, 20_000))
    gamma = label_stability(values, Uniform(0.0, 1.0))
    pi = label_distribution(values, Uniform(0.0, 1.0))
    np.testing.assert_allclose(pi.sum(axis=1), 1.0)
    np.testing.assert_allclose(pi.max(axis=1), gamma, rtol=1e-5)
    assert np.all(gamma > 1.0 / 20_000)


@pytest.mark.slow
def test_uniform_with_many_near_classes() -> None:
    logits = random_rows(1000, 1.0, seed=3, n=4)
    for width in (0.5, 3.0, 40.0):
        expected = references.uniform_stability(logits.values, width)
        for solve in (uniform.stability, uniform.portable_stability):
            np.testing.assert_allclose(solve(logits, width), expected, atol=1e-6)


@given(st.sampled_from([2, 4, 30]), st.floats(0.05, 50.0), seeds)
def test_gumbel_is_the_softmax(c: int, scale: float, seed: int) -> None:
    values = random_rows(c, 1.0, seed).values
    weights = np.exp((values - values.max(axis=1, keepdims=True)) / scale)
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        label_distribution(values, Gumbel(scale)), expected, rtol=1e-12
    )
    np.testing.assert_allclose(
        label_stability(values, Gumbel(scale)), expected.max(axis=1), rtol=1e-12
    )


@each_noise
@pytest.mark.parametrize("c", [2, 6, 40])
def test_tied_classes_share_evenly(noise: Noise, c: int) -> None:
    np.testing.assert_allclose(
        label_stability(np.zeros((3, c)), noise), 1.0 / c, atol=1e-8
    )
    np.testing.assert_allclose(
        label_distribution(np.zeros((3, c)), noise), 1.0 / c, atol=1e-8
    )


@pytest.mark.parametrize(
    ("noise", "twin"),
    [
        (Gaussian(1.3), references.gaussian_distribution),
        (Uniform(0.0, 3.0), references.uniform_distribution),
    ],
    ids=["gaussian", "uniform"],
)
@pytest.mark.parametrize("spread", [0.3, 2.0, 20.0])
def test_distribution_agrees_with_quadrature(
    noise: Noise, twin: object, spread: float
) -> None:
    values = random_rows(7, spread, seed=5).values.copy()
    values[3, 4] = -np.inf
    pi = label_distribution(values, noise)
    np.testing.assert_allclose(pi, twin(values, noise.width), atol=2e-6)  # type: ignore[operator]
    np.testing.assert_allclose(pi.sum(axis=1), 1.0, atol=1e-12)
    own = pi[np.arange(len(pi)), values.argmax(axis=1)]
    np.testing.assert_allclose(own, label_stability(values, noise), atol=1e-6)
    assert pi[3, 4] == 0.0


def test_far_classes_keep_their_order_of_magnitude() -> None:
    """Tails matter to the log loss: classes at 7 to 20 scales below the top."""
    margins = np.array([7.0, 9.0, 11.0, 20.0])
    pi = label_distribution([[0.0, *-margins]], Gaussian(1.0))[0]
    np.testing.assert_allclose(pi[1:], special.ndtr(margins / -np.sqrt(2.0)), rtol=0.01)


@each_noise
class TestNothingElseMatters:
    """What must not change the result: shifts, order, batches, threads, the noise's
    mean.
    """

    values = np.random.default_rng(9).normal(size=(700, 40)) * 3.0

    def test_a_constant_per_row(self, noise: Noise) -> None:
        shifted = self.values + np.linspace(-50, 50, 700)[:, None]
        np.testing.assert_allclose(
            label_stability(shifted, noise),
            label_stability(self.values, noise),
            atol=1e-12,
        )

    def test_the_order_of_the_classes(self, noise: Noise) -> None:
        order = np.random.default_rng(1).permutation(40)
        np.testing.assert_allclose(
            label_stability(self.values[:, order], noise),
            label_stability(self.values, noise),
            atol=1e-12,
        )

    def test_batches(self, noise: Noise) -> None:
        parts = [
            label_stability(self.values[i : i + 97], noise) for i in range(0, 700, 97)
        ]
        whole = label_stability(self.values, noise)
        np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-12)

    @pytest.mark.sample(6)
    @pytest.mark.parametrize("c", [5, 16, 17, 40])
    def test_batches_on_both_sides_of_the_compiler(self, noise: Noise, c: int) -> None:
        few = self.values[:, :c]
        many = np.tile(few, (1 + 1_000_000 // few.size, 1))
        whole = label_stability(many, noise)
        np.testing.assert_allclose(whole[:700], label_stability(few, noise), atol=1e-12)

    def test_threads(self, noise: Noise) -> None:
        many = np.tile(self.values, (40, 1))
        with threads(1):
            one = label_stability(many, noise)
        with threads(3):
            np.testing.assert_array_equal(label_stability(many, noise), one)

    def test_the_storage_of_the_array(self, noise: Noise) -> None:
        expected = label_stability(self.values, noise)
        for same in (
            np.asfortranarray(self.values),
            self.values[::-1][::-1],
            self.values.astype(">f8"),
            np.repeat(self.values, 2, axis=1)[:, ::2],
        ):
            np.testing.assert_array_equal(label_stability(same, noise), expected)


def test_the_mean_of_the_noise_changes_nothing() -> None:
    values = random_rows(9, 2.0, seed=4).values
    np.testing.assert_array_equal(
        label_stability(values, Gaussian(2.0, mean=-20.0)),
        label_stability(values, Gaussian(2.0)),
    )
    np.testing.assert_array_equal(
        label_stability(values, Uniform(5, 14)),
        label_stability(values, Uniform(-16, -7)),
    )
    for one, other in (
        (Gaussian(2.0, 1e6), Gaussian(2.0)),
        (Uniform(5, 14), Uniform(-16, -7)),
    ):
        options = {"draws": 500, "random_state": 0}
        np.testing.assert_array_equal(
            label_stability(values.astype(np.float32), one, **options),
            label_stability(values.astype(np.float32), other, **options),
        )


@each_noise
def test_masked_classes_might_as_well_be_absent(noise: Noise) -> None:
    values = np.random.default_rng(2).normal(size=(50, 8))
    masked = np.insert(values, 3, -np.inf, axis=1)
    np.testing.assert_allclose(
        label_stability(masked, noise), label_stability(values, noise), atol=1e-12
    )
    alone = np.full((1, 5), -np.inf)
    alone[0, 2] = 1.0
    assert label_stability(alone, noise)[0] == pytest.approx(1.0, abs=1e-7)


@given(st.sampled_from(NOISES), seeds)
def test_more_noise_or_a_smaller_lead_means_less_stability(
    noise: Noise, seed: int
) -> None:
    logits = random_rows(6, 1.0, seed)
    wider = noise.of_width(noise.width * 1.5).stability(logits)
    assert np.all(wider <= noise.stability(logits) + 1e-9)


def test_a_wrong_noise_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"`noise` must be a Gaussian, .*\bUniform of hokical"
    ):
        label_stability([[1.0, 2.0]], 2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`draws` must be an integer from 1"):
        label_stability([[1.0, 2.0]], Gaussian(1.0), draws=0)
    with pytest.raises(ValueError, match="`random_state` must be an integer from 0"):
        label_stability([[1.0, 2.0]], Gaussian(1.0), draws=5, random_state=-1)
