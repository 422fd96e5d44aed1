"""What else `fit` is given, files, columns, and answers in the words of the wrapper."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hokical import CalibratedClassifier
from hokical._core.checks import NoEvidenceError
from tests.integrations.sklearn.helpers import single

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
Y = np.array(["no", "yes"])[(X[:, 0] + RNG.normal(size=240) > 0).astype(int)]
SEEN: list[dict[str, Any]] = []


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier as of another library: it checks no columns, and notes what `fit`
    is given.
    """

    __module__ = "elsewhere"

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        cat_features: Any = None,
        eval_set: Any = None,
        offset: Any = None,
    ) -> Any:
        SEEN.append(
            {"n": len(y), "cat": cat_features, "eval": eval_set, "offset": offset}
        )
        self.classes_ = np.unique(y)
        self.inner_ = LogisticRegression().fit(np.asarray(X), y)
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.inner_.predict_proba(np.asarray(X))


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def test_parameters_reach_every_fit() -> None:
    held, offset = (X[:10], Y[:10]), np.arange(240.0)
    model = single(Recorder(), method="temps", cv=4)
    model.fit(X, Y, cat_features=[1], eval_set=held, offset=offset)
    assert [seen["n"] for seen in SEEN] == [240, 180, 180, 180, 180]
    assert all(seen["cat"] == [1] and seen["eval"] is held for seen in SEEN)
    assert [len(seen["offset"]) for seen in SEEN] == [seen["n"] for seen in SEEN]
    folds = np.concatenate([seen["offset"] for seen in SEEN[1:]])
    np.testing.assert_array_equal(np.unique(folds, return_counts=True)[1], 3)  # by row
    with pytest.raises(TypeError, match="unexpected keyword"):
        model.fit(X, Y, cats=[1])


def test_groups_reach_the_splitter() -> None:
    groups = np.arange(240) // 60
    model = CalibratedClassifier(Recorder(), method="temps", cv=GroupKFold(4))
    model.fit(X, Y, groups=groups, offset=groups)
    assert all(np.unique(seen["offset"]).size == 3 for seen in SEEN[1:])
    with pytest.raises(ValueError, match="groups"):
        model.fit(X, Y)


def test_metadata_are_routed() -> None:
    groups = np.arange(240) // 60
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Recorder().set_fit_request(offset=True, cat_features=True)
        model = CalibratedClassifier(inner, method="temps", cv=GroupKFold(4))
        model.fit(X, Y, groups=groups, offset=groups, cat_features=[1])
        assert all(np.unique(seen["offset"]).size == 3 for seen in SEEN[1:])
        assert SEEN[0]["cat"] == [1]
        with pytest.raises(ValueError, match="eval_set"):
            model.fit(X, Y, eval_set=(X, Y))
        SEEN.clear()
        plain = CalibratedClassifier(inner, method="temps", cv=3)
        cross_validate(
            plain, X, Y, params={"offset": groups}, cv=2, error_score="raise"
        )
        assert all(seen["offset"] is not None for seen in SEEN)


def test_pipelines_take_the_parameters_of_their_steps() -> None:
    model = CalibratedClassifier(
        make_pipeline(StandardScaler(), Recorder()), method="temps"
    )
    model.fit(X, Y, recorder__cat_features=[2])
    assert all(seen["cat"] == [2] for seen in SEEN)


def test_columns_in_another_order_are_noticed() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = CalibratedClassifier(Recorder(), method="temps").fit(frame, Y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.predict(frame)
    with pytest.raises(ValueError, match="same order"):
        model.predict_proba(frame[["b", "a", "c"]])
    with pytest.raises(ValueError, match="feature names"):
        model.certify(frame[["a", "b"]], Y)
    model.fit(X, Y)
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_missing_labels_are_named(missing: Any) -> None:
    y = Y.astype(object)
    y[[7, 9]] = missing
    with pytest.raises(ValueError, match=r"got (nan|None|<NA>) in row 7\. Drop"):
        CalibratedClassifier(LogisticRegression()).fit(X, y)


def test_guarantees_name_what_the_wrapper_takes() -> None:
    model = CalibratedClassifier(LogisticRegression(), method="temps").fit(
        X[::2], Y[::2]
    )
    for ask in (
        model.predict_or_abstain,
        model.predict_interval,
        lambda rows: model.predict_set(rows, coverage=0.9),
        lambda rows: model.detect(rows, "yes"),
    ):
        with pytest.raises(ValueError, match=r"Call `certify\(X, y\)` first"):
            ask(X)
    ends = model.certify(X[1::2], Y[1::2]).predict_interval(X)
    confidence = model.predict_confidence(X)
    assert ends.shape == (240, 2)
    assert ((ends[:, 0] <= confidence) & (confidence <= ends[:, 1])).all()


@pytest.mark.parametrize(
    ("method", "ours"), [("sigmoid", "platt"), ("temperature", "temps")]
)
def test_names_of_scikit_learn_are_understood(method: str, ours: str) -> None:
    models = [
        CalibratedClassifier(LogisticRegression(), method=name).fit(X, Y)
        for name in (method, ours)
    ]
    first, second = (model.predict_proba(X) for model in models)
    np.testing.assert_array_equal(first, second)


def test_classifiers_are_saved_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.joblib"
    model = CalibratedClassifier(LogisticRegression(), method="temps").fit(
        X[::2], Y[::2]
    )
    joblib.dump(model.certify(X[1::2], Y[1::2]), path)
    found = joblib.load(path)
    np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))
    assert (
        found.predict_or_abstain(X).guarantee == model.predict_or_abstain(X).guarantee
    )


def test_other_errors_of_the_calibrator_stay_as_they_are() -> None:
    model = CalibratedClassifier(LogisticRegression(), method="temps").fit(
        X[::2], Y[::2]
    )
    with pytest.raises(NoEvidenceError) as refused:
        model.predict_set(X, coverage=0.9)
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args
    note = "the calibrator of site A"

    class NamedError(ValueError):
        """An error with a class of its own."""

    def broken(scores: Any, **options: Any) -> None:
        error = NamedError("`certify(logits, labels)` is in this text")
        error.add_note(note)
        raise error

    model.calibrator_.predict_interval = broken
    with pytest.raises(NamedError, match=r"`certify\(logits, labels\)`") as refused:
        model.predict_interval(X)
    assert refused.value.__notes__ == [note]
