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
from hokical import from_binary_probabilities, from_probabilities
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
