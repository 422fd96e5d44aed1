"""CalibratedClassifier: scikit-learn's own checks, then what they do not ask."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import (
    load_breast_cancer,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator
from threadpoolctl import threadpool_limits

from hokical import CalibratedClassifier, Gaussian, TemperatureScaling
from hokical.calibrators import Hoki, make, method_names
from hokical.metrics import ece
from tests.conftest import quiet_fit
from tests.integrations.sklearn.helpers import single

METHODS = method_names(3)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Problems of a hundred rows are slower with more threads, by far on a busy
    machine.
    """
    with threadpool_limits(1):
        yield


# --- scikit-learn's checks


def check_cases() -> Iterator[object]:
    """Decision scores with the default, log-probabilities with temperature scaling, and
    both pooled.

    All checks but one: weights train the estimator alone, so a row of weight 2 is not
    the same as a repeated row, which also counts twice in the calibration.
    """
    for model in (
        CalibratedClassifier(LogisticRegression(), cv=3),
        CalibratedClassifier(GaussianNB(), method="temps", cv=3),
        CalibratedClassifier(
            [("lr", LogisticRegression()), ("nb", GaussianNB())], cv=3
        ),
    ):
        for instance, check in estimator_checks_generator(model):
            name = getattr(check, "func", check).__name__
            if "sample_weight_equivalence" in name:
                continue
            yield pytest.param(
                instance, check, id=f"{type(model.estimator).__name__}-{name}"
            )


@pytest.mark.sample(16)
@pytest.mark.parametrize(("estimator", "check"), list(check_cases()))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_check(estimator: CalibratedClassifier, check: object) -> None:
    check(estimator)  # type: ignore[operator]


# --- labels, columns and consistency


@pytest.fixture(scope="module")
def hard() -> tuple[np.ndarray, np.ndarray]:
    """Three classes with text labels that no model separates."""
    X, y = make_classification(
        400, 8, n_informative=4, n_classes=3, flip_y=0.2, class_sep=0.7, random_state=3
    )
    return X, np.array(["rose", "aster", "lily"])[y]


