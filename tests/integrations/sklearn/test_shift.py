"""A new balance of classes in the wrapper: labels by name, and an adapted
classifier.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import hokical
from hokical import CalibratedClassifier
from hokical.monitoring import CalibrationMonitor
from tests.conftest import repetitions
from tests.fitted import class_features
from tests.integrations.sklearn.helpers import single

NAMES = np.array(["cat", "dog", "owl"])
OLD, NEW = [0.2, 0.3, 0.5], {"owl": 0.1, "cat": 0.6, "dog": 0.3}


def animals(n: int, share: Any, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    k = rng.choice(3, n, p=share)
    return rng.normal(size=(n, 4)) + 1.3 * np.eye(4)[k], NAMES[k]


@pytest.fixture(scope="module")
def model() -> CalibratedClassifier:
    inner = LogisticRegression().fit(*animals(2000, OLD, 0))
    return CalibratedClassifier(FrozenEstimator(inner), method="temps").fit(
        *animals(2000, OLD, 1)
    )


def test_a_new_balance_is_found_and_adapted_to(model) -> None:
    X, y = animals(3000, [NEW[name] for name in NAMES], 2)
    found = model.estimate_shift(X)
    inner = model.calibrator_.estimate_shift(model.estimator_.decision_function(X))
    np.testing.assert_array_equal(found.class_frequencies, inner.class_frequencies)
    assert found.holds
    assert "single models" not in str(found)
    assert "cat 5" in str(found) or "cat 6" in str(found)
    assert abs(found.class_frequencies[0] - NEW["cat"]) < 0.05  # two standard errors
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
        / class_features(model.calibrator_).frequencies
    )
    expected = model.predict_proba(X) * weights
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(twin.predict_proba(X), expected)
    np.testing.assert_array_equal(
        twin.predict(X), model.classes_[expected.argmax(axis=1)]
    )
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
    text = str(model.estimate_shift(animals(500, OLD, 5)[0]))
    assert (
        "Accuracy of single models of the ensemble, whose mean is usually better, "
        in text
    )


def test_groups_of_the_fit_are_kept_by_a_new_balance() -> None:
    X, y = animals(1500, OLD, 5)
    site = np.random.default_rng(0).integers(0, 2, 1500)
    y = np.where((site == 1) & (X[:, 3] > 0), "owl", y)
    inner = LogisticRegression().fit(X, y)
    model = single(FrozenEstimator(inner)).fit(X, y, calibration_groups=site)
    assert model.calibrator_.rule_.needed_groups is not None
    twin = model.reweight_classes(NEW)
    assert twin.predict_proba(X, groups=site).shape == (1500, 3)
    adapted = model.estimate_shift(X).adapt()
    assert adapted.predict(X, groups=site).shape == (1500,)
    with pytest.raises(ValueError, match="`groups` must be given, as in the fit"):
        adapted.predict(X)


def test_an_ensemble_that_learned_from_groups_keeps_them() -> None:
    X, y = animals(3000, OLD, 5)
    site = np.random.default_rng(0).integers(0, 2, 3000)
    y = np.where((site == 1) & (X[:, 3] > 0), "owl", y)
    model = CalibratedClassifier(LogisticRegression()).fit(
        X[:1500], y[:1500], calibration_groups=site[:1500]
    )
    rows, own = X[1500:], site[1500:]
    with pytest.raises(ValueError, match="`groups` must be given, as in the fit"):
        model.estimate_shift(rows)
    found = model.estimate_shift(rows, groups=own)
    assert found.holds
    expected = model.predict_proba(rows, groups=own) * found.weights
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.adapt().predict_proba(rows, groups=own), expected)


MODELS = {
    "forest": lambda: RandomForestClassifier(30, random_state=0),
    "boosted": lambda: HistGradientBoostingClassifier(max_iter=20),
    "linear": LogisticRegression,
    "neighbours": lambda: KNeighborsClassifier(15),
}


def blobs(rng: np.random.Generator, n: int, classes: int) -> tuple[Any, Any]:
    """Rows of ten features around a centre per class, one of them not normal."""
    labels = rng.integers(0, classes, n)
    centres = 0.7 * np.random.default_rng(7).normal(size=(classes, 10))
    rows = centres[labels] + rng.normal(size=(n, 10))
    rows[:, 0] += 0.5 * rows[:, 1] ** 2
    return rows, labels


def count_alarms(name: str, n: int, classes: int, fits: int) -> tuple[int, int, int]:
    """How often two samples of a fit are flagged, unchanged, and with weaker features;
    of how many.

    Models are compared with themselves: the mean of an ensemble had alarms in up to 100
    %.
    """
    unchanged, weaker = 0, 0
    for seed in range(fits):
        rng = np.random.default_rng([n, classes, seed])
        model = CalibratedClassifier(MODELS[name](), ensemble=True).fit(
            *blobs(rng, n, classes)
        )
        for _ in range(2):
            rows, _ = blobs(rng, 1000, classes)
            unchanged += not model.estimate_shift(rows).holds
            weaker += not model.estimate_shift(0.4 * rows).holds
    return unchanged, weaker, 2 * fits


@pytest.mark.sample(0)
@pytest.mark.parametrize(("name", "classes"), [("neighbours", 2), ("forest", 5)])
def test_ensembles_are_compared_with_their_own_models(name: str, classes: int) -> None:
    unchanged, weaker, trials = count_alarms(name, 1000, classes, 3)
    assert unchanged <= 1
    assert weaker >= trials - 1


@pytest.mark.slow
def test_a_loaded_ensemble_is_compared_with_its_own_models(tmp_path: Path) -> None:
    """Their mean is another score than those of the fit, and would be an alarm."""
    rng = np.random.default_rng(0)
    model = CalibratedClassifier(MODELS["forest"](), ensemble=True)
    model.fit(*blobs(rng, 2000, 5)).save(tmp_path / "model.json")
    loaded = hokical.load(tmp_path / "model.json")
    rows, labels = blobs(rng, 4000, 5)
    scores = model.predict_scores(rows)
    estimate = loaded.estimate_shift(scores)
    assert estimate.holds
    assert "Accuracy of single models" in str(estimate)
    single = model.estimate_shift(rows)
    assert estimate.accuracy == pytest.approx(single.accuracy, abs=0.03)
    assert not loaded.estimate_shift(model.predict_scores(0.4 * rows)).holds
    rarer = (labels != 2) | (rng.random(4000) < 0.2)
    adapted = loaded.estimate_shift(scores[rarer]).adapt()
    proba = adapted.predict_proba(scores[rarer])
    before = loaded.predict_proba(scores[rarer])
    assert log_loss(labels[rarer], proba) < log_loss(labels[rarer], before)


@pytest.mark.sample(0)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [2, 5])
def test_unchanged_rows_of_ensembles_raise_few_alarms(name: str, classes: int) -> None:
    """At most 2 %, and changes are found."""
    sizes = (300, 1000, 3000)[: repetitions(3, 2)]
    found = [count_alarms(name, n, classes, repetitions(40, 3)) for n in sizes]
    unchanged, weaker, trials = np.sum(found, axis=0)
    assert unchanged <= binom.ppf(0.999, trials, 0.02)
    assert weaker >= 0.5 * trials


@pytest.mark.slow
def test_copies_of_a_row_are_scored_by_one_model() -> None:
    """Rows of few values are no copies: all models score them, as in the fit."""
    X, y = animals(1200, OLD, 8)
    model = CalibratedClassifier(LogisticRegression()).fit(X[:600], y[:600])
    once, often = (
        model.estimate_shift(rows) for rows in (X[600:], np.repeat(X[600:], 4, axis=0))
    )
    np.testing.assert_allclose(
        often.class_frequencies, once.class_frequencies, atol=1e-3
    )
    np.testing.assert_allclose(often.p_value, once.p_value, rtol=0.02)
    few = np.sign(X)
    model = CalibratedClassifier(LogisticRegression()).fit(few[:600], y[:600])
    assert model.estimate_shift(few[600:]).holds


@pytest.mark.slow
def test_monitors_of_ensembles_go_by_examples_of_the_ensemble() -> None:
    """Held-out predictions are of single models, so they are no reference for their
    mean.
    """
    rng = np.random.default_rng(9)
    model = CalibratedClassifier(MODELS["forest"]()).fit(*blobs(rng, 1000, 5))
    with pytest.raises(ValueError, match="must keep a histogram"):
        CalibrationMonitor(model.calibrator_)
    monitor = CalibrationMonitor(model.certify(*blobs(rng, 2000, 5)).calibrator_)
    for weaker in (1.0, 0.4):
        rows, labels = blobs(rng, 2000, 5)
        confidence = model.predict_confidence(weaker * rows)
        monitor.update(confidence, model.predict(weaker * rows) == labels)
        assert monitor.status().inputs.shifted == (weaker < 1.0)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_model_of_all_the_rows_may_look_shifted(frozen: bool) -> None:
    """Its scores are not those of the models of the folds, where nothing changed."""
    X, y = animals(200, OLD, 6)
    tree = DecisionTreeClassifier(max_leaf_nodes=12, random_state=0)
    estimator = FrozenEstimator(tree.fit(X, y)) if frozen else tree
    model = single(estimator).fit(*animals(400, OLD, 7))
    changed = 3.0 * np.random.default_rng(8).normal(size=(2000, 4)) + 3.0
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        estimate = model.estimate_shift(changed)
    assert not estimate.holds
    told = ["may be a false alarm" in str(warning.message) for warning in given]
    assert any(told) is not frozen


def test_certified_rows_are_the_reference_of_a_model_of_all_the_rows() -> None:
    """Those of the fit were scored by other models: "not label shift" in every case."""
    tree = DecisionTreeClassifier(max_leaf_nodes=12, random_state=0)
    model = single(tree).fit(*animals(400, OLD, 7))
    rows, labels = animals(2000, OLD, 9)
    with pytest.warns(UserWarning, match="Call `certify` with 100 other rows or more"):
        assert not model.estimate_shift(rows).holds
    few, few_labels = animals(150, OLD, 11)
    is_known = few_labels != "owl"
    model.certify(few[is_known], few_labels[is_known])
    assert model.reference_calibrator_ is None  # which would not find an owl
    model.certify(*animals(600, OLD, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = model.estimate_shift(rows)
        rarer = model.reweight_classes([0.3, 0.3, 0.4]).estimate_shift(rows)
        changed = 3.0 * np.random.default_rng(8).normal(size=(2000, 4)) + 3.0
        assert not model.estimate_shift(changed).holds
    assert estimate.holds
    low, high = estimate.accuracy_interval
    assert low <= (model.predict(rows) == labels).mean() <= high
    assert rarer.old_class_frequencies[2] < estimate.old_class_frequencies[2]
    assert model.fit(*animals(400, OLD, 7)).reference_calibrator_ is None
