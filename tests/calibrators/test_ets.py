"""Ensemble temperature scaling: its loss, its solver, and labels that never move."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from hokical import TopK, threads
from hokical.calibrators import EnsembleTemperatureScaling, load
from tests.conftest import max_examples, quiet_fit, real_logits

REAL = ["cifar10_resnet110", "cifar100_wrn28_10", "mnist_lenet5"]


def simulated(seed, n=1500, classes=5, temperature=2.0, guesses=0.15):
    """Logits that are too large by `temperature`, and labels some of which are pure
    guesses.
    """
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    guess = rng.random(n) < guesses
    labels[guess] = rng.integers(classes, size=guess.sum())
    return temperature * logits, labels


def mixture(logits, temperature, weights):
    possible = logits > -np.inf
    uniform = possible / possible.sum(axis=1, keepdims=True)
    parts = softmax(logits / temperature, axis=1), softmax(logits, axis=1), uniform
    return sum(weight * part for weight, part in zip(weights, parts, strict=True))


def mean_loss(proba, labels):
    """The plain, reference implementation."""
    return ((proba - np.eye(proba.shape[1])[labels]) ** 2).sum(axis=1).mean()


def two_steps(logits, labels):
    """The authors' two steps by general optimisers: the temperature alone, then the
    weights.
    """

    def alone(log_temperature):
        return mean_loss(softmax(logits / np.exp(log_temperature), axis=1), labels)

    temperature = np.exp(
        minimize_scalar(alone, bounds=(-3, 3), options={"xatol": 1e-9}).x
    )
    found = minimize(
        lambda weights: mean_loss(mixture(logits, temperature, weights), labels),
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14},
    )
    return temperature, found.fun


@pytest.mark.sample(2)
@pytest.mark.parametrize(("seed", "temperature"), [(0, 2.0), (1, 0.6), (2, 1.0)])
def test_finds_what_two_general_optimisers_find(seed, temperature):
    logits, labels = simulated(seed, 400, 4, temperature)
    cal = EnsembleTemperatureScaling().fit(logits, labels)
    assert cal.converged_
    ours = mean_loss(mixture(logits, cal.temperature_, cal.weights_), labels)
    assert_allclose(cal.loss_, ours, rtol=1e-9)
    slow_temperature, slow_loss = two_steps(logits, labels)
    assert_allclose(cal.temperature_, slow_temperature, rtol=1e-4)
    assert_allclose(ours, slow_loss, atol=1e-6)
    assert_allclose(
        cal.predict_proba(logits), mixture(logits, cal.temperature_, cal.weights_)
    )


@pytest.mark.parametrize("scale", [1e-130, 1e24, 1e130])
def test_logits_in_absurd_units(scale):
    logits, labels = simulated(4, 300)
    cal = quiet_fit(EnsembleTemperatureScaling(), scale * logits, labels)
    assert np.isfinite(cal.loss_)
    assert cal.predict_proba(scale * logits).min() > 0.0


@pytest.mark.sample(1)
def test_threads_and_the_compiled_path_change_nothing(monkeypatch):
    logits, labels = simulated(5, 6000, 60)
    with threads(1):
        one = EnsembleTemperatureScaling().fit(logits, labels)
    with threads(3):
        three = EnsembleTemperatureScaling().fit(logits, labels)
    assert one.temperature_ == three.temperature_
    assert_array_equal(one.weights_, three.weights_)
    monkeypatch.setattr("hokical._core.runtime.has_compiler", lambda: False)
    portable = EnsembleTemperatureScaling().fit(logits, labels)
    assert_allclose(
        portable.predict_proba(logits), one.predict_proba(logits), atol=1e-9
    )


def test_hidden_classes_count_as_equal_ones():
    logits, labels = simulated(13, 400, 9)
    top = TopK.from_logits(logits, 4)
    known = (top.indices == labels[:, None]).any(axis=1)
    cal = EnsembleTemperatureScaling().fit(top[known], labels[known])
    dense = EnsembleTemperatureScaling().fit(top[known].to_dense(), labels[known])
    assert_allclose(cal.loss_, dense.loss_, rtol=1e-10)
    assert_allclose(cal.weights_, dense.weights_, atol=1e-6)


@max_examples(15)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.floats(0.3, 4.0),
    guesses=st.floats(0.0, 0.6),
)
def test_constants_and_the_order_of_classes_do_not_matter(seed, temperature, guesses):
    logits, labels = simulated(seed, 150, 4, temperature, guesses)
    rng = np.random.default_rng(seed)
    order = rng.permutation(4)
    plain = quiet_fit(EnsembleTemperatureScaling(), logits, labels).predict_proba(
        logits
    )
    moved = quiet_fit(
        EnsembleTemperatureScaling(), logits + rng.normal(size=(150, 1)), labels
    )
    permuted = quiet_fit(
        EnsembleTemperatureScaling(), logits[:, order], np.argsort(order)[labels]
    )
    assert_allclose(moved.predict_proba(logits), plain, atol=1e-8)
    assert_allclose(
        permuted.predict_proba(logits[:, order]), plain[:, order], atol=1e-8
    )


def test_weights_are_repetitions():
    logits, labels = simulated(6, 6000, 20)
    counts = np.random.default_rng(6).integers(0, 4, size=labels.size)
    weighted = EnsembleTemperatureScaling().fit(logits, labels, counts)
    repeated = EnsembleTemperatureScaling().fit(
        np.repeat(logits, counts, axis=0), np.repeat(labels, counts)
    )
    assert_allclose(weighted.loss_, repeated.loss_, rtol=1e-11)
    assert_allclose(
        weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-9
    )


def test_labels_stay_even_where_floats_tie():
    logits, _ = simulated(7, 300, 4)
    logits[:50] *= 1e-13
    cal = quiet_fit(
        EnsembleTemperatureScaling(), logits, logits.argmin(axis=1)
    )  # nearly all weight on uniform
    assert_array_equal(cal.predict_proba(logits).argmax(axis=1), logits.argmax(axis=1))
    assert_array_equal(cal.predict(logits), logits.argmax(axis=1))
    own = cal.predict_proba(logits)[np.arange(300), logits.argmax(axis=1)]
    assert_allclose(cal.predict_confidence(logits), own, rtol=1e-14)


def test_all_right_ends_at_the_lower_bound_and_says_so():
    logits, _ = simulated(8, 100, 4)
    with pytest.warns(ConvergenceWarning, match="every label has the top logit"):
        cal = EnsembleTemperatureScaling().fit(logits, logits.argmax(axis=1))
    assert cal.temperature_ == 1e-5
    assert not cal.converged_
    assert cal.loss_ < 1e-6


def test_masked_classes_get_nothing_of_the_uniform_part():
    logits, labels = simulated(9)
    padded = np.hstack([logits, np.full((labels.size, 3), -np.inf)])
    cal = EnsembleTemperatureScaling().fit(padded, labels)
    plain = EnsembleTemperatureScaling().fit(logits, labels)
    assert cal.weights_[2] > 0.05
    assert_allclose(cal.weights_, plain.weights_, atol=1e-8)
    assert_allclose(
        cal.predict_proba(padded)[:, :5], plain.predict_proba(logits), atol=1e-8
    )
    assert_array_equal(cal.predict_proba(padded)[:, 5:], 0.0)


def test_impossible_truths_are_left_out_with_a_word():
    logits, labels = simulated(10)
    logits[np.arange(10), labels[:10]] = -np.inf
    with pytest.warns(RuntimeWarning, match="10 of 1500 examples are left out"):
        cal = EnsembleTemperatureScaling().fit(logits, labels)
    twin = EnsembleTemperatureScaling().fit(logits[10:], labels[10:])
    assert_allclose(cal.temperature_, twin.temperature_, rtol=1e-6)


def test_a_file_gives_back_the_fit(tmp_path):
    logits, labels = simulated(12)
    cal = EnsembleTemperatureScaling().fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert_array_equal(loaded.predict_proba(logits), cal.predict_proba(logits))
    assert (loaded.loss_, loaded.message_) == (cal.loss_, cal.message_)


@pytest.mark.peer
@pytest.mark.parametrize("name", REAL)
def test_at_least_as_good_as_probmetrics_on_real_logits(name):
    """They fit one parameter after the other, so equality holds where that is no
    loss.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(
            "probmetrics", reason="the peer probmetrics is not installed"
        )
        from probmetrics.calibrators.temperature_scaling import ETSCalibrator

        logits, labels = real_logits(name)
        proba = softmax(logits.astype(np.float64), axis=1)
        peer = ETSCalibrator(loss="mse").fit(proba, labels)
        their_loss = mean_loss(peer.predict_proba(proba), labels)
    cal = EnsembleTemperatureScaling().fit(logits, labels)
    assert cal.converged_
    assert cal.loss_ <= their_loss + 1e-5
    at_theirs = mean_loss(mixture(logits.astype(np.float64), peer.t_, peer.w_), labels)
    assert_allclose(at_theirs, their_loss, atol=1e-4)  # the same model, the same loss
    assert_allclose(cal.loss_, their_loss, atol=1e-4)
