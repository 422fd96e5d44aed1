"""Ensemble temperature scaling: its losses, its solvers, and labels that never move."""

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
from hokical._fitting.simplex import least_log_loss, least_quadratic
from hokical._fitting.temperature import BOUNDS
from hokical.calibrators import EnsembleTemperatureScaling, TemperatureScaling, load
from tests.conftest import max_examples, real_logits

REAL = ["cifar10_resnet110", "cifar100_wrn28_10", "mnist_lenet5"]
LOSSES = ["log", "mse"]


def simulated(seed, n=1500, classes=5, temperature=2.0, guesses=0.15):
    """Logits that are too large by `temperature`, and labels some of which are pure guesses."""
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


def mean_loss(proba, labels, loss, weights=None):
    """The plain, reference implementation."""
    if loss == "log":
        each = -np.log(proba[np.arange(labels.size), labels])
    else:
        each = ((proba - np.eye(proba.shape[1])[labels]) ** 2).sum(axis=1)
    return np.average(each, weights=weights)


def two_steps(logits, labels, loss):
    """The authors' two steps by general optimisers: the temperature alone, then the weights."""

    def alone(log_temperature):
        return mean_loss(softmax(logits / np.exp(log_temperature), axis=1), labels, loss)

    temperature = np.exp(minimize_scalar(alone, bounds=(-3, 3), options={"xatol": 1e-9}).x)
    found = minimize(
        lambda weights: mean_loss(mixture(logits, temperature, weights), labels, loss),
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14},
    )
    return temperature, found.fun


def quiet_fit(logits, labels, weights=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EnsembleTemperatureScaling(**options).fit(logits, labels, weights)


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("seed", "temperature"), [(0, 2.0), (1, 0.6), (2, 1.0)])
def test_finds_what_two_general_optimisers_find(loss, seed, temperature):
    logits, labels = simulated(seed, 400, 4, temperature)
    cal = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert cal.converged_
    ours = mean_loss(mixture(logits, cal.temperature_, cal.weights_), labels, loss)
    assert_allclose(cal.loss_, ours, rtol=1e-9)
    slow_temperature, slow_loss = two_steps(logits, labels, loss)
    assert_allclose(cal.temperature_, slow_temperature, rtol=1e-4)
    assert_allclose(ours, slow_loss, atol=1e-6)
    assert_allclose(cal.predict_proba(logits), mixture(logits, cal.temperature_, cal.weights_))


def test_the_log_loss_has_the_temperature_of_temperature_scaling():
    logits, labels = simulated(3)
    cal = EnsembleTemperatureScaling(loss="log").fit(logits, labels)
    plain = TemperatureScaling().fit(logits, labels)
    assert cal.temperature_ == plain.temperature_
    assert cal.loss_ < plain.log_loss_


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1e-130, 1e24, 1e130])
def test_logits_in_absurd_units(loss, scale):
    logits, labels = simulated(4, 300)
    cal = quiet_fit(scale * logits, labels, loss=loss)
    assert np.isfinite(cal.loss_)
    wide = quiet_fit(scale * logits, labels, loss=loss, bounds=(scale / 1e4, scale * 1e4))
    assert wide.loss_ <= cal.loss_ + 1e-9


@max_examples(60)
@given(seed=st.integers(0, 100_000), rank=st.integers(1, 3))
def test_the_quadratic_on_the_simplex_has_no_better_point(seed, rank):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, rank))
    linear, hessian = rng.normal(size=3), root @ root.T
    found = least_quadratic(linear, hessian)
    assert found.min() >= 0
    assert_allclose(found.sum(), 1.0)
    others = np.vstack([rng.dirichlet(np.ones(3), size=300), np.eye(3)])

    def value(w):
        return w @ linear + 0.5 * np.einsum("...i,ij,...j->...", w, hessian, w)

    assert value(found) <= value(others).min() + 1e-9


@max_examples(20)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 300))
def test_the_weights_of_least_log_loss_meet_the_conditions_of_optimality(seed, n):
    rng = np.random.default_rng(seed)
    proba, share = np.maximum(rng.random((n, 3)) ** 4, 1e-12), rng.dirichlet(np.ones(n))
    weights = least_log_loss(proba, share)
    gradient = -share @ (proba / (proba @ weights)[:, None])
    assert_allclose(weights.sum(), 1.0)
    assert_allclose(gradient[weights > 1e-9], gradient.min(), atol=1e-5)


