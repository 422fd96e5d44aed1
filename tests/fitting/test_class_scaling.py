"""Scales and biases of classes against SciPy's minimum, and left-out scores against
refits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from hokical._fitting import structured
from hokical._fitting.default import fit_default
from hokical._fitting.searches import Base, Solution, StopReason
from hokical.calibrators import Examples
from hokical.rules import as_logits
from hokical.rules.base import as_scores


def world(n: int, n_classes: int, seed: int, *, biases: float = 1.0) -> Examples:
    """Logits with a bias for each class that the labels do not have, and masked
    classes.
    """
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    logits[:5, : n_classes // 2] = -np.inf
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    logits += biases * rng.normal(size=n_classes)
    weights = rng.uniform(0.5, 1.5, size=n)
    return Examples(as_logits(logits), labels, weights)


def slow_objective(
    coef: np.ndarray, examples: Examples, temperature: float, penalty: float
) -> tuple[float, np.ndarray]:
    """Its value and its gradient."""
    scale, bias = coef.reshape(-1, 2).T
    possible = examples.logits.possible
    x = np.where(possible, examples.logits.margins / temperature, 0.0)
    log_p = log_softmax(np.where(possible, -x * (1.0 + scale) + bias, -np.inf), axis=1)
    truth = np.eye(x.shape[1])[examples.labels]
    losses = -np.sum(log_p, axis=1, where=truth > 0.0)
    value = examples.share @ losses + 0.5 * penalty * np.sum(coef**2)
    residual = (np.exp(log_p) - truth) * examples.share[:, None]
    slope = np.stack([-(residual * x).sum(axis=0), residual.sum(axis=0)], axis=1)
    return float(value), slope.ravel() + penalty * coef


def fit(examples: Examples, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (2 classes,) at a temperature of 1.2, and left-out scores (n,
    classes).
    """
    base = Base(0.0, Solution(1.2, np.nan, 0, StopReason.CONVERGED), examples)
    (rule,), (scores,), _, _ = structured.fit_classes(base, 0.3, tol)
    return np.stack([rule.scale - 1.0, rule.bias], axis=1).ravel(), scores


@pytest.mark.sample(1)
@pytest.mark.parametrize("n_classes", [31, 100])
def test_the_minimum_is_scipys(n_classes: int) -> None:
    examples, start = world(800, n_classes, 0), np.zeros(2 * n_classes)
    problem = examples, 1.2, 0.3 * n_classes / examples.effective_size
    found, _ = fit(examples, structured.CLASS_TOLERANCE)
    best = minimize(slow_objective, start, problem, jac=True, options={"gtol": 1e-7})
    before, after = (slow_objective(coef, *problem)[0] for coef in (start, found))
    assert after < before - 0.05
    assert 0.0 <= after - best.fun < 2.0 * structured.CLASS_TOLERANCE


@pytest.mark.slow
def test_scores_left_out_by_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of the Hessian alone, so that about a quarter of the change is missed."""
    examples = world(120, 8, 1)
    monkeypatch.setattr(structured, "MAX_CLASS_ITER", 100)
    coef, found = fit(examples, 1e-12)
    rows, margins = np.arange(0, 120, 4), examples.logits.margins / 1.2

    def scores(coef: np.ndarray) -> np.ndarray:
        scale, bias = coef.reshape(-1, 2).T
        return bias - margins * (1.0 + scale)

    own = scores(coef)
    exact, options = own.copy(), {"jac": True, "options": {"gtol": 1e-9}}
    for row in rows:
        weights = np.where(np.arange(120) == row, 0.0, examples.share)
        twin = replace(examples, weights=weights)
        penalty = 0.3 * 8 / examples.effective_size / weights.sum()
        exact[row] = scores(
            minimize(slow_objective, coef, (twin, 1.2, penalty), **options).x
        )[row]
    possible = examples.logits.possible[rows]
    missed, change = (np.abs(s - exact)[rows][possible] for s in (found, own))
    assert missed.mean() < 0.35 * change.mean()


@pytest.mark.parametrize(("biases", "used"), [(1.0, True), (0.0, False)])
def test_a_share_is_used_where_classes_differ(biases: float, used: bool) -> None:
    examples = world(3000, 40, 2, biases=biases)
    found = fit_default(examples)
    share = found.shares.get("structured", 0.0)
    assert share > 0.6 if used else share < 0.3
    assert sum(found.shares.values()) == pytest.approx(1.0, abs=0.01)
    np.testing.assert_array_equal(found.held_out.possible, examples.logits.possible)
    # Held-out scores are those of the rule, but for what each example adds to it.
    assert found.correction is None
    gaps = (
        found.held_out.margins
        - as_scores(found.base.scores(examples.logits), examples.logits).margins
    )
    assert np.abs(gaps)[examples.logits.possible].mean() < 0.1
