"""What `calibrator_` is, used alone: on scores, without the estimator or its wrapper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import hokical
from hokical import CalibratedClassifier, from_binary_probabilities, from_probabilities
from tests.integrations.sklearn.helpers import single

SOURCES = {
    "forest": RandomForestClassifier(20, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "naive Bayes": GaussianNB(),
}


def digits() -> tuple[Any, Any, Any, Any]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    fit, new = order[:600], order[600:]
    return X[fit], y[fit], X[new], y[new]


@pytest.mark.sample(2)
@pytest.mark.filterwarnings("ignore::hokical.FitDataWarning")
@pytest.mark.parametrize("method", ["auto", "temps", "irm"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_saved_calibrator_predicts_as_the_model(
    name: str, method: str, tmp_path: Path
) -> None:
    """Zeros of a forest are raised by the calibrator, whoever calls it."""
    X, y, X_new, y_new = digits()
    model = single(SOURCES[name], method=method).fit(X, y)
    model.calibrator_.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    proba = model.estimator_.predict_proba(X_new)
    calibrated = loaded.predict_proba(from_probabilities(proba))
    np.testing.assert_allclose(
        calibrated, model.predict_proba(X_new), rtol=1e-9, atol=1e-300
    )
    assert loaded.class_names == tuple(map(str, model.classes_))
    assert loaded.schema_.scores == "log-probabilities"
    accuracy = np.mean(proba.argmax(axis=1) == y_new)
    assert np.mean(calibrated.argmax(axis=1) == y_new) > accuracy - 0.01
    assert log_loss(y_new, calibrated) < log_loss(y_new, proba)


@pytest.mark.sample(2)
@pytest.mark.filterwarnings("ignore::hokical.FitDataWarning")
@pytest.mark.parametrize("method", ["auto", "temps"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_saved_ensemble_predicts_as_the_model(
    name: str, method: str, tmp_path: Path
) -> None:
    """By hand: the mean of the calibrated probabilities of the models of the folds."""
    X, y, X_new, _ = digits()
    model = CalibratedClassifier(SOURCES[name], method=method).fit(X, y)
    assert len(model.models_) == 5
    model.save(tmp_path / "model.json")
    loaded = hokical.load(tmp_path / "model.json")
    scores = [
        from_probabilities(fold.model.predict_proba(X_new)) for fold in model.models_
    ]
    proba = loaded.predict_proba(hokical.Ensemble(scores))
    np.testing.assert_allclose(proba, model.predict_proba(X_new), atol=1e-12)
    parts = [
        fold.calibrator.predict_proba(z)
        for fold, z in zip(model.models_, scores, strict=True)
    ]
    np.testing.assert_allclose(proba, np.mean(parts, axis=0), atol=1e-12)
    again = loaded.predict_proba(model.predict_scores(X_new))
    np.testing.assert_array_equal(again, proba)
    np.testing.assert_array_equal(
        model.classes_[loaded.predict(hokical.Ensemble(scores))], model.predict(X_new)
    )
    with pytest.raises(ValueError, match="scores of all 5 models"):
        loaded.predict_proba(hokical.Ensemble(scores[:3]))
    with pytest.raises(ValueError, match="`logits` must be a `hokical"):
        loaded.predict_proba(scores[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hokical.FitDataWarning")
def test_guarantees_of_a_saved_ensemble(tmp_path: Path) -> None:
    X, y, X_new, y_new = digits()
    model = CalibratedClassifier(SOURCES["forest"]).fit(X, y)
    model.certify(X_new[:600], y_new[:600]).save(tmp_path / "model.json")
    loaded = hokical.load(tmp_path / "model.json")
    scores = model.predict_scores(X_new[600:])
    sets = loaded.predict_set(scores, coverage=0.9)
    np.testing.assert_array_equal(
        sets.members, model.predict_set(X_new[600:], coverage=0.9).members
    )
    np.testing.assert_array_equal(
        loaded.predict_or_abstain(scores, risk=0.1).accepted,
        model.predict_or_abstain(X_new[600:], risk=0.1).accepted,
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_members_that_lack_a_class_of_the_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3)) + np.repeat(np.arange(7), 100)[:, None] % 3
    y = np.repeat(np.arange(7), 100) % 3
    y[0] = 3  # a class of one example, which one fold's model lacks
    model = CalibratedClassifier(GaussianNB(), method="temps").fit(X, y)
    assert {fold.model.classes_.size for fold in model.models_} == {3, 4}
    model.save(tmp_path / "model.json")
    proba = hokical.load(tmp_path / "model.json").predict_proba(model.predict_scores(X))
    np.testing.assert_allclose(proba, model.predict_proba(X), atol=1e-12)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def test_groups_of_a_saved_ensemble(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 3))
    site = rng.choice(["north", "south"], size=2400)
    odds = X[:, 0] + 3.0 * (site == "south") - 1.5
    y = (odds > rng.logistic(size=2400)).astype(int)
    model = CalibratedClassifier(GaussianNB(), cv=3)
    model.fit(X[:2000], y[:2000], calibration_groups=site[:2000])
    needed = [fold.calibrator.needed_groups is not None for fold in model.models_]
    assert needed == [True, True, True]
    model.save(tmp_path / "model.json")
    loaded = hokical.load(tmp_path / "model.json")
    scores = model.predict_scores(X[2000:])
    proba = loaded.predict_proba(scores, groups=site[2000:])
    parts = [
        fold.calibrator.predict_proba(fold.logits(X[2000:]), groups=site[2000:])
        for fold in model.models_
    ]
    np.testing.assert_allclose(proba, np.mean(parts, axis=0), atol=1e-12)
    with pytest.raises(ValueError, match="`groups` must be given"):
        loaded.predict_proba(scores)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hokical.FitDataWarning")
def test_a_calibrator_alone_knows_the_rows_of_its_fit() -> None:
    """Its range, its shift and its guarantees go by the scores as they are."""
    X, y, X_new, y_new = digits()
    model = single(SOURCES["forest"]).fit(X, y)
    logits = from_probabilities(model.estimator_.predict_proba(X_new))
    alone = model.calibrator_
    assert alone.predict_support(logits).mean() > 0.98
    shift = alone.estimate_shift(logits)
    expected = model.estimate_shift(X_new)
    np.testing.assert_allclose(
        shift.class_frequencies, expected.class_frequencies, rtol=1e-9
    )
    sets = alone.certify(logits[:600], y_new[:600]).predict_set(logits[600:])
    assert sets.members[np.arange(597), y_new[600:]].mean() > 0.87


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hokical.FitDataWarning")
def test_scores_of_several_labels_are_clipped_by_their_calibrator() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y = (X[:, :3] > rng.logistic(size=(900, 3))).astype(int)
    forest = MultiOutputClassifier(RandomForestClassifier(10, random_state=0))
    model = single(forest).fit(X[:500], y[:500])
    proba = model.estimator_.predict_proba(X[500:])
    assert min(part.min() for part in proba) == 0.0
    np.testing.assert_allclose(
        model.calibrator_.predict_proba(from_binary_probabilities(proba)),
        model.predict_proba(X[500:]),
        rtol=1e-9,
    )
    assert model.predict_proba(X[500:]).min() > 0.01
