"""ODIR-regularised methods keep the guarantees of every calibrator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from tests.conftest import max_examples, quiet_fit

from hokical import threads
from paper.tests.odir.worlds import both, noisy


@pytest.mark.sample(1)
@both
@given(seed=st.integers(0, 1000))
@max_examples(5)
def test_classes_may_be_renumbered_and_rows_shifted(method, seed):
    logits, labels = noisy(120, 5, seed)
    order = np.random.default_rng(seed).permutation(5)
    place = np.argsort(order)
    shift = np.random.default_rng(seed).normal(size=(120, 1)) * 10
    kwargs = {"lambdas": [10.0, 1.0, 0.1], "mus": [1.0, 0.01]}
    plain = method(**kwargs).fit(logits, labels)
    moved = method(**kwargs).fit(logits[:, order] + shift, place[labels])
    assert (plain.lambda_, plain.mu_) == (moved.lambda_, moved.mu_)
    np.testing.assert_allclose(
        moved.predict_proba(logits[:, order]),
        plain.predict_proba(logits)[:, order],
        atol=1e-6,
    )


@pytest.mark.sample(2)
@both
@pytest.mark.parametrize("lambdas", [1.0, [10.0, 1.0, 0.1], "quick"])
def test_weights_are_repetition_with_cross_validation_too(method, lambdas):
    logits, labels = noisy(150, 3)
    weights = np.random.default_rng(1).integers(0, 4, size=150)
    weighted = method(lambdas=lambdas).fit(logits, labels, sample_weight=weights)
    repeated = method(lambdas=lambdas).fit(
        np.repeat(logits, weights, axis=0), np.repeat(labels, weights)
    )
    assert (weighted.lambda_, weighted.mu_) == (repeated.lambda_, repeated.mu_)
    np.testing.assert_allclose(
        weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-7
    )


@both
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_small_floats_are_their_float64_values(method, dtype):
    logits, labels = noisy(100, 3)
    logits = logits.astype(dtype)
    narrow = method(lambdas=[1.0, 0.1]).fit(logits, labels).predict_proba(logits)
    wide = logits.astype(np.float64)
    expected = method(lambdas=[1.0, 0.1]).fit(wide, labels).predict_proba(wide)
    np.testing.assert_array_equal(narrow, expected)


@pytest.mark.sample(1)
@both
def test_same_result_again_and_with_other_thread_counts(method):
    logits, labels = noisy(300, 4)
    before = logits.copy()
    first = method().fit(logits, labels)
    with threads(1):
        second = clone(first).fit(logits, labels)
    np.testing.assert_array_equal(first.weight_, second.weight_)
    np.testing.assert_array_equal(first.bias_, second.bias_)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.sample(4)
@both
@pytest.mark.parametrize("kind", ["absent", "two", "n = C", "copies", "all equal"])
def test_odd_data_stay_finite(method, kind):
    logits, labels = noisy(60, 4)
    if kind == "absent":
        labels = labels % 3
    elif kind == "two":
        logits, labels = logits[:, :2], labels % 2
    elif kind == "n = C":
        logits, labels = logits[:4], labels[:4]
    elif kind == "copies":
        logits, labels = logits[:1].repeat(5, axis=0), labels[:1].repeat(5)
    else:
        logits = np.zeros_like(logits)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # four examples may be separable
        proba = method().fit(logits, labels).predict_proba(logits)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


@both
def test_an_absent_class_converges_to_nearly_nothing(method):
    logits, labels = noisy(300, 4)
    fitted = method(lambdas=0.01, mus=1e-4).fit(logits, labels % 3)
    assert fitted.converged_
    assert fitted.predict_proba(logits)[:, 3].mean() < 0.02


@both
def test_all_right_is_reported_as_having_no_optimum(method):
    logits, _ = noisy(100, 3)
    with pytest.warns(ConvergenceWarning, match=r"no finite optimum.*more examples"):
        fitted = method(lambdas=1.0).fit(logits, logits.argmax(axis=1))
    assert not fitted.converged_
    assert fitted.predict_confidence(logits).mean() > 0.999


@both
def test_all_wrong_learns_to_avoid_the_label(method):
    logits, _ = noisy(300, 3)
    labels = logits.argmin(axis=1)
    fitted = quiet_fit(method(lambdas=0.1), logits, labels)
    assert (fitted.predict(logits) == labels).mean() > 0.9


@both
def test_too_few_iterations_are_reported(method):
    logits, labels = noisy()
    with pytest.warns(ConvergenceWarning, match=r"1 iterations.*Raise `max_iter`"):
        fitted = method(lambdas=0.01, max_iter=1).fit(logits, labels)
    assert not fitted.converged_
    assert fitted.n_iter_ == 1
