"""Temperature scaling: the right answer on any scale, and an honest word where there
is none.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

from hokical import TopK, threads
from hokical.calibrators import Examples, TemperatureScaling, load
from hokical.rules import as_logits
from tests.conftest import max_examples, quiet_fit, real_logits

REAL = ["cifar10_resnet110", "cifar100_wrn28_10", "mnist_lenet5", "cifar10_densenet40"]


def simulated(seed, n=3000, classes=20, spread=2.0):
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, classes))
    return logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def mean_log_loss(logits, labels, temperature=1.0, weights=None):
    """The plain, reference implementation."""
    loss = -log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return np.average(loss[np.arange(labels.size), labels], weights=weights)


def slow_temperature(logits, labels, near, weights=None):
    found = minimize_scalar(
        lambda s: mean_log_loss(logits, labels, np.exp(s), weights),
        bounds=(np.log(near) - 2.0, np.log(near) + 2.0),
        options={"xatol": 1e-10},
    )
    return np.exp(found.x)


@pytest.mark.parametrize("true", [0.02, 0.1, 1.0, 5.0, 10.0, 50.0, 1000.0])
def test_recovers_temperatures_of_any_size_from_float32(true):
    base, labels = simulated(0)
    logits = (true * base).astype(np.float32)
    cal = TemperatureScaling().fit(logits, labels)
    assert cal.converged_
    assert_allclose(cal.temperature_, slow_temperature(logits, labels, true), rtol=1e-6)
    assert_allclose(cal.temperature_, true, rtol=0.05)
    assert_allclose(
        cal.log_loss_, mean_log_loss(logits, labels, cal.temperature_), rtol=1e-12
    )


@max_examples(30)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(40, 300),
    classes=st.integers(2, 12),
    spread=st.floats(0.3, 4.0),
    log_true=st.floats(-4.0, 7.0),
)
def test_the_slope_of_the_log_loss_vanishes(seed, n, classes, spread, log_true):
    base, labels = simulated(seed, n, classes, spread)
    logits = np.exp(log_true) * base
    cal = quiet_fit(TemperatureScaling(), logits, labels)
    if not cal.converged_:
        return
    at = cal.temperature_
    here = mean_log_loss(logits, labels, at)
    assert here <= mean_log_loss(logits, labels, at * 1.001) + 1e-14
    assert here <= mean_log_loss(logits, labels, at / 1.001) + 1e-14


@max_examples(25)
@given(seed=st.integers(0, 10_000), shift=st.floats(-50, 50))
def test_constants_and_the_order_of_classes_do_not_matter(seed, shift):
    logits, labels = simulated(seed, 200, 6)
    rng = np.random.default_rng(seed)
    order = rng.permutation(6)
    plain = quiet_fit(TemperatureScaling(), logits, labels)
    moved = quiet_fit(
        TemperatureScaling(), logits + shift * rng.normal(size=(200, 1)), labels
    )
    permuted = quiet_fit(
        TemperatureScaling(), logits[:, order], np.argsort(order)[labels]
    )
    assert_allclose(moved.temperature_, plain.temperature_, rtol=1e-9)
    assert_allclose(permuted.temperature_, plain.temperature_, rtol=1e-12)


def test_weights_are_repetitions():
    logits, labels = simulated(1, 9000, 30)
    weights = np.random.default_rng(1).integers(0, 4, size=9000)
    weighted = TemperatureScaling().fit(logits, labels, weights)
    repeated = TemperatureScaling().fit(
        np.repeat(logits, weights, axis=0), np.repeat(labels, weights)
    )
    assert_allclose(weighted.temperature_, repeated.temperature_, rtol=1e-10)
    assert_allclose(weighted.log_loss_, repeated.log_loss_, rtol=1e-10)


def test_threads_change_nothing():
    logits, labels = simulated(3, 4000, 150)
    with threads(1):
        one = TemperatureScaling().fit(logits, labels)
    with threads(3):
        three = TemperatureScaling().fit(logits, labels)
    assert one.temperature_ == three.temperature_


def test_hidden_classes_count_as_equal_ones():
    logits, labels = simulated(13, 300, 12)
    top = TopK.from_logits(logits, 4)
    known = (top.indices == labels[:, None]).any(axis=1)
    cal = TemperatureScaling().fit(top[known], labels[known])
    dense = TemperatureScaling().fit(top[known].to_dense(), labels[known])
    assert_allclose(cal.temperature_, dense.temperature_, rtol=1e-10)


def test_predictions_are_the_softmax():
    logits, labels = simulated(4, 500, 7)
    cal = TemperatureScaling().fit(3 * logits, labels)
    expected = softmax(3 * logits / cal.temperature_, axis=1)
    assert_allclose(cal.predict_proba(3 * logits), expected, rtol=1e-12)
    assert_allclose(
        cal.predict_confidence(3 * logits), expected.max(axis=1), rtol=1e-12
    )
    assert_array_equal(cal.predict(3 * logits), logits.argmax(axis=1))


def test_all_right_ends_at_the_lower_bound_and_says_so():
    logits, _ = simulated(5, 100, 4)
    with pytest.warns(ConvergenceWarning, match="every label has the top logit"):
        cal = TemperatureScaling().fit(logits, logits.argmax(axis=1))
    assert cal.temperature_ == 1e-5
    assert not cal.converged_
    assert np.isfinite(cal.predict_proba(logits)).all()


def test_worse_than_chance_ends_at_the_upper_bound_and_says_so():
    logits, _ = simulated(6, 100, 4)
    with pytest.warns(ConvergenceWarning, match="hardly better than chance"):
        cal = TemperatureScaling().fit(logits, logits.argmin(axis=1))
    assert cal.temperature_ == 1e5
    # Nearly uniform, and still the label comes first.
    assert_array_equal(cal.predict_proba(logits).argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.parametrize("scale", [1e-130, 1e-100, 1e24, 1e100, 1e130])
def test_logits_in_absurd_units(scale):
    logits, labels = simulated(0, 300, 5)
    if scale < 1:
        with pytest.warns(ConvergenceWarning, match="logits are very small"):
            cal = TemperatureScaling().fit(scale * logits, labels)
        assert cal.temperature_ == 1e-5
        return
    found = TemperatureScaling().fit(scale * logits, labels)
    expected = TemperatureScaling().fit(logits, labels).temperature_
    assert_allclose(found.temperature_ / scale, expected, rtol=1e-8)


def test_margins_that_overflow():
    logits = np.array([[1.5e308, -1.5e308, 0.0], [0.0, 1.0, 0.5], [1.0, 0.0, 0.5]])
    cal = quiet_fit(TemperatureScaling(), logits, np.array([1, 1, 0]))
    assert cal.temperature_ > 1e139
    assert not cal.converged_


def test_equal_possible_logits_with_a_mask_leave_the_temperature_at_one():
    logits = np.tile([0.0, 0.0, -np.inf], (10, 1))
    with pytest.warns(ConvergenceWarning, match="every temperature fits equally well"):
        assert TemperatureScaling().fit(logits, np.zeros(10, int)).temperature_ == 1.0


def test_equal_logits_leave_the_temperature_at_one():
    with pytest.warns(ConvergenceWarning, match="every temperature fits equally well"):
        cal = TemperatureScaling().fit(np.zeros((10, 3)), np.zeros(10, int))
    assert cal.temperature_ == 1.0
    assert_allclose(cal.log_loss_, np.log(3))


def test_masked_classes_are_as_if_absent():
    logits, labels = simulated(8, 400, 5)
    padded = np.hstack([logits, np.full((400, 2), -np.inf)])
    cal = TemperatureScaling().fit(padded, labels)
    assert_allclose(
        cal.temperature_, TemperatureScaling().fit(logits, labels).temperature_
    )
    assert_array_equal(cal.predict_proba(padded)[:, 5:], 0.0)


def test_impossible_truths_are_left_out_with_a_word():
    logits, labels = simulated(9, 400, 5)
    broken = logits.copy()
    broken[np.arange(10), labels[:10]] = -np.inf
    with pytest.warns(RuntimeWarning, match="10 of 400 examples are left out"):
        cal = TemperatureScaling().fit(broken, labels)
    assert_allclose(
        cal.temperature_,
        TemperatureScaling().fit(logits[10:], labels[10:]).temperature_,
    )
    with pytest.raises(ValueError, match="must name a possible class"):
        TemperatureScaling().fit(broken[:10], labels[:10])


def test_an_impossible_truth_of_weight_zero_is_no_matter():
    logits, labels = simulated(10, 50, 3)
    logits[0, labels[0]] = -np.inf
    examples = Examples(as_logits(logits), labels, np.r_[0.0, np.ones(49)]).learnable
    assert examples.true_margins.max() < 100.0


def test_a_file_gives_back_the_fit(tmp_path):
    logits, labels = simulated(11, 200, 4)
    cal = TemperatureScaling().fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert_array_equal(loaded.predict_proba(logits), cal.predict_proba(logits))
    assert (loaded.log_loss_, loaded.n_iter_) == (cal.log_loss_, cal.n_iter_)
    with pytest.raises(ValueError, match="`temperature` must be a number"):
        type(loaded.rule_)(-1.0)


@pytest.mark.parametrize("name", REAL)
def test_agrees_with_scikit_learn_on_real_logits(name):
    calibration = pytest.importorskip("sklearn.calibration")
    if not hasattr(calibration, "_TemperatureScaling"):
        pytest.skip("this scikit-learn has no temperature scaling (it came with 1.8)")
    logits, labels = real_logits(name)
    # Its search is only as fine as its input's dtype, and probabilities would be taken
    # as such.
    theirs = calibration._TemperatureScaling().fit(logits.astype(np.float64), labels)
    ours = TemperatureScaling().fit(logits, labels)
    assert ours.converged_
    assert_allclose(ours.temperature_, 1.0 / theirs.beta_, rtol=1e-3)
    assert ours.log_loss_ <= mean_log_loss(logits, labels, 1.0 / theirs.beta_) + 1e-9


@pytest.mark.parametrize("scale", [1e4, 1e7, 1e130])
def test_the_upper_bound_goes_with_huge_logits(scale: float) -> None:
    logits, labels = simulated(3, 400, 4)
    plain = TemperatureScaling().fit(logits, labels)
    huge = TemperatureScaling().fit(scale * logits, labels)
    assert huge.converged_
    assert huge.temperature_ / scale == pytest.approx(plain.temperature_, rel=1e-9)