ESTIMATORS = [
    LogisticRegression(),
    RidgeClassifier(),
    GaussianNB(),
    RandomForestClassifier(15, random_state=0),
    KNeighborsClassifier(3),
    DecisionTreeClassifier(random_state=0),
    SVC(break_ties=True),
    HistGradientBoostingClassifier(max_iter=5),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda kind: type(kind).__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_labels_can_be_the_estimators_own(
    estimator: BaseEstimator, classes: int, hard: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = hard
    X, y = (X, y) if classes == 3 else (X[y != "lily"], y[y != "lily"])
    if isinstance(estimator, SVC):  # with two classes scikit-learn refuses `break_ties`
        estimator = SVC(break_ties=classes > 2)
    alone = clone(estimator).fit(X[::2], y[::2])
    model = CalibratedClassifier(estimator, cv=4, keep_labels=True).fit(X[::2], y[::2])
    assert model.classes_.tolist() == sorted(set(y))
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    proba = model.predict_proba(X)
    assert proba.shape == (len(X), classes)
    assert (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    own = np.searchsorted(model.classes_, alone.predict(X))
    expected = proba[np.arange(len(X)), own]
    np.testing.assert_allclose(model.predict_confidence(X), expected, rtol=1e-12)


@pytest.mark.sample(4)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_method(method: str, hard: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = hard
    model = CalibratedClassifier(GaussianNB(), method=method).fit(X[::2], y[::2])
    proba, labels = model.predict_proba(X[1::2]), model.predict(X[1::2])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], labels)
    assert model.score(X[1::2], y[1::2]) > 0.45


def test_is_the_pooled_held_out_logits_and_one_refit() -> None:
    """The reference implementation, by hand."""
    X, y = load_wine(return_X_y=True)
    inner = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
    model = single(inner, method="temps", cv=3).fit(X, y)
    logits, truth = [], []
    for train, test in StratifiedKFold(3).split(X, y):
        logits.append(clone(inner).fit(X[train], y[train]).decision_function(X[test]))
        truth.append(y[test])
    twin = TemperatureScaling().fit(np.concatenate(logits), np.concatenate(truth))
    assert model.calibrator_.temperature_ == pytest.approx(twin.temperature_, rel=1e-9)
    assert model.n_calibration_ == len(y)
    expected = twin.predict_proba(clone(inner).fit(X, y).decision_function(X))
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_overconfident_classifier_becomes_honest() -> None:
    X, y = make_classification(
        4000, 30, n_informative=5, n_redundant=20, random_state=0
    )
    alone = GaussianNB().fit(X[::2], y[::2])
    model = CalibratedClassifier(GaussianNB()).fit(X[::2], y[::2])
    right = alone.predict(X[1::2]) == y[1::2]
    before = ece(alone.predict_proba(X[1::2]).max(axis=1), right)
    after = ece(model.predict_confidence(X[1::2]), right)
    assert after < before / 3


@pytest.fixture(scope="module")
def imbalanced() -> tuple[np.ndarray, np.ndarray]:
    """Six positives in a hundred."""
    X, y = make_classification(
        4000,
        10,
        n_informative=5,
        weights=[0.94],
        flip_y=0.01,
        class_sep=0.7,
        random_state=0,
    )
    return X, y


def test_a_balanced_model_keeps_its_ranking_and_gets_the_true_share(
    imbalanced: tuple[np.ndarray, np.ndarray],
) -> None:
    """Its labels are far from the most likely class, and no probability is bent
    towards them.
    """
    X, y = imbalanced
    balanced = LogisticRegression(class_weight="balanced")
    alone = clone(balanced).fit(X[::2], y[::2])
    model = single(balanced).fit(X[::2], y[::2])
    keeping = clone(model).set_params(keep_labels=True).fit(X[::2], y[::2])
    proba = model.predict_proba(X[1::2])
    np.testing.assert_array_equal(keeping.predict_proba(X[1::2]), proba)
    auc = roc_auc_score(y[1::2], alone.decision_function(X[1::2]))
    assert roc_auc_score(y[1::2], proba[:, 1]) > auc - 0.005
    assert proba[:, 1].mean() == pytest.approx(y[1::2].mean(), abs=0.015)
    peer = CalibratedClassifierCV(balanced, ensemble=False).fit(X[::2], y[::2])
    assert log_loss(y[1::2], proba) < 1.02 * log_loss(
        y[1::2], peer.predict_proba(X[1::2])
    )
    np.testing.assert_array_equal(model.predict(X[1::2]), proba.argmax(axis=1))
    np.testing.assert_array_equal(model.predict_confidence(X[1::2]), proba.max(axis=1))
    own = alone.predict(X[1::2])
    np.testing.assert_array_equal(keeping.predict(X[1::2]), own)
    expected = proba[np.arange(own.size), own]
    np.testing.assert_allclose(
        keeping.predict_confidence(X[1::2]), expected, rtol=1e-12
    )


def test_an_ensemble_is_the_mean_of_calibrated_folds() -> None:
    """The reference implementation, by hand."""
    X, y = load_wine(return_X_y=True)
    inner = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
    model = CalibratedClassifier(inner, method="temps", cv=3, ensemble=True).fit(X, y)
    expected = np.zeros((len(y), 3))
    for train, test in StratifiedKFold(3).split(X, y):
        part = clone(inner).fit(X[train], y[train])
        twin = TemperatureScaling().fit(part.decision_function(X[test]), y[test])
        expected += twin.predict_proba(part.decision_function(X)) / 3
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), expected.argmax(axis=1))
    assert (len(model.models_), model.n_calibration_) == (3, len(y))
    for wrong in ({"cv": "prefit"}, {"keep_labels": True}):
        with pytest.raises(ValueError, match="`ensemble"):
            clone(model).set_params(**wrong).fit(X, y)


