"""The derivatives and the solver of ODIR-regularised matrix scaling and Dirichlet
calibration.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from tests.conftest import max_examples, quiet_fit

from hokical import threads
from hokical._fitting import structured
from hokical.calibrators import Examples
from hokical.rules import as_logits
from hokical_paper.odir import DirichletODIR, MatrixScalingODIR, objective
from hokical_paper.odir.examples import MatrixExamples
from paper.tests.odir.worlds import (
    both,
    counted,
    finite_values,
    noisy,
    plain_features,
    plain_loss,
    point_at,
    random_problem,
)


@given(st.integers(0, 10_000), st.booleans())
@max_examples(20)
def test_gradient_is_the_difference_quotient(seed, masked):
    examples, penalty, coef = random_problem(seed, masked=masked)
    slope = point_at(examples, penalty, coef).gradient.reshape(coef.shape)
    for index in np.ndindex(coef.shape):
        step = np.zeros_like(coef)
        step[index] = 1e-5
        up = point_at(examples, penalty, coef + step).value
        down = point_at(examples, penalty, coef - step).value
        assert slope[index] == pytest.approx((up - down) / 2e-5, abs=1e-8)


@given(st.integers(0, 10_000), st.booleans())
@max_examples(20)
def test_hessian_product_is_the_difference_of_gradients(seed, masked):
    examples, penalty, coef = random_problem(seed, masked=masked)
    direction = np.random.default_rng(seed + 1).normal(size=coef.shape)

    def slope_at(point):
        return point_at(examples, penalty, point).gradient

    product = point_at(examples, penalty, coef).curvature_along(direction.ravel())
    quotient = (
        slope_at(coef + 1e-5 * direction) - slope_at(coef - 1e-5 * direction)
    ) / 2e-5
    np.testing.assert_allclose(product, quotient, atol=1e-8)


def test_preconditioner_is_the_inverse_of_diagonal_plus_outer_product():
    examples, penalty, coef = random_problem(3)
    point = point_at(examples, penalty, coef)
    slope = np.random.default_rng(0).normal(size=coef.shape)
    chance = np.concatenate(point.proba)
    inputs = np.concatenate([block.inputs for block in examples.blocks])
    solved = structured.ClassBlocks(point).solve(slope.ravel()).reshape(slope.shape)
    for row in range(examples.n_classes):
        weights = examples.weights * chance[:, row] * (1 - chance[:, row])
        mean = weights @ inputs / weights.sum()
        spread = weights @ (inputs - mean) ** 2
        matrix = np.diag(spread + penalty[row]) + weights.sum() * np.outer(mean, mean)
        np.testing.assert_allclose(matrix @ solved[row], slope[row], rtol=1e-9)


def test_block_sums_do_not_depend_on_threads_or_blocks(monkeypatch):
    def slope():
        examples, penalty, coef = random_problem(0, n=101)
        point = point_at(examples, penalty, coef)
        return len(point.proba), point.gradient

    one, whole = slope()
    monkeypatch.setattr(structured, "CROSS_BLOCK_SIZE", 1)
    with threads(1):
        several, cut = slope()
    with threads(4):
        _, threaded = slope()
    assert (one, several) == (1, 8)
    np.testing.assert_array_equal(cut, threaded)
    np.testing.assert_allclose(cut, whole, atol=1e-15)


@given(seed=st.integers(0, 1000), masked=st.booleans())
@max_examples(10)
def test_some_of_the_examples_are_as_if_there_were_no_others(seed, masked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structured, "BLOCK_SIZE", 1)
        rng = np.random.default_rng(seed)
        logits, labels, weights = (
            rng.normal(size=(90, 3)),
            rng.integers(3, size=90),
            rng.random(90),
        )
        logits[:30, 0] = -np.inf if masked else 0.0
        rows = rng.random(90) < 0.5
        every = Examples(as_logits(logits), labels, weights)
        some = MatrixExamples.of(every.take(rows), finite_values)
        every = MatrixExamples.of(every, finite_values)
        coef, penalty = rng.normal(size=(3, 4)), np.ones((3, 4))
        expected = point_at(some, penalty, coef)
        found = point_at(every.take(rows), penalty, coef)
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        np.testing.assert_allclose(
            np.concatenate(found.proba), np.concatenate(expected.proba)
        )


@pytest.mark.slow
@both
@given(
    seed=st.integers(0, 1000),
    strength=st.tuples(st.floats(-3, 2), st.floats(-3, 2)),
    n_classes=st.integers(2, 4),
)
@max_examples(8)
def test_no_worse_than_a_plain_quasi_newton_twin(method, seed, strength, n_classes):
    strength = tuple(10.0**power for power in strength)
    logits, labels = noisy(80, n_classes, seed)
    labels = np.where(
        np.arange(80) % 3, labels, (labels + 1) % n_classes
    )  # never separable
    fitted = method(lambdas=strength[0], mus=strength[1]).fit(logits, labels)
    features = plain_features(method, logits)

    def loss(flat):
        matrix = flat.reshape(n_classes, n_classes + 1)
        return plain_loss(matrix[:, :-1], matrix[:, -1], features, labels, strength)

    twin = minimize(
        loss, np.eye(n_classes, n_classes + 1).ravel(), method="BFGS", tol=1e-7
    )
    ours = plain_loss(fitted.weight_, fitted.bias_, features, labels, strength)
    assert fitted.converged_
    assert ours <= twin.fun + 1e-8
    assert ours == pytest.approx(twin.fun, abs=1e-5)


@pytest.mark.sample(0)
@both
@pytest.mark.parametrize("counts", [[74, 53, 3], [90, 92, 1], [40, 2, 60, 1]])
@pytest.mark.parametrize("strength", [(1.0, 10.0), (100.0, 100.0), (0.1, 0.01)])
def test_rare_classes_get_the_optimum_of_the_paper(method, counts, strength):
    n_classes = len(counts)
    logits, labels = counted(counts)
    fitted = method(lambdas=strength[0], mus=strength[1]).fit(logits, labels)
    features = plain_features(method, logits)

    def loss(flat):
        matrix = flat.reshape(n_classes, n_classes + 1)
        return plain_loss(matrix[:, :-1], matrix[:, -1], features, labels, strength)

    starts = (
        np.eye(n_classes, n_classes + 1),
        np.hstack([fitted.weight_, fitted.bias_[:, None]]),
    )
    twin = min(
        minimize(loss, start.ravel(), method="BFGS", tol=1e-7).fun for start in starts
    )
    assert fitted.converged_
    assert (
        plain_loss(fitted.weight_, fitted.bias_, features, labels, strength)
        <= twin + 1e-5
    )


@pytest.mark.sample(2)
@both
@pytest.mark.parametrize("strength", [(1.0, 10.0), (0.1, 0.01)])
def test_an_absent_class_gets_the_optimum_of_the_documented_objective(method, strength):
    logits, labels = counted([48, 49, 0])
    fitted = method(lambdas=strength[0], mus=strength[1]).fit(logits, labels)
    features = plain_features(method, logits)
    off, scale = ~np.eye(3, dtype=bool), fitted.weight_[2, 2]

    def loss(flat):
        weight, bias = np.diag([0.0, 0.0, scale]), flat[:3]
        weight[:2] = flat[3:].reshape(2, 3)
        mus = np.array([strength[1], strength[1], min(strength[1], 1e-5)])
        rows = log_softmax(features @ weight.T + bias, axis=1)[np.arange(97), labels]
        return (
            -rows.mean()
            + strength[0] * np.mean(weight[off] ** 2)
            + np.mean(mus * bias**2)
        )

    ours = loss(np.concatenate([fitted.bias_, fitted.weight_[:2].ravel()]))
    twin = minimize(loss, np.concatenate([np.zeros(3), np.eye(2, 3).ravel()]), tol=1e-8)
    assert fitted.converged_
    assert np.abs(fitted.weight_[2, :2]).max() < 1e-6
    assert ours == pytest.approx(twin.fun, abs=1e-6)
    alone = minimize(  # the paper's infimum: the class as good as impossible
        lambda flat: plain_loss(
            flat[:6].reshape(2, 3)[:, :2],
            flat[[2, 5]],
            features[:, :2],
            labels,
            strength,
        ),
        np.eye(2, 3).ravel(),
    )
    assert ours < alone.fun + 0.02


@pytest.mark.sample(1)
@both
def test_an_absent_class_is_hardly_ever_predicted(method):
    rng = np.random.default_rng(0)
    n_classes, absent = 10, 4
    labels = rng.integers(n_classes, size=25_000)
    logits = 2.0 * (
        rng.normal(size=(25_000, n_classes)) + 1.5 * np.eye(n_classes)[labels]
    )
    present = np.flatnonzero(labels != absent)
    train, fresh = present[:1000], present[1000:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = method().fit(logits[train], labels[train])
    assert fitted.converged_
    assert (fitted.predict(logits[fresh]) == absent).sum() <= 2
    proba = fitted.predict_proba(logits[labels == absent])[:, absent]
    assert (proba > 0.0).all()  # unlikely, not impossible


def test_a_diagonal_that_only_the_ridge_holds_is_named(monkeypatch):
    coef = objective.identity(4)
    coef[0, 0] = 30.0
    assert objective.held_by_ridge(coef).size == 0
    coef[2, 2] = 1e4
    np.testing.assert_array_equal(objective.held_by_ridge(coef), [2])
    monkeypatch.setattr(objective, "DIAGONAL_RIDGE", 1e-3)
    with pytest.warns(
        ConvergenceWarning, match=r"diagonal of class 2: a tiny ridge.*`mus`"
    ):
        fitted = DirichletODIR(lambdas=100.0).fit(*counted([74, 53, 1]))
    assert not fitted.converged_


@both
def test_tiny_and_huge_logits_are_fine(method):
    logits, labels = noisy(100, 3)
    for size in (1e-300, 1e-310, 1e-80, 1e90, 1e150):
        fitted = quiet_fit(method(lambdas=[1.0, 0.1]), logits * size, labels)
        assert np.isfinite(fitted.weight_).all()
        assert np.isfinite(fitted.predict_proba(logits * size)).all()


@pytest.mark.sample(1)
@both
def test_hardly_any_penalty_is_logistic_regression(method):
    logits, labels = noisy(600, 4)
    ours = method(lambdas=1e-9, mus=1e-9).fit(logits, labels).predict_proba(logits)
    features = plain_features(method, logits)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(features, labels)
    np.testing.assert_allclose(ours, peer.predict_proba(features), atol=1e-4)


@both
def test_large_penalties_leave_a_scale_per_class(method):
    logits, labels = noisy(600, 4)
    fitted = method(lambdas=1e9).fit(logits, labels)
    features = plain_features(method, logits)

    def loss(scales):
        return plain_loss(np.diag(scales), np.zeros(4), features, labels, (0.0, 0.0))

    twin = minimize(loss, np.ones(4), method="BFGS", tol=1e-8)
    off = ~np.eye(4, dtype=bool)
    assert np.abs(fitted.weight_[off]).max() < 1e-7
    assert np.abs(fitted.bias_).max() < 1e-7
    np.testing.assert_allclose(np.diag(fitted.weight_), twin.x, atol=1e-4)
    assert fitted.mu_ == fitted.lambda_ == 1e9


@both
@pytest.mark.parametrize("temperature", [1e-3, 0.02, 1.0, 50.0, 1e3])
def test_any_temperature_of_the_logits_is_undone(method, temperature):
    logits, labels = noisy(500, 5)
    plain = method(lambdas=1e12).fit(logits, labels).predict_proba(logits)
    hot = logits * temperature
    if method is MatrixScalingODIR:
        found = method(lambdas=1e12).fit(hot, labels).predict_proba(hot)
        np.testing.assert_allclose(found, plain, atol=1e-5)
    else:  # log-probabilities do not scale with the logits
        fitted = method(lambdas=1e12).fit(hot, labels)
        assert fitted.converged_
        best = minimize(
            lambda t: plain_loss(t * np.eye(5), np.zeros(5), hot, labels, (0, 0)),
            1 / temperature,
            method="Nelder-Mead",
        ).fun
        ours = fitted.predict_proba(hot)[np.arange(500), labels]
        assert -np.log(ours).mean() <= best + 1e-8
