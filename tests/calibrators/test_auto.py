"""The default calibrator: what it averages, when it does nothing, and what it says about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hokical
from hokical._core.logits import as_logits
from hokical._fitting.averaging import HeldOut, assign_folds, hold_out
from hokical._fitting.floor import choose_base, with_floor
from hokical._fitting.partitions import Block
from hokical._fitting.structured import count_possible, fit_structured
from hokical._fitting.temperature import best_temperature
from hokical.calibrators import AutoCalibrator, TemperatureScaling, load, make
from hokical.rules._auto import AutoRule, candidate_probabilities
from hokical.rules._structured import StructuredRule
from hokical.stability._api import draw_seed


def softmax_world(n, classes=5, temperature=3.0, seed=0):
    """Logits that temperature scaling alone can calibrate, and their labels."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n, classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return temperature * logits, labels


def uneven_world(n, seed=0):
    """Right exactly as often as the margin to the runner-up says, whatever the other classes."""
    rng = np.random.default_rng(seed)
    logits = np.zeros((n, 30))
    gap = rng.uniform(0.0, 6.0, size=n)
    crowd = rng.integers(1, 29, size=n)  # how many classes lie just under the top
    logits[np.arange(30)[None, :] > crowd[:, None]] = -12.0
    logits[:, 0] = gap
    right = rng.random(n) < 1.0 / (1.0 + np.exp(-gap))
    return logits, np.where(right, 0, 1)