@pytest.mark.sample(1)
@pytest.mark.parametrize("loss", LOSSES)
def test_threads_and_the_compiled_path_change_nothing(loss, monkeypatch):
    logits, labels = simulated(5, 6000, 60)
    with threads(1):
        one = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    with threads(3):
        three = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert one.temperature_ == three.temperature_
    assert_array_equal(one.weights_, three.weights_)
    monkeypatch.setattr("hokical._core.jit.has_compiler", lambda: False)
    portable = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert_allclose(portable.predict_proba(logits), one.predict_proba(logits), atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_hidden_classes_count_as_equal_ones(loss):
    logits, labels = simulated(13, 400, 9)
    top = TopK.from_logits(logits, 4)
    known = (top.indices == labels[:, None]).any(axis=1)
    cal = EnsembleTemperatureScaling(loss=loss).fit(top[known], labels[known])
    dense = EnsembleTemperatureScaling(loss=loss).fit(top[known].to_dense(), labels[known])
    assert_allclose(cal.loss_, dense.loss_, rtol=1e-10)
    assert_allclose(cal.weights_, dense.weights_, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@max_examples(15)
@given(seed=st.integers(0, 10_000), temperature=st.floats(0.3, 4.0), guesses=st.floats(0.0, 0.6))
def test_constants_and_the_order_of_classes_do_not_matter(loss, seed, temperature, guesses):
    logits, labels = simulated(seed, 150, 4, temperature, guesses)
    rng = np.random.default_rng(seed)
    order = rng.permutation(4)
    plain = quiet_fit(logits, labels, loss=loss).predict_proba(logits)
    moved = quiet_fit(logits + rng.normal(size=(150, 1)), labels, loss=loss)
    permuted = quiet_fit(logits[:, order], np.argsort(order)[labels], loss=loss)
    assert_allclose(moved.predict_proba(logits), plain, atol=1e-8)
    assert_allclose(permuted.predict_proba(logits[:, order]), plain[:, order], atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_repetitions(loss):
    logits, labels = simulated(6, 6000, 20)
    counts = np.random.default_rng(6).integers(0, 4, size=labels.size)
    weighted = EnsembleTemperatureScaling(loss=loss).fit(logits, labels, counts)
    repeated = EnsembleTemperatureScaling(loss=loss).fit(
        np.repeat(logits, counts, axis=0), np.repeat(labels, counts)
    )
    assert_allclose(weighted.loss_, repeated.loss_, rtol=1e-11)
    assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_stay_even_where_floats_tie(loss):
    logits, _ = simulated(7, 300, 4)
    logits[:50] *= 1e-13
    cal = quiet_fit(logits, logits.argmin(axis=1), loss=loss)  # nearly all weight on uniform
    assert_array_equal(cal.predict_proba(logits).argmax(axis=1), logits.argmax(axis=1))
    assert_array_equal(cal.predict(logits), logits.argmax(axis=1))
    own = cal.predict_proba(logits)[np.arange(300), logits.argmax(axis=1)]
    assert_allclose(cal.predict_confidence(logits), own, rtol=1e-14)


@pytest.mark.parametrize("loss", LOSSES)
def test_all_right_ends_at_the_lower_bound_and_says_so(loss):
    logits, _ = simulated(8, 100, 4)
    with pytest.warns(ConvergenceWarning, match="every validation label has the top logit"):
        cal = EnsembleTemperatureScaling(loss=loss).fit(logits, logits.argmax(axis=1))
    assert cal.temperature_ == BOUNDS[0]
    assert not cal.converged_
    assert cal.loss_ < 1e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_masked_classes_get_nothing_of_the_uniform_part(loss):
    logits, labels = simulated(9)
    padded = np.hstack([logits, np.full((labels.size, 3), -np.inf)])
    cal = EnsembleTemperatureScaling(loss=loss).fit(padded, labels)
    plain = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert cal.weights_[2] > 0.05
    assert_allclose(cal.weights_, plain.weights_, atol=1e-8)
    assert_allclose(cal.predict_proba(padded)[:, :5], plain.predict_proba(logits), atol=1e-8)
    assert_array_equal(cal.predict_proba(padded)[:, 5:], 0.0)


def test_impossible_truths_are_left_out_with_a_word():
    logits, labels = simulated(10)
    logits[np.arange(10), labels[:10]] = -np.inf
    with pytest.warns(RuntimeWarning, match="10 of 1500 examples are left out"):
        cal = EnsembleTemperatureScaling().fit(logits, labels)
    twin = EnsembleTemperatureScaling().fit(logits[10:], labels[10:])
    assert_allclose(cal.temperature_, twin.temperature_, rtol=1e-6)


def test_too_few_iterations_are_reported():
    logits, labels = simulated(11)
    with pytest.warns(ConvergenceWarning, match="Raise `max_iter`"):
        cal = EnsembleTemperatureScaling(max_iter=1).fit(logits, labels)
    assert not cal.converged_


def test_a_bad_loss_is_named():
    with pytest.raises(ValueError, match='`loss` must be "mse" or "log"; got \'ce\''):
        EnsembleTemperatureScaling(loss="ce").fit(*simulated(0, 20))


def test_a_file_gives_back_the_fit(tmp_path):
    logits, labels = simulated(12)
    cal = EnsembleTemperatureScaling(loss="log").fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert_array_equal(loaded.predict_proba(logits), cal.predict_proba(logits))
    assert (loaded.loss_, loaded.message_) == (cal.loss_, cal.message_)
    assert loaded.loss == "log"


@pytest.mark.peer
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", REAL)
def test_at_least_as_good_as_probmetrics_on_real_logits(name, loss):
    """They fit one parameter after the other, so equality holds where that is no loss."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("probmetrics", reason="the peer probmetrics is not installed")
        from probmetrics.calibrators.temperature_scaling import ETSCalibrator

        logits, labels = real_logits(name)
        proba = softmax(logits.astype(np.float64), axis=1)
        peer = ETSCalibrator(loss="ce" if loss == "log" else "mse").fit(proba, labels)
        their_loss = mean_loss(peer.predict_proba(proba), labels, loss)
    cal = EnsembleTemperatureScaling(loss=loss).fit(logits, labels)
    assert cal.converged_
    assert cal.loss_ <= their_loss + 1e-5
    at_theirs = mean_loss(mixture(logits.astype(np.float64), peer.t_, peer.w_), labels, loss)
    assert_allclose(at_theirs, their_loss, atol=1e-4)  # the same model, the same loss
    assert_allclose(cal.loss_, their_loss, atol=1e-4)
