"""How stable a label can be when classes are hidden: bounds against fills and a linear program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog
from scipy.special import log_ndtr, softmax

from hokical import TopK, label_distribution, label_stability, stability_bounds
from hokical._core.parallel import threads
from hokical.stability._hidden_classes import chord_end, concave_from, highest_mean
from hokical.stability._noise import Gaussian, Gumbel, Noise, Uniform
from tests.conftest import synthetic_logits, topk_rows

NOISES = [Gaussian(0.3), Gaussian(1.5), Gaussian(8.0), Uniform(0, 1), Uniform(-4, 4), Gumbel(0.6)]

noises = st.builds(
    lambda family, width: family.of_width(width),
    st.sampled_from([Gaussian, Uniform, Gumbel]),
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
def test_bounds_bracket_the_stability_of_all_classes(
    n_classes: int, k: int, spread: float, noise: Noise, keep_rest: bool, seed: int
) -> None:
    dense = topk_rows(n_classes, spread, seed)
    seen = TopK.from_logits(dense, k, keep_rest=keep_rest)
    lower, upper = stability_bounds(seen, noise)
    exact = label_stability(dense, noise)
    assert np.all(lower <= exact + 1e-7)
    assert np.all(exact <= upper + 1e-7)
    assert np.array_equal(label_stability(seen, noise), 0.5 * (lower + upper))


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("k", [1, 4, 20])
def test_without_a_rest_bounds_are_the_extreme_fills(noise: Noise, k: int) -> None:
    dense = topk_rows(40, 2.0, seed=k)
    seen = TopK.from_logits(dense, k, keep_rest=False)
    lower, upper = stability_bounds(seen, noise)
    crowded = seen.to_dense(fill=seen.ceiling)
    alone = seen.to_dense(fill=-np.inf)
    label = (np.arange(len(seen)), seen.labels)
    for filled in (crowded, alone):
        assert np.array_equal(filled[label], seen.top)
    np.testing.assert_allclose(lower, label_stability(crowded, noise), atol=2e-7)
    np.testing.assert_allclose(upper, label_stability(alone, noise), atol=2e-7)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_bounds_draw_closer_with_every_class_seen_and_with_the_rest(noise: Noise) -> None:
    dense = topk_rows(30, 2.0, seed=3)
    widths = []
    for k in (1, 2, 5, 10, 20, 29):
        for keep_rest in (False, True):
            lower, upper = stability_bounds(TopK.from_logits(dense, k, keep_rest=keep_rest), noise)
            widths.append(upper - lower)
    without, known = np.array(widths[::2]), np.array(widths[1::2])
    assert np.all(np.diff(without, axis=0) <= 1e-7)
    assert np.all(known <= without + 1e-7)
    assert known.sum() < without.sum()


@pytest.mark.sample(2)
@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0, 12.0])
def test_gaussian_extremes_are_those_of_a_linear_program(scale: float) -> None:
    rng = np.random.default_rng(int(10 * scale))
    for _ in range(12):
        ceiling, more, u = rng.uniform(0, 8), 10 ** rng.uniform(-2, 1), rng.uniform(-4, 4)
        equal = ceiling + more
        margins = np.r_[ceiling, equal, ceiling + np.geomspace(1e-3, 60 * max(1, scale), 1500)]
        heights = log_ndtr(u + margins / scale)
        limits = {"A_eq": [np.ones_like(margins), np.exp(equal - margins)], "b_eq": [1.0, 1.0]}
        greatest = -linprog(-heights, **limits).fun
        least = linprog(heights, **limits).fun
        found = highest_mean(np.array([u + ceiling / scale]), np.array([u + equal / scale]), scale)
        place = np.clip(chord_end(scale) - u, ceiling / scale, equal / scale)
        lowest = np.exp(scale * place - equal) * log_ndtr(u + place)
        assert greatest - 1e-8 <= found[0] <= greatest + 0.02 * abs(greatest) + 1e-8
        np.testing.assert_allclose(lowest, least, rtol=1e-3, atol=1e-8)
        assert lowest <= least + 1e-8


def test_softmax_is_exact_where_the_rest_is_known(overconfident: tuple) -> None:
    dense = overconfident[0][:200]
    log_proba = dense - np.logaddexp.reduce(dense, axis=1, keepdims=True)
    order = np.argsort(-log_proba, axis=1)[:, :2]
    values = np.take_along_axis(log_proba, order, axis=1)
    seen = TopK.from_log_probabilities(values, order, 6)
    want = softmax(dense, axis=1).max(axis=1)
    for found in (*stability_bounds(seen, Gumbel(1.0)), label_stability(seen, Gumbel(1.0))):
        np.testing.assert_allclose(found, want, atol=1e-6)
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
    full = TopK([[-0.2, -2.0, -6.0, -6.0]], [[0, 2, 1, 3]], 4)
    assert seen.hidden.tolist() == [2]
    for noise in NOISES:
        lower, _ = stability_bounds(seen, noise)
        np.testing.assert_allclose(lower, label_stability(full, noise), atol=1e-7)
    assert seen.to_dense(fill=-9.0).tolist() == [[-0.2, -9.0, -2.0, -9.0]]


def test_impossible_classes_leave_nothing_hidden() -> None:
    seen = TopK([[2.0, 1.0, -np.inf], [2.0, -np.inf, -np.inf]], [[0, 1, 2], [0, 1, 2]], 9)
    for noise in NOISES:
        lower, upper = stability_bounds(seen, noise)
        assert np.array_equal(lower, upper)
        np.testing.assert_allclose(
            lower, label_stability(seen.to_dense(fill=-np.inf), noise), atol=1e-7
        )
    assert seen.single_choice.tolist() == [False, True]


def test_distribution_shares_the_rest_among_hidden_classes() -> None:
    seen = TopK.from_logits(topk_rows(12, 2.0, seed=1), 4)
    for noise in (Gaussian(1.0), Uniform(0, 3), Gumbel(2.0)):
        pi = label_distribution(seen, noise)
        np.testing.assert_allclose(pi, label_distribution(seen.to_dense(), noise), atol=1e-12)


@pytest.mark.parametrize("scale", [0.05, 1.0, 5.0, 30.0])
def test_roots_are_those_of_a_search_by_halving(scale: float) -> None:
    def hazard(v: float) -> float:
        return float(np.exp(-0.5 * v * v - 0.5 * np.log(2.0 * np.pi) - log_ndtr(v)))

    chord = brentq(lambda v: hazard(v) / -log_ndtr(v) - scale, -1e4, 37.0)
    assert chord_end(scale) == pytest.approx(chord, rel=1e-9)
    concave = brentq(lambda v: v + hazard(v) - scale, -1e4, max(37.0, scale))
    assert concave_from(scale) == pytest.approx(concave, rel=1e-6)


def test_roots_beyond_what_matters_are_cut() -> None:
    assert chord_end(1e6) == pytest.approx(37.0)
    assert concave_from(1e6) == pytest.approx(1e6)
    assert chord_end(1e-9) == pytest.approx(-1e4)
