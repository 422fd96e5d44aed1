"""Several classifiers in one CalibratedClassifier: pooled, then calibrated."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hokical
from hokical import CalibratedClassifier, Ensemble

FOREST = RandomForestClassifier(30, random_state=0)
BOOSTING = HistGradientBoostingClassifier(max_iter=20)
LINEAR = LogisticRegression()
BAYES = GaussianNB()
QUICK = [("lr", LINEAR), ("nb", BAYES)]
NAMES = np.array(["rose", "aster", "lily"])


@pytest.fixture(scope="module")
def flowers() -> tuple[Any, Any, Any, Any]:
    """Three classes with text labels: 700 rows to fit, 1300 new."""
    X, y = make_classification(
        2000, 12, n_informative=6, n_classes=3, flip_y=0.05, random_state=0
    )
    return X[:700], NAMES[y[:700]], X[700:], NAMES[y[700:]]


@pytest.fixture(scope="module")
def quick(flowers: Any) -> CalibratedClassifier:
    return CalibratedClassifier(QUICK, ensemble=False).fit(*flowers[:2])


@pytest.fixture(scope="module")
def quick_mean(flowers: Any) -> CalibratedClassifier:
    return CalibratedClassifier(QUICK, ensemble=True).fit(*flowers[:2])


class Counting(ClassifierMixin, BaseEstimator):
    """A classifier of class frequencies that counts its calls."""

    calls: ClassVar = {"fit": 0, "predict": 0}

    def fit(self, X: Any, y: Any) -> Self:
        self.calls["fit"] += 1
        self.classes_, counts = np.unique(y, return_counts=True)
        self._shares = counts / counts.sum()
        return self

    def predict_proba(self, X: Any) -> Any:
        self.calls["predict"] += 1
        return np.tile(self._shares, (len(X), 1))


class NumbersOnly(GaussianNB):
    """Like XGBoost it takes the labels 0, 1, ... alone."""

    def fit(self, X: Any, y: Any) -> Self:
        if not np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise ValueError("labels must be 0, 1, ...")
        return super().fit(X, y)


class Weighed(GaussianNB):
    """It records what its `fit` is given."""

    seen: ClassVar = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None, speed: Any = None) -> Self:
        self.seen.append((sample_weight, speed))
        return super().fit(X, y, sample_weight)


# --- what is predicted


@pytest.mark.sample(0)
@pytest.mark.parametrize("ensemble", [False, True])
def test_pooled_classifiers_beat_each_of_them(flowers: Any, ensemble: bool) -> None:
    X, y, X_new, y_new = flowers
    members = [("rf", FOREST), ("gb", BOOSTING), ("lr", LINEAR)]
    model = CalibratedClassifier(members, ensemble=ensemble).fit(X, y)
    pooled = log_loss(y_new, model.predict_proba(X_new))
    for _, member in members:
        single = CalibratedClassifier(member, ensemble=ensemble).fit(X, y)
        assert pooled < log_loss(y_new, single.predict_proba(X_new))
    assert model.members_.names == ("rf", "gb", "lr")
    assert set(model.needed_members_) <= {"rf", "gb", "lr"}
    assert model.members_.remaining[-1] < model.members_.losses.min()


def floored(proba: Any, lowest: float) -> Any:
    return np.log(np.maximum(proba, np.exp(lowest)))


def floor_of(logs: Any) -> float:
    """Half the smallest probability, and no less than rounding."""
    half = min(logs.min(), -np.log(3)) - np.log(2)
    return float(max(half, np.log(np.finfo(float).eps)))


def held_out_logits(X: Any, y: Any, splits: list[Any]) -> tuple[Any, Any]:
    """Scores of both quick members and labels, fold after fold."""
    decisions, logs, labels = [], [], []
    for train, test in splits:
        decisions.append(
            clone(LINEAR).fit(X[train], y[train]).decision_function(X[test])
        )
        proba = clone(BAYES).fit(X[train], y[train]).predict_proba(X[test])
        logs.append(np.log(proba))
        labels.append(y[test])
    codes = np.searchsorted(np.unique(y), np.concatenate(labels))
    return {"lr": np.concatenate(decisions), "nb": np.concatenate(logs)}, codes


@pytest.mark.slow
def test_the_pool_is_fitted_on_held_out_scores_of_all_rows(
    flowers: Any, quick: CalibratedClassifier, quick_mean: CalibratedClassifier
) -> None:
    X, y, X_new, _ = flowers
    splits = list(StratifiedKFold(5).split(X, y))
    scores, codes = held_out_logits(X, y, splits)
    lowest = floor_of(scores["nb"])
    scores["nb"] = np.maximum(scores["nb"], lowest)
    reference = hokical.auto(Ensemble(scores), codes)
    linear, bayes = clone(LINEAR).fit(X, y), clone(BAYES).fit(X, y)
    logs = floored(bayes.predict_proba(X_new), lowest)
    refitted = Ensemble({"lr": linear.decision_function(X_new), "nb": logs})
    np.testing.assert_allclose(
        quick.predict_proba(X_new), reference.predict_proba(refitted), rtol=1e-6
    )
    models = [
        (clone(LINEAR).fit(X[train], y[train]), clone(BAYES).fit(X[train], y[train]))
        for train, _ in splits
    ]
    decisions = np.mean([m.decision_function(X_new) for m, _ in models], axis=0)
    logs = [floored(m.predict_proba(X_new), lowest) for _, m in models]
    logs_of_mean = np.log(np.mean(np.exp(logs), axis=0))
    mean = Ensemble({"lr": decisions, "nb": logs_of_mean})
    np.testing.assert_allclose(
        quick_mean.predict_proba(X_new), reference.predict_proba(mean), rtol=1e-6
    )
    assert quick.n_calibration_ == quick_mean.n_calibration_ == len(y)


@pytest.mark.parametrize("ensemble", [False, True])
def test_members_that_are_not_needed_cost_nothing(flowers: Any, ensemble: bool) -> None:
    X, y, X_new, _ = flowers
    Counting.calls = {"fit": 0, "predict": 0}
    model = CalibratedClassifier(
        [("share", Counting()), *QUICK], ensemble=ensemble, most_members=1
    ).fit(X, y)
    assert len(model.needed_members_) == 1
    assert model.needed_members_ != ("share",)
    assert Counting.calls == {"fit": 5, "predict": 5}  # of the folds alone
    model.predict_proba(X_new)
    model.predict_uncalibrated(X_new)
    assert Counting.calls == {"fit": 5, "predict": 5}
    assert model.predict_scores(X_new).names == model.needed_members_
    assert hasattr(model, "named_estimators_") is not ensemble
    if not ensemble:
        assert tuple(model.named_estimators_) == model.needed_members_


@pytest.mark.slow
def test_labels_of_the_first_classifier_can_be_kept(flowers: Any) -> None:
    X, y, X_new, _ = flowers
    model = CalibratedClassifier(QUICK[::-1], keep_labels=True).fit(X, y)
    first = clone(BAYES).fit(X, y).predict(X_new)
    assert (model.predict(X_new) == first).all()
    assert "nb" in model.needed_members_
    voting = VotingClassifier(QUICK, voting="soft")
    kept = CalibratedClassifier(voting, keep_labels=True).fit(X, y)
    assert (kept.predict(X_new) == clone(voting).fit(X, y).predict(X_new)).all()


# --- voting, and classifiers that are fitted already


def test_a_voting_classifier_is_pooled_like_its_members(
    flowers: Any, quick: CalibratedClassifier
) -> None:
    X, y, X_new, _ = flowers
    voting = VotingClassifier([*QUICK, ("gone", "drop")])
    model = CalibratedClassifier(voting, ensemble=False).fit(X, y)
    np.testing.assert_array_equal(
        model.predict_proba(X_new), quick.predict_proba(X_new)
    )
    assert model.classes_.tolist() == sorted(NAMES)
    assert model.members_.names == ("lr", "nb")


def test_members_of_a_vote_are_given_numbers_as_it_does(flowers: Any) -> None:
    X, y, X_new, y_new = flowers
    voting = VotingClassifier([("xgb", NumbersOnly()), ("lr", LINEAR)])
    model = CalibratedClassifier(voting).fit(X, y)
    assert model.score(X_new, y_new) > 0.5


@pytest.mark.parametrize("way", ["voting", "frozen voting", "list", "frozen list"])
def test_fitted_members_are_not_fitted_again(flowers: Any, way: str) -> None:
    X, y, X_new, _ = flowers
    fit, cal = slice(0, 350), slice(350, None)
    voting = VotingClassifier(QUICK).fit(X[fit], y[fit])
    members = [(name, clone(e).fit(X[fit], y[fit])) for name, e in QUICK]
    frozen = [(name, FrozenEstimator(e)) for name, e in members]
    model = {
        "voting": CalibratedClassifier(voting, cv="prefit"),
        "frozen voting": CalibratedClassifier(FrozenEstimator(voting)),
        "list": CalibratedClassifier(members, cv="prefit"),
        "frozen list": CalibratedClassifier(frozen),
    }[way].fit(X[cal], y[cal])
    linear, bayes = (member for _, member in members)
    codes = np.searchsorted(np.unique(y), y[cal])
    lowest = floor_of(np.log(bayes.predict_proba(X[cal])))

    def scores(X: Any) -> Ensemble:
        logs = floored(bayes.predict_proba(X), lowest)
        return Ensemble({"lr": linear.decision_function(X), "nb": logs})

    expected = hokical.auto(scores(X[cal]), codes).predict_proba(scores(X_new))
    np.testing.assert_allclose(model.predict_proba(X_new), expected, rtol=1e-6)
    assert model.classes_.tolist() == sorted(NAMES)


# --- scikit-learn's tools


def test_parameters_are_named_as_in_scikit_learn() -> None:
    model = CalibratedClassifier([("rf", FOREST), ("nb", BAYES)])
    assert model.get_params()["rf__n_estimators"] == 30
    assert "rf" not in model.get_params(deep=False)
    copied = clone(model).set_params(rf__n_estimators=7, most_members=1)
    assert dict(copied.estimator)["rf"].n_estimators == 7
    assert FOREST.n_estimators == 30
    copied.set_params(nb=LINEAR)
    assert dict(copied.estimator)["nb"] is LINEAR
    with pytest.raises(ValueError, match="Invalid parameter"):
        copied.set_params(knn__n_neighbors=2)
    voting = CalibratedClassifier(VotingClassifier([("rf", FOREST)]))
    assert voting.get_params()["estimator__rf__n_estimators"] == 30
    bagging = CalibratedClassifier(BaggingClassifier())
    assert bagging.get_params()["estimator__n_estimators"] == 10
    bagging.set_params(estimator__n_estimators=3)


def test_a_dropped_member_is_left_out(flowers: Any) -> None:
    X, y, *_ = flowers
    model = CalibratedClassifier([("rf", FOREST), *QUICK]).set_params(rf="drop")
    assert model.fit(X, y).members_.names == ("lr", "nb")


@pytest.mark.slow
def test_search_over_the_number_of_members_in_a_pipeline(flowers: Any) -> None:
    X, y, X_new, y_new = flowers
    members = [*QUICK, ("knn", KNeighborsClassifier())]
    model = make_pipeline(
        StandardScaler(), CalibratedClassifier(members, method="temps", cv=3)
    )
    grid = {
        "calibratedclassifier__most_members": [1, None],
        "calibratedclassifier__knn__n_neighbors": [1, 15],
    }
    search = GridSearchCV(model, grid, cv=3, scoring="neg_log_loss")
    search.fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) > 1
    assert log_loss(y_new, search.predict_proba(X_new)) < 1.0
    best = search.best_estimator_[-1]
    most = search.best_params_["calibratedclassifier__most_members"]
    assert most is None or len(best.needed_members_) == most


@pytest.mark.parametrize("name", ["quick", "quick_mean"])
def test_the_calibrating_part_is_saved(
    name: str, flowers: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    X_new, y_new = flowers[2:]
    model = pickle.loads(pickle.dumps(request.getfixturevalue(name)))
    model.certify(X_new[:800], y_new[:800])
    model.save(tmp_path / "model.json")
    loaded = hokical.load(tmp_path / "model.json")
    scores = model.predict_scores(X_new[800:])
    expected = model.predict_proba(X_new[800:])
    np.testing.assert_array_equal(loaded.predict_proba(scores), expected)
    assert loaded.needed_members_ == model.needed_members_
    assert loaded.class_names == tuple(sorted(NAMES))
    sets = loaded.predict_set(scores, coverage=0.9)
    own_sets = model.predict_set(X_new[800:], coverage=0.9)
    assert (sets.members == own_sets.members).all()


def test_more_jobs_give_the_same(flowers: Any, quick: CalibratedClassifier) -> None:
    X, y, X_new, _ = flowers
    model = clone(quick).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(
        model.predict_proba(X_new), quick.predict_proba(X_new)
    )


# --- rows: weights, groups, classes that folds lack, shift


def test_parameters_of_fit_go_to_the_member_by_name(flowers: Any) -> None:
    X, y, *_ = flowers
    Weighed.seen = []
    weights = np.linspace(1.0, 2.0, len(y))
    model = CalibratedClassifier(
        [("a", Weighed()), ("knn", KNeighborsClassifier())], ensemble=False, cv=2
    )
    with pytest.warns(UserWarning, match="was not used for knn: they do not take it"):
        model.fit(X, y, weights, a__speed=3)
    assert [len(seen) for seen, _ in Weighed.seen[:2]] == [350, 350]
    assert {speed for _, speed in Weighed.seen} == {3}
    with pytest.raises(TypeError, match=r"NAME__PARAMETER.* among a, knn; got 'speed'"):
        model.fit(X, y, speed=3)


def test_metadata_are_routed_to_members_that_request_them(flowers: Any) -> None:
    X, y, *_ = flowers
    Weighed.seen = []
    with config_context(enable_metadata_routing=True):
        first = Weighed().set_fit_request(sample_weight=True, speed=False)
        second = LogisticRegression().set_fit_request(sample_weight=False)
        model = CalibratedClassifier(
            [("a", first), ("lr", second)], ensemble=False, cv=GroupKFold(2)
        )
        model.fit(X, y, sample_weight=np.ones(len(y)), groups=np.arange(len(y)) % 7)
    assert all(weights is not None for weights, _ in Weighed.seen)


def test_groups_help_to_calibrate_members(flowers: Any) -> None:
    X, y, X_new, _ = flowers
    site = np.arange(len(y)) % 2
    wrong = np.where(site == 1, np.roll(y, 1), y)
    model = CalibratedClassifier(QUICK).fit(X, wrong, calibration_groups=site)
    zero = np.zeros(len(X_new), int)
    confidence = [
        model.predict_confidence(X_new, groups=zero + v).mean() for v in (0, 1)
    ]
    assert confidence[0] > confidence[1] + 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
def test_a_class_that_folds_lack(flowers: Any) -> None:
    X, y, X_new, _ = flowers
    y = y.astype(object)
    y[:2] = "weed"
    folds = [(np.arange(2, 700), np.arange(2)), *StratifiedKFold(3).split(X, y)]
    for ensemble in (False, True):
        model = CalibratedClassifier(QUICK, ensemble=ensemble, cv=folds)
        with pytest.warns(UserWarning, match="training part of their fold lacks"):
            model.fit(X, y)
        proba = model.predict_proba(X_new)
        assert proba.shape == (1300, 4)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)


@pytest.mark.parametrize("name", ["quick", "quick_mean"])
def test_class_frequencies_of_new_rows(
    name: str, flowers: Any, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(name)
    X_new, y_new = flowers[2:]
    rows = np.flatnonzero((y_new != "lily") | (np.arange(len(y_new)) % 5 == 0))
    estimate = model.estimate_shift(X_new[rows])
    share = np.mean(y_new[rows] == "lily")
    lily = model.classes_.tolist().index("lily")
    adapted = estimate.adapt()
    losses = [
        log_loss(y_new[rows], m.predict_proba(X_new[rows])) for m in (adapted, model)
    ]
    assert losses[0] < losses[1] - 0.02
    assert adapted.predict_proba(X_new[rows])[:, lily].mean() == pytest.approx(
        share, abs=0.06
    )
    assert ("single models" in str(estimate)) is (name == "quick_mean")


# --- refusals


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            CalibratedClassifier([("lr", LINEAR), ("lr", BAYES)]),
            r"must be distinct; got \['lr', 'lr'\]",
        ),
        (
            CalibratedClassifier([("method", LINEAR), ("nb", BAYES)]),
            "differ from the parameters of CalibratedClassifier; got 'method'",
        ),
        (CalibratedClassifier([("a__b", LINEAR)]), "texts without `__`.*got 'a__b'"),
        (CalibratedClassifier([LINEAR, BAYES]), r"list of pairs .* got LogisticReg"),
        (CalibratedClassifier([("lr", "LogisticRegression")]), "for 'lr'"),
        (CalibratedClassifier([]), r"at least one pair"),
        (CalibratedClassifier({"lr": LINEAR}), r"list of pairs .*got \{'lr'"),
        (
            CalibratedClassifier([("lr", LINEAR), ("ols", LinearRegression())]),
            r"got LinearRegression\(\)",
        ),
        (
            CalibratedClassifier(LINEAR, most_members=2),
            "`most_members` must be None for one classifier; got 2",
        ),
        (
            CalibratedClassifier(QUICK, most_members=3),
            "`most_members` must be .*got 3",
        ),
        (
            CalibratedClassifier(QUICK, keep_labels=True, method="temps"),
            "`keep_labels` of several classifiers.*got 'temps'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_refusals_name_the_argument(model: CalibratedClassifier, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model.fit(*load_iris(return_X_y=True))


def test_members_of_other_classes_are_named() -> None:
    X, y = load_iris(return_X_y=True)
    two = FrozenEstimator(clone(BAYES).fit(X[:100], y[:100]))
    three = FrozenEstimator(clone(BAYES).fit(X, y))
    model = CalibratedClassifier([("three", three), ("two", two)])
    with pytest.raises(
        ValueError, match=r"'three' knows \[0, 1, 2\] and 'two' knows \[0, 1\]"
    ):
        model.fit(X, y)


def test_several_labels_need_one_classifier() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="one classifier where `y` has several labels"):
        CalibratedClassifier(QUICK).fit(X, np.eye(3, dtype=int)[y])
