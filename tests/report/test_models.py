"""`evaluate` and `compare` of whole models, from their inputs."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import hokical
from hokical import CalibratedClassifier, TemperatureScaling
from hokical.report.models import read_proba


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any, Any, Any]:
    X, y = load_digits(return_X_y=True)
    names = np.array([f"digit {k}" for k in range(10)])[y]
    order = np.random.default_rng(0).permutation(len(y))
    return X[order[:600]], names[order[:600]], X[order[600:]], names[order[600:]]


@pytest.fixture(scope="module")
def calibrated(digits: tuple[Any, ...]) -> CalibratedClassifier:
    return CalibratedClassifier(GaussianNB(), method="temps").fit(*digits[:2])


def test_any_classifier_is_evaluated_by_its_probabilities(
    digits: tuple[Any, ...],
) -> None:
    X, y, X_new, y_new = digits
    model = GaussianNB().fit(X, y)
    found = hokical.evaluate(model, X_new, y_new)
    proba = model.predict_proba(X_new)
    labels = np.searchsorted(model.classes_, y_new)
    truth = np.eye(10)[labels]
    expected = ((proba - truth) ** 2).sum(axis=1).mean()
    np.testing.assert_allclose(found.score("brier"), expected)
    assert found.score("accuracy") == accuracy_score(y_new, model.predict(X_new))
    assert (found.name, found.before) == ("GaussianNB", None)
    assert found.n == len(y_new)
    assert "digit 3" in str(found.classes.to_dict())


@pytest.mark.slow
def test_a_calibrated_classifier_is_evaluated_before_and_after(
    digits: tuple[Any, ...], calibrated: CalibratedClassifier
) -> None:
    X, y, X_new, y_new = digits
    found = hokical.evaluate(calibrated, X_new, y_new, data_name="digits")
    np.testing.assert_allclose(
        found.score("log_loss"), log_loss(y_new, calibrated.predict_proba(X_new))
    )
    uncalibrated = calibrated.predict_uncalibrated(X_new)
    by_hand = np.mean([m.model.predict_proba(X_new) for m in calibrated.models_], 0)
    np.testing.assert_allclose(uncalibrated, by_hand, atol=1e-12)
    assert found.before.name == "uncalibrated"
    assert found.before.score("log_loss") > found.score("log_loss")
    with pytest.warns(UserWarning, match="fit"):
        hokical.evaluate(calibrated, X[:300], y[:300])


def test_labels_that_are_kept_are_those_that_are_judged() -> None:
    X, y = load_wine(return_X_y=True)
    model = CalibratedClassifier(
        RandomForestClassifier(10, max_depth=1, random_state=0),
        method="vecs",
        keep_labels=False,
        ensemble=False,
    ).fit(X[::2], y[::2])
    found = hokical.evaluate(model, X[1::2], y[1::2])
    assert found.score("accuracy") == model.score(X[1::2], y[1::2])
    confidence = model.predict_confidence(X[1::2]).mean()
    assert found.score("mean_confidence") == pytest.approx(confidence)


@pytest.mark.slow
def test_two_classes_groups_weights_and_clusters() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    y = np.array(["malignant", "benign"])[y]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[::2], y[::2])
    rows = X[1::2], y[1::2]
    site = np.arange(len(rows[1])) % 2
    found = hokical.evaluate(model, *rows, groups=site, positive="benign")
    assert found.binary is not None
    assert "benign" in str(found)
    assert found.groups is not None
    counts = np.where(site, 2.0, 1.0)
    weighted = hokical.evaluate(model, *rows, sample_weight=counts)
    doubled = np.repeat(np.arange(len(site)), counts.astype(int))
    expected = hokical.evaluate(model, rows[0][doubled], rows[1][doubled])
    assert weighted.score("brier") == pytest.approx(expected.score("brier"))
    clusters = np.arange(len(site)) // 5
    clustered = hokical.evaluate(model, *rows, cluster=clusters)
    assert clustered.data.n_clusters == clusters.max() + 1


def test_groups_reach_a_model_that_learned_from_them() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1600, 3))
    site = rng.integers(2, size=1600)
    y = (X[:, 0] + 3.0 * site - 1.5 > rng.logistic(size=1600)).astype(int)
    model = CalibratedClassifier(LogisticRegression(), ensemble=False)
    model.fit(X[:800], y[:800], calibration_groups=site[:800])
    assert model.calibrator_.needed_groups is not None
    found = hokical.evaluate(model, X[800:], y[800:], groups=site[800:])
    proba = model.predict_proba(X[800:], groups=site[800:])
    assert found.score("log_loss") == pytest.approx(log_loss(y[800:], proba))


def test_sets_of_a_certified_model(
    digits: tuple[Any, ...], calibrated: CalibratedClassifier
) -> None:
    X, y, X_new, y_new = digits
    model = clone(calibrated).fit(X, y).certify(X_new[:600], y_new[:600])
    found = hokical.evaluate(model, X_new[600:], y_new[600:], coverage=0.9)
    sets = model.predict_set(X_new[600:], coverage=0.9)
    labels = np.searchsorted(model.classes_, y_new[600:])
    covered = sets.members[np.arange(len(labels)), labels].mean()
    assert found.sets.overall.coverage == pytest.approx(covered)
    with pytest.raises(TypeError, match="certified `CalibratedClassifier`"):
        hokical.evaluate(GaussianNB().fit(X, y), X_new, y_new, coverage=0.9)


@pytest.mark.slow
def test_models_are_compared_on_the_same_rows(
    digits: tuple[Any, ...], calibrated: CalibratedClassifier
) -> None:
    X, y, X_new, y_new = digits
    models = {"plain": GaussianNB().fit(X, y), "calibrated": calibrated}
    found = hokical.compare(None, (X_new, y_new), models)
    assert found.subject == "calibrated"
    for name, model in models.items():
        alone = hokical.evaluate(model, X_new, y_new)
        assert found[name].score("brier") == alone.score("brier")
    (difference,) = found.differences("brier")
    expected = found["plain"].score("brier") - found["calibrated"].score("brier")
    assert difference.value == pytest.approx(expected)
    assert difference.low > 0.0
    fitted = hokical.compare(
        (X, y), (X_new, y_new), [GaussianNB(), clone(calibrated)], subject="GaussianNB"
    )
    assert fitted["GaussianNB"].score("brier") == found["plain"].score("brier")
    assert fitted["CalibratedClassifier"].fit_seconds is not None
    assert fitted.validation.n_rows == len(y)
    assert "GaussianNB" in str(fitted)


def test_a_comparison_is_written_as_a_report(
    digits: tuple[Any, ...], calibrated: CalibratedClassifier, tmp_path: Any
) -> None:
    X, y, X_new, y_new = digits
    models = {"plain": GaussianNB().fit(X, y), "calibrated": calibrated}
    found = hokical.compare(None, (X_new, y_new), models)
    found.to_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "plain" in text
    assert "0 examples" not in text


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X, y: hokical.evaluate(GaussianNB(), X, y), "must be fitted"),
        (
            lambda X, y: hokical.evaluate(GaussianNB().fit(X, y), X, y, folds=3),
            "`folds` cannot be given for models",
        ),
        (
            lambda X, y: hokical.evaluate(GaussianNB().fit(X, y), X, y[:-1]),
            "`y` must have one label per row of `X`",
        ),
        (
            lambda X, y: hokical.evaluate(GaussianNB().fit(X, y), X, y[:, None]),
            r"`y` must be labels \(n,\)",
        ),
        (
            lambda X, y: hokical.evaluate(
                GaussianNB().fit(X[y != "digit 3"], y[y != "digit 3"]), X, y
            ),
            "`y` must be names of the classes",
        ),
        (
            lambda X, y: hokical.compare(
                None, (X, y), [GaussianNB().fit(X, y), TemperatureScaling()]
            ),
            "all be models",
        ),
        (lambda X, y: hokical.compare(None, (X, y), [GaussianNB()]), "not fitted"),
        (
            lambda X, y: hokical.compare((X, y), (X, y), [GaussianNB(), GaussianNB()]),
            "different names",
        ),
        (lambda X, y: hokical.evaluate(object(), X, y), "a classifier with `predict_"),
        (
            lambda X, y: hokical.compare((X, y), folds=3, methods=[GaussianNB()]),
            "`folds` cannot be given for models; pass",
        ),
        (
            lambda X, y: hokical.evaluate(LinearSVC().fit(X, y == "digit 3"), X, y),
            r"Wrap it: `CalibratedClassifier\(model\)`",
        ),
        (
            lambda X, y: hokical.compare(
                (X, y), (X, y), [make_pipeline(StandardScaler(), LinearSVC())]
            ),
            r"Wrap it: `CalibratedClassifier\(model\)`",
        ),
    ],
)
def test_refusals_say_what_to_do(
    call: Any, words: str, digits: tuple[Any, ...]
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        call(*digits[:2])


def test_probabilities_are_checked() -> None:
    with pytest.raises(ValueError, match=r"probabilities of shape \(n, 3\)"):
        read_proba(np.ones((4, 2)) / 2, 3, "model.predict_proba(X)")
    with pytest.raises(ValueError, match="sum to 1"):
        read_proba(np.ones((4, 3)), 3, "model.predict_proba(X)")


def test_a_comparison_is_drawn_as_intervals(
    digits: tuple[Any, ...], calibrated: CalibratedClassifier
) -> None:
    pytest.importorskip("matplotlib").use("agg")
    X, y, X_new, y_new = digits
    models = {"plain": GaussianNB().fit(X, y), "calibrated": calibrated}
    found = hokical.compare(None, (X_new, y_new), models)
    ax = found.plot(metric="brier", color="black")
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == ["calibrated", "plain"]
    points, _, (bars,) = ax.containers[0]
    scores = [found[name].score("brier") for name in names]
    np.testing.assert_allclose(points.get_xdata(), scores)
    low, high = np.array(bars.get_segments())[:, :, 0].T
    np.testing.assert_allclose(low, [found[name]["brier"].low for name in names])
    np.testing.assert_allclose(high, [found[name]["brier"].high for name in names])
    assert ax.get_yticklabels()[0].get_fontweight() == "bold"


class _Wrapped:
    """A classifier that was fitted elsewhere: probabilities and classes alone."""

    def __init__(self, model: GaussianNB) -> None:
        self.classes_ = model.classes_
        self._model = model

    def predict_proba(self, X: Any) -> Any:
        return self._model.predict_proba(X)


def test_probabilities_and_classes_are_enough(digits: tuple[Any, ...]) -> None:
    X, y, X_new, y_new = digits
    model = GaussianNB().fit(X, y)
    wrapped = hokical.evaluate(_Wrapped(model), X_new, y_new)
    whole = hokical.evaluate(model, X_new, y_new)
    assert wrapped.score("log_loss") == whole.score("log_loss")
    assert wrapped.score("accuracy") == whole.score("accuracy")
    models = {"wrapped": _Wrapped(model), "whole": model}
    found = hokical.compare(None, (X_new, y_new), models)
    assert found.differences("brier")[0].value == 0.0


def test_what_has_no_classes_is_no_model(digits: tuple[Any, ...]) -> None:
    wrapped = _Wrapped(GaussianNB().fit(*digits[:2]))
    del wrapped.classes_
    with pytest.raises(TypeError, match="`predict_proba` and `classes_`"):
        hokical.evaluate(wrapped, *digits[2:])


def test_names_of_classes_may_be_an_array(digits: tuple[Any, ...]) -> None:
    X, y, X_new, y_new = digits
    model = GaussianNB().fit(X, y)
    names = np.array([f"number {k}" for k in range(10)])
    found = hokical.evaluate(model, X_new, y_new, classes=names)
    assert "number 3" in str(found.classes.to_dict())
    found = hokical.compare(None, (X_new, y_new), [model], classes=names)
    assert "number 3" in str(found["GaussianNB"].classes.to_dict())


@pytest.mark.slow
def test_a_comparison_measures_sets_of_certified_models(
    digits: tuple[Any, ...], calibrated: CalibratedClassifier
) -> None:
    X, y, X_new, y_new = digits
    model = clone(calibrated).fit(X, y).certify(X_new[:600], y_new[:600])
    test = (X_new[600:], y_new[600:])
    found = hokical.compare(None, test, {"certified": model}, coverage=0.9)
    alone = hokical.evaluate(model, *test, coverage=0.9)
    assert found["certified"].sets == alone.sets


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"coverage": 0.9}, "`coverage` is for a certified `CalibratedClassifier`"),
        ({"groups": (np.zeros(5), None)}, "`groups` of the validation rows cannot"),
        ({"random_state": 1}, "`random_state` is for methods given by name"),
    ],
)
def test_what_a_comparison_of_models_cannot_use_is_refused(
    options: dict[str, Any], words: str, digits: tuple[Any, ...]
) -> None:
    X, y, X_new, y_new = digits
    models = [GaussianNB().fit(X, y)]
    with pytest.raises(TypeError, match=words):
        hokical.compare(None, (X_new, y_new), models, **options)


class SlowModel(GaussianNB):
    def predict_proba(self, X: Any) -> Any:
        time.sleep(0.1)
        return super().predict_proba(X)


def test_progress_counts_models(
    digits: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("hokical._core.runtime._SHOW_AFTER_SECONDS", 0.0)
    X, y, X_new, y_new = digits
    models = [SlowModel().fit(X, y)]
    hokical.compare(None, (X_new, y_new), models, progress=True)
    assert "Comparing SlowModel" in capsys.readouterr().err
    hokical.compare(None, (X_new, y_new), models, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("labels", [("fraud", "ok"), (1, 2), (-1, 1)])
def test_the_event_is_a_label_of_the_model(labels: tuple[Any, Any]) -> None:
    """Of an evaluation, a comparison and costs; 1 of the classes 1 and 2 is the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    is_event = X[:, 0] + rng.normal(size=600) > 1.0
    y = np.where(is_event, labels[0], labels[1])
    model = CalibratedClassifier(LogisticRegression()).fit(X[:400], y[:400])
    new = X[400:], y[400:]
    proba = model.predict_proba(new[0])[:, 0]
    event = labels[0]
    evaluation = hokical.evaluate(model, *new, positive=event)
    compared = hokical.compare(None, new, {"model": model}, positive=event)
    for found in (evaluation, compared["model"]):
        assert found.binary["mean_probability"].value == pytest.approx(proba.mean())
        assert f"the event ({event}) happened" in found.headline
    chosen = model.predict_action(new[0], {"fp": 1, "fn": 4}, positive=event).actions
    np.testing.assert_array_equal(chosen == event, proba > 0.2)
    swapped = model.predict_action(new[0], {"fp": 4, "fn": 1}, positive=labels[1])
    np.testing.assert_array_equal(swapped.actions, chosen)
    with pytest.raises(ValueError, match="`positive` must be None for costs of shape"):
        model.predict_action(new[0], np.eye(2), positive=event)


