"""Platt scaling, beta calibration and Venn-Abers prediction, against references and
peers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from hokical import (
    CalibratedClassifier,
    compare,
    from_binary_scores,
    from_probabilities,
    load,
    make,
)
from hokical.calibrators import BetaCalibration, PlattScaling, VennAbers
from tests.conftest import max_examples, synthetic_logits
from tests.libraries import NAMES, get_library

METHODS = ("platt", "beta", "venn_abers")
Data = tuple[np.ndarray, np.ndarray]


def draw(seed: int, n: int = 400, slope: float = 0.5) -> Data:
    """Scores of class 1 and labels: class 1 is rarer than the scores say."""
    rng = np.random.default_rng(seed)
    scores = 2.0 * rng.normal(size=n)
    return scores, (rng.logistic(size=n) < slope * scores - 0.7).astype(int)


def loss_of(eta: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """The log loss on Platt's targets."""
    ones, zeros = weights[labels == 1].sum(), weights[labels == 0].sum()
    target = np.where(labels == 1, (ones + 1.0) / (ones + 2.0), 1.0 / (zeros + 2.0))
    return float(np.average(np.logaddexp(0.0, eta) - target * eta, weights=weights))


@max_examples(12)
@given(seed=st.integers(0, 10**6), slope=st.sampled_from([0.5, 0.0, -1.0, 20.0]))
def test_platt_and_beta_have_the_least_loss(seed: int, slope: float) -> None:
    scores, labels = draw(seed, 60, slope)
    weights = np.random.default_rng(seed).integers(1, 4, size=60).astype(float)
    platt = PlattScaling().fit(scores, labels, weights)
    beta = BetaCalibration().fit(scores, labels, weights)
    assert platt.converged_
    assert beta.converged_

    def platt_loss(x: np.ndarray) -> float:
        return loss_of(x[0] * scores + x[1], labels, weights)

    def beta_loss(x: np.ndarray) -> float:
        above, below = np.logaddexp(0.0, -scores), np.logaddexp(0.0, scores)
        return loss_of(-x[0] * above + x[1] * below + x[2], labels, weights)

    free, rising = (None, None), (0.0, None)
    for loss, ours, bounds in (
        (platt_loss, [platt.slope_, platt.intercept_], [free, free]),
        (beta_loss, [beta.rise_, beta.fall_, beta.intercept_], [rising, rising, free]),
    ):
        best = minimize(
            loss, np.full(len(ours), 0.1), bounds=bounds, options={"maxiter": 500}
        )
        assert loss(np.array(ours)) <= best.fun + 1e-7


@given(seed=st.integers(0, 10**6), n=st.integers(1, 25), digits=st.integers(0, 2))
def test_venn_abers_is_two_isotonic_regressions(seed: int, n: int, digits: int) -> None:
    """The twin fits both anew for every score."""
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=n), digits).astype(np.float32).astype(np.float64)
    labels = rng.integers(2, size=n)
    weights = rng.integers(1, 4, size=n).astype(float)
    new = np.concatenate([scores[:3], [-9.0, 9.0], np.float32(rng.normal(size=3))])
    cal = VennAbers().fit(from_binary_scores(scores), labels, weights)
    interval, proba = cal.predict_interval(new), cal.predict_proba(new)
    for i, score in enumerate(new):
        low, high = (
            IsotonicRegression()
            .fit(
                np.append(scores, score),
                np.append(labels, added),
                np.append(weights, 1.0),
            )
            .predict([score])[0]
            for added in (0, 1)
        )
        np.testing.assert_allclose(proba[i, 1], high / (1.0 - low + high), atol=1e-12)
        ends = (low, high) if proba[i, 1] > proba[i, 0] else (1.0 - high, 1.0 - low)
        np.testing.assert_allclose(interval[i], ends, atol=1e-12)


def test_venn_abers_gives_its_interval_until_it_is_certified(tmp_path: Path) -> None:
    scores, labels = draw(1)
    cal = VennAbers().fit(scores, labels)
    interval, confidence = cal.predict_interval(scores), cal.predict_confidence(scores)
    assert ((interval[:, 0] <= confidence) & (confidence <= interval[:, 1])).all()
    assert interval[:, 0].min() >= 0.0
    cal.save(tmp_path / "cal.json")
    np.testing.assert_array_equal(
        load(tmp_path / "cal.json").predict_interval(scores), interval
    )
    cal.certify(*draw(2))
    assert not np.array_equal(cal.predict_interval(scores), interval)


