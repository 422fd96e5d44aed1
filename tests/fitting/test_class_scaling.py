"""Scales and biases of classes against SciPy's minimum, and left-out scores against refits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from hokical._core.logits import as_logits
from hokical._fitting import class_scaling
from hokical._fitting.class_scaling import _Problem, fit_class_scaling
from hokical._fitting.likelihood import WeightedExamples


def world(n: int, n_classes: int, seed: int, *, biases: float = 1.0) -> WeightedExamples:
    """Logits with a bias for each class that the labels do not have, and masked classes."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    logits[:5, : n_classes // 2] = -np.inf
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    logits += biases * rng.normal(size=n_classes)
    weights = rng.uniform(0.5, 1.5, size=n)
    return WeightedExamples(as_logits(logits), labels, weights / weights.sum())


def objective(coef: np.ndarray, problem: _Problem) -> tuple[float, np.ndarray]:
    """Its value and its gradient."""
    scale, bias = coef.reshape(2, -1)
    examples, possible = problem.examples, problem.examples.logits.possible
    x = np.where(possible, examples.logits.margins / problem.temperature, 0.0)
    log_p = log_softmax(np.where(possible, -x * (1.0 + scale) + bias, -np.inf), axis=1)
    truth = np.eye(x.shape[1])[examples.labels]
    losses = -np.sum(log_p, axis=1, where=truth > 0.0)
    value = examples.weights @ losses + 0.5 * problem.penalty * np.sum(coef**2)
    residual = (np.exp(log_p) - truth) * examples.weights[:, None]
    slope = np.stack([-(residual * x).sum(axis=0), residual.sum(axis=0)])
    return float(value), slope.ravel() + problem.penalty * coef.ravel()


@pytest.mark.parametrize("n_classes", [31, 100])
def test_the_minimum_is_scipys(n_classes: int) -> None:
    problem = _Problem(world(800, n_classes, 0), 1.2, 0.3 * n_classes / 800)
    found, _ = problem.minimize()
    start = np.zeros(2 * n_classes)
    best = minimize(objective, start, (problem,), jac=True, options={"gtol": 1e-7})
    before, after = (objective(coef, problem)[0] for coef in (start, found))
    assert after < before - 0.05
    assert 0.0 <= after - best.fun < 2.0 * class_scaling.TOLERANCE
    here = problem._evaluate(0.1 + 0.0 * found)
    value, slope = objective(0.1 + 0.0 * found, problem)
    assert here.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(here.slope.ravel(), slope, atol=1e-12)


def test_scores_left_out_by_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of the Hessian alone, so that about a quarter of the change is missed."""
    monkeypatch.setattr(class_scaling, "TOLERANCE", 1e-12)
    problem = _Problem(world(120, 8, 1), 1.2, 0.3 * 8 / 120)
    coef, hessian = problem.minimize()
    found = problem.left_out(coef, hessian)
    own = problem.z * (1.0 + coef[0]) + coef[1]
    exact = np.empty_like(own)
    for row in range(120):
        weights = problem.examples.weights.copy()
        weights[row] = 0.0
        twin = replace(problem, examples=replace(problem.examples, weights=weights))
        less = twin.minimize()[0]
        exact[row] = problem.z[row] * (1.0 + less[0]) + less[1]
    possible = problem.examples.logits.possible
    missed, change = np.abs(found - exact)[possible], np.abs(own - exact)[possible]
    assert missed.mean() < 0.35 * change.mean()


@pytest.mark.parametrize(("biases", "used"), [(1.0, True), (0.0, False)])
def test_a_share_is_used_where_classes_differ(biases: float, used: bool) -> None:
    examples = world(3000, 40, 2, biases=biases)
    found = fit_class_scaling(examples)
    share = found.shares.get("class scaling", 0.0)
    assert share > 0.6 if used else share < 0.3
    assert sum(found.shares.values()) == pytest.approx(1.0)
    np.testing.assert_array_equal(found.held_out.possible, examples.logits.possible)
    # Held-out scores are those of the rule, but for what each example adds to it.
    gaps = np.abs(found.held_out.margins - found.base.logits(examples.logits).margins)
    assert gaps[examples.logits.possible].mean() < 0.1
