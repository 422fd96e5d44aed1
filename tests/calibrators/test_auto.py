"""The default calibrator: what it averages, when it does nothing, and what it says
about it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

import hokical
from hokical._core.runtime import FitDataWarning
from hokical._fitting.default import _best_weights
from hokical._fitting.searches import (
    PRIOR,
    Base,
    Solution,
    StopReason,
    choose_base,
    sharpen_without_each,
    shrink_temperature,
    with_floor,
)
from hokical._fitting.structured import STRENGTH, fit_ridges, fit_structured
from hokical.calibrators import AutoCalibrator, Examples, TemperatureScaling, load, make
from hokical.rules import as_logits
from hokical.rules.scaling import AutoRule, StructuredRule
from tests.conftest import softmax_examples


def uneven_examples(n, seed=0):
    """Right exactly as often as the margin to the runner-up says, whatever the other
    classes.
    """
    rng = np.random.default_rng(seed)
    logits = np.zeros((n, 30))
    gap = rng.uniform(0.0, 6.0, size=n)
    crowd = rng.integers(1, 29, size=n)  # how many classes lie just under the top
    logits[np.arange(30)[None, :] > crowd[:, None]] = -12.0
    logits[:, 0] = gap
    right = rng.random(n) < 1.0 / (1.0 + np.exp(-gap))
    return logits, np.where(right, 0, 1)


def rare_class_examples(n, seed=0):
    """A two-class model trained on balanced data, used where one example in twenty
    is positive.
    """
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < 0.05).astype(int)
    score = rng.normal(size=n) + 2.0 * truth - 1.0
    return np.stack([-score, score], axis=1), truth


def log_loss(proba, labels):
    return -np.log(proba[np.arange(labels.size), labels]).mean()


@pytest.mark.slow
def test_all_classes_are_better_than_by_temperature_scaling():
    for draw_examples in (uneven_examples, rare_class_examples):
        logits, labels = draw_examples(1500)
        fresh, truth = draw_examples(4000, seed=1)
        ours = hokical.auto(logits, labels).predict_proba(fresh)
        temps = TemperatureScaling().fit(logits, labels).predict_proba(fresh)
        assert log_loss(ours, truth) < log_loss(temps, truth)


def test_a_class_that_is_rarer_than_in_training():
    logits, labels = rare_class_examples(6000)
    fresh, truth = rare_class_examples(8000, seed=1)
    cal = hokical.auto(logits, labels)
    assert cal.predict_proba(fresh)[:, 1].mean() == pytest.approx(
        truth.mean(), abs=0.01
    )
    own = fresh.argmax(axis=1)
    assert (cal.predict(fresh) == truth).mean() > (own == truth).mean() + 0.1
    keeping = hokical.auto(logits, labels, keep_labels=True)
    np.testing.assert_array_equal(
        keeping.predict_proba(fresh), cal.predict_proba(fresh)
    )
    np.testing.assert_array_equal(keeping.predict(fresh), own)
    for found in (cal, keeping):
        positive = found.predict(fresh) == 1
        says, right = found.predict_confidence(fresh)[positive], truth[positive]
        assert says.mean() == pytest.approx(right.mean(), abs=0.04)


@pytest.mark.parametrize(
    ("classes", "spread", "factor"),
    [(2, 1.5, 2.0), (3, 1.5, 2.0), (10, 1.5, 2.0), (10, 3.0, 1.0)],
)
def test_labels_that_are_often_wrong_are_no_obstacle(classes, spread, factor):
    """A third of them is drawn at random: what is right is a mixture with the even
    distribution.

    Of the last, whose logits are right but for that, only the floors above 0.01 make
    one.
    """

    def with_random_labels(n, seed):
        logits, labels = softmax_examples(
            n, classes, seed=seed, spread=spread, stretch=factor
        )
        rng = np.random.default_rng(100 + seed)
        is_random = rng.random(n) < 0.3
        return logits, np.where(is_random, rng.integers(classes, size=n), labels)

    logits, labels = with_random_labels(1000, 0)
    fresh, truth = with_random_labels(20_000, 1)
    ours, ets = (
        make(name).fit(logits, labels).predict_proba(fresh) for name in ("auto", "ets")
    )
    assert log_loss(ours, truth) < log_loss(ets, truth) + 0.002
    assert ours.max(axis=1).mean() == pytest.approx(
        (ours.argmax(axis=1) == truth).mean(), abs=0.025
    )


def test_a_calibrated_classifier_is_hardly_made_worse():
    """A few hundred examples cannot prove it right, but less is lost than by its
    best part.
    """
    lost = {"auto": 0.0, "structured": 0.0}
    for seed in range(3):
        logits, labels = softmax_examples(400, 5, stretch=1.0, seed=seed)
        fresh, truth = softmax_examples(5000, 5, stretch=1.0, seed=100 + seed)
        own = log_loss(
            make("uncalibrated").fit(logits, labels).predict_proba(fresh), truth
        )
        for name in lost:
            found = make(name).fit(logits, labels).predict_proba(fresh)
            lost[name] += (log_loss(found, truth) - own) / 3
    assert lost["auto"] < 0.4 * lost["structured"]


def test_the_classifier_is_changed_little_unless_something_is_clearly_better():
    logits, labels = softmax_examples(400, 5, stretch=1.0, seed=5)
    cal = hokical.auto(logits, labels)
    assert cal.shares_["uncalibrated"] > 0.2
    assert "the uncalibrated logits (" in cal.reason_
    far = hokical.auto(3.0 * logits, labels)
    assert far.shares_.get("uncalibrated", 0.0) == 0.0
    assert far.chosen_ == max(far.shares_, key=far.shares_.get)


def test_reasons_do_not_contradict_the_numbers():
    for seed in range(4):
        logits, labels = softmax_examples(60 * 2**seed, 5, stretch=2.0, seed=seed)
        cal = hokical.auto(logits, labels)
        assert sum(cal.shares_.values()) == pytest.approx(1.0, abs=0.01)
        for name, loss in cal.held_out_log_loss_.items():
            assert f"{loss:.4f}" in cal.reason_, name
        assert cal.chosen_ in cal.shares_


@pytest.mark.parametrize("keep", [True, False])
def test_labels_of_temperature_scaling_are_the_classifiers(keep):
    assert not AutoCalibrator().keep_labels
    logits, labels = softmax_examples(40, 5, stretch=2.0, seed=5)
    cal = hokical.auto(logits, labels, keep_labels=keep)
    assert cal.rule_.preserves_labels
    assert (cal.base_, cal.correction_, cal.groups_) == (None, None, None)
    np.testing.assert_array_equal(cal.predict(logits), logits.argmax(axis=1))


@pytest.mark.parametrize("keep", [True, False])
def test_labels_are_kept_or_not(keep):
    logits, labels = rare_class_examples(4000)
    cal = AutoCalibrator(keep_labels=keep).fit(logits, labels)
    proba = cal.predict_proba(logits)
    expected = logits.argmax(axis=1) if keep else proba.argmax(axis=1)
    assert cal.rule_.preserves_labels == keep
    np.testing.assert_array_equal(cal.predict(logits), expected)
    np.testing.assert_allclose(
        cal.predict_confidence(logits),
        proba[np.arange(labels.size), expected],
        rtol=1e-12,
    )
    assert (cal.predict(logits) == labels).mean() > (0.8 if keep else 0.95)


def fit_candidates(logits, labels, *, cross_terms, floor=None, temperature=None):
    """Structured scaling to the end, at a given floor and temperature: its base and
    its rule.
    """
    counted = Examples(as_logits(logits), labels)
    if floor is None:
        base = choose_base(counted, with_prior=True)
    else:
        known = Solution(temperature, np.nan, 0, StopReason.CONVERGED)
        base = Base(floor, known, with_floor(counted, floor))
    return base, fit_structured(base, cross_terms=cross_terms, tol=1e-12)[0]


def held_out_proba(base, step=0):
    """Rows, and held-out probabilities of their labels by structured and temperature
    scaling.
    """
    (rule,), (scores,), rows, _ = fit_ridges(base, [STRENGTH], step)
    part, some = rows.size / base.examples.n_rows, base.examples.take(rows)
    sharper = sharpen_without_each(some, base.temperature.x, part, centre=base.centre)
    plain = -some.logits.margins * (sharper / base.temperature.x)[:, None]
    at = np.arange(rows.size), some.labels
    both = [softmax_of(table)[at] for table in (plain, scores)]
    uniform = rule.even / some.logits.possible_counts
    return rows, np.stack([both[0], (1.0 - rule.even) * both[1] + uniform], axis=1)


def test_left_out_scores_match_fits_from_scratch():
    """One step from the whole fit, against exact fits without each of some examples."""
    classes, cross_terms = 6, True
    logits, labels = softmax_examples(200, classes, stretch=3.0)
    base, rule = fit_candidates(logits, labels, cross_terms=cross_terms)
    places, proba = held_out_proba(base)
    np.testing.assert_array_equal(places, np.arange(200))
    rows = np.r_[
        np.flatnonzero(logits.argmax(axis=1) != labels)[:20], np.arange(0, 200, 20)
    ]
    gaps, shifts = [], []
    for row in rows:
        others = np.delete(np.arange(200), row)
        less, alone = fit_candidates(
            logits[others],
            labels[others],
            cross_terms=cross_terms,
            floor=rule.floor,
            temperature=rule.temperature,
        )
        cooler = shrink_temperature(less.examples, centre=base.centre).x
        asked, truth = as_logits(logits[[row]]), labels[row]
        scaled = replace(alone, temperature=cooler, shape=np.zeros(2), even=0.0)
        plain = {
            "scale": np.ones(classes),
            "bias": np.zeros(classes),
            "cross": np.zeros((0, 0)),
        }
        scaled = replace(scaled, **plain)
        expected = np.log([each.proba(asked)[0, truth] for each in (scaled, alone)])
        gaps.append(np.abs(np.log(proba[row]) - expected))
        shifts.append(abs(np.log(rule.proba(asked)[0, truth]) - expected[1]))
    assert np.mean(gaps, axis=0)[0] < 1e-3
    assert np.mean(gaps, axis=0)[1] < 0.1 * np.mean(shifts)


@pytest.mark.slow
def test_long_steps_are_repeated(monkeypatch):
    """With few examples of a network that is too sure, one step guarantees too
    little loss.
    """
    logits, labels = softmax_examples(60, 5, stretch=3.0)
    logits *= 4.0
    logits[0, 0] = -np.inf  # a class that is impossible somewhere
    labels[0] = 1
    base, rule = fit_candidates(logits, labels, cross_terms=True)
    exact = np.empty(60)
    for row in range(60):
        others = np.delete(np.arange(60), row)
        known = {"floor": rule.floor, "temperature": rule.temperature}
        _, alone = fit_candidates(
            logits[others], labels[others], cross_terms=True, **known
        )
        exact[row] = alone.proba(as_logits(logits[[row]]))[0, labels[row]]
    repeated = held_out_proba(base)[1][:, 1]
    monkeypatch.setattr("hokical._fitting.structured.FEW_LOGITS", 0)
    once = held_out_proba(base)[1][:, 1]
    short = np.mean(np.log(once / exact))
    assert short > 0.005
    assert abs(np.mean(np.log(repeated / exact))) < 0.25 * short


def softmax_of(logits):
    return softmax(logits, axis=1)


def test_rows_that_are_not_asked_about_stay_in_every_fit(monkeypatch):
    """With one row in three asked about, its own fit still has all the others."""
    logits, labels = softmax_examples(600, 6, stretch=3.0)
    base, rule = fit_candidates(logits, labels, cross_terms=True)
    _, whole = held_out_proba(base)
    reason = AutoCalibrator().fit(logits, labels).reason_
    assert "(held-out log loss: the uncalibrated logits " in reason
    assert "temps" not in reason
    asked, held = held_out_proba(base, 3)
    assert asked.size == 200
    in_sample = rule.proba(as_logits(logits))[asked, labels[asked]]
    gaps = np.abs(np.log(held[:, 1] / whole[asked, 1]))
    assert gaps.mean() < 0.3 * np.abs(np.log(in_sample / whole[asked, 1])).mean()
    monkeypatch.setattr("hokical._fitting.default.WEIGHED_SIZE", 1000)
    monkeypatch.setattr("hokical._fitting.default.WEIGHED_ROWS", 200)
    assert (
        "loss of 200 of 600 examples: " in AutoCalibrator().fit(logits, labels).reason_
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(4))
def test_the_weights_are_those_of_least_log_loss(seed, monkeypatch):
    """Of averaged scores; against SciPy, with weights that are squares."""
    rng = np.random.default_rng(seed)
    labels, price = rng.integers(4, size=300), 2.0 * (seed % 2)
    tables = [
        rng.uniform(0.2, 1.5) * np.eye(4)[labels] + rng.normal(size=(300, 4))
        for _ in "abc"
    ]
    monkeypatch.setattr("hokical._fitting.default.FOR_TEMPERATURE", price)
    examples = Examples(
        as_logits(np.zeros((300, 4))), labels, rng.uniform(0.5, 2.0, 300)
    )

    def loss(root):
        weights = root**2 / np.sum(root**2)
        proba = softmax_of(np.einsum("i,ink->nk", weights, np.stack(tables)))
        prior = 2.0 * price / examples.effective_size * weights[1:].sum()
        return -examples.share @ np.log(proba[np.arange(300), labels]) + prior

    best = minimize(loss, np.ones(3), tol=1e-10).x ** 2
    best = np.where(best / best.sum() < 0.03, 0.0, best)
    np.testing.assert_allclose(
        _best_weights(examples, tables), best / best.sum(), atol=2e-3
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("n", [10, 40, 400])
def test_the_temperature_has_its_prior(n):
    """The minimum of log loss and penalty, and that without each example, by a grid."""
    logits, labels = softmax_examples(n, 5, stretch=2.0)
    examples = Examples(as_logits(logits), labels)
    at = np.linspace(-2.0, 2.0, 4001)  # of log T
    table = np.stack(
        [-np.log(softmax_of(logits / np.exp(t))[np.arange(n), labels]) for t in at]
    )
    penalty = 0.5 * np.where(at > 0.0, *PRIOR) * at**2
    found = shrink_temperature(examples)
    assert np.log(found.x) == pytest.approx(
        at[np.argmin(table.sum(axis=1) + penalty)], abs=2e-3
    )
    sharper = sharpen_without_each(examples, found.x, centre=0.0)
    left = [at[np.argmin(table.sum(axis=1) - table[:, i] + penalty)] for i in range(n)]
    gap = np.abs(np.log(found.x / sharper) - left)
    assert gap.mean() < 0.2 * np.abs(np.array(left) - np.log(found.x)).mean() + 1e-3


@pytest.mark.parametrize("n", [2, 8])
def test_with_few_examples_the_classifier_is_left_alone(n):
    logits, labels = softmax_examples(200, 5, stretch=3.0)
    right = logits.argmax(axis=1) == labels
    rows = np.r_[np.flatnonzero(~right)[: n // 2], np.flatnonzero(right)[: n // 2]]
    with pytest.warns(FitDataWarning, match=f"kept: {n} examples are too few"):
        cal = AutoCalibrator().fit(logits[rows], labels[rows])
    assert cal.chosen_ == "uncalibrated"
    assert "too few" in cal.reason_


@pytest.mark.slow
def test_thirty_examples_are_enough_for_a_temperature():
    """No number of examples below which nothing is done; and more of them are
    better.
    """
    fresh, truth = softmax_examples(4000, 5, stretch=3.0, seed=1)
    own, lost = log_loss(softmax_of(fresh), truth), []
    for n in (10, 30, 100):
        found = [
            hokical.auto(*softmax_examples(n, 5, stretch=3.0, seed=s)).predict_proba(
                fresh
            )
            for s in range(8)
        ]
        lost.append(np.mean([log_loss(proba, truth) for proba in found]))
    assert own > lost[0] > lost[1] > lost[2]
    assert own - lost[1] > 0.8 * (own - lost[2])


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 30.0])
def test_scores_of_any_scale_are_calibrated(scale):
    """Similarities in [0, 1] need temperatures far below 1, which the prior must not
    forbid.
    """
    for classes in (2, 10, 40):
        logits, labels = softmax_examples(360, classes, stretch=3.0)
        fresh, truth = softmax_examples(2000, classes, stretch=3.0, seed=1)
        cal = hokical.auto(scale * logits, labels)
        temps = make("temps").fit(logits, labels).predict_proba(fresh)
        assert (
            log_loss(cal.predict_proba(scale * fresh), truth)
            < log_loss(temps, truth) + 0.05
        )


@pytest.mark.parametrize("classes", [2, 10, 40])
def test_huge_logits_are_hard_labels(classes):
    logits, labels = softmax_examples(100, classes, stretch=3.0)
    proba = hokical.auto(1e100 * logits, labels).predict_proba(1e100 * logits)
    assert 0.0 < log_loss(proba, labels) < np.log(classes)


@pytest.mark.parametrize("seed", [36, 37])
def test_classes_in_another_order(seed):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(300, 10))
    labels, order = (
        (logits + rng.gumbel(size=logits.shape)).argmax(axis=1),
        rng.permutation(10),
    )
    found = hokical.auto(2.0 * logits, labels)
    other = hokical.auto(2.0 * logits[:, order], np.argsort(order)[labels])
    assert sum(found.shares_.values()) == pytest.approx(1.0)
    np.testing.assert_allclose(
        other.predict_proba(logits[:, order]),
        found.predict_proba(logits)[:, order],
        atol=1e-7,
    )


def test_a_few_heavy_examples_are_few_examples():
    """Whatever the weights of the other rows are called."""
    logits, labels = softmax_examples(200, 5, stretch=3.0)
    weights = np.r_[np.full(5, 1e6), np.ones(195)]
    for rows in (logits, hokical.TopK.from_logits(logits, 3)):
        reason = hokical.auto(rows, labels, weights).reason_
        assert "200 examples, whose weights make them worth 5, are too few" in reason


@pytest.mark.parametrize("n", [30, 300])
def test_without_a_mistake_probabilities_rise_as_far_as_the_number_of_examples_allows(
    n,
):
    logits, labels = softmax_examples(5 * n, 5, stretch=3.0)
    right = np.flatnonzero(logits.argmax(axis=1) == labels)[:n]
    cal = AutoCalibrator().fit(logits[right], labels[right])
    missing = 1.0 - cal.predict_proba(logits[right]).max(axis=1)
    own = 1.0 - softmax_of(logits[right]).max(axis=1)
    assert cal.chosen_ != "uncalibrated"
    assert missing.mean() < own.mean()
    assert 0.05 / n < missing.mean() < 6.0 / n


def test_examples_without_weight_play_no_part():
    logits, labels = softmax_examples(300, 5, stretch=3.0)
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


@pytest.mark.parametrize("classes", [3, 10, 40])
@pytest.mark.parametrize("kind", ["equal rows", "nearly equal rows", "hard labels"])
def test_rows_that_hardly_differ_do_not_tell_their_labels(kind, classes):
    """What leaving an example out changes in its own scores is no feature of it."""
    rng = np.random.default_rng(1)
    if kind == "hard labels":
        truth = rng.integers(classes, size=6000)
        given = np.where(
            rng.random(6000) < 0.4, truth, rng.integers(classes, size=6000)
        )
        logits = 3.0 * np.eye(classes)[given]
    else:
        logits = rng.normal(size=classes) + 0.003 * rng.normal(size=(6000, classes))
        logits = np.tile(logits[0], (6000, 1)) if kind == "equal rows" else logits
        truth = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    cal = hokical.auto(logits[:1000], truth[:1000])
    proba, plain = (
        c.predict_proba(logits[1000:])
        for c in (cal, TemperatureScaling().fit(logits[:1000], truth[:1000]))
    )
    assert log_loss(proba, truth[1000:]) < log_loss(plain, truth[1000:]) + 0.01
    assert abs(cal.held_out_log_loss_["final"] - log_loss(proba, truth[1000:])) < 0.15


def test_groups_leave_the_floor_for_zeros_alone():
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 6, size=60) / 5
    logits = hokical.from_probabilities(np.stack([1.0 - votes, votes], axis=1))
    labels = (rng.random(60) < 0.02 + 0.96 * votes).astype(int)
    groups = rng.choice(list("abc"), 60)
    alone, grouped = (
        hokical.auto(logits, labels),
        hokical.auto(logits, labels, groups=groups),
    )
    found = grouped.predict_proba(logits, groups=groups)
    np.testing.assert_array_equal(found, alone.predict_proba(logits))
    assert (found > 0.0).all()


def test_ties_are_labelled_and_can_be_wrong():
    """The label of a tie is the first class; here the other is right nine times in
    ten.
    """
    labels = (np.random.default_rng(0).random(1000) < 0.9).astype(int)
    logits = hokical.from_probabilities(np.tile([0.5, 0.5], (1000, 1)))
    proba = hokical.auto(logits, labels).predict_proba(logits[:1])
    assert proba[0, 1] == pytest.approx(labels.mean(), abs=0.02)


def test_one_class_alone_teaches_nothing():
    logits, _ = softmax_examples(100, 5, stretch=3.0)
    for rows in (logits, hokical.TopK.from_logits(logits, 3)):
        cal = hokical.auto(rows, np.ones(100, int))
        assert "all 100 examples are of class 1" in cal.reason_
    few = hokical.TopK.from_logits(logits[:5], 3)
    assert "too few" in hokical.auto(few, np.arange(5)).reason_


@pytest.mark.parametrize("draw_examples", [uneven_examples, softmax_examples])
def test_best_classes_alone_are_scaled_adaptively(draw_examples):
    logits, labels = draw_examples(2000)
    some = hokical.TopK.from_logits(logits, 3)
    cal = hokical.auto(some, labels)
    assert cal.chosen_ == "adaptive"
    expected = hokical.make("adaptive").fit(some, labels)
    assert type(cal.rule_) is type(expected.rule_)
    found = cal.predict_confidence(some)  # its temperature has a prior
    np.testing.assert_allclose(found, expected.predict_confidence(some), atol=0.003)
    with_correction = "with a row correction" in cal.reason_
    assert with_correction == (expected.correction_ is not None)


def test_saved_and_loaded(tmp_path):
    logits, labels = softmax_examples(500, 5, stretch=3.0)
    cal = hokical.auto(logits, labels)
    cal.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert isinstance(loaded, AutoCalibrator)
    assert loaded.name == "auto"
    assert loaded.shares_ == cal.shares_
    assert loaded.reason_ == cal.reason_
    assert loaded.get_params() == cal.get_params()
    np.testing.assert_array_equal(
        loaded.predict_proba(logits), cal.predict_proba(logits)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": None}, "`base` must be"),
        ({"correction": 1.0}, "`correction` must be"),
        ({"keep_labels": 1}, "`keep_labels` must be"),
    ],
)
def test_a_rule_checks_its_numbers(change, message):
    structured = StructuredRule(
        0.0, 2.0, np.zeros(2), np.ones(4), np.zeros(4), np.zeros((0, 0)), 0.1
    )
    fields = {"base": structured, "correction": None, "keep_labels": True}
    assert AutoRule(**fields).n_classes == 4
    with pytest.raises(ValueError, match=message):
        AutoRule(**(fields | change))


def test_bad_options():
    with pytest.raises(ValueError, match=r"True, False\]; got 'yes'"):
        make("auto", keep_labels="yes").fit(*softmax_examples(100, 5, stretch=3.0))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("classes", "n", "most"),
    [
        (2, 200, 0.005),
        (30, 300, 0.003),
        (100, 400, 0.003),
        (5, 60, 0.01),
        (10, 30, 0.02),
    ],
)
def test_many_classes_and_few_examples_do_no_harm(classes, n, most):
    """Calibrated classifiers: class biases must not look better than they are."""
    lost = []
    for seed in range(5):
        rng = np.random.default_rng([seed, classes])
        logits = 3.0 * rng.normal(size=(n + 1000, classes))
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        truth = softmax_of(logits[n:])
        found = hokical.auto(logits[:n], labels[:n]).predict_proba(logits[n:])
        lost.append(np.sum(truth * np.log(truth / found), axis=1).mean())
    assert np.mean(lost) <= most


@pytest.mark.sample(1)
@pytest.mark.parametrize(("n", "classes"), [(20_000, 2), (10_000, 10)])
def test_classes_that_take_turns_are_all_seen(n, classes):
    """Odd classes often have wrong labels, and every second or fifth row would show
    few.
    """
    rng = np.random.default_rng(0)
    names = np.arange(n) % classes
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), names] += 4.0
    wrong = (names % 2 == 1) & (rng.random(n) < 0.3)
    labels = np.where(wrong, rng.integers(0, classes, n), names)
    order = rng.permutation(n)
    in_turn = AutoCalibrator().fit(4.0 * logits, labels)
    shuffled = AutoCalibrator().fit(4.0 * logits[order], labels[order])
    found = [
        log_loss(cal.predict_proba(4.0 * logits), labels) for cal in (in_turn, shuffled)
    ]
    assert found[0] == pytest.approx(found[1], abs=0.002)


def test_the_reason_gives_the_size_of_the_sample(monkeypatch):
    logits, labels = softmax_examples(4000, 5, stretch=3.0)
    monkeypatch.setattr("hokical._fitting.examples.MOST_LOGITS", 10_000)
    monkeypatch.setattr("hokical._fitting.examples.MOST_ROWS", 1500)
    for truth, told in ((labels, "held-out log loss"), (0 * labels, "of class 0")):
        reason = AutoCalibrator().fit(logits, truth).reason_
        assert told in reason
        assert reason.endswith(" It was fitted on 1,500 of 4,000 rows.")


@pytest.mark.parametrize("kind", ["scales", "cauchy", "impossible"])
def test_a_single_example_decides_nothing(kind):
    """With 20 to 40 examples of strange logits, calibrated ones are hardly made
    worse.
    """
    for seed in range(6):
        rng = np.random.default_rng([seed, 7])
        n = (20, 30, 40)[seed % 3]
        logits = rng.normal(size=(n + 1000, 4))
        if kind == "scales":
            logits *= 10.0 ** rng.uniform(-2.0, 2.0, size=(n + 1000, 1))
        elif kind == "cauchy":
            logits = rng.standard_cauchy(size=(n + 1000, 4))
        else:
            logits[rng.random(logits.shape) < 0.3] = -np.inf
            logits[:, 0] = rng.normal(size=n + 1000)
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        found = hokical.auto(logits[:n], labels[:n]).predict_proba(logits[n:])
        own = softmax_of(logits[n:])
        true = np.arange(1000), labels[n:]
        assert np.log(own[true] / found[true]).mean() < 0.1
