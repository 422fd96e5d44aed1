"""The level of probabilities: their mean is the share of the labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import expit, softmax

import hokical
from hokical import CalibratedClassifier, FitDataWarning
from hokical._fitting import level
from hokical._fitting.default import weigh_level
from hokical.calibrators import Examples, PlattScaling
from hokical.rules import as_logits
from tests.conftest import max_examples


def draw_offset_rows(
    n: int, seed: int, *, offset: float = 3.0, center: float = -4.0
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of a rare event that are right but for a constant."""
    rng = np.random.default_rng(seed)
    log_odds = center + 1.5 * rng.normal(size=n)
    labels = (rng.random(n) < expit(log_odds)).astype(int)
    return np.stack([np.zeros(n), log_odds + offset], axis=1), labels


def draw_examples(n: int, n_classes: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n_classes))
    labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    scores[:, 0] += 2.0
    labels[:n_classes] = np.arange(n_classes)
    return Examples(as_logits(scores), labels, rng.uniform(0.5, 1.5, size=n))


def mean_log_loss(proba: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(proba[np.arange(labels.size), labels]).mean())


@given(
    seed=st.integers(0, 1000),
    n_classes=st.integers(2, 6),
    even=st.sampled_from([0.0, 0.01]),
)
@max_examples(20)
def test_mean_probabilities_are_the_shares_of_the_labels(
    seed: int, n_classes: int, even: float
) -> None:
    """But for the ridge, a fraction of an example."""
    examples = draw_examples(200, n_classes, seed)
    scores = examples.logits.values
    bias, _ = level.fit_level(scores, examples, even)
    proba = (1.0 - even) * softmax(scores + bias, axis=1) + even / n_classes
    shares = np.bincount(examples.labels, examples.share)
    limit = 2.0 * level.RIDGE / examples.effective_size * np.abs(bias).max() + 1e-9
    assert np.abs(examples.share @ proba - shares).max() <= limit


@pytest.mark.parametrize("even", [0.0, 0.05])
def test_gradient_and_hessian_by_finite_differences(even: float) -> None:
    examples = draw_examples(50, 4, seed=0)
    problem = level.LevelProblem(examples.logits.values, examples, even)
    bias = np.random.default_rng(1).normal(size=4)
    _, gradient, hessian = problem.evaluate(bias)
    expected = approx_fprime(bias, lambda b: problem.evaluate(b)[0], 1e-7)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    expected = approx_fprime(bias, lambda b: problem.evaluate(b)[1], 1e-7)
    np.testing.assert_allclose(hessian, expected, atol=1e-6)


@pytest.mark.parametrize(("n_classes", "missed"), [(2, 0.1), (4, 0.5)])
def test_biases_without_each_example_by_refits(n_classes: int, missed: float) -> None:
    """One Newton step has most of what a fit of the other examples changes."""
    examples = draw_examples(60, n_classes, seed=2)
    scores = examples.logits.values
    bias, without_each = level.fit_level(scores, examples)
    refits = np.empty_like(without_each)
    for row in range(60):
        others = np.delete(np.arange(60), row)
        refits[row] = level.fit_level(scores[others], examples.take(others)).bias
    refits -= refits.mean(axis=1, keepdims=True)
    steps = without_each - without_each.mean(axis=1, keepdims=True)
    error = np.abs(steps - refits).mean()
    assert error < missed * np.abs(refits - (bias - bias.mean())).mean()


