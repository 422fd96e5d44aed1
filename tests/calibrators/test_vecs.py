"""Vector scaling: the optimum of its loss, finite and unique whatever the data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

from hokical import threads
from hokical._fitting.searches import minimize_dense
from hokical.calibrators import TemperatureScaling, VectorScaling, load
from tests.conftest import max_examples, quiet_fit, real_logits

REAL = ["cifar10_resnet110", "cifar10_lenet5"]


def simulated(seed, n=600, classes=5, spread=2.0):
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, classes))
    skewed = logits * rng.uniform(0.5, 1.5, classes) + rng.normal(size=classes)
    return logits, np.argmax(skewed + rng.gumbel(size=logits.shape), axis=1)


def mean_log_loss(proba, labels, weights=None):
    return np.average(-np.log(proba[np.arange(labels.size), labels]), weights=weights)


def unit_of(logits, temperature):
    means = np.sort((logits.max(axis=1, keepdims=True) - logits).mean(axis=1))
    return min(temperature, means[(means.size - 1) // 2])


def penalised_loss(theta, logits, labels, ridge, temperature):
    """The plain, reference implementation: theta = (min(T, u) (scale - 1/T), bias)."""
    deviation, bias = np.split(theta, 2)
    scale = 1 / temperature + deviation / unit_of(logits, temperature)
    scores = log_softmax(logits, axis=1) * scale + bias
    log_proba = log_softmax(scores, axis=1)[np.arange(labels.size), labels]
    return -log_proba.mean() + 0.5 * ridge * theta @ theta


@pytest.mark.sample(1)
@pytest.mark.parametrize("ridge", [1e-8, 1e-3, 0.1])
def test_finds_what_a_general_optimiser_finds(ridge):
    logits, labels = simulated(0)
    cal = VectorScaling(ridge=ridge).fit(logits, labels)
    temperature = TemperatureScaling().fit(logits, labels).temperature_
    slow = minimize(
        penalised_loss,
        np.zeros(10),
        args=(logits, labels, ridge, temperature),
        tol=1e-10,
    )
    deviation = unit_of(logits, temperature) * (cal.scale_ - 1 / temperature)
    theta = np.concatenate([deviation, cal.bias_])
    ours = penalised_loss(theta, logits, labels, ridge, temperature)
    assert cal.converged_
    assert ours <= slow.fun + 1e-12
    assert_allclose(theta, slow.x, atol=1e-4)
    assert_allclose(
        cal.log_loss_, mean_log_loss(cal.predict_proba(logits), labels), rtol=1e-10
    )


@max_examples(20)
@given(seed=st.integers(0, 10_000), n=st.integers(5, 200), classes=st.integers(2, 6))
def test_constants_and_the_order_of_classes_do_not_matter(seed, n, classes):
    logits, labels = simulated(seed, n, classes)
    rng = np.random.default_rng(seed)
    order = rng.permutation(classes)
    plain = quiet_fit(VectorScaling(), logits, labels).predict_proba(logits)
    moved = quiet_fit(
        VectorScaling(), logits + 5 * rng.normal(size=(n, 1)), labels
    ).predict_proba(logits)
    permuted = quiet_fit(VectorScaling(), logits[:, order], np.argsort(order)[labels])
    assert_allclose(moved, plain, atol=1e-9)
    assert_allclose(
        permuted.predict_proba(logits[:, order]), plain[:, order], atol=1e-9
    )


@max_examples(20)
@given(seed=st.integers(0, 10_000))
def test_never_worse_than_temperature_scaling_and_biases_sum_to_zero(seed):
    logits, labels = simulated(seed, 150, 4)
    plain = TemperatureScaling().fit(logits, labels)
    cal = VectorScaling().fit(logits, labels)
    assert cal.log_loss_ <= plain.log_loss_ + 1e-12
    assert abs(cal.bias_.sum()) < 1e-10


def test_weights_are_repetitions():
    logits, labels = simulated(2)
    weights = np.random.default_rng(2).integers(0, 4, size=labels.size)
    weighted = VectorScaling().fit(logits, labels, weights)
    repeated = VectorScaling().fit(
        np.repeat(logits, weights, axis=0), np.repeat(labels, weights)
    )
    assert_allclose(weighted.scale_, repeated.scale_, rtol=1e-8)
    assert_allclose(weighted.bias_, repeated.bias_, atol=1e-8)


def test_an_absent_class_keeps_a_finite_bias():
    logits, labels = simulated(3)
    kept = labels != 2
    cal = VectorScaling().fit(logits[kept], labels[kept])
    assert cal.converged_
    assert -40 < cal.bias_[2] < -3
    proba = cal.predict_proba(logits)
    assert 0 < proba[:, 2].max() < 1e-3


@pytest.mark.parametrize("scale", [0.02, 1.0, 1000.0])
def test_any_scale_of_logits(scale):
    logits, labels = simulated(4)
    cal = VectorScaling().fit((scale * logits).astype(np.float32), labels)
    assert cal.converged_
    assert cal.log_loss_ < TemperatureScaling().fit(logits, labels).log_loss_


@pytest.mark.sample(1)
@pytest.mark.parametrize("big", [30.0, 1000.0, 3e5])
def test_one_wild_example_neither_breaks_the_fit_nor_lends_the_ridge_power(big):
    rng = np.random.default_rng(0)
    base = rng.normal(size=(300, 5))
    labels = np.r_[np.argmax(base + rng.gumbel(size=base.shape), axis=1), 1]
    logits = np.vstack([base, [[big, 0, 0, 0, 0]]])
    cal = VectorScaling().fit(logits, labels)
    features = log_softmax(logits, axis=1)

    def loss(theta):
        scale, bias = np.split(theta, 2)
        scores = features * scale + bias
        return -log_softmax(scores, axis=1)[np.arange(301), labels].mean()

    start = np.concatenate([cal.scale_, cal.bias_])
    slow = min(
        minimize(
            loss, start + shift, method="Nelder-Mead", options={"maxiter": 3000}
        ).fun
        for shift in (0.0, 0.1 * np.r_[1, 0, 1, 1, 1, np.zeros(5)])
    )
    assert cal.converged_
    assert_allclose(cal.log_loss_, loss(start), rtol=1e-9)
    assert cal.log_loss_ <= slow + 1e-6
    assert cal.log_loss_ < 1.28  # without the wild example: 1.2393


@pytest.mark.parametrize("big", [1e12, 1e24])
def test_an_absurd_example_is_survived_and_the_ending_true(big):
    logits, labels = simulated(0, 300)
    logits = np.vstack([logits, [[big, 0, 0, 0, 0]]])
    labels = np.r_[labels, 1]
    cal = quiet_fit(VectorScaling(), logits, labels)
    assert cal.converged_ == (
        big < 1e20
    )  # beyond, float64 does not hold what is needed
    assert cal.log_loss_ <= np.log(5) + 1e-6
    assert_allclose(
        cal.log_loss_, mean_log_loss(cal.predict_proba(logits), labels), rtol=1e-6
    )


@pytest.mark.parametrize("scale", [1e-300, 1e24, 1e90])
def test_logits_in_absurd_units(scale):
    logits, labels = simulated(4)
    cal = quiet_fit(VectorScaling(), scale * logits, labels)
    assert cal.converged_
    if scale > 1:
        assert cal.log_loss_ < VectorScaling().fit(logits, labels).log_loss_ + 0.2
    else:  # all log-probabilities are the same number, and the class frequencies are left
        shares = np.bincount(labels) / labels.size
        assert_allclose(cal.log_loss_, -np.sum(shares * np.log(shares)), rtol=1e-9)


def test_a_hessian_that_is_not_positive_is_no_convergence():
    def evaluate(x):  # a saddle, and gradients that lead uphill
        return float(x[0]), np.array([1.0, 0.0]), np.array([[-1.0, 0.0], [0.0, 1.0]])

    found = minimize_dense(evaluate, np.zeros(2), 100)
    assert not found.converged
    assert_array_equal(found.x, 0.0)
    assert found.value == 0.0


def test_a_hessian_that_rounding_made_indefinite_is_damped():
    matrix = np.array([[1.0, 1.0 + 1e-7], [1.0 + 1e-7, 1.0]])

    def evaluate(x):
        return 0.5 * float(x @ x), x.copy(), matrix.copy()

    found = minimize_dense(evaluate, np.array([3.0, 1.0]), 200)
    assert not found.converged
    assert found.value < 5.0


@pytest.mark.parametrize("pick", [np.argmax, np.argmin])
def test_where_only_the_ridge_is_in_the_way_the_fit_says_so(pick):
    logits, _ = simulated(5, 100, 3)
    with pytest.warns(ConvergenceWarning, match=r"separated from all others.*`ridge`"):
        cal = VectorScaling().fit(logits, pick(logits, axis=1))
    assert not cal.converged_
    assert VectorScaling(ridge=0.01).fit(logits, pick(logits, axis=1)).converged_
    assert np.isfinite(cal.scale_).all()
    assert np.isfinite(cal.predict_proba(logits)).all()
    assert cal.log_loss_ < 0.05


def test_masked_classes_stay_impossible_even_with_a_negative_scale():
    logits, _ = simulated(6, 300, 3)
    padded = np.hstack([logits, np.full((300, 1), -np.inf)])
    padded[:50, 0] = -np.inf
    labels = padded[:, 1:3].argmin(axis=1) + 1
    cal = quiet_fit(VectorScaling(), padded, labels)
    assert cal.scale_.min() < 0
    proba = cal.predict_proba(padded)
    assert_array_equal(proba[padded == -np.inf], 0.0)
    assert_allclose(proba.sum(axis=1), 1.0)


def test_impossible_truths_are_left_out_with_a_word():
    logits, labels = simulated(7)
    broken = logits.copy()
    broken[np.arange(10), labels[:10]] = -np.inf
    with pytest.warns(RuntimeWarning, match="10 of 600 examples are left out"):
        cal = VectorScaling().fit(broken, labels)
    assert_allclose(
        cal.scale_, VectorScaling().fit(logits[10:], labels[10:]).scale_, rtol=1e-8
    )


@pytest.mark.parametrize("ridge", [np.float32(1e-3), np.float64(1e-3), 1, np.int64(1)])
def test_any_real_number_is_a_ridge(ridge):
    logits, labels = simulated(0, 100)
    twin = VectorScaling(ridge=float(ridge)).fit(logits, labels)
    assert_array_equal(
        VectorScaling(ridge=ridge).fit(logits, labels).scale_, twin.scale_
    )


@pytest.mark.parametrize("ridge", [0.0, -1.0, np.inf, np.nan, "1", True, None])
def test_a_bad_ridge_is_named(ridge):
    with pytest.raises(ValueError, match="`ridge` must be a finite number above 0"):
        VectorScaling(ridge=ridge).fit(*simulated(0, 20))


def test_threads_change_nothing():
    logits, labels = simulated(9, 6000, 40)
    with threads(1):
        one = VectorScaling().fit(logits, labels)
    with threads(3):
        three = VectorScaling().fit(logits, labels)
    assert_array_equal(one.scale_, three.scale_)


def test_very_many_classes_take_the_other_solver_to_the_same_place(monkeypatch):
    logits, labels = simulated(10, 2000, 6)
    dense = VectorScaling(ridge=1e-4).fit(logits, labels)
    monkeypatch.setattr("hokical._fitting.structured.DENSE_CLASSES", 0)
    other = VectorScaling(ridge=1e-4).fit(logits, labels)
    assert other.converged_
    assert_allclose(other.log_loss_, dense.log_loss_, atol=1e-8)
    assert_allclose(other.scale_, dense.scale_, rtol=1e-4)


def test_damped_newton_survives_a_start_from_which_newton_diverges():
    def evaluate(x):  # log(cosh(x)) and a little: full steps from |x| > 1.1 run away
        slope = np.tanh(x) + 1e-3 * x
        value = float(np.logaddexp(x, -x)[0] + 0.5e-3 * x[0] ** 2)
        return value, slope, np.array([[1.0 - np.tanh(x[0]) ** 2 + 1e-3]])

    found = minimize_dense(evaluate, np.array([8.0]), 100)
    assert found.converged
    assert_allclose(found.x, 0.0, atol=1e-9)


def test_a_file_gives_back_the_fit(tmp_path):
    logits, labels = simulated(11)
    cal = VectorScaling(ridge=1e-6).fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert_array_equal(loaded.predict_proba(logits), cal.predict_proba(logits))
    assert_array_equal(loaded.scale_, cal.scale_)
    assert loaded.ridge == 1e-6


def test_predictions_are_the_scaled_softmax():
    logits, labels = simulated(12)
    cal = VectorScaling().fit(logits, labels)
    expected = softmax(log_softmax(logits, axis=1) * cal.scale_ + cal.bias_, axis=1)
    assert_allclose(cal.predict_proba(logits), expected, rtol=1e-10)
    assert_array_equal(cal.predict(logits), expected.argmax(axis=1))
    assert_allclose(cal.predict_confidence(logits), expected.max(axis=1), rtol=1e-10)


@pytest.mark.peer
@pytest.mark.parametrize("name", REAL)
def test_agrees_with_probmetrics_on_real_logits(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(
            "probmetrics", reason="the peer probmetrics is not installed"
        )
        from probmetrics.calibrators.logistic import VectorScalingCalibrator

        logits, labels = real_logits(name, 3000)
        proba = softmax(logits.astype(np.float64), axis=1)
        theirs = VectorScalingCalibrator().fit(proba, labels).predict_proba(proba)
    cal = VectorScaling().fit(logits, labels)
    assert cal.converged_
    their_loss = mean_log_loss(theirs, labels)
    assert_allclose(cal.log_loss_, their_loss, atol=1e-4)
    assert cal.log_loss_ <= their_loss + 1e-5


@pytest.mark.parametrize("offset", [1e12, -1e12])
def test_a_constant_far_from_zero_changes_nothing(offset: float) -> None:
    rng = np.random.default_rng(3)
    logits = 2.0 * rng.integers(-8, 9, size=(300, 4))  # sums with the offset are exact
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    cal = VectorScaling().fit(logits, labels)
    np.testing.assert_array_equal(
        cal.predict_proba(logits + offset), cal.predict_proba(logits)
    )
    shifted = VectorScaling().fit(logits + offset, labels)
    np.testing.assert_array_equal(shifted.scale_, cal.scale_)