def test_an_ensemble_is_the_default_and_can_be_certified(
    hard: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = make_classification(
        1500, 8, n_informative=4, n_classes=3, class_sep=0.7, random_state=3
    )
    fit, held, new = (np.arange(len(y)) % 3 == k for k in range(3))
    model = CalibratedClassifier(GaussianNB(), method="temps").fit(X[fit], y[fit])
    assert len(model.models_) == 5
    assert not hasattr(model, "estimator_")
    with pytest.raises(ValueError, match="certify"):
        model.predict_or_abstain(X[new])
    model.certify(X[held], y[held])
    sets = model.predict_set(X[new], coverage=0.9)
    truth = np.searchsorted(model.classes_, y[new])
    assert sets.members[np.arange(new.sum()), truth].mean() > 0.85
    adaptive = model.predict_set(X[new], kind="adaptive", penalty=0.1, free_ranks=1)
    assert (adaptive.sizes >= 1).all()
    assert "adaptive" in repr(adaptive)
    found = model.predict_or_abstain(X[new], risk=0.4)
    np.testing.assert_array_equal(found.labels, model.predict(X[new]))
    np.testing.assert_allclose(
        found.confidence, model.predict_confidence(X[new]), rtol=1e-9
    )
    assert model.predict_interval(X[new]).shape == (new.sum(), 2)
    assert set(found.labels_or(None)) == {None, *model.classes_}
    of_last = model.predict_interval(X[new], label=model.classes_[-1])
    np.testing.assert_array_less(
        of_last[:, 0] - 1e-9, model.predict_proba(X[new])[:, -1]
    )
    np.testing.assert_array_less(
        model.predict_proba(X[new])[:, -1], of_last[:, 1] + 1e-9
    )
    for one in ({"keep_labels": True}, {"ensemble": False}):
        assert len(clone(model).set_params(**one).fit(X[fit], y[fit]).models_) == 1
    assert len(clone(model).fit(*hard).models_) == 1  # 400 examples
    with pytest.raises(ValueError, match='`ensemble` must be True, False or "auto"'):
        clone(model).set_params(ensemble="always").fit(X, y)


def test_the_reason_of_the_default_is_that_of_its_models(
    hard: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = hard
    model = CalibratedClassifier(GaussianNB(), ensemble=False).fit(X, y)
    assert model.reason_ == model.calibrator_.reason_
    assert isinstance(CalibratedClassifier(GaussianNB()).fit(X, y).reason_, str)
    assert not hasattr(
        CalibratedClassifier(GaussianNB(), method="temps").fit(X, y), "reason_"
    )


@pytest.mark.slow
def test_class_weighted_trees_are_level_with_scikit_learn() -> None:
    """Log loss at most 0.0005 behind its default, the share of a rare class within 8 %
    of that among the examples of the fit.
    """
    X, y = make_classification(
        6000,
        12,
        n_informative=8,
        weights=[0.97],
        flip_y=0.02,
        class_sep=0.8,
        random_state=0,
    )
    trees = HistGradientBoostingClassifier(
        class_weight="balanced", max_iter=30, random_state=0
    )
    loss, share = {}, {}
    for kind in (CalibratedClassifierCV, CalibratedClassifier):
        proba = kind(trees).fit(X[:3000], y[:3000]).predict_proba(X[3000:])
        loss[kind], share[kind] = (
            log_loss(y[3000:], proba),
            proba[:, 1].mean() / y[:3000].mean(),
        )
    assert loss[CalibratedClassifier] < loss[CalibratedClassifierCV] + 0.0005
    assert abs(share[CalibratedClassifier] - 1.0) < 0.08


# --- probabilities of zero


def test_a_probability_of_zero_is_not_impossible(
    hard: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = hard
    tree = DecisionTreeClassifier(random_state=0)  # says 0 or 1, and is often wrong
    model = single(tree, method="temps").fit(X[::2], y[::2])
    assert model.lowest_logit_ == pytest.approx(np.log(1 / 6))
    held_out = cross_val_score(tree, X[::2], y[::2], cv=5).mean()
    np.testing.assert_allclose(model.predict_confidence(X), held_out, rtol=1e-9)


def test_decision_scores_have_no_floor(hard: tuple[np.ndarray, np.ndarray]) -> None:
    model = single(LogisticRegression(), method="temps").fit(*hard)
    assert model.lowest_logit_ == -np.inf


def test_probabilities_above_one_by_rounding_are_taken() -> None:
    class Rounded(ClassifierMixin, BaseEstimator):
        def fit(self, X: np.ndarray, y: np.ndarray) -> Rounded:
            self.classes_ = np.unique(y)
            return self

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            p = np.where(X[:, 0] > 0, np.nextafter(1.0, 2.0), 0.0)
            return np.stack([1 - np.minimum(p, 1), p], axis=1)

    X = np.random.default_rng(0).normal(size=(100, 1))
    y = (X[:, 0] + np.random.default_rng(1).normal(size=100) > 0).astype(int)
    model = CalibratedClassifier(Rounded(), method="temps").fit(X, y)
    assert model.score(X, y) > 0.7


# --- classes that a fold lacks


def rare(n_rare: int) -> tuple[np.ndarray, np.ndarray]:
    """Iris in random order with few examples of the third class, and a class the
    model mixes up.
    """
    X, y = load_iris(return_X_y=True)
    keep = np.concatenate([np.arange(100), 100 + np.arange(n_rare)])
    keep = np.random.default_rng(0).permutation(keep)
    noise = np.random.default_rng(1).normal(size=(keep.size, X.shape[1]))
    return X[keep] + noise, np.array(["a", "b", "c"])[y[keep]]


@pytest.mark.sample(6)
@pytest.mark.parametrize("estimator", [LogisticRegression(), GaussianNB()])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
def test_a_class_with_one_example(method: str, estimator: BaseEstimator) -> None:
    """When it is held out no model knows it; it must not poison what is learned of
    the others.
    """
    X, y = rare(1)
    with pytest.warns(
        UserWarning, match="1 of 101 held-out examples .* lacks their class"
    ):
        model = CalibratedClassifier(estimator, method=method).fit(X, y)
    assert model.n_calibration_ == 100
    proba = model.predict_proba(X)
    assert proba.shape == (101, 3)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-9)
    common = y != "c"
    without = quiet_fit(
        CalibratedClassifier(estimator, method=method), X[common], y[common]
    )
    gap = model.predict_confidence(X[common]) - without.predict_confidence(X[common])
    assert abs(gap.mean()) < 0.05


def test_folds_that_lack_a_class() -> None:
    X, y = load_iris(
        return_X_y=True
    )  # sorted by class, so each fold lacks the class it tests
    with pytest.raises(
        ValueError, match=r"150 of 150 held-out examples .* stratified splitter"
    ):
        CalibratedClassifier(GaussianNB(), cv=KFold(3)).fit(X, y)


@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
def test_a_fold_with_one_class_is_left_out() -> None:
    X, y = rare(0)
    keep = (y == "a") | (np.cumsum(y == "b") <= 1)
    X, y = X[keep], y[keep]
    with (
        pytest.warns(UserWarning, match="11 of 51 held-out examples"),
        pytest.warns(ConvergenceWarning),
    ):
        model = CalibratedClassifier(GaussianNB(), method="temps").fit(X, y)
    assert model.n_calibration_ == 40


# --- ways to hold out


def test_prefit_and_frozen_are_the_same() -> None:
    X, y = load_wine(return_X_y=True)
    fitted = GaussianNB().fit(X[::2], y[::2])
    prefit = CalibratedClassifier(fitted, method="temps", cv="prefit").fit(
        X[1::2], y[1::2]
    )
    frozen = clone(CalibratedClassifier(FrozenEstimator(fitted), method="temps"))
    frozen.fit(X[1::2], y[1::2])
    assert prefit.estimator_ is fitted
    assert prefit.n_calibration_ == len(y[1::2])
    np.testing.assert_array_equal(prefit.predict_proba(X), frozen.predict_proba(X))


def test_prefit_knows_classes_that_the_calibration_data_lacks() -> None:
    X, y = load_iris(return_X_y=True)
    noisy = X + np.random.default_rng(0).normal(size=X.shape)
    fitted = GaussianNB().fit(X, y)
    some = y > 0
    model = CalibratedClassifier(fitted, method="temps", cv="prefit").fit(
        noisy[some], y[some]
    )
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(X).shape == (150, 3)
    with pytest.raises(
        ValueError, match=r"`y` must be names of the classes.*got 7 in row 0\. .*drop"
    ):
        CalibratedClassifier(fitted, cv="prefit").fit(X, np.full(150, 7))


def test_prefit_wants_a_fitted_estimator() -> None:
    X, y = load_iris(return_X_y=True)
    fitted = CalibratedClassifier(GaussianNB().fit(X, y), cv="prefit")
    with pytest.raises(NotFittedError, match="GaussianNB instance is not fitted"):
        clone(fitted).fit(X, y)


@pytest.mark.parametrize(
    ("cv", "n"),
    [
        (ShuffleSplit(3, test_size=50, random_state=0), 150),
        ([(np.arange(0, 178, 2), np.arange(1, 178, 2))], 89),
        ([(np.arange(178) % 2 == 0, np.arange(178) % 2 == 1)], 89),
        (None, 178),
    ],
    ids=["overlapping", "one split", "masks", "default"],
)
def test_any_way_to_hold_out(cv: object, n: int) -> None:
    X, y = load_wine(return_X_y=True)
    model = single(GaussianNB(), method="temps", cv=cv).fit(X, y)
    assert model.n_calibration_ == n


def test_folds_in_parallel_are_the_same() -> None:
    X, y = load_wine(return_X_y=True)
    one = single(GaussianNB(), method="temps").fit(X, y)
    with parallel_config("threading"):  # processes take seconds to start
        two = single(GaussianNB(), method="temps", n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


# --- at home in scikit-learn


@pytest.mark.slow
def test_pipeline_search_and_scores() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = CalibratedClassifier(GaussianNB(), method=Hoki(), cv=3)
    grid = {
        "calibratedclassifier__estimator__var_smoothing": [1e-9, 1e-3],
        "calibratedclassifier__method__n_bins": [5, 10],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline = make_pipeline(StandardScaler(), model)
        search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(X, y)
        assert cross_val_score(pipeline, X, y, cv=3, scoring="roc_auc").min() > 0.95
        names = GridSearchCV(
            model,
            {"method": ["temps", make("hoki", n_bins=5)]},
            cv=2,
            scoring="neg_brier_score",
        ).fit(X, y)
    assert search.predict_proba(X).shape == (569, 2)
    assert names.best_estimator_.score(X, y) > 0.9
    assert not hasattr(model.method, "table_"), (
        "the calibrator handed in must stay as it was"
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_data_frames() -> None:
    X, y = load_wine(return_X_y=True, as_frame=True)
    named = y.map({0: "barolo", 1: "grignolino", 2: "barbera"})
    model = CalibratedClassifier(GaussianNB(), cv=3).fit(X, named)
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.n_features_in_ == 13
    assert set(model.predict(X)) == {"barolo", "grignolino", "barbera"}
    assert model.classes_.tolist() == ["barbera", "barolo", "grignolino"]
    twin = CalibratedClassifier(GaussianNB(), cv=3)
    twin.fit(X.to_numpy(), named.to_numpy())
    np.testing.assert_array_equal(
        model.predict_proba(X), twin.predict_proba(X.to_numpy())
    )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"alcohol": "spirit"}))
    assert not hasattr(model.fit(X.to_numpy(), y), "feature_names_in_")


def test_missing_values_and_categories_are_the_estimators_business() -> None:
    X, y = load_wine(return_X_y=True, as_frame=True)
    X = X.mask(np.random.default_rng(0).random(X.shape) < 0.2)
    X["kind"] = pd.Categorical(np.where(y == 1, "u", "v"))
    inner = HistGradientBoostingClassifier(
        max_iter=5, categorical_features="from_dtype"
    )
    model = single(inner, method="temps", cv=3).fit(X, y)
    assert model.score(X, y) > 0.9


@pytest.mark.slow
def test_sparse_text_and_kernels() -> None:
    X, y = load_iris(return_X_y=True)
    linear = LogisticRegression(C=0.1, max_iter=1000)
    dense = single(linear, method="temps").fit(X, y)
    thin = single(linear, method="temps").fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(
        thin.predict_proba(sparse.csr_array(X)),
        dense.predict_proba(X),
        rtol=1e-3,
        atol=1e-6,
    )
    plain = single(SVC(kernel="linear"), method="temps").fit(X, y)
    kernel = single(SVC(kernel="precomputed"), method="temps").fit(X @ X.T, y)
    np.testing.assert_allclose(
        kernel.predict_proba(X @ X.T), plain.predict_proba(X), rtol=1e-3, atol=1e-6
    )
    words = ["good fine", "bad poor", "fine", "poor good", "bad fine bad"] * 8
    moods = ["+", "-", "+", "-", "-"] * 8
    reader = make_pipeline(CountVectorizer(), LogisticRegression())
    mood = single(reader, method="ets", cv=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert mood.fit(words, moods).predict(["fine", "bad"]).tolist() == ["+", "-"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_pickle_and_clone(hard: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = hard
    model = CalibratedClassifier(GaussianNB(), method=Hoki(n_bins=5)).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    fresh = clone(model)
    assert fresh.method.n_bins == 5
    with pytest.raises(NotFittedError):
        fresh.predict_confidence(X)


# --- weights


@pytest.mark.parametrize("method", [Hoki(noise=Gaussian(2.0)), "temps", "irm"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_are_repetitions(
    method: Any, hard: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = hard
    weight = np.random.default_rng(0).integers(0, 4, size=len(y))
    fold = np.arange(len(y)) % 3
    rows = np.repeat(np.arange(len(y)), weight)
    inner = RandomForestClassifier(5, max_depth=3, bootstrap=False, random_state=0)
    by_weight, by_hand = (
        single(
            GaussianNB() if method != "irm" else inner,
            method=method,
            cv=[(np.flatnonzero(f != k), np.flatnonzero(f == k)) for k in range(3)],
        ).fit(X[at], y[at], w, calibration_weight=w)
        for f, at, w in ((fold, slice(None), weight), (fold[rows], rows, None))
    )
    assert by_weight.n_calibration_ == (weight > 0).sum()
    assert by_weight.lowest_logit_ == pytest.approx(by_hand.lowest_logit_, rel=1e-6)
    a, b = by_weight.predict_proba(X), by_hand.predict_proba(X)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_weights_reach_the_last_step_of_a_pipeline(
    hard: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = hard
    weight = np.where(y == "rose", 10.0, 0.1)
    model = CalibratedClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), method="temps"
    )
    with pytest.warns(UserWarning, match="not used: Pipeline .* `step__sample_weight`"):
        model.fit(X, y, sample_weight=weight)
    model.fit(X, y, logisticregression__sample_weight=weight)
    assert (model.predict(X) == "rose").mean() > 0.9


def test_weights_with_metadata_routing(hard: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = hard
    weight = np.where(y == "rose", 10.0, 0.1)
    with config_context(enable_metadata_routing=True):
        linear = LogisticRegression().set_fit_request(sample_weight=True)
        inner = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False), linear
        )
        model = CalibratedClassifier(inner, method="temps").set_fit_request(
            sample_weight=True
        )
        outer = make_pipeline(model).fit(X, y, sample_weight=weight)
        assert (outer.predict(X) == "rose").mean() > 0.9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_estimator_without_weights_is_named(
    hard: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = hard
    model = CalibratedClassifier(KNeighborsClassifier(), method="temps")
    with pytest.warns(
        UserWarning, match="was not used: KNeighborsClassifier does not take"
    ):
        model.fit(X, y, sample_weight=np.arange(len(y)))


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [False, True])
def test_weights_train_the_model_and_leave_the_probabilities_true(
    ensemble: bool,
) -> None:
    X, y = make_classification(4000, 6, weights=[0.95], class_sep=0.7, random_state=0)
    balanced = np.where(y == 1, 1.0 / y.mean(), 1.0 / (1.0 - y.mean()))
    model = CalibratedClassifier(LogisticRegression(), ensemble=ensemble)
    weighted = model.fit(X[::2], y[::2], sample_weight=balanced[::2]).predict_proba(
        X[1::2]
    )[:, 1]
    assert weighted.mean() < 0.08  # 5 % are positive
    both = {"sample_weight": balanced[::2], "calibration_weight": balanced[::2]}
    told = clone(model).fit(X[::2], y[::2], **both).predict_proba(X[1::2])[:, 1]
    assert told.mean() > 0.3


# --- refusals


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            CalibratedClassifier(GaussianNB(), method="plat"),
            "`method` must be one of .*'plat'",
        ),
        (CalibratedClassifier(GaussianNB(), cv="fit"), "`cv` as an integer.*fit"),
        (
            CalibratedClassifier(LinearRegression()),
            r"`estimator` must .* got LinearRegression\(\)",
        ),
        (
            CalibratedClassifier(make_pipeline(SVC(decision_function_shape="ovo"))),
            "one score per class.*Set it to 'ovr'",
        ),
    ],
)
def test_refusals_name_the_argument(model: CalibratedClassifier, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model.fit(*load_iris(return_X_y=True))


def test_refuses_bad_targets_and_weights() -> None:
    X, y = load_iris(return_X_y=True)
    model = CalibratedClassifier(GaussianNB())
    with pytest.raises(ValueError, match="at least two classes; got 1 class"):
        model.fit(X, np.zeros(150))
    with pytest.raises(ValueError, match="continuous"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1])
    with pytest.raises(
        ValueError, match=r"`sample_weight` must be finite .* -1.0 in row 0"
    ):
        model.fit(X, y, np.full(150, -1.0))


def test_scores_of_the_wrong_shape_are_refused() -> None:
    class OneScore(GaussianNB):
        def decision_function(self, X: np.ndarray) -> np.ndarray:
            return X[:, 0]

    with pytest.raises(ValueError, match=r"one column per class, 3; got shape \(30,\)"):
        CalibratedClassifier(OneScore()).fit(*load_iris(return_X_y=True))


def test_folds_are_no_witnesses_and_certify_counts_new_rows() -> None:
    rng = np.random.default_rng(0)
    y = np.array(["no", "yes"])[rng.integers(2, size=900)]
    X = rng.normal(size=(900, 3)) + 1.2 * (y == "yes")[:, None]
    train, new = slice(300), slice(300, 900)
    trees = RandomForestClassifier(10, random_state=0)
    for model in (
        CalibratedClassifier(LogisticRegression(), method="temps", cv=3),
        CalibratedClassifier(
            trees.fit(X[train], y[train]), method="temps", cv="prefit"
        ),
    ):
        model.fit(X[train], y[train])
        with pytest.raises(ValueError, match="folds of a cross-validation"):
            model.predict_or_abstain(X[:2])
        with pytest.raises(ValueError, match="folds of a cross-validation"):
            model.calibrator_.predict_interval(np.zeros((1, 2)))
        found = model.certify(X[new], y[new]).predict_or_abstain(X[new], risk=0.2)
        assert found.accepted.any()
        assert np.array_equal(found.labels, model.predict(X[new]))
        model.certify(X[new], y[new], np.arange(600) % 3, counts=True)
        assert model.calibrator_.predictor_.held_out.label_scores.total == 600
        model.certify(X[new], y[new], cluster=np.arange(600) // 2)
        assert model.calibrator_.predictor_.held_out.label_scores.total == 300
    fitted = LogisticRegression().fit(
        X[train], y[train]
    )  # decision scores, other data: sound
    sound = CalibratedClassifier(fitted, method="temps", cv="prefit").fit(
        X[new], y[new]
    )
    assert sound.predict_or_abstain(X[:5], risk=0.2).certified_on == "fit"


def _as_text(X: np.ndarray) -> list[str]:
    return [" ".join(f"w{int(v * 9)}_{j}" for j, v in enumerate(row)) for row in X]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "form", [np.asarray, pd.DataFrame, sparse.csr_matrix, _as_text]
)
@pytest.mark.parametrize("cv", [3, "prefit"])
def test_rows_of_the_fit_cannot_certify_it(form: Any, cv: Any) -> None:
    """The scores of the final model do not tell: its trees tie, and it was not the
    one held out.
    """
    X, y = make_classification(600, n_informative=4, flip_y=0.2, random_state=0)
    forest: Any = RandomForestClassifier(10, random_state=0)
    if form is _as_text:
        forest = make_pipeline(CountVectorizer(), forest)
    own, held_out, fresh = (
        form(X[rows]) for rows in (slice(200), slice(200, 400), slice(400, 600))
    )
    if cv == "prefit":
        forest.fit(own, y[:200])
    model = single(forest, method="temps", cv=cv).fit(held_out, y[200:400])
    model = pickle.loads(pickle.dumps(model))
    some = np.arange(0, 200, 3)[::-1]
    rows = held_out.iloc[some] if form is pd.DataFrame else None
    rows = [held_out[i] for i in some] if form is _as_text else rows
    with pytest.raises(
        ValueError, match=r"`X` must be of examples .* got rows of the fit"
    ):
        model.certify(held_out[some] if rows is None else rows, y[200:400][some])
    assert model.certify(
        held_out, y[200:400], reused="ignore"
    ).calibrator_.predictor_.held_out.label_scores
    assert (
        model.certify(fresh, y[400:]).calibrator_.predictor_.held_out.label_scores.total
        == 200
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scikit_learns_names_run_in_a_grid(n_classes: int) -> None:
    """Of two classes "sigmoid" is scikit-learn's; both names have a method for more."""
    X, y = make_classification(
        400, 8, n_informative=6, n_classes=n_classes, random_state=0, flip_y=0.2
    )
    known = {
        "sigmoid": "platt" if n_classes == 2 else "vecs",
        "isotonic": "irova_ts",
        "temperature": "temps",
    }
    for theirs, ours in known.items():
        models = [
            CalibratedClassifier(GaussianNB(), method=each).fit(X, y)
            for each in (theirs, ours)
        ]
        np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))
    grid = {"method": [*known, "auto"]}
    search = GridSearchCV(
        CalibratedClassifier(GaussianNB(), ensemble=False), grid, cv=2
    )
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("first", [True, False])
def test_a_second_fit_is_as_the_first_of_a_new_model(first: bool) -> None:
    """An ensemble where there was none before, and the reverse."""
    X, y = make_classification(400, random_state=0)
    X_new = X[1::2]
    refitted = CalibratedClassifier(GaussianNB(), method="temps", ensemble=first)
    refitted.fit(X, y).set_params(ensemble=not first).fit(X[::2], y[::2])
    new = clone(refitted).fit(X[::2], y[::2])
    np.testing.assert_array_equal(
        refitted.predict_proba(X_new), new.predict_proba(X_new)
    )
    shares = [0.9, 0.1]
    np.testing.assert_array_equal(
        refitted.reweight_classes(shares).predict_proba(X_new),
        new.reweight_classes(shares).predict_proba(X_new),
    )
    estimates = [model.estimate_shift(X_new) for model in (refitted, new)]
    np.testing.assert_array_equal(*[shift.class_frequencies for shift in estimates])


def test_fewer_rows_in_a_second_fit_are_no_ensemble() -> None:
    X, y = make_classification(700, random_state=0)
    model = CalibratedClassifier(GaussianNB(), method="temps").fit(X, y)
    assert len(model.models_) == 5
    model.fit(X[:200], y[:200])
    assert len(model.models_) == 1
    assert model.predict_proba(X).shape == (700, 2)


def test_what_a_classifier_gives_may_only_be_known_after_its_fit() -> None:
    X, y = make_classification(300, random_state=0)
    pair = [("bayes", GaussianNB())]
    model = CalibratedClassifier(StackingClassifier(pair)).fit(X, y)
    assert model.predict_proba(X).shape == (300, 2)
    votes = VotingClassifier(pair)  # of labels
    for estimator in (make_pipeline(votes), make_pipeline(LinearRegression())):
        with pytest.raises(ValueError, match="must be a classifier with"):
            CalibratedClassifier(estimator).fit(X, y)
