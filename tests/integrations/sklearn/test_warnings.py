"""Warnings of a calibrated classifier: once per cause, and what can be followed."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.naive_bayes import GaussianNB

from hokical import CalibratedClassifier, FitDataWarning


class RoundedClassifier(ClassifierMixin, BaseEstimator):
    """Probabilities whose sums are off by rounding, as a service may give them."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> RoundedClassifier:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        scores = np.exp(X[:, : self.classes_.size] / 8.0)
        return 0.97 * scores / scores.sum(axis=1, keepdims=True)


def messages_of(call: Any, *arguments: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments)
    return [str(w.message) for w in caught if issubclass(w.category, FitDataWarning)]


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [True, False])
def test_shares_of_votes_need_no_warning(ensemble: bool) -> None:
    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(10, random_state=0)
    model = CalibratedClassifier(forest, method="temps", ensemble=ensemble)
    assert messages_of(model.fit, X[:600], y[:600]) == []
    assert messages_of(model.predict_proba, X[600:]) == []
    assert messages_of(model.certify, X[600:1200], y[600:1200]) == []
    loaded = pickle.loads(pickle.dumps(model))
    assert messages_of(loaded.predict_proba, X[600:]) == []


@pytest.mark.parametrize("ensemble", [True, False])
def test_a_cause_is_reported_at_fit_and_never_again(ensemble: bool) -> None:
    X, y = load_digits(return_X_y=True)
    model = CalibratedClassifier(RoundedClassifier(), method="temps", ensemble=ensemble)
    fitted = messages_of(model.fit, X[:600], y[:600])
    assert sum("rounded" in message for message in fitted) == 1
    assert len(fitted) == len(set(fitted))
    for rows in (slice(600, 800), slice(800, 900)):
        assert messages_of(model.predict_proba, X[rows]) == []


def test_folds_that_do_not_converge_are_reported_once() -> None:
    """The classes that are separated differ from fold to fold, and so do the texts."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 6
    X = 4.0 * np.eye(6)[y] + 0.6 * rng.normal(size=(600, 6))
    model = CalibratedClassifier(GaussianNB(), method="vecs", ensemble=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    texts = [str(w.message) for w in caught]
    assert sum("VectorScaling did not converge" in text for text in texts) == 1


def test_a_search_repeats_one_text() -> None:
    """So that Python's own filter shows it once."""
    X, y = load_digits(return_X_y=True)
    search = GridSearchCV(
        CalibratedClassifier(RoundedClassifier(), cv=3),
        {"method": ["temps", "ets"]},
        cv=2,
    )
    assert len(set(messages_of(search.fit, X[:600], y[:600]))) == 1


def test_copies_of_inputs_are_reported() -> None:
    """Models are then calibrated on copies of what they have learned from."""
    X, y = make_classification(300, 6, flip_y=0.2, random_state=0)
    rng = np.random.default_rng(0)
    forest = RandomForestClassifier(5, random_state=0)
    minority = np.flatnonzero(y == 1)
    chosen = {
        "all": np.tile(np.arange(300), 3),
        "bootstrap": rng.integers(300, size=300),
        "one class": np.append(np.arange(300), rng.choice(minority, 200)),
    }
    for rows in chosen.values():
        model = CalibratedClassifier(forest, method="temps", cv=3)
        told = messages_of(model.fit, X[rows], y[rows])
        assert sum("`X` hold copies" in message for message in told) == 1
    grouped = CalibratedClassifier(forest, method="temps", cv=GroupKFold(3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grouped.fit(X[rows], y[rows], groups=rows)
    assert not any("`X` hold" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("kind", ["as they are", "categories", "one column", "tied"])
def test_inputs_that_come_again_by_themselves_are_no_copies(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X.sum(axis=1) + rng.normal(size=600) > 0.0).astype(int)
    if kind == "categories":
        X = (X[:, :3] > 0.0).astype(float)
        y = (X[:, 0] > 0.5).astype(int)
    elif kind == "one column":
        X = X[:, :1].round(1)
        y = (X[:, 0] > 0.0).astype(int)
    elif kind == "tied":
        X = X[rng.integers(40, size=600)]
        y = (X.sum(axis=1) + rng.normal(size=600) > 0.0).astype(int)
    model = CalibratedClassifier(GaussianNB(), method="temps", cv=3)
    told = messages_of(model.fit, X, y)
    assert not any("hold copies" in message for message in told), told
