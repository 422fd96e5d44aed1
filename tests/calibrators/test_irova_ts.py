"""One-vs-all isotonic regression against scikit-learn's, class by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning

from hokical import threads
from hokical.calibrators import IsotonicOneVsAllTS, TemperatureScaling, load
from tests import references
from tests.conftest import quiet_fit, synthetic_logits

IDENTITY_SHARE = 1e-9  # of the probability itself, as in the authors' code

Real = dict[str, np.ndarray]


def class_by_class_twin(
    logits: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None,
    new: np.ndarray,
    temperature: float,
) -> np.ndarray:
    """Isotonic regression of every class, then rows scaled to sum 1."""
    log_proba = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    new_log_proba = log_softmax(new.astype(np.float64) / temperature, axis=1)
    fitted = np.zeros(new.shape)
    for column in range(logits.shape[1]):
        fitted[:, column] = references.isotonic_chance(
            log_proba[:, column],
            labels == column,
            weights,
            new_log_proba[:, column],
            least=1.0 / ((len(labels) + 2.0) * logits.shape[1]),
        )
    fitted = (1.0 - IDENTITY_SHARE) * fitted + IDENTITY_SHARE * np.exp(new_log_proba)
    return fitted / fitted.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "n_classes"), [(40, 40), (300, 2), (500, 7)])
def test_every_class_is_an_isotonic_regression(
    n: int, n_classes: int, weighted: bool
) -> None:
    logits, labels = synthetic_logits(n, n_classes, seed=n)
    weights = np.random.default_rng(1).gamma(1.0, size=n) if weighted else None
    new, _ = synthetic_logits(200, n_classes, seed=5)
    cal = IsotonicOneVsAllTS().fit(logits, labels, weights)
    for rows in (logits, new):
        expected = class_by_class_twin(logits, labels, weights, rows, cal.temperature_)
        np.testing.assert_allclose(cal.predict_proba(rows), expected, atol=1e-4)
        assert np.abs(cal.predict_proba(rows) - expected).mean() < 1e-7


def test_it_agrees_on_real_logits(resnet110: Real) -> None:
    logits, labels = resnet110["val_logits"], resnet110["val_labels"]
    cal = IsotonicOneVsAllTS().fit(logits, labels)
    new = resnet110["test_logits"][:3000]
    expected = class_by_class_twin(logits, labels, None, new, cal.temperature_)
    found = cal.predict_proba(new)
    assert np.quantile(np.abs(found - expected), 0.999) < 1e-5
    np.testing.assert_allclose(found, expected, atol=1e-2)
    right = cal.predict(new) == resnet110["test_labels"][:3000]
    assert abs(cal.predict_confidence(new).mean() - right.mean()) < 0.02


def test_the_temperature_is_that_of_temperature_scaling() -> None:
    logits, labels = synthetic_logits(500, 4, seed=0)
    cal = IsotonicOneVsAllTS().fit(logits, labels)
    assert cal.temperature_ == TemperatureScaling().fit(logits, labels).temperature_
    assert cal.converged_


def test_labels_can_change_and_predict_says_so() -> None:
    """The classifier favours class 0 more than it should."""
    logits, labels = synthetic_logits(600, 3, seed=0)
    logits[:, 0] += 5.0
    cal = IsotonicOneVsAllTS().fit(logits, labels)
    assert not cal.rule_.preserves_labels
    assert (cal.predict(logits) == labels).mean() > (
        logits.argmax(axis=1) == labels
    ).mean()
    proba = cal.predict_proba(logits)
    np.testing.assert_array_equal(cal.predict(logits), proba.argmax(axis=1))
    np.testing.assert_array_equal(cal.predict_confidence(logits), proba.max(axis=1))


def test_an_absent_class_gets_next_to_nothing() -> None:
    logits, labels = synthetic_logits(400, 5, seed=2)
    kept = labels != 3
    cal = IsotonicOneVsAllTS().fit(logits[kept], labels[kept])
    np.testing.assert_array_equal(cal.absent_classes_, [3])
    proba = cal.predict_proba(logits)
    assert proba[:, 3].min() > 1e-4
    assert np.median(proba[:, 3]) < 1.0 / kept.sum()


def test_classes_without_a_hit_share_evenly_and_keep_their_order() -> None:
    """Only classes that were absent are possible in this row."""
    logits, labels = synthetic_logits(300, 5, seed=9)
    kept = labels < 3
    cal = IsotonicOneVsAllTS().fit(logits[kept], labels[kept])
    row = np.array([[-np.inf, -np.inf, -np.inf, 0.5, 1.0]])
    np.testing.assert_allclose(
        cal.predict_proba(row), [[0.0, 0.0, 0.0, 0.5, 0.5]], atol=1e-6
    )
    assert cal.predict(row)[0] == 4


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 25),
    n_classes=st.integers(2, 6),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    masked=st.floats(0.0, 0.5),
)
def test_rows_are_probabilities_whatever_comes(
    seed: int, n: int, n_classes: int, dtype: str, masked: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-3, 4, size=(n, n_classes)).astype(dtype)
    labels = rng.integers(n_classes, size=n)
    logits[rng.random(logits.shape) < masked] = -np.inf
    logits[np.arange(n), labels] = 0.0
    cal = quiet_fit(IsotonicOneVsAllTS(), logits, labels)
    proba = cal.predict_proba(logits)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(proba[logits == -np.inf], 0.0)
    assert (cal.predict_confidence(logits) > 0.0).all()


def test_a_weight_of_two_is_the_row_twice() -> None:
    logits, labels = synthetic_logits(300, 5, seed=3)
    weights = np.random.default_rng(0).integers(0, 4, size=300)
    repeated = np.repeat(np.arange(300), weights)
    left = IsotonicOneVsAllTS().fit(logits, labels, weights).predict_proba(logits)
    right = (
        IsotonicOneVsAllTS()
        .fit(logits[repeated], labels[repeated])
        .predict_proba(logits)
    )
    np.testing.assert_allclose(left, right, atol=1e-5)


def test_permuted_classes_change_nothing() -> None:
    logits, labels = synthetic_logits(400, 6, seed=4)
    order = np.random.default_rng(0).permutation(6)
    cal = IsotonicOneVsAllTS().fit(logits, labels)
    permuted = IsotonicOneVsAllTS().fit(logits[:, order], np.argsort(order)[labels])
    np.testing.assert_allclose(
        permuted.predict_proba(logits[:, order]),
        cal.predict_proba(logits)[:, order],
        atol=1e-5,
    )


def test_blocks_and_threads_change_nothing() -> None:
    logits, labels = synthetic_logits(1500, 5, seed=6)
    cal = IsotonicOneVsAllTS().fit(logits, labels)
    with threads(1):
        other = IsotonicOneVsAllTS().fit(logits, labels)
        alone = np.vstack([other.predict_proba(row[None]) for row in logits[:50]])
    np.testing.assert_array_equal(alone, cal.predict_proba(logits)[:50])


@pytest.mark.parametrize("target", ["right", "wrong"])
def test_all_right_or_all_wrong_is_said_aloud(target: str) -> None:
    logits, _ = synthetic_logits(60, 5, seed=2)
    labels = logits.argmax(axis=1) if target == "right" else logits.argmin(axis=1)
    with pytest.warns(
        ConvergenceWarning, match="OneVsAllTS did not converge: .* temperature"
    ):
        cal = IsotonicOneVsAllTS().fit(logits, labels)
    assert not cal.converged_
    assert cal.message_
    assert np.isfinite(cal.predict_proba(logits)).all()


def test_it_comes_back_from_its_file(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(200, 4, seed=1)
    cal = IsotonicOneVsAllTS().fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    np.testing.assert_array_equal(
        loaded.predict_proba(logits), cal.predict_proba(logits)
    )
    np.testing.assert_array_equal(loaded.absent_classes_, cal.absent_classes_)
    assert loaded.get_params() == cal.get_params()