def shifted_world(n, seed=0):
    """A two-class model trained on balanced data, used where one example in twenty is positive."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < 0.05).astype(int)
    score = rng.normal(size=n) + 2.0 * truth - 1.0
    return np.stack([-score, score], axis=1), truth


def log_loss(proba, labels):
    return -np.log(proba[np.arange(labels.size), labels]).mean()


def test_all_classes_are_better_than_by_temperature_scaling():
    for world in (uneven_world, shifted_world):
        logits, labels = world(1500)
        fresh, truth = world(4000, seed=1)
        ours = hokical.auto(logits, labels).predict_proba(fresh)
        temps = TemperatureScaling().fit(logits, labels).predict_proba(fresh)
        assert log_loss(ours, truth) < log_loss(temps, truth)


def test_a_class_that_is_rarer_than_in_training():
    logits, labels = shifted_world(6000)
    fresh, truth = shifted_world(8000, seed=1)
    cal = hokical.auto(logits, labels)
    assert cal.predict_proba(fresh)[:, 1].mean() == pytest.approx(truth.mean(), abs=0.01)
    positive = cal.predict(fresh) == 1
    np.testing.assert_array_equal(positive, fresh.argmax(axis=1) == 1)  # labels are kept
    says, right = cal.predict_confidence(fresh)[positive], truth[positive]
    assert says.mean() == pytest.approx(right.mean(), abs=0.04)


def test_a_calibrated_classifier_is_hardly_made_worse():
    """A few hundred examples cannot prove it right, but less is lost than by its best part."""
    lost = {"auto": 0.0, "structured": 0.0}
    for seed in range(3):
        logits, labels = softmax_world(400, temperature=1.0, seed=seed)
        fresh, truth = softmax_world(5000, temperature=1.0, seed=100 + seed)
        own = log_loss(make("uncalibrated").fit(logits, labels).predict_proba(fresh), truth)
        for name in lost:
            found = make(name).fit(logits, labels).predict_proba(fresh)
            lost[name] += (log_loss(found, truth) - own) / 3
    assert lost["auto"] < 0.4 * lost["structured"]


def test_the_classifier_is_kept_unless_something_is_clearly_better():
    logits, labels = softmax_world(400, temperature=1.0, seed=5)
    cal = hokical.auto(logits, labels)
    assert cal.chosen_ == "uncalibrated"
    assert "not clearly better" in cal.reason_
    assert hokical.auto(3.0 * logits, labels).chosen_ == "average"


@pytest.mark.parametrize("keep", [True, False])
def test_labels_are_kept_or_not(keep):
    logits, labels = shifted_world(4000)
    cal = AutoCalibrator(keep_labels=keep).fit(logits, labels)
    proba = cal.predict_proba(logits)
    expected = logits.argmax(axis=1) if keep else proba.argmax(axis=1)
    assert cal.preserves_labels == keep
    np.testing.assert_array_equal(cal.predict(logits), expected)
    np.testing.assert_allclose(
        cal.predict_confidence(logits), proba[np.arange(labels.size), expected], rtol=1e-12
    )
    assert (cal.predict(logits) == labels).mean() > (0.8 if keep else 0.95)


def test_held_out_chances_match_fits_from_scratch():
    """One step from the whole fit, against exact fits without each fold."""
    logits, labels = uneven_world(600)
    logits = logits[:, :6] + 0.1 * np.random.default_rng(2).normal(size=(600, 6))
    counted, n_examples = count_possible(Block(as_logits(logits), labels, None))
    floor, base, floored = choose_base(counted)
    options = {"crossed": True, "tol": 1e-12, "max_iter": 200}
    fit = fit_structured(floored, n_examples, floor, base.x, **options)
    held = hold_out(counted, n_examples, fit, n_folds=3, random_state=0)
    np.testing.assert_array_equal(held.labels, labels)
    fold = assign_folds(labels, 3, draw_seed(0))
    gaps, shifts = [], []
    for number in range(3):
        others, rows = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        part, count = count_possible(Block(as_logits(logits[others]), labels[others], None))
        part = with_floor(part, floor)
        alone = fit_structured(part, count, floor, base.x, **options).rule
        asked = as_logits(logits[rows])
        own, _, structured = candidate_probabilities(alone, asked)
        cooler = best_temperature(part).x
        scaled = candidate_probabilities(replace(alone, temperature=cooler), asked)[1]
        true = np.arange(rows.size), labels[rows]
        expected = np.log(np.stack([p[true] for p in (own, scaled, structured)], axis=1))
        in_sample = candidate_probabilities(fit.rule, asked)[2][true]
        gaps.append(np.abs(np.log(held.chances[rows]) - expected).mean(axis=0))
        shifts.append(np.abs(np.log(in_sample) - expected[:, 2]).mean())
    assert (np.array(gaps)[:, :2] < 1e-3).all()
    assert np.mean(gaps, axis=0)[2] < 0.2 * np.mean(shifts)


def test_rows_that_are_not_asked_about_stay_in_every_fit(monkeypatch):
    """With every third row asked about, a fit without a fold of them has nearly all examples."""
    logits, labels = softmax_world(600)
    counted, n_examples = count_possible(Block(as_logits(logits), labels, None))
    fit = fit_structured(counted, n_examples, 0.0, 3.0, crossed=True, tol=1e-12, max_iter=99)
    monkeypatch.setattr("hokical._fitting.averaging.WEIGHED_SIZE", 1000)
    monkeypatch.setattr("hokical._fitting.averaging.WEIGHED_ROWS", 200)
    held = hold_out(counted, n_examples, fit, n_folds=5, random_state=0)
    some = np.arange(0, 600, 3)
    np.testing.assert_array_equal(held.labels, labels[some])
    gone = some[assign_folds(labels[some], 5, draw_seed(0)) == 0]
    others = np.setdiff1d(np.arange(600), gone)
    part, count = count_possible(Block(as_logits(logits[others]), labels[others], None))
    alone = fit_structured(part, count, 0.0, 3.0, crossed=True, tol=1e-12, max_iter=99).rule
    expected = candidate_probabilities(alone, as_logits(logits[gone]))[2]
    whole = candidate_probabilities(fit.rule, as_logits(logits[gone]))[2]
    found = held.probabilities[2][gone // 3]
    assert np.abs(found - expected).mean() < 0.5 * np.abs(whole - expected).mean()


@pytest.mark.parametrize("seed", range(4))
def test_the_weights_are_those_of_least_log_loss(seed):
    """Against expectation maximisation, slow and sure."""
    rng = np.random.default_rng(seed)
    chances = rng.beta(*rng.uniform(0.5, 4.0, size=2), size=(300, 3)) * rng.uniform(0.3, 1.0, 3)
    counts = rng.dirichlet(np.ones(300))
    parts = tuple(np.stack([part, 1.0 - part], axis=1) for part in chances.T)
    held = HeldOut(as_logits(np.zeros((300, 2))), np.zeros(300, int), counts, 300.0, parts)
    weights = np.full(3, 1 / 3)
    for _ in range(5000):
        shares = chances * weights
        weights = counts @ (shares / shares.sum(axis=1, keepdims=True))
    expected = np.where(weights < 0.01, 0.0, weights)
    np.testing.assert_allclose(held.best_weights(), expected / expected.sum(), atol=2e-3)


@pytest.mark.parametrize("n", [2, 10])
def test_with_few_examples_the_classifier_is_left_alone(n):
    logits, labels = softmax_world(200)
    right = logits.argmax(axis=1) == labels
    rows = np.r_[np.flatnonzero(~right)[: n // 2], np.flatnonzero(right)[: n // 2]]
    cal = AutoCalibrator().fit(logits[rows], labels[rows])
    assert cal.chosen_ == "uncalibrated"
    assert "too few" in cal.reason_


def test_a_few_heavy_examples_are_few_examples():
    """Whatever the weights of the other rows are called."""
    logits, labels = softmax_world(200)
    weights = np.r_[np.full(10, 1e6), np.ones(190)]
    for rows in (logits, hokical.TopK.from_logits(logits, 3)):
        reason = hokical.auto(rows, labels, weights).reason_
        assert "200 examples, whose weights make them worth 10, are too few" in reason


def test_without_a_mistake_there_is_nothing_to_learn():
    logits, labels = softmax_world(500)
    right = logits.argmax(axis=1) == labels
    cal = AutoCalibrator().fit(logits[right], labels[right])
    assert "without a mistake" in cal.reason_
    softmax = make("uncalibrated").fit(logits, labels)
    np.testing.assert_array_equal(cal.predict_proba(logits), softmax.predict_proba(logits))


def test_examples_without_weight_play_no_part():
    logits, labels = softmax_world(300)
    weighted = hokical.auto(logits, labels, np.r_[np.ones(250), np.zeros(50)])
    plain = hokical.auto(logits[:250], labels[:250])
    np.testing.assert_allclose(
        weighted.predict_proba(logits), plain.predict_proba(logits), atol=1e-9
    )


def test_few_different_rows_are_no_obstacle():
    """As of nearest neighbours: most examples have copies in every fold."""
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, size=2000) / 5
    labels = (rng.random(2000) < 0.1 + 0.6 * scores).astype(int)
    logits = hokical.from_probabilities(np.stack([1.0 - scores, scores], axis=1))
    cal = hokical.auto(logits, labels)
    for score in np.unique(scores):
        same = scores == score
        found = cal.predict_proba(logits[same])[:, 1].mean()
        assert found == pytest.approx(labels[same].mean(), abs=0.05)


@given(
    labels=st.lists(st.integers(0, 3), min_size=5, max_size=80),
    n_folds=st.integers(2, 5),
    seed=st.integers(0, 2**32),
)
def test_folds_share_every_class_evenly(labels, n_folds, seed):
    fold = assign_folds(np.array(labels), n_folds, seed)
    for label in range(4):
        counts = np.bincount(fold[np.array(labels) == label], minlength=n_folds)
        assert counts.max() - counts.min() <= 1


def test_ties_are_labelled_and_can_be_wrong():
    """The label of a tie is the first class; here the other is right nine times in ten."""
    labels = (np.random.default_rng(0).random(1000) < 0.9).astype(int)
    logits = hokical.from_probabilities(np.tile([0.5, 0.5], (1000, 1)))
    proba = hokical.auto(logits, labels).predict_proba(logits[:1])
    assert proba[0, 1] == pytest.approx(labels.mean(), abs=0.02)


def test_one_class_alone_teaches_nothing():
    logits, _ = softmax_world(100)
    for rows in (logits, hokical.TopK.from_logits(logits, 3)):
        cal = hokical.auto(rows, np.ones(100, int))
        assert "every example is of class 1" in cal.reason_
    few = hokical.TopK.from_logits(logits[:5], 3)
    assert "too few" in hokical.auto(few, np.arange(5)).reason_


def test_best_classes_alone_give_a_profile():
    logits, labels = uneven_world(2000)
    some = hokical.TopK.from_logits(logits, 5)
    cal = hokical.auto(some, labels)
    assert cal.chosen_ == "profile"
    assert cal.predict_confidence(some).shape == (2000,)


def test_saved_and_loaded(tmp_path):
    logits, labels = softmax_world(500)
    cal = hokical.auto(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert (loaded.name, loaded.shares_, loaded.reason_) == ("auto", cal.shares_, cal.reason_)
    again = loaded.estimator()
    assert isinstance(again, AutoCalibrator)
    assert again.get_params() == cal.get_params()
    expected = cal.predict_proba(logits)
    for other in (loaded, again):
        np.testing.assert_array_equal(other.predict_proba(logits), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.array([0.5, 0.3, 0.3])}, "sum to 1"),
        ({"structured": None}, "`structured` must be"),
        ({"profile": 3}, "`profile` must be"),
        ({"keep_labels": 1}, "`keep_labels` must be"),
    ],
)
def test_a_rule_checks_its_numbers(change, message):
    fields = {
        "weights": np.array([0.25, 0.25, 0.5]),
        "structured": StructuredRule(
            0.0, 2.0, np.zeros(3), np.ones(4), np.zeros(4), np.zeros((0, 0)), 0.1
        ),
        "profile": None,
        "keep_labels": True,
    }
    AutoRule(**fields)
    with pytest.raises(ValueError, match=message):
        AutoRule(**(fields | change))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"keep_labels": "yes"}, "True or False; got 'yes'"), ({"cv": 1}, "at least 2; got 1")],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make("auto", **options).fit(*softmax_world(100))
