"""A new balance of classes in the wrapper: labels by name, and an adapted classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from hokical import CalibratedClassifier

NAMES = np.array(["cat", "dog", "owl"])
OLD, NEW = [0.2, 0.3, 0.5], {"owl": 0.1, "cat": 0.6, "dog": 0.3}


def single(*arguments: Any, **options: Any) -> CalibratedClassifier:
    """With one model, fitted on all the data."""
    return CalibratedClassifier(*arguments, ensemble=False, **options)


def animals(n: int, share: Any, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    k = rng.choice(3, n, p=share)
    return rng.normal(size=(n, 4)) + 1.3 * np.eye(4)[k], NAMES[k]


@pytest.fixture(scope="module")
def model() -> CalibratedClassifier:
    inner = LogisticRegression().fit(*animals(2000, OLD, 0))
    return CalibratedClassifier(FrozenEstimator(inner), method="temps").fit(*animals(2000, OLD, 1))


def test_a_new_balance_is_found_and_adapted_to(model) -> None:
    X, y = animals(3000, [NEW[name] for name in NAMES], 2)
    found = model.estimate_shift(X)
    inner = model.calibrator_.estimate_shift(model.estimator_.decision_function(X))
    np.testing.assert_array_equal(found.class_frequencies, inner.class_frequencies)
    assert found.holds
    assert "cat 5" in str(found) or "cat 6" in str(found)
    assert abs(found.class_frequencies[0] - NEW["cat"]) < 0.03
    low, high = found.accuracy_interval
    assert low < model.score(X, y) < high
    adapted = found.adapt()
    assert isinstance(adapted, CalibratedClassifier)
    assert adapted.score(X, y) > model.score(X, y) + 0.02
    assert set(adapted.predict(X)) <= set(NAMES)
    assert model.calibrator_ is model.models_[0].calibrator, "the first is as it was"
    by_group = model.estimate_shift(X, groups=np.arange(3000) % 2).by_group
    assert isinstance(by_group["0"].adapt(), CalibratedClassifier)


def test_a_known_balance_by_name(model) -> None:
    X, _ = animals(50, OLD, 3)
    twin = model.reweight_classes(NEW)
    weights = (
        np.array([NEW[name] for name in model.classes_])
        / model.calibrator_.kept_.class_scores.frequencies
    )
    expected = model.predict_proba(X) * weights
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(twin.predict_proba(X), expected)
    np.testing.assert_array_equal(twin.predict(X), model.classes_[expected.argmax(axis=1)])
    ordered = model.reweight_classes([NEW[name] for name in model.classes_])
    np.testing.assert_array_equal(ordered.predict_proba(X), twin.predict_proba(X))
    with pytest.raises(ValueError, match=r"none for \['owl'\], not classes: \['bat'\]"):
        model.reweight_classes({"cat": 0.5, "dog": 0.3, "bat": 0.2})


def test_an_ensemble_has_other_class_frequencies_too() -> None:
    X, y = animals(600, OLD, 4)
    model = CalibratedClassifier(LogisticRegression(), method="temps").fit(X, y)
    twin = model.reweight_classes(NEW)
    names, counts = np.unique(y, return_counts=True)
    shares = np.array([NEW[name] for name in names.tolist()]) / counts * len(y)
    expected = model.predict_proba(X) * shares
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(twin.predict_proba(X), expected, rtol=1e-6)


def test_groups_of_the_fit_are_kept_by_a_known_balance() -> None:
    X, y = animals(1500, OLD, 5)
    site = np.random.default_rng(0).integers(0, 2, 1500)
    y = np.where((site == 1) & (X[:, 3] > 0), "owl", y)
    inner = LogisticRegression().fit(X, y)
    model = single(FrozenEstimator(inner)).fit(X, y, calibration_groups=site)
    assert model.calibrator_.rule_.needed_groups is not None
    twin = model.reweight_classes(NEW)
    assert twin.predict_proba(X, groups=site).shape == (1500, 3)
    assert model.estimate_shift(X).adapt().predict(X).shape == (1500,)


def test_an_alarm_of_an_ensemble_comes_with_a_warning() -> None:
    """Scores of an average of models are not those of the single ones that were counted."""
    X, y = animals(3000, OLD, 6)
    model = CalibratedClassifier(RandomForestClassifier(20, random_state=0)).fit(X[:1500], y[:1500])
    with pytest.warns(UserWarning, match="likely a false alarm"):
        assert not model.estimate_shift(X[1500:]).holds
