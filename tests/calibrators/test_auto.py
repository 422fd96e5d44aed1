"""The default calibrator: what it compares, what it takes, and what it says about it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import hokical
from hokical.calibrators import TemperatureScaling, load, make
from hokical.calibrators.automatic import (
    CANDIDATES,
    AutoCalibrator,
    Candidate,
    assign_folds,
    choose,
    held_out_losses,
    rank,
)
from hokical.core.logits import as_logits
from hokical.fitting.partitions import Block


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


def test_the_simplest_wins_where_it_is_right():
    cal = hokical.auto(*softmax_world(3000))
    assert cal.chosen_ == "temps"
    assert "simplest" in cal.reason_ or "lowest" in cal.reason_
    assert [candidate.name for candidate in cal.candidates_] == list(CANDIDATES)


def test_something_better_wins_where_it_is_better():
    logits, labels = uneven_world(4000)
    cal = hokical.AutoCalibrator().fit(logits, labels)
    assert cal.chosen_ in ("profile", "hoki")
    fresh, truth = uneven_world(4000, seed=1)
    right = fresh.argmax(axis=1) == truth
    ours = hokical.metrics.brier(cal.predict_confidence(fresh), right)
    temps = TemperatureScaling().fit(logits, labels)
    assert ours < hokical.metrics.brier(temps.predict_confidence(fresh), right)


def test_predictions_are_those_of_the_chosen_method():
    logits, labels = softmax_world(500)
    cal = hokical.auto(logits, labels)
    alone = make(cal.chosen_).fit(logits, labels)
    np.testing.assert_array_equal(cal.predict_confidence(logits), alone.predict_confidence(logits))
    np.testing.assert_array_equal(cal.predict_proba(logits), alone.predict_proba(logits))
    np.testing.assert_array_equal(cal.predict(logits), logits.argmax(axis=1))


def test_held_out_losses_match_a_plain_loop():
    logits, labels = softmax_world(300)
    fold = np.arange(300) % 4
    block = Block(as_logits(logits), labels, None)
    found = held_out_losses(TemperatureScaling(), block, fold)
    for i in (0, 1, 2, 3, 150, 299):
        seen = fold != fold[i]
        cal = TemperatureScaling().fit(logits[seen], labels[seen])
        confidence = cal.predict_confidence(logits[i : i + 1])[0]
        chance = confidence if logits[i].argmax() == labels[i] else 1.0 - confidence
        assert found[i] == pytest.approx(-np.log(chance), rel=1e-9)


@given(
    correct=st.lists(st.booleans(), min_size=5, max_size=80),
    n_folds=st.integers(2, 5),
    seed=st.integers(0, 2**32),
)
def test_folds_share_right_and_wrong_evenly(correct, n_folds, seed):
    fold = assign_folds(np.array(correct), n_folds, seed)
    for group in (np.ones(len(correct), bool), np.array(correct)):
        counts = np.bincount(fold[group], minlength=n_folds)
        assert counts.max() - counts.min() <= 1


def test_rank_gives_the_standard_error_of_the_paired_difference():
    rng = np.random.default_rng(0)
    a, b = rng.random(400), rng.random(400) + 0.1
    first, second = rank({"temps": b, "ets": a}, None)
    assert second.behind == 0.0
    assert first.behind == pytest.approx((b - a).mean())
    assert first.standard_error == pytest.approx((b - a).std() / 20.0)
    doubled = rank({"temps": b, "ets": a}, np.full(400, 2.0))
    assert doubled[0].standard_error == pytest.approx(first.standard_error)


def test_the_rule_prefers_the_simpler_within_one_standard_error():
    near = [Candidate("temps", 0.31, 0.01, 0.02), Candidate("profile", 0.30, 0.0, 0.0)]
    far = [Candidate("temps", 0.35, 0.05, 0.02), Candidate("profile", 0.30, 0.0, 0.0)]
    assert choose(near)[0] == "temps"
    assert "profile" in choose(near)[1]
    assert choose(far)[0] == "profile"


@pytest.mark.parametrize("n", [2, 30])
def test_with_few_examples_it_says_so_and_takes_the_simplest(n):
    logits, labels = softmax_world(200)
    right = logits.argmax(axis=1) == labels
    rows = np.r_[np.flatnonzero(~right)[: n // 2], np.flatnonzero(right)[: n // 2]]
    cal = AutoCalibrator().fit(logits[rows], labels[rows])
    assert cal.chosen_ == "temps"
    assert "too few" in cal.reason_
    assert cal.candidates_ == ()


def test_without_a_mistake_there_is_nothing_to_compare():
    logits, labels = softmax_world(500)
    right = logits.argmax(axis=1) == labels
    with pytest.warns(ConvergenceWarning, match="temperature"):
        cal = AutoCalibrator().fit(logits[right], labels[right])
    assert cal.chosen_ == "profile"
    assert "without a mistake" in cal.reason_
    softmax = make("uncalibrated").fit(logits, labels)
    np.testing.assert_allclose(
        cal.predict_confidence(logits), softmax.predict_confidence(logits), atol=1e-12
    )


def test_examples_without_weight_play_no_part():
    logits, labels = softmax_world(600)
    weights = np.r_[np.ones(500), np.zeros(100)]
    weighted = hokical.auto(logits, labels, weights)
    plain = hokical.auto(logits[:500], labels[:500], np.ones(500))
    assert weighted.candidates_ == plain.candidates_


def test_saved_and_loaded(tmp_path):
    logits, labels = softmax_world(500)
    cal = hokical.auto(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert (loaded.name, loaded.chosen_, loaded.reason_) == ("auto", cal.chosen_, cal.reason_)
    assert [Candidate(**found) for found in loaded.candidates_] == list(cal.candidates_)
    again = loaded.estimator()
    assert isinstance(again, AutoCalibrator)
    assert again.get_params() == cal.get_params()
    assert again.candidates_ == cal.candidates_
    assert type(again.calibrator_) is type(cal.calibrator_)
    assert again.calibrator_.get_params() == cal.calibrator_.get_params()
    expected = cal.predict_proba(logits)
    for other in (loaded, again, again.calibrator_):
        np.testing.assert_array_equal(other.predict_proba(logits), expected)


def test_made_by_name():
    assert isinstance(make("auto", cv=4), AutoCalibrator)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": "temps"}, "sequence of names"),
        ({"candidates": []}, "sequence of names"),
        ({"candidates": ["vecs"]}, "got 'vecs'"),
        ({"cv": 1}, "at least 2; got 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        AutoCalibrator(**options).fit(*softmax_world(100))


def test_the_order_of_the_candidates_does_not_matter():
    data = softmax_world(400)
    one = AutoCalibrator(candidates=["hoki", "temps"]).fit(*data)
    other = AutoCalibrator(candidates=["temps", "hoki"]).fit(*data)
    assert one.candidates_ == other.candidates_
    assert AutoCalibrator(candidates=["hoki"], cv=2).fit(*data).chosen_ == "hoki"
