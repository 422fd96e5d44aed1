"""Pooled isotonic regression against scikit-learn's on all n x classes pairs, and
its order.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from hokical import threads
from hokical.calibrators import IsotonicMulticlass, load
from tests import references
from tests.conftest import real_logits, synthetic_logits
from tests.fitted import with_rule

IDENTITY_SHARE = 1e-9  # of the probability itself, as in the authors' code


def unnormalised(cal: IsotonicMulticlass) -> IsotonicMulticlass:
    """The same with rows that need not sum to 1."""
    return with_rule(cal, replace(cal.rule_, normalize=False))


def pooled_twin(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, new: np.ndarray
) -> np.ndarray:
    """Isotonic regression on every (log-probability, is it the class?) pair."""
    log_proba = log_softmax(logits.astype(np.float64), axis=1)
    target = np.eye(logits.shape[1])[labels]
    counted = None if weights is None else np.repeat(weights, logits.shape[1])
    new_log_proba = log_softmax(new.astype(np.float64), axis=1)
    fitted = references.isotonic_chance(
        log_proba.ravel(), target.ravel(), counted, new_log_proba
    )
    return (1.0 - IDENTITY_SHARE) * fitted + IDENTITY_SHARE * np.exp(new_log_proba)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "n_classes"), [(30, 30), (400, 2), (500, 12)])
def test_it_is_the_isotonic_regression_of_all_pairs(
    n: int, n_classes: int, weighted: bool
) -> None:
    logits, labels = synthetic_logits(n, n_classes, seed=n)
    weights = np.random.default_rng(1).gamma(1.0, size=n) if weighted else None
    new, _ = synthetic_logits(300, n_classes, seed=5)
    cal = unnormalised(IsotonicMulticlass().fit(logits, labels, weights))
    for rows in (logits, new):
        expected = pooled_twin(logits, labels, weights, rows)
        found = cal.predict_proba(rows)
        # The twin can tie classes with the label; ours holds them a millionth below.
        # Where two steps nearly touch, the slope between them makes more of the float32
        # rounding.
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=3e-5)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("cifar10_resnet110", 5000),
        ("cifar100_wrn28_10", 1000),
        ("imagenet_efficientnet_lite0_test", 200),
    ],
)
def test_it_agrees_on_real_logits(name: str, n: int) -> None:
    logits, labels = real_logits(name, n)
    cal = unnormalised(IsotonicMulticlass().fit(logits, labels))
    expected = pooled_twin(logits, labels, None, logits)
    found = cal.predict_proba(logits)
    # float32 keys can merge neighbours at a step's edge, so a handful may differ a
    # little more.
    assert np.quantile(np.abs(found - expected), 1 - 1e-4) < 3e-6
    np.testing.assert_allclose(found, expected, atol=2e-3)
    _check_rows(IsotonicMulticlass().fit(logits, labels), logits)


def _check_rows(cal: IsotonicMulticlass, logits: np.ndarray) -> None:
    """Rows are probabilities, the label is on top, no order is reversed, confidence
    agrees.
    """
    proba = cal.predict_proba(logits)
    assert np.isfinite(proba).all()
    assert proba.min() >= 0.0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    labels = logits.argmax(axis=1)
    np.testing.assert_array_equal(cal.predict(logits), labels)
    for dtype in (np.float64, np.float32):
        np.testing.assert_array_equal(proba.astype(dtype).argmax(axis=1), labels)
    np.testing.assert_array_equal(
        cal.predict_confidence(logits), proba[np.arange(len(labels)), labels]
    )
    by_logit = np.take_along_axis(proba, np.argsort(logits, axis=1), axis=1)
    assert np.diff(by_logit, axis=1).min() >= -1e-15
    assert not proba[logits == -np.inf].any()


@pytest.mark.filterwarnings("ignore:.*true class with logit:RuntimeWarning")
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 25),
    n_classes=st.integers(2, 8),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    grid=st.sampled_from([0.001, 1.0, 100.0]),
    masked=st.floats(0.0, 0.6),
)
def test_no_label_flips(
    seed: int, n: int, n_classes: int, dtype: str, grid: float, masked: float
) -> None:
    """Coarse logits give ties within rows and between them; most fits are a few flat
    steps.
    """
    rng = np.random.default_rng(seed)
    logits = (grid * rng.integers(-3, 4, size=(n, n_classes))).astype(dtype)
    logits[rng.random(logits.shape) < masked] = -np.inf
    logits[np.arange(n), rng.integers(n_classes, size=n)] = 0.0
    labels = rng.integers(n_classes, size=n)
    _check_rows(IsotonicMulticlass().fit(logits, labels), logits)


def test_neighbouring_numbers_are_kept_apart() -> None:
    """The two top logits differ by one unit in the last place, the later class
    first.
    """
    for dtype in (np.float16, np.float32, np.float64):
        top = np.array(1.0, dtype)
        logits = np.array([[np.nextafter(top, dtype(0)), top, 0.0]] * 4, dtype)
        for labels in ([0, 0, 1, 1], [1, 1, 1, 1], [2, 2, 2, 2]):
            _check_rows(IsotonicMulticlass().fit(logits, labels), logits)


def test_exact_ties_at_the_top_stay_tied() -> None:
    logits = np.array([[2.0, 0.0, 2.0], [1.0, 1.0, 1.0], [0.0, 3.0, 0.0]])
    proba = IsotonicMulticlass().fit(logits, [2, 0, 1]).predict_proba(logits)
    assert proba[0, 0] == proba[0, 2]
    np.testing.assert_allclose(proba[1], 1 / 3)


def test_a_weight_of_two_is_the_row_twice() -> None:
    logits, labels = synthetic_logits(300, 5, seed=3)
    weights = np.random.default_rng(0).integers(0, 4, size=300)
    repeated = np.repeat(np.arange(300), weights)
    left = IsotonicMulticlass().fit(logits, labels, weights)
    right = IsotonicMulticlass().fit(logits[repeated], labels[repeated])
    np.testing.assert_array_equal(left.knots_, right.knots_)
    np.testing.assert_array_equal(left.values_, right.values_)


def test_shifted_rows_and_permuted_classes_change_nothing() -> None:
    logits, labels = synthetic_logits(400, 6, seed=4)
    rng = np.random.default_rng(0)
    doubled, twice = (
        np.vstack([logits, logits]),
        np.append(labels, rng.permutation(labels)),
    )
    cal = IsotonicMulticlass().fit(doubled, twice)
    shifted = doubled + rng.normal(size=(800, 1)) * 10
    other = IsotonicMulticlass().fit(shifted, twice)
    np.testing.assert_allclose(
        other.predict_proba(logits), cal.predict_proba(logits), atol=1e-6
    )
    order = rng.permutation(6)
    permuted = IsotonicMulticlass().fit(doubled[:, order], np.argsort(order)[twice])
    np.testing.assert_allclose(
        permuted.predict_proba(logits[:, order]),
        cal.predict_proba(logits)[:, order],
        atol=1e-6,
    )


def test_threads_change_nothing_and_a_row_alone_gets_the_same() -> None:
    logits, labels = synthetic_logits(1000, 7, seed=6)
    cal = IsotonicMulticlass().fit(logits, labels)
    with threads(1):
        other = IsotonicMulticlass().fit(logits, labels)
        np.testing.assert_array_equal(other.knots_, cal.knots_)
        np.testing.assert_array_equal(other.values_, cal.values_)
        alone = np.vstack([cal.predict_proba(row[None]) for row in logits[:50]])
    np.testing.assert_array_equal(alone, cal.predict_proba(logits)[:50])


@pytest.mark.filterwarnings("ignore:.*true class with logit:RuntimeWarning")
def test_a_row_unlike_any_hit_is_nearly_even_and_keeps_its_order() -> None:
    """Labels are right at 0.9 and nothing else ever is, so the function is lowest up
    to 0.1.
    """
    logits = np.full((3, 20), -30.0)
    logits[:, :2] = np.log([0.9, 0.1])
    cal = IsotonicMulticlass().fit(logits, [0, 0, 0])
    flat = np.full((1, 20), 0.05) + np.linspace(-0.01, 0.01, 20)
    proba = cal.predict_proba(np.log(flat))
    np.testing.assert_allclose(proba, 0.05, rtol=1e-5)
    assert proba.argmax() == 19
    nothing = IsotonicMulticlass().fit([[0.0, -np.inf], [0.0, -np.inf]], [1, 1])
    np.testing.assert_allclose(
        nothing.predict_proba(np.log([[0.7, 0.3]])), 0.5, atol=1e-6
    )


def test_unnormalised_entries_are_the_fitted_chances() -> None:
    logits, labels = synthetic_logits(500, 4, seed=8)
    plain = unnormalised(IsotonicMulticlass().fit(logits, labels)).predict_proba(logits)
    assert plain.max() <= 1.0
    assert np.abs(plain.sum(axis=1) - 1.0).max() > 1e-3
    scaled = IsotonicMulticlass().fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(
        scaled, plain / plain.sum(axis=1, keepdims=True), atol=1e-15
    )


@pytest.mark.parametrize("target", ["right", "wrong"])
def test_all_right_or_all_wrong(target: str) -> None:
    logits, _ = synthetic_logits(60, 5, seed=2)
    labels = logits.argmax(axis=1) if target == "right" else logits.argmin(axis=1)
    _check_rows(IsotonicMulticlass().fit(logits, labels), logits)


def test_the_largest_and_smallest_logits_work() -> None:
    logits = np.array(
        [[3e38, -3e38, 0.0], [1e-38, 0.0, -1e-38], [1e4, -1e4, 0.0]], np.float32
    )
    _check_rows(IsotonicMulticlass().fit(logits, [0, 1, 2]), logits)


def test_it_comes_back_from_its_file(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(200, 4, seed=1)
    cal = unnormalised(IsotonicMulticlass().fit(logits, labels))
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    np.testing.assert_array_equal(
        loaded.predict_proba(logits), cal.predict_proba(logits)
    )
    np.testing.assert_array_equal(loaded.knots_, cal.knots_)
    assert loaded.get_params() == cal.get_params()


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 3.0, 1e300])
def test_weights_are_relative(scale: float) -> None:
    """Weights of very different sizes are counted in whole units, which changes no
    curve.
    """
    logits, labels = synthetic_logits(300, 5, seed=3)
    weights = 10.0 ** np.random.default_rng(0).uniform(-6.0, 0.0, size=300)
    plain = IsotonicMulticlass().fit(logits, labels, weights)
    scaled = IsotonicMulticlass().fit(logits, labels, weights * scale)
    np.testing.assert_array_equal(scaled.knots_, plain.knots_)
    np.testing.assert_allclose(scaled.values_, plain.values_, rtol=1e-12, atol=1e-15)
