"""Weights of members: the objective, leaving out, and the order of members."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from hokical._fitting import pooling
from hokical._fitting.examples import Examples
from hokical._fitting.pooling import Penalty, Prior, fit_pool, make_table
from hokical.rules.pooled import MemberLogits
from tests.ensembles import log_loss, noisy_members


def examples_of(members: np.ndarray, labels: np.ndarray) -> Examples:
    return Examples(MemberLogits.from_array(members), labels)


def softmax(scores: np.ndarray) -> np.ndarray:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def test_coefficients_have_the_least_penalised_log_loss() -> None:
    """One ridge, by a general optimiser that is told the objective alone."""
    members, labels = noisy_members(400, seed=1)
    examples = examples_of(members, labels)
    pool = fit_pool(examples).pool
    table = make_table(examples, pool)
    logs = table.logs.astype(np.float64)
    penalty = Penalty.of(4, Prior(3.0), 400.0)
    start = pooling._Point(penalty.centre, pooling._moments(table, penalty.centre))
    point, converged = pooling._minimize(table, penalty, start)
    assert converged

    def objective(x: np.ndarray) -> float:
        weights = x[:4] / x[:4].sum()
        scores = np.tensordot(x[:4], logs, 1)
        scores = scores + x[4] * np.log(np.tensordot(weights, np.exp(logs), 1))
        true = softmax(scores.T)[np.arange(400), labels]
        distance = x - penalty.centre
        return float(-np.log(true).mean() + 0.5 * distance @ penalty.matrix @ distance)

    bounds = [(1e-9, None)] * 5
    best = minimize(objective, penalty.centre, bounds=bounds, tol=1e-12)
    assert objective(point.coefficients) < best.fun + 2e-4


def distance(scores: np.ndarray, target: np.ndarray) -> float:
    """Between two rows of scores, up to a constant."""
    difference = scores - target
    return float(np.abs(difference - difference.mean()).max())


@pytest.mark.parametrize("n", [30, 400])
def test_steps_without_a_row_solve_its_own_equations(n: int) -> None:
    """Repeated steps lead where (S - H)^-1 g does, with each row's Hessian written out."""
    members, labels = noisy_members(n, seed=9)
    examples = examples_of(members, labels)
    block = make_table(examples, fit_pool(examples).pool).block(slice(None))
    x = np.array([0.1, 0.2, 0.15, 0.05, 0.5])
    penalty = Penalty.of(4, Prior(3.0), n)
    hessian = pooling._block_moments(block, x).hessian + penalty.matrix
    left_out = pooling._left_out(pooling.RowMoments.of(block, x), block, hessian, x)
    moments = pooling.RowMoments.of(block, x)
    for row in range(n):
        slopes = moments.slopes[:, :, row].astype(np.float64)
        proba = moments.proba[:, row].astype(np.float64)
        mean = slopes @ proba
        own = (slopes * proba) @ slopes.T - np.outer(mean, mean)
        rest = hessian - block.share[row] * own
        gradient = mean - slopes[:, labels[row]]
        target = x + np.linalg.solve(rest, block.share[row] * gradient)
        np.testing.assert_allclose(left_out[:, row], np.maximum(target, 0), atol=1e-3)


@pytest.mark.slow
def test_a_row_is_pooled_as_if_it_had_been_left_out() -> None:
    """One step without a row comes near a fit without it."""
    errors = []
    moves = []
    for seed in (2, 3):
        members, labels = noisy_members(40, seed=seed)
        examples = examples_of(members, labels)
        fit = fit_pool(examples)
        left_out = fit.cross_fit(examples).values
        fitted = fit.pool.pool(MemberLogits.from_array(members)).values
        for row in range(40):
            others = np.arange(40) != row
            refit = fit_pool(examples_of(members[:, others], labels[others])).pool
            target = refit.pool(MemberLogits.from_array(members[:, [row]])).values[0]
            errors.append(distance(left_out[row], target))
            moves.append(distance(fitted[row], target))
    # Temperatures, and the likelihoods of the priors, which stay, are what is left.
    assert np.mean(errors) < 0.8 * np.mean(moves)


