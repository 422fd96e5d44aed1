"""Several labels per row: probabilities (n, labels) of models as scikit-learn has
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from hokical import CalibratedClassifier, MultilabelCalibrator

MODELS = {
    "forest": RandomForestClassifier(30, random_state=0),
    "one classifier per label": MultiOutputClassifier(GaussianNB()),
    "one against the rest": OneVsRestClassifier(GaussianNB()),
    "decision scores": OneVsRestClassifier(LinearSVC(C=0.1)),
}


def findings(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features that repeat each other, so that naive Bayes is overconfident; three
    labels.
    """
    rng = np.random.default_rng(seed)
    causes = rng.normal(size=(n, 3))
    y = (1.5 * causes - [0.0, 1.0, 2.0] > rng.logistic(size=(n, 3))).astype(int)
    return np.hstack([causes + 0.3 * rng.normal(size=(n, 3)) for _ in range(4)]), y


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_several_labels_are_calibrated(name: str) -> None:
    (X, y), (X_new, y_new) = findings(600, 0), findings(2000, 1)
    model = CalibratedClassifier(clone(MODELS[name])).fit(X, y)
    assert isinstance(model.calibrator_, MultilabelCalibrator)
    proba = model.predict_proba(X_new)
    assert proba.shape == y_new.shape
    # The examples' own frequencies differ from those of new rows by 0.043.
    np.testing.assert_allclose(proba.mean(axis=0), y_new.mean(axis=0), atol=0.05)
    if hasattr(model.estimator_, "predict_proba"):
        own = model.estimator_.predict_proba(X_new)
        own = (
            np.stack([part[:, 1] for part in own], axis=1)
            if isinstance(own, list)
            else own
        )
        assert loss(y_new, proba) < loss(y_new, own)
    np.testing.assert_array_equal(model.predict(X_new), proba >= 0.5)
    right = model.predict(X_new) == y_new
    np.testing.assert_allclose(
        model.predict_confidence(X_new).mean(), right.mean(), atol=0.03
    )
    assert model.score(X_new, y_new) == right.all(axis=1).mean()


def loss(y: Any, proba: Any) -> float:
    return float(np.mean([log_loss(y[:, k], proba[:, k]) for k in range(y.shape[1])]))


def test_a_fitted_model_and_guarantees() -> None:
    (X, y), (X_new, y_new) = findings(600, 0), findings(2000, 1)
    inner = OneVsRestClassifier(LogisticRegression()).fit(X[:300], y[:300])
    model = CalibratedClassifier(FrozenEstimator(inner)).fit(X[300:], y[300:])
    with pytest.raises(ValueError, match=r"Call `certify"):
        model.predict_set(X_new, coverage=0.9)
    sets = model.certify(X_new[:1000], y_new[:1000]).predict_set(
        X_new[1000:], coverage=0.9
    )
    held = ~((sets.inside & (y_new[1000:] == 0)) | (sets.outside & (y_new[1000:] == 1)))
    assert held.all(axis=1).mean() > 0.87
    by_label = model.predict_set(X_new[1000:], coverage=0.9, by="label")
    assert by_label.inside.shape == sets.inside.shape
    with pytest.raises(ValueError, match=r"`kind` must be 'smallest' where rows have"):
        model.predict_set(X_new, kind="adaptive")
    with pytest.raises(ValueError, match="`X`"):
        model.certify(X[300:], y[300:])
    with pytest.raises(TypeError, match="`detect` is for one label per row"):
        model.detect(X_new, 1)
    for name, argument in (("estimate_shift", X_new), ("reweight_classes", [0.5, 0.5])):
        with pytest.raises(TypeError, match=f"`{name}` is for one label per row"):
            getattr(model, name)(argument)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "temps"}, '`method` must be "auto" where .* several labels'),
        ({"keep_labels": True}, "`keep_labels` must be False where .* several labels"),
        ({"ensemble": True}, "`ensemble` must not be True .* one model; got True"),
        ({"ensemble": "foo"}, "`ensemble` must be True, False or \"auto\"; got 'foo'"),
    ],
)
def test_what_is_for_one_label_is_refused_at_fit(
    options: dict[str, Any], words: str
) -> None:
    model = CalibratedClassifier(MODELS["one against the rest"], **options)
    with pytest.raises(ValueError, match=words):
        model.fit(*findings(90, 0))


def test_votes_are_no_labels_of_several() -> None:
    X, y = findings(20, 0)
    with pytest.raises(ValueError, match=r"`y` should be a 1d array .* Votes are for"):
        CalibratedClassifier(GaussianNB()).fit(X, y[:, :2] + y[:, 1:])


def test_groups_of_several_labels_are_refused() -> None:
    X, y = findings(90, 0)
    model = CalibratedClassifier(MODELS["one against the rest"])
    with pytest.raises(ValueError, match="`calibration_groups` must be None where"):
        model.fit(X, y, calibration_groups=np.arange(90) % 2)


def test_several_labels_are_certified_by_cluster() -> None:
    (X, y), (X_new, y_new) = findings(300, 0), findings(400, 1)
    model = CalibratedClassifier(OneVsRestClassifier(GaussianNB()), cv=2).fit(X, y)
    model.certify(X_new, y_new, cluster=np.arange(400) // 2)
    assert model.calibrator_.held_out_.clustered
    assert model.calibrator_.held_out_.worst.size == 200
    with pytest.raises(
        TypeError, match="`counts` must be False where rows have several"
    ):
        model.certify(X_new, y_new, counts=True)


def test_guarantees_of_several_labels_name_what_the_wrapper_takes() -> None:
    X, y = findings(90, 0)
    model = CalibratedClassifier(MODELS["one against the rest"]).fit(X, y)
    with pytest.raises(ValueError, match=r"Call `certify\(X, y\)` first"):
        model.predict_set(X, coverage=0.9)
