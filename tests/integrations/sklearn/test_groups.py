"""Groups of people in the wrapper: the calibrator learns from them, and the
estimator does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hokical
from hokical import CalibratedClassifier
from hokical.metrics import log_loss
from tests.integrations.sklearn.helpers import single


def people(n: int, seed: int) -> tuple[Any, Any, Any]:
    """Features, labels, and sites with diagnoses of their own, which the features do
    not tell.
    """
    rng = np.random.default_rng(seed)
    site = rng.integers(0, 4, n)
    X = rng.normal(size=(n, 3))
    shift = np.array(
        [[0.0, 0.0, 0.0], [1.5, 0.0, 0.0], [0.0, 1.5, 0.0], [0.0, 0.0, 1.5]]
    )
    y = np.argmax(X + shift[site] + rng.gumbel(size=X.shape), axis=1)
    return X, np.array(["flu", "cold", "none"])[y], np.array(list("abcd"))[site]


X, Y, SITE = people(1500, 0)
NEW = people(1500, 1)


@pytest.fixture(scope="module")
def model() -> CalibratedClassifier:
    return CalibratedClassifier(LogisticRegression()).fit(X, Y, calibration_groups=SITE)


def test_groups_that_matter_are_used(model: CalibratedClassifier) -> None:
    plain = single(LogisticRegression()).fit(X, Y)
    truth = np.searchsorted(model.classes_, NEW[1])
    proba = model.predict_proba(NEW[0], groups=NEW[2])
    assert log_loss(proba, truth) < log_loss(plain.predict_proba(NEW[0]), truth) - 0.05
    assert model.score(NEW[0], NEW[1], groups=NEW[2]) > plain.score(*NEW[:2]) + 0.01
    assert all(pair.calibrator.groups_ == ["group"] for pair in model.models_)
    found = model.predict(NEW[0], groups=NEW[2])
    np.testing.assert_array_equal(found, model.classes_[proba.argmax(axis=1)])
    np.testing.assert_array_equal(
        model.predict_confidence(NEW[0], groups=NEW[2]), proba.max(axis=1)
    )
    with pytest.raises(
        ValueError, match="`groups` must be given, as in the fit: group"
    ):
        model.predict(NEW[0])


def test_a_fitted_estimator_gives_what_the_calibrator_gives() -> None:
    inner = LogisticRegression().fit(*NEW[:2])
    model = CalibratedClassifier(FrozenEstimator(inner)).fit(
        X, Y, calibration_groups={"site": SITE}
    )
    truth = np.searchsorted(inner.classes_, Y)
    cal = hokical.auto(
        inner.decision_function(X), truth, groups={"site": SITE}, keep_labels=False
    )
    expected = cal.predict_proba(
        inner.decision_function(NEW[0]), groups={"site": NEW[2]}
    )
    found = model.predict_proba(NEW[0], groups={"site": NEW[2]})
    np.testing.assert_array_equal(found, expected)


def test_guarantees_go_by_the_groups(
    model: CalibratedClassifier, tmp_path: Path
) -> None:
    rows, truth, site = people(1200, 2)
    joblib.dump(model.certify(*NEW[:2], groups=NEW[2]), tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    sets = again.predict_set(rows, coverage=0.9, groups=site)
    column = np.searchsorted(model.classes_, truth)
    assert abs(sets.members[np.arange(1200), column].mean() - 0.9) < 0.04
    found = again.predict_or_abstain(rows, risk=0.25, groups=site)
    assert found.accepted.any()
    assert (found.labels != truth)[found.accepted].mean() < 0.3
    assert again.predict_interval(rows, groups=site).shape == (1200, 2)
    assert again.detect(rows, "flu", recall=0.9, groups=site).flagged.shape == (1200,)
    assert again.predict_action(rows, 1 - np.eye(3), groups=site).actions.shape == (
        1200,
    )


def test_both_kinds_of_groups_go_their_own_way() -> None:
    wards = np.arange(1500) // 150
    kept = CalibratedClassifier(
        LogisticRegression(), cv=GroupKFold(5), keep_labels=True
    )
    kept.fit(
        X,
        Y,
        groups=wards,
        calibration_groups={"site": SITE, "odd": np.arange(1500) % 2},
    )
    assert kept.calibrator_.groups_ == ["site"]
    own = kept.estimator_.predict(NEW[0])
    np.testing.assert_array_equal(kept.predict(NEW[0], groups={"site": NEW[2]}), own)
    assert kept.predict_confidence(NEW[0], groups={"site": NEW[2]}).shape == (1500,)


def test_an_ensemble_has_groups_in_each_model() -> None:
    model = CalibratedClassifier(LogisticRegression(), cv=3, ensemble=True)
    model.fit(X, Y, calibration_groups=SITE)
    parts = [
        pair.spread(pair.logits(NEW[0]), model.classes_, NEW[2])
        for pair in model.models_
    ]
    found = model.predict_proba(NEW[0], groups=NEW[2])
    np.testing.assert_allclose(found, np.mean(parts, axis=0))


def test_groups_that_were_left_out_may_still_be_passed() -> None:
    parity = np.arange(1500) % 2
    model = single(LogisticRegression()).fit(X, Y, calibration_groups=parity)
    assert model.calibrator_.groups_ == []
    np.testing.assert_array_equal(model.predict(X, groups=parity), model.predict(X))
    model.certify(*NEW[:2], groups=parity)
    assert model.predict_set(X, groups=parity, coverage=0.9).sizes.shape == (1500,)


def test_metadata_reach_a_step_of_a_pipeline() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        last = single(LogisticRegression())
        last.set_fit_request(calibration_groups=True).set_predict_proba_request(
            groups=True
        )
        steps = make_pipeline(StandardScaler(), last).fit(X, Y, calibration_groups=SITE)
        found = steps.predict_proba(NEW[0], groups=NEW[2])
    assert found.shape == (1500, 3)
    assert last.get_params()["method"] == "auto"
    assert steps[-1].calibrator_.groups_ == ["group"]


def test_wrong_groups_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"`method` must be one that learns from groups .*'temps'"
    ):
        CalibratedClassifier(LogisticRegression(), method="temps").fit(
            X, Y, calibration_groups=SITE
        )
    with pytest.raises(ValueError, match="one entry per row"):
        CalibratedClassifier(LogisticRegression()).fit(
            X, Y, calibration_groups=SITE[:-1]
        )
