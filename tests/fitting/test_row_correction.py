"""The fit of the row correction against finite differences and refits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import log_softmax

from hokical import TopK
from hokical._fitting import default as row_correction
from hokical.calibrators import Examples
from hokical.rules import as_logits
from hokical.rules.scaling import N_COEFFICIENTS
from tests.conftest import max_examples

N_COEF = 2 * N_COEFFICIENTS


def world(n: int, n_classes: int, seed: int, *, uneven: float = 0.0) -> Examples:
    """Calibrated logits, some stretched; the first rows have masked classes and a
    tie.
    """
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    logits[0, 1:] = -np.inf
    logits[1, 2:] = -np.inf
    logits[2, :2] = logits[2].max()
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    logits *= np.exp(uneven * rng.normal(size=(n, 1)))
    weights = rng.uniform(0.5, 1.5, size=n)
    return Examples(as_logits(logits), labels, weights)


def problem_of(
    examples: Examples, temperature: float = 1.3
) -> row_correction.CorrectionProblem:
    return row_correction.CorrectionProblem(examples, temperature)


@given(
    seed=st.integers(0, 100), size=st.sampled_from([0.0, 0.1, 0.5]), top_k=st.booleans()
)
@max_examples(20)
def test_slopes_by_finite_differences(seed: int, size: float, top_k: bool) -> None:
    examples = world(40, 6, seed)
    if top_k:
        best = TopK.from_logits(examples.logits, 3)
        examples = Examples(best, best.labels, examples.weights)
    problem, rng = problem_of(examples), np.random.default_rng(seed)
    coef = size * rng.normal(size=N_COEF)

    def value(x: np.ndarray) -> float:
        return problem.penalise(problem.at(x), 2.0).value

    found = problem.penalise(problem.at(coef), 2.0).gradient
    expected = approx_fprime(coef, value, 1e-7)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_the_loss_is_that_of_the_corrected_softmax() -> None:
    examples = world(30, 6, 0)
    problem, rng = problem_of(examples), np.random.default_rng(0)
    pair = rng.normal(size=(30, 2))
    margins = examples.logits.margins / 1.3
    scores = -np.exp(pair[:, :1]) * margins
    scores[np.arange(len(scores)), examples.logits.labels] = pair[:, 1]
    expected = -log_softmax(scores, axis=1)[np.arange(30), examples.labels]
    found = problem.at(np.zeros(N_COEF), pair).losses
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_fisher_matrix_is_the_expected_product_of_slopes() -> None:
    """Of the log losses of all classes, in the probabilities that the point itself
    has.
    """
    examples = world(30, 5, 3)
    coef = 0.2 * np.random.default_rng(1).normal(size=N_COEF)
    whole = np.zeros((N_COEF, N_COEF))
    for label in range(5):
        alike = np.full(30, label)
        possible = examples.logits.possible[:, label]
        alike[~possible] = examples.logits.labels[~possible]
        twin = Examples(examples.logits, alike, examples.weights)
        problem = problem_of(twin)
        rows = problem.at(coef)
        proba = np.exp(-rows.losses) * possible
        slopes = rows.slopes[:, :, None] * problem.design[:, None, :]
        slopes = slopes.reshape(30, N_COEF)
        whole += slopes.T @ (slopes * (proba * problem.counts)[:, None])
    found = problem.penalise(problem.at(coef), 0.0).hessian
    np.testing.assert_allclose(found, whole, rtol=1e-8, atol=1e-8)


@pytest.mark.sample(0)
@pytest.mark.parametrize(("ridge", "missed"), [(300.0, 0.1), (30.0, 0.2), (3.0, 0.3)])
def test_pairs_left_out_by_refits(
    ridge: float, missed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step, by the expected Hessian, has most of what a fit of 79 examples
    changes.
    """
    monkeypatch.setattr(row_correction, "ROW_TOLERANCE", 1e-12)
    problem = problem_of(world(80, 5, 2, uneven=0.7))
    point = problem.fit(ridge, problem.uncorrected)
    coef, away = point.coef, problem.leave_out(point)
    own, counts = problem.design @ coef.reshape(2, -1).T, problem.counts.copy()
    exact = np.empty_like(own)
    for row in range(80):
        problem.counts = np.where(np.arange(80) == row, 0.0, counts)
        without = problem.fit(ridge, problem.at(coef)).coef
        exact[row] = problem.design[row] @ without.reshape(2, -1).T
    assert np.abs(away - exact).mean() < missed * np.abs(own - exact).mean()


def test_only_a_classifier_that_needs_it_is_corrected() -> None:
    for seed in range(3):
        for uneven, needed in ((0.0, False), (1.0, True)):
            examples = world(1000, 10, seed, uneven=uneven)
            correction, held_out = row_correction.fit_row_correction(examples)
            assert (correction is not None) == needed
            assert (held_out != 0.0).any() == needed