def test_calibrated_scores_are_rarely_contradicted() -> None:
    """And scores that are off by a constant always are."""
    for offset, center, least, most in ((0.0, -1.0, 0, 6), (3.0, -4.0, 60, 60)):
        weights = []
        for seed in range(60):
            logits, labels = draw_offset_rows(300, seed, offset=offset, center=center)
            examples = Examples(as_logits(logits), labels, None)
            weights.append(weigh_level(-examples.logits.margins, examples, 300.0))
        assert least <= np.count_nonzero(weights) <= most


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 600])
def test_the_mean_of_scores_off_by_a_constant(n: int) -> None:
    """As after training with class weights: the mean is that of the labels, and the
    log loss no worse than by Platt scaling, which is right for these scores.
    """
    fresh, truth = draw_offset_rows(5000, 1000)
    losses = []
    for seed in range(8):
        logits, labels = draw_offset_rows(n, seed)
        calibrator = hokical.auto(logits, labels)
        ratio = calibrator.predict_proba(logits)[:, 1].sum() / labels.sum()
        assert ratio == pytest.approx(1.0, abs=0.03)
        platt = PlattScaling().fit(logits, labels)
        losses.append(
            mean_log_loss(calibrator.predict_proba(fresh), truth)
            - mean_log_loss(platt.predict_proba(fresh), truth)
        )
    assert np.mean(losses) < 0.001


@pytest.mark.parametrize("offset", [0.5, 1.0])
def test_a_small_offset_is_taken_away(offset: float) -> None:
    """One that the labels do not contradict clearly."""
    for seed in range(4):
        logits, labels = draw_offset_rows(300, seed, offset=offset)
        expected = hokical.auto(logits, labels).predict_proba(logits)[:, 1].sum()
        assert expected / labels.sum() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("n_classes", [3, 6, 10])
def test_the_mean_of_rare_classes_off_by_constants(n_classes: int) -> None:
    """Class weights raise rare classes: their means are those of the labels, too."""
    offset = np.linspace(0.0, 3.0, n_classes)
    ratios = []
    losses = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        logits = 2.0 * rng.normal(size=(100 * n_classes, n_classes)) - offset
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        fresh = 2.0 * rng.normal(size=(4000, n_classes)) - offset
        truth = (fresh + rng.gumbel(size=fresh.shape)).argmax(axis=1)
        calibrator = hokical.auto(logits + offset, labels)
        expected = calibrator.predict_proba(logits + offset).sum(axis=0)
        ratios.append(expected[-1] / np.count_nonzero(labels == n_classes - 1))
        proba = calibrator.predict_proba(fresh + offset)
        best = mean_log_loss(softmax(fresh, axis=1), truth)
        losses.append(mean_log_loss(proba, truth) - best)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.03)
    assert np.mean(losses) < 0.05


def test_the_reason_says_that_the_level_was_moved() -> None:
    reason = hokical.auto(*draw_offset_rows(600, 0)).reason_
    assert "moved to the class frequencies of the labels" in reason


def test_class_weights_in_training_leave_the_mean_alone() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1500, 4))
    events = rng.random(1500) < expit(features @ [1.0, 0.7, 0.5, 0.0] - 4.2)
    weighted = linear_model.LogisticRegression(class_weight="balanced")
    model = CalibratedClassifier(weighted).fit(features, events)
    ratio = model.predict_proba(features)[:, 1].sum() / events.sum()
    assert ratio == pytest.approx(1.0, abs=0.05)


def test_examples_of_one_class_still_fit_a_temperature() -> None:
    """Of a class that the classifier denied with certainty."""
    log_proba = np.log(np.tile([1.0 - 1e-10, 1e-10], (30, 1)))
    with pytest.warns(FitDataWarning, match="Only a temperature was fitted: all 30"):
        calibrator = hokical.auto(log_proba, np.ones(30, int))
    assert calibrator.chosen_ == "temps"
    assert mean_log_loss(calibrator.predict_proba(log_proba), np.ones(30, int)) < 1.0


def test_one_class_does_not_ruin_a_calibrated_classifier() -> None:
    logits, labels = draw_offset_rows(3000, 5, offset=0.0, center=0.0)
    fresh, truth = draw_offset_rows(3000, 6, offset=0.0, center=0.0)
    rows = np.flatnonzero(labels == 1)[:30]
    with pytest.warns(FitDataWarning, match="of class 1"):
        calibrator = hokical.auto(logits[rows], labels[rows])
    before = mean_log_loss(softmax(fresh, axis=1), truth)
    assert mean_log_loss(calibrator.predict_proba(fresh), truth) < before + 0.02
