"""Label stability where classes are hidden, against that of as many equal classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from hokical import TopK, label_distribution, label_stability, threads
from hokical.stability import Gaussian, Gumbel, Noise, Uniform
from hokical.stability.families import FAMILIES
from tests.conftest import synthetic_logits, topk_rows

NOISES = [
    Gaussian(0.3),
    Gaussian(1.5),
    Gaussian(8.0),
    Uniform(0, 1),
    Uniform(-4, 4),
    Gumbel(0.6),
]

noises = st.builds(
    lambda family, width: family.of_width(width),
    st.sampled_from(list(FAMILIES.values())),
    st.floats(0.05, 20.0),
)


@given(
    n_classes=st.integers(3, 40),
    k=st.integers(1, 40),
    spread=st.floats(0.1, 8.0),
    noise=noises,
    keep_rest=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_hidden_classes_count_as_equal_ones(
    n_classes: int, k: int, spread: float, noise: Noise, keep_rest: bool, seed: int
) -> None:
    dense = topk_rows(n_classes, spread, seed)
    seen = TopK.from_logits(dense, k, keep_rest=keep_rest)
    found = label_stability(seen, noise)
    np.testing.assert_allclose(
        found, label_stability(seen.to_dense(), noise), atol=2e-7
    )


def test_softmax_is_exact_where_the_rest_is_known(overconfident: tuple) -> None:
    dense = overconfident[0][:200]
    log_proba = dense - np.logaddexp.reduce(dense, axis=1, keepdims=True)
    order = np.argsort(-log_proba, axis=1)[:, :2]
    values = np.take_along_axis(log_proba, order, axis=1)
    seen = TopK.from_log_probabilities(values, order, 6)
    want = softmax(dense, axis=1).max(axis=1)
    np.testing.assert_allclose(label_stability(seen, Gumbel(1.0)), want, atol=1e-6)
    cut = TopK.from_logits(dense, 2)
    np.testing.assert_allclose(label_stability(cut, Gumbel(1.0)), want, rtol=1e-12)


@pytest.mark.sample(4)
@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_results_do_not_depend_on_batch_or_threads(noise: Noise) -> None:
    dense, _ = synthetic_logits(3000, 25, seed=9)
    for keep_rest in (True, False):
        seen = TopK.from_logits(dense, 20, keep_rest=keep_rest)
        with threads(1):
            whole = label_stability(seen, noise)
        with threads(3):
            assert np.array_equal(label_stability(seen, noise), whole)
        parts = [label_stability(seen[i : i + 7], noise) for i in range(0, 70, 7)]
        assert np.array_equal(np.concatenate(parts), whole[:70])
        chosen = np.array([5, 2999, 17])
        assert np.array_equal(label_stability(seen.take(chosen), noise), whole[chosen])


def test_empty_places_and_a_ceiling_of_ones_own() -> None:
    """A question with four choices, two of which an API did not return."""
    seen = TopK([[-0.2, -2.0, np.nan, 0.0]], [[0, 2, -1, -1]], 4, ceiling=[-6.0])
    assert seen.hidden.tolist() == [2]
    for noise in NOISES:
        full = label_stability(seen.to_dense(), noise)
        np.testing.assert_allclose(label_stability(seen, noise), full, atol=1e-7)
    assert seen.to_dense(fill=-9.0).tolist() == [[-0.2, -9.0, -2.0, -9.0]]


def test_impossible_classes_leave_nothing_hidden() -> None:
    seen = TopK(
        [[2.0, 1.0, -np.inf], [2.0, -np.inf, -np.inf]], [[0, 1, 2], [0, 1, 2]], 9
    )
    for noise in NOISES:
        alone = label_stability(seen.to_dense(fill=-np.inf), noise)
        np.testing.assert_allclose(label_stability(seen, noise), alone, atol=1e-7)
    assert (seen.possible_counts == 1).tolist() == [False, True]


def test_distribution_shares_the_rest_among_hidden_classes() -> None:
    seen = TopK.from_logits(topk_rows(12, 2.0, seed=1), 4)
    for family in FAMILIES.values():
        noise = family.of_width(2.0)
        pi = label_distribution(seen, noise)
        np.testing.assert_allclose(
            pi, label_distribution(seen.to_dense(), noise), atol=1e-12
        )