@pytest.mark.parametrize("name", METHODS)
def test_scores_probabilities_and_two_columns_are_alike(name: str) -> None:
    scores, labels = draw(0)
    proba = 1.0 / (1.0 + np.exp(-scores))
    expected = make(name).fit(scores, labels).predict_proba(scores)
    for given_ in (
        scores.tolist(),
        from_binary_scores(scores),
        from_probabilities(proba),
        from_probabilities(np.stack([1.0 - proba, proba], axis=1)),
    ):
        found = make(name).fit(given_, labels).predict_proba(given_)
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("library", NAMES)
@pytest.mark.parametrize("name", METHODS)
def test_scores_of_every_library(name: str, library: str) -> None:
    kind = get_library(library)
    scores, labels = draw(0, 50)
    cal = make(name).fit(scores, labels)
    with kind.scope():
        found = cal.predict_proba(kind.make(scores))
        again = make(name).fit(kind.make(scores), labels)
        assert kind.owns(found)
        np.testing.assert_allclose(
            kind.read(found), cal.predict_proba(scores), atol=1e-12
        )
    np.testing.assert_allclose(
        again.predict_proba(scores), cal.predict_proba(scores), atol=1e-9
    )


@pytest.mark.parametrize("name", METHODS)
def test_what_they_do_not_take(name: str) -> None:
    scores, labels = draw(0, 60)
    with pytest.raises(
        ValueError, match=rf"`{name}` takes two classes; got 3\. For more use"
    ):
        make(name).fit(np.eye(3)[labels], labels)
    with pytest.raises(ValueError, match=r"all lie in \[0, 1\].*`from_probabilities`"):
        make(name).fit(np.abs(np.tanh(scores)), labels)
    with pytest.raises(ValueError, match="both classes are possible"):
        make(name).fit(np.where(np.eye(2)[labels] == 1, 0.0, -np.inf), labels)
    with pytest.raises(ValueError, match="at least one row"):
        make(name).fit([], [])
    with pytest.raises(ValueError, match="NaN in row 0"):
        make(name).fit(scores, labels).predict([np.nan, 1.0])


@pytest.mark.slow
def test_comparisons_have_them_for_two_classes_alone() -> None:
    scores, labels = draw(0, 200)
    pair = from_binary_scores(scores), labels
    names = [result.name for result in compare(pair, pair).results]
    assert set(METHODS) <= set(names)
    three = synthetic_logits(200, 3, seed=0)
    names = [result.name for result in compare(three, three).results]
    assert not set(METHODS) & set(names)