def test_costs_of_texts_say_which_label_is_the_event() -> None:
    X = np.linspace(-3.0, 3.0, 200)[:, None]
    y = np.where(np.arange(200) % 7 < 3, X[:, 0] > 0.0, X[:, 0] > 0.5)
    model = CalibratedClassifier(LogisticRegression())
    model.fit(X, np.where(y, "fraud", "ok"))
    with pytest.warns(UserWarning, match=r"'ok', the second label of the alphabet"):
        decisions = model.predict_action(X, (1, 5))
    assert "fraud" in str(decisions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_action(X, (1, 5), positive="ok")
        model.predict_action(X, {"call": {"ok": 1, "fraud": 0}, "wait": 0.5})
        model.fit(X, y.astype(int)).predict_action(X, (1, 5))


def test_votes_are_labels_of_models(digits: tuple[Any, ...]) -> None:
    """Of an evaluation and a comparison; in a frame, in the order of its names."""
    X_train, y_train, X, _ = digits
    model = CalibratedClassifier(GaussianNB()).fit(X_train, y_train)
    rng = np.random.default_rng(0)
    proba = model.predict_proba(X)
    votes = rng.multinomial(4, 0.9 * proba / proba.sum(axis=1, keepdims=True) + 0.01)
    weight = 1.0 + np.arange(len(X)) % 2
    losses = -(votes / 4 * np.log(proba)).sum(axis=1)
    frame = pytest.importorskip("pandas").DataFrame(votes, columns=model.classes_)
    for given in (votes, frame[frame.columns[::-1]]):
        evaluation = hokical.evaluate(model, X, given, weight)
        expected = np.average(losses, weights=weight)
        assert evaluation.score("log_loss") == pytest.approx(expected)
        assert evaluation.n == len(X)
    uncalibrated = model.predict_uncalibrated(X)
    squares = ((uncalibrated**2).sum(axis=1) + 1.0).mean()
    squares -= (votes / 2 * uncalibrated).sum(axis=1).mean()
    before = hokical.evaluate(model, X, votes).before
    assert before.score("brier") == pytest.approx(squares)
    compared = hokical.compare(None, (X, votes), {"model": model})
    assert compared["model"].score("log_loss") == pytest.approx(losses.mean())
    with pytest.raises(TypeError, match="`groups` cannot be given for votes"):
        hokical.evaluate(model, X, votes, groups=weight)
    with pytest.raises(ValueError, match=r"votes \(n, 10\) for the classes"):
        hokical.evaluate(model, X, votes[:, :2])


def test_several_labels_of_a_model_name_the_remedy(digits: tuple[Any, ...]) -> None:
    X_train, y_train, X, y = digits
    labels, new = (np.isin(names, ["digit 0", "digit 1"]) for names in (y_train, y))
    model = CalibratedClassifier(RandomForestClassifier(10, random_state=0))
    model.fit(X_train, np.stack([labels, ~labels], axis=1).astype(int))
    known = np.stack([new, ~new], axis=1).astype(int)
    with pytest.raises(ValueError, match=r"calibrator_, model.predict_scores"):
        hokical.evaluate(model, X, known)
    model.certify(X[::2], known[::2])
    sets = model.predict_set(X[1::2], coverage=0.9)
    counts = f"{sets.inside.sum(axis=1).mean():.2f} labels certain and "
    counts += f"{sets.open.sum(axis=1).mean():.2f} open. {sets.guarantee}"
    assert str(sets).endswith(counts)
