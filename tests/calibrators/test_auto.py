"""The default calibrator: what it averages, when it does nothing, and what it says about it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hokical
from hokical.calibrators import AutoCalibrator, TemperatureScaling, load, make
from hokical.core.logits import as_logits
from hokical.fitting.averaging import HeldOut, assign_folds, hold_out
from hokical.fitting.floor import choose_base, with_floor
from hokical.fitting.partitions import Block
from hokical.fitting.structured_fit import count_possible, fit_structured
from hokical.fitting.temperature import best_temperature
from hokical.rules.auto import AutoRule, candidate_probabilities
from hokical.rules.structured import StructuredRule


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
    logits, labels = uneven_world(600)
    logits = logits[:, :6] + 0.1 * np.random.default_rng(2).normal(size=(600, 6))
    block = Block(as_logits(logits), labels, None)
    counted, n_examples = count_possible(block)
    floor, base = choose_base(counted)
    options = {"crossed": True, "tol": 1e-12, "max_iter": 200}
    fit = fit_structured(counted, n_examples, floor, base.temperature, **options)
    held = hold_out(counted, n_examples, fit, n_folds=3, random_state=0)
    start = 0
    for part, _ in held.probabilities:
        rows = np.array([np.flatnonzero((logits == row).all(axis=1))[0] for row in part.values])
        others = np.setdiff1d(np.arange(600), rows)
        counted, count = count_possible(Block(as_logits(logits[others]), labels[others], None))
        temperature = best_temperature(with_floor(counted, floor)).temperature
        alone = fit_structured(counted, count, floor, temperature, **options).rule
        parts = candidate_probabilities(alone, as_logits(logits[rows]))
        expected = np.stack([p[np.arange(rows.size), labels[rows]] for p in parts], axis=1)
        found = held.chances[start : start + rows.size]
        gap = np.abs(np.log(found) - np.log(expected))
        assert gap.mean() < 0.003  # the folds stop early
        in_sample = candidate_probabilities(fit.rule, as_logits(logits[rows]))[2]
        seen = np.abs(
            np.log(in_sample[np.arange(rows.size), labels[rows]]) - np.log(expected[:, 2])
        )
        assert gap[:, 2].mean() < 0.2 * seen.mean()
        start += rows.size
    assert start == 600


@pytest.mark.parametrize("seed", range(4))
def test_the_weights_are_those_of_least_log_loss(seed):
    """Against expectation maximisation, slow and sure."""
    rng = np.random.default_rng(seed)
    chances = rng.beta(*rng.uniform(0.5, 4.0, size=2), size=(300, 3)) * rng.uniform(0.3, 1.0, 3)
    counts = rng.dirichlet(np.ones(300))
    held = HeldOut(chances, np.zeros(300, int), counts, 300.0, [])
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
