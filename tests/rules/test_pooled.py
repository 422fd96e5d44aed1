"""The pool of several members against the formula, and its properties."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hokical import Ensemble
from hokical._core.logits import Logits
from hokical.rules.members import as_members
from hokical.rules.pooled import MemberLogits, Pool, pool_rows
from tests.ensembles import noisy_members


def reference(pool: Pool, members: np.ndarray) -> np.ndarray:
    """Row by row as the formula of the module states it; NaN is not evaluated."""
    rows = []
    for i in range(members.shape[1]):
        evaluated = [
            v for v in range(len(members)) if not np.isnan(members[v, i]).any()
        ]
        weights = pool.weights[evaluated] / pool.weights[evaluated].sum()
        temperatures = pool.temperatures[evaluated]
        scores = members[evaluated, i] / temperatures[:, None]
        scores -= scores.max(axis=1, keepdims=True)
        proba = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        geometric = weights @ scores
        arithmetic = np.log(weights @ proba)
        u = pool.linear_share
        rows.append((1.0 - u) * geometric + u * arithmetic)
    return np.array(rows) / (pool.weights / pool.temperatures).sum()


def some_pool(n_members: int, seed: int) -> Pool:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_members))
    return Pool(weights, rng.uniform(0.5, 2.0, n_members), float(rng.random()))


@settings(max_examples=20)
@given(
    n_members=st.integers(1, 5), n_classes=st.integers(2, 9), seed=st.integers(0, 99)
)
def test_the_pool_is_its_formula(n_members: int, n_classes: int, seed: int) -> None:
    members, _ = noisy_members(
        30, seed=seed, n_classes=n_classes, noise=np.ones(n_members)
    )
    members[-1, 1 :: max(2, n_members)] = members[0, 1 :: max(2, n_members)]
    if n_members > 1:
        members[-1, ::3] = np.nan
    pool = some_pool(n_members, seed)
    values = pool.pool(MemberLogits.from_array(members)).values
    np.testing.assert_allclose(values, reference(pool, members), atol=1e-10)


def test_one_member_is_left_as_it_is() -> None:
    members, _ = noisy_members(50, noise=[1.0])
    for u in (0.0, 0.3, 1.0):
        pool = Pool(np.ones(1), np.array([1.7]), u)
        values = pool.pool(MemberLogits.from_array(members)).values
        moved = members[0] - values
        offsets = np.broadcast_to(moved.mean(axis=1, keepdims=True), moved.shape)
        np.testing.assert_allclose(moved, offsets, atol=1e-9)


def test_blocks_have_the_bits_of_the_whole() -> None:
    members, _ = noisy_members(3000)
    pool = some_pool(4, 1)
    pooled = pool_rows(pool, MemberLogits.from_array(members)).values
    for rows in (slice(0, 1), slice(7, 700), np.array([2999, 5])):
        block = MemberLogits.from_array(members[:, rows])
        assert (pool_rows(pool, block).values == pooled[rows]).all()


def test_members_are_pooled_without_a_copy_of_them() -> None:
    members, _ = noisy_members(4000, n_classes=50, noise=np.ones(12))
    ensemble = Ensemble(list(members.astype(np.float32)))
    pool = some_pool(12, 1)
    tracemalloc.start()
    pool_rows(pool, as_members(ensemble))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * 12 * 4000 * 50 * 4


def test_members_without_a_weight_are_not_looked_at() -> None:
    members, _ = noisy_members(20)
    pool = Pool(np.array([0.5, 0.0, 0.5, 0.0]), np.ones(4), 0.5)
    blank = members.copy()
    blank[[1, 3]] = np.nan
    expected = pool.pool(MemberLogits.from_array(members)).values
    assert (pool.pool(MemberLogits.from_array(blank)).values == expected).all()
    few = pool.take([0, 2])
    assert (few.pool(MemberLogits.from_array(members[[0, 2]])).values == expected).all()


def test_a_class_is_impossible_where_every_member_says_so() -> None:
    members, _ = noisy_members(5)
    members[:, :, 1] = -np.inf
    members[0, :, 2] = -np.inf
    pooled = Pool.plain(4).pool(MemberLogits.from_array(members))
    assert np.isneginf(pooled.values[:, 1]).all()
    assert np.isfinite(pooled.values[:, 2]).all()


def test_exchangeable_members_may_be_any_number() -> None:
    members, _ = noisy_members(20, noise=np.ones(6))
    pool = Pool(np.ones(1), np.array([1.3]), 0.4, exchangeable=True)
    for n_members in (1, 2, 6):
        alike = Pool(np.full(n_members, 1.0 / n_members), np.full(n_members, 1.3), 0.4)
        some = MemberLogits.from_array(members[:n_members])
        np.testing.assert_allclose(
            pool.pool(some).values, alike.pool(some).values, atol=1e-10
        )


def test_torch_members_are_pooled_alike() -> None:
    torch = pytest.importorskip("torch")
    members, _ = noisy_members(40)
    members[2, ::5] = np.nan
    pool = replace(some_pool(4, 3), floors=np.array([0.0, 1e-4, 0.0, 1e-3]))
    expected = pool_rows(pool, MemberLogits.from_array(members)).values
    for dtype in (torch.float64, torch.float32):
        tensor = torch.asarray(members, dtype=dtype)
        values = pool_rows(pool, MemberLogits.from_array(tensor)).values
        np.testing.assert_allclose(np.asarray(values), expected, rtol=1e-5, atol=1e-4)


def test_rows_are_taken_of_every_member() -> None:
    members = MemberLogits.from_array(noisy_members(10)[0])
    assert isinstance(members, Logits)
    taken = members.take(np.array([3, 1])).tables
    assert (np.stack(taken) == np.stack(members.tables)[:, [3, 1]]).all()


@pytest.mark.parametrize(
    ("weights", "exchangeable"), [([0.5, 0.6], False), ([0.5, 0.5], True)]
)
def test_weights_must_be_shares(weights: list[float], exchangeable: bool) -> None:
    size = len(weights)
    with pytest.raises(ValueError, match="`weights` must"):
        Pool(np.array(weights), np.ones(size), 0.5, exchangeable)