@pytest.mark.parametrize("exchangeable", [False, True])
def test_an_example_with_votes_is_left_out_whole(
    exchangeable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Votes that agree, in rows of their own, change nothing."""
    monkeypatch.setattr(pooling, "ENOUGH", 1e-6)
    monkeypatch.setattr(pooling, "BLOCK_SIZE", 1)
    monkeypatch.setattr(pooling, "_MIN_BLOCK", 4)
    members, labels = noisy_members(60, seed=2)
    n_votes = np.tile([1, 2, 3], 20)
    rows = np.repeat(np.arange(60), n_votes)
    whole = examples_of(members, labels)
    votes = Examples(
        MemberLogits.from_array(members[:, rows]),
        labels[rows],
        1.0 / n_votes[rows],
        votes_of=rows,
    )
    fits = [fit_pool(data, exchangeable=exchangeable) for data in (whole, votes)]
    expected = fits[0].cross_fit(whole).values[rows]
    np.testing.assert_allclose(fits[1].cross_fit(votes).values, expected, atol=1e-4)


def test_leaving_out_does_not_flatter() -> None:
    """With few rows and many members, held-out losses are above fitted ones."""
    members, labels = noisy_members(60, seed=3, noise=np.full(12, 1.5))
    fit = fit_pool(examples_of(members, labels))
    held_out = fit.cross_fit(examples_of(members, labels)).values
    fitted = fit.pool.pool(MemberLogits.from_array(members)).values
    assert log_loss(softmax(held_out), labels) > log_loss(softmax(fitted), labels)


def test_members_that_are_alike_have_nearly_equal_weights() -> None:
    members, labels = noisy_members(300, seed=4, noise=np.ones(5))
    weights = fit_pool(examples_of(members, labels)).pool.weights
    assert weights.min() > 0.1
    assert weights.max() < 0.3


def test_weights_count_rows() -> None:
    members, labels = noisy_members(200, seed=6)
    counts = np.random.default_rng(0).integers(0, 4, 200)
    repeated = np.repeat(np.arange(200), counts)
    weighted = Examples(
        MemberLogits.from_array(members), labels, counts.astype(np.float64)
    )
    by_weight = fit_pool(weighted).pool
    by_copies = fit_pool(examples_of(members[:, repeated], labels[repeated])).pool
    np.testing.assert_allclose(by_weight.temperatures, by_copies.temperatures, 0.05)
    # Copies count as more examples, so they are shrunk less.
    np.testing.assert_allclose(by_weight.weights, by_copies.weights, atol=0.07)


@pytest.mark.parametrize("n_classes", [2, 30])
def test_tables_of_a_sample_lead_to_the_same_weights(
    n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, labels = noisy_members(3000, seed=7, n_classes=n_classes)
    whole = fit_pool(examples_of(members, labels)).pool
    monkeypatch.setattr("hokical._fitting.pooling.MAX_TABLE", 4 * n_classes * 1000)
    sampled = fit_pool(examples_of(members, labels)).pool
    np.testing.assert_allclose(sampled.weights, whole.weights, atol=0.06)
    new, new_labels = noisy_members(3000, seed=8, n_classes=n_classes)
    pooled = [p.pool(MemberLogits.from_array(new)).values for p in (whole, sampled)]
    losses = [log_loss(softmax(values / 1.5), new_labels) for values in pooled]
    assert losses[1] == pytest.approx(losses[0], abs=0.004)


def test_the_last_step_sees_more_rows_than_the_fit_or_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members, labels = noisy_members(3000, seed=7, n_classes=3)
    numbers_per_row = 4 * 3
    monkeypatch.setattr(pooling, "MAX_TABLE", numbers_per_row * 1000)
    n_rows: list[int] = []
    last_step = pooling._last_step

    def recording(
        examples: Examples, pool: Any, x: np.ndarray, penalty: Penalty
    ) -> np.ndarray:
        n_rows.append(examples.n_rows)
        return last_step(examples, pool, x, penalty)

    monkeypatch.setattr(pooling, "_last_step", recording)
    monkeypatch.setattr(pooling, "MAX_LAST_STEP", numbers_per_row * 10)
    without = fit_pool(examples_of(members, labels)).pool
    assert n_rows == []
    assert without.weights.min() > 0.0
    monkeypatch.setattr(pooling, "MAX_LAST_STEP", numbers_per_row * 1500)
    fit_pool(examples_of(members, labels))
    assert n_rows == [1500]


def test_the_last_step_has_the_ridge_of_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members, labels = noisy_members(3000, seed=7, n_classes=3)
    monkeypatch.setattr(pooling, "MAX_TABLE", 4 * 3 * 500)
    monkeypatch.setattr(pooling, "MAX_LAST_STEP", 4 * 3 * 1000)
    sizes: list[float] = []
    penalty_of = Penalty.of

    def recording(n_members: int, prior: Prior, n_examples: float) -> Penalty:
        sizes.append(n_examples)
        return penalty_of(n_members, prior, n_examples)

    monkeypatch.setattr(Penalty, "of", recording)
    fit_pool(examples_of(members, labels))
    assert {round(size) for size in sizes if size != 1.0} == {3000}