def test_platt_is_scikit_learns_sigmoid() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    svm = LinearSVC(random_state=0).fit(X[::2] / X.std(axis=0), y[::2])
    frozen = FrozenEstimator(svm)
    scaled = X[1::2] / X.std(axis=0)
    theirs = CalibratedClassifierCV(frozen, method="sigmoid").fit(scaled, y[1::2])
    ours = CalibratedClassifier(frozen, method="platt").fit(scaled, y[1::2])
    np.testing.assert_allclose(
        ours.predict_proba(scaled), theirs.predict_proba(scaled), atol=1e-5
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_classifier_with_zeros(name: str) -> None:
    """Naive Bayes says 0 and 1; nobody else may."""
    X, y = load_breast_cancer(return_X_y=True)
    model = CalibratedClassifier(GaussianNB(), method=name).fit(X[::2], y[::2])
    proba = model.predict_proba(X[1::2])
    assert proba.min() > 1e-6
    assert -np.log(proba[np.arange(len(y[1::2])), y[1::2]]).mean() < 0.3


@pytest.mark.peer
def test_beta_is_betacal() -> None:
    """Theirs has no targets but the labels, which 20,000 examples hardly notice."""
    betacal: Any = pytest.importorskip("betacal")
    scores, labels = draw(3, 20_000)
    proba = 1.0 / (1.0 + np.exp(-scores))
    theirs = (
        betacal.BetaCalibration("abm")
        .fit(proba[:, None], labels)
        .predict(proba[:, None])
    )
    ours = BetaCalibration().fit(scores, labels).predict_proba(scores)[:, 1]
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.peer
def test_venn_abers_is_the_package_of_its_authors() -> None:
    package: Any = pytest.importorskip("venn_abers")
    scores, labels = draw(4, 500)
    proba = 1.0 / (1.0 + np.exp(-scores))
    pairs = np.stack([1.0 - proba, proba], axis=1)
    theirs = package.VennAbers()
    theirs.fit(pairs[:300], labels[:300])
    merged, _ = theirs.predict_proba(pairs[300:])
    ours = VennAbers().fit(scores[:300], labels[:300]).predict_proba(scores[300:])
    np.testing.assert_allclose(ours, merged, atol=1e-3)


@pytest.mark.parametrize("kind", [PlattScaling, BetaCalibration])
@pytest.mark.parametrize("score", [7.7, 3.0, -2.3, 1e3])
def test_a_constant_score_gets_the_base_rate(kind: type, score: float) -> None:
    labels = (np.random.default_rng(0).random(1000) < 0.1).astype(int)
    cal = kind().fit(np.full(1000, score), labels)
    assert cal.predict_proba([score])[0, 1] == pytest.approx(labels.mean(), abs=2e-3)


def test_venn_abers_gives_its_two_probabilities_of_a_class() -> None:
    """p0 and p1 of the event without `certify`: isotonic regressions with the row
    added twice.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=60)
    y = (rng.uniform(size=60) < 1.0 / (1.0 + np.exp(-x))).astype(int)
    cal = make("venn_abers").fit(np.column_stack([0.0 * x, x]), y)
    rows = np.column_stack([np.zeros(5), rng.normal(size=5)])
    found = cal.predict_interval(rows, label=1)
    for (low, high), new in zip(found, rows[:, 1], strict=True):
        known = [
            IsotonicRegression()
            .fit(np.append(x, new), np.append(y, c))
            .predict([new])[0]
            for c in (0, 1)
        ]
        assert (low, high) == pytest.approx(tuple(known), abs=1e-6)
    np.testing.assert_allclose(
        cal.predict_interval(rows, label=0), 1.0 - found[:, ::-1]
    )
    p = cal.predict_proba(rows)[:, 1]
    assert ((found[:, 0] <= p) & (p <= found[:, 1])).all()


def test_costs_of_two_errors_by_name() -> None:
    cal = make("uncalibrated").fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    rows = [[2.0, 0.0], [0.0, 1.0]]
    named, plain = (
        cal.predict_action(rows, c) for c in ({"fp": 1, "fn": 10}, (1.0, 10.0))
    )
    np.testing.assert_array_equal(named.actions, plain.actions)
    np.testing.assert_array_equal(named.costs, plain.costs)
    with pytest.raises(ValueError, match="`costs` by name must be those of the errors"):
        cal.predict_action(rows, {"fp": 1, "missed": 10})


def test_false_positives_are_of_the_class_that_is_named() -> None:
    rows = np.array([[2.0, 0.0], [0.0, 1.0]])
    cal = make("uncalibrated").fit(rows, [0, 1], classes=["ill", "well"])
    turned = make("uncalibrated").fit(rows[:, ::-1], [1, 0])
    expected = turned.predict_action(rows[:, ::-1], {"fp": 1, "fn": 3})
    for positive in ("ill", 0):
        found = cal.predict_action(rows, {"fp": 1, "fn": 3}, positive=positive)
        np.testing.assert_array_equal(found.actions, 1 - expected.actions)
        np.testing.assert_array_equal(found.costs, expected.costs)
    usual = cal.predict_action(rows, (1, 3))
    asked = cal.predict_action(rows, (1, 3), positive="well")
    np.testing.assert_array_equal(asked.costs, usual.costs)
    with pytest.raises(ValueError, match="`positive` must be one of"):
        cal.predict_action(rows, (1, 3), positive="fine")
    with pytest.raises(ValueError, match="`positive` must be None for costs of shape"):
        cal.predict_action(rows, 1 - np.eye(2), positive="ill")


def test_costs_that_are_no_numbers_are_told() -> None:
    logits, labels = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]), np.array([0, 1])
    cal = make("uncalibrated").fit(logits, labels)
    for costs in ([[0, 1], [1], [2, 1]], {"a": "x", "b": 1}):
        with pytest.raises(TypeError, match="`costs`"):
            cal.predict_action(logits, costs)
    with pytest.raises(ValueError, match=r"`costs` must be finite; got nan"):
        cal.predict_action(logits, np.full((3, 2), np.nan))
