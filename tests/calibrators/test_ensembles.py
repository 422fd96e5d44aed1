"""Calibrators of ensembles, as users of networks, models and prompts have them."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score, train_test_split

import hokical
from hokical import (
    Ensemble,
    FitDataWarning,
    Gumbel,
    auto,
    from_probabilities,
    streams,
)
from hokical.calibrators import make, with_sets
from hokical.monitoring import OnlineSets
from hokical.rules.members import PooledMembers
from hokical.rules.pooled import Pool
from tests.ensembles import NAMES, log_loss, named, noisy_members

VALIDATION = named(1000, seed=1)
NEW, NEW_LABELS = named(4000, seed=2)


@pytest.fixture(scope="module")
def fitted() -> Any:
    return auto(*VALIDATION)


def test_pooled_members_beat_each_of_them_and_their_mean(fitted: Any) -> None:
    pooled = log_loss(fitted.predict_proba(NEW), NEW_LABELS)
    validation, labels = VALIDATION
    for member, new in zip(validation.members, NEW.members, strict=True):
        single = auto(member, labels)
        assert pooled < log_loss(single.predict_proba(new), NEW_LABELS) - 0.03
    mean = auto(np.mean(validation.members, axis=0), labels)
    new_mean = np.mean(NEW.members, axis=0)
    assert pooled < log_loss(mean.predict_proba(new_mean), NEW_LABELS) - 0.01


def test_members_say_what_each_is_worth(fitted: Any) -> None:
    members = fitted.members_
    best, *_, worst = (NAMES[v] for v in members.order)
    assert (best, worst) == ("shifted", "blurred")
    assert members.weights.sum() == pytest.approx(1.0)
    assert members.weights[NAMES.index("blurred")] < 0.15
    # Held-out: what the table states is what new rows show.
    shown = log_loss(fitted.predict_proba(NEW), NEW_LABELS)
    assert members.remaining[-1] == pytest.approx(shown, abs=0.05)
    table = str(members).splitlines()
    assert table[0].split()[:2] == ["member", "weight"]
    assert [line.split()[0] for line in table[1:]] == [NAMES[v] for v in members.order]
    assert "4 members: " in repr(fitted)
    assert "% of the gain: shifted" in repr(fitted)


def test_few_members_are_all_that_must_be_evaluated() -> None:
    few = auto(*VALIDATION, most_members=2)
    assert len(few.needed_members_) == 2
    assert "4 members: 2 give " in repr(few)
    expected = few.predict_proba(NEW)
    assert (few.predict_proba(NEW.select(few.needed_members_)) == expected).all()
    blank = {
        name: member if name in few.needed_members_ else np.full_like(member, np.nan)
        for name, member in zip(NAMES, NEW.members, strict=True)
    }
    assert (few.predict_proba(Ensemble(blank)) == expected).all()


def test_members_are_matched_by_name_in_any_order(fitted: Any) -> None:
    shuffled = NEW.select(NAMES[::-1])
    assert (fitted.predict_proba(shuffled) == fitted.predict_proba(NEW)).all()
    unnamed = Ensemble(np.stack(NEW.members))
    assert (fitted.predict_proba(unnamed) == fitted.predict_proba(NEW)).all()


def test_the_same_row_has_the_same_bits_in_any_batch(fitted: Any) -> None:
    proba = fitted.predict_proba(NEW)
    assert (fitted.predict_proba(NEW[17:18]) == proba[17:18]).all()
    assert (fitted.predict_proba(NEW[2000:]) == proba[2000:]).all()


def test_labels_of_the_first_member_are_kept_on_demand() -> None:
    keeping = auto(*VALIDATION, keep_labels=True)
    first = NEW.members[0].argmax(axis=1)
    assert (keeping.predict(NEW) == first).all()
    proba = keeping.predict_proba(NEW)
    np.testing.assert_allclose(
        keeping.predict_confidence(NEW), proba[np.arange(first.size), first]
    )
    right = first == NEW_LABELS
    assert keeping.predict_confidence(NEW).mean() == pytest.approx(
        right.mean(), abs=0.03
    )
    assert "plain" in keeping.needed_members_


def test_a_missing_member_leaves_its_share_to_the_others(fitted: Any) -> None:
    members = np.stack(NEW.members)
    members[2, ::2] = np.nan
    proba = fitted.predict_proba(Ensemble(members))
    expected = fitted.predict_proba(NEW)
    assert (proba[1::2] == expected[1::2]).all()
    losses = log_loss(proba[::2], NEW_LABELS[::2])
    assert log_loss(expected[::2], NEW_LABELS[::2]) < losses < 1.2


def test_a_fit_with_missing_members_learns_from_what_is_there() -> None:
    members, labels = noisy_members(1500, seed=5)
    members[np.random.default_rng(0).random(members.shape[:2]) < 0.2] = np.nan
    some = ~np.isnan(members).any(axis=2).all(axis=0)
    gappy = auto(Ensemble(members[:, some], NAMES), labels[some])
    assert log_loss(gappy.predict_proba(NEW), NEW_LABELS) < (
        log_loss(auto(*VALIDATION).predict_proba(NEW), NEW_LABELS) + 0.01
    )


def test_a_member_that_was_never_evaluated_is_named() -> None:
    members, labels = noisy_members(100)
    members[1] = np.nan
    with pytest.raises(ValueError, match="'flipped' is NaN in all 100"):
        auto(Ensemble(members, NAMES), labels)


def test_exchangeable_members_may_be_more_in_use_than_in_the_fit() -> None:
    noise = np.ones(12)
    passes, labels = noisy_members(800, seed=3, noise=noise[:6])
    more, new_labels = noisy_members(3000, seed=4, noise=noise)
    calibrator = auto(Ensemble(passes, exchangeable=True), labels)

    def loss(n_passes: int) -> float:
        ensemble = Ensemble(more[:n_passes], exchangeable=True)
        return log_loss(calibrator.predict_proba(ensemble), new_labels)

    assert loss(12) < loss(6) < loss(3)
    with pytest.warns(UserWarning, match="2 exchangeable members; the fit had 6"):
        loss(2)
    assert "6 exchangeable members" in repr(calibrator)
    assert len(str(calibrator.members_).splitlines()) == 7
    with pytest.raises(ValueError, match="`exchangeable` must be True, as in the fit"):
        calibrator.predict(Ensemble(more))
    with pytest.raises(ValueError, match="`most_members` chooses among members"):
        auto(Ensemble(passes, exchangeable=True), labels, most_members=2)


@pytest.mark.parametrize("method", ["temps", "hoki", "ets", "irm", "adaptive"])
def test_every_method_is_fitted_on_the_pooled_row(method: str, tmp_path: Any) -> None:
    calibrator = make(method).fit(*VALIDATION)
    assert log_loss(calibrator.predict_proba(NEW), NEW_LABELS) < 1.08
    path = tmp_path / "cal.json"
    calibrator.save(path)
    loaded = hokical.load(path)
    assert (loaded.predict_proba(NEW) == calibrator.predict_proba(NEW)).all()
    assert str(loaded.members_) == str(calibrator.members_)


def test_two_classes() -> None:
    members, labels = noisy_members(600, n_classes=2)
    more, new_labels = noisy_members(3000, n_classes=2, seed=9)
    for method in ("auto", "platt"):
        calibrator = make(method).fit(Ensemble(members), labels)
        event = calibrator.predict_proba(Ensemble(more))[:, 1]
        assert event.mean() == pytest.approx(new_labels.mean(), abs=0.03)


def test_copies_and_pickles_keep_the_members(fitted: Any) -> None:
    restored = pickle.loads(pickle.dumps(fitted))
    assert (restored.predict(NEW) == fitted.predict(NEW)).all()
    assert not hasattr(clone(fitted), "members_")
    assert isinstance(io.StringIO(str(fitted.members_)).read(), str)


def test_uncalibrated_members_are_their_mean_probability() -> None:
    plain = make("uncalibrated").fit(*VALIDATION)
    odds = np.exp(np.stack(NEW.members))
    mean = (odds / odds.sum(axis=2, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(plain.predict_proba(NEW), mean, rtol=1e-9)
    with pytest.raises(ValueError, match="`most_members` must be None"):
        make("uncalibrated").fit(*VALIDATION, most_members=2)


def test_members_that_nothing_was_learned_for_have_no_losses() -> None:
    plain = make("uncalibrated").fit(*VALIDATION)
    assert repr(plain).endswith("the mean of 4 members")
    table = str(plain.members_).splitlines()
    assert [line.split() for line in table] == [
        ["member", "weight"],
        *([name, "0.250"] for name in NAMES),
    ]


def test_one_example_is_fitted_as_one_of_a_single_member() -> None:
    validation, labels = VALIDATION
    with pytest.warns(FitDataWarning, match="1 examples are too few"):
        one = auto(validation[:1], labels[:1])
    assert np.isfinite(one.predict_proba(NEW)).all()


def test_ensembles_are_split_by_scikit_learn() -> None:
    validation, labels = VALIDATION
    first, second, first_labels, second_labels = train_test_split(
        validation, labels, random_state=0
    )
    score = make("temps").fit(first, first_labels).score(second, second_labels)
    folds = cross_val_score(make("temps"), validation, labels, cv=3)
    assert folds.mean() == pytest.approx(score, abs=0.1)


def test_labels_in_another_order_than_the_rows_of_the_members() -> None:
    index = [f"id{k}" for k in range(1000)]
    validation, labels = VALIDATION
    frames = validation.convert(lambda member, _: pd.DataFrame(member, index))
    shuffled = pd.Series(labels, index).iloc[::-1]
    calibrator = make("temps").fit(frames, shuffled.iloc[::-1])
    for ask in (make("temps").fit, calibrator.certify, calibrator.score):
        with pytest.raises(ValueError, match=r"in the order of `logits`.*\.loc"):
            ask(frames, shuffled)


def test_groups_sets_and_abstention_follow() -> None:
    validation, labels = VALIDATION
    calibrator = auto(validation, labels, groups=labels % 2)
    proba = calibrator.predict_proba(NEW, groups=NEW_LABELS % 2)
    assert log_loss(proba, NEW_LABELS) < 0.9
    certified = auto(*VALIDATION).certify(*named(1500, seed=6))
    sets = certified.predict_set(NEW, coverage=0.9)
    covered = sets.members[np.arange(NEW_LABELS.size), NEW_LABELS]
    assert covered.mean() == pytest.approx(0.9, abs=0.03)
    selected = certified.predict_or_abstain(NEW, risk=0.2)
    wrong = selected.labels[selected.accepted] != NEW_LABELS[selected.accepted]
    assert 0.1 < wrong.mean() < 0.2
    with_thresholds = with_sets(certified, coverage=0.9)
    assert (with_thresholds.predict_set(NEW[:5]).members == sets.members[:5]).all()
    assert certified.estimate_shift(NEW).p_value > 1e-3


def test_the_examples_of_the_fit_prove_nothing(fitted: Any) -> None:
    with pytest.raises(ValueError, match="certify"):
        fitted.predict_or_abstain(NEW, risk=0.2)
    with pytest.raises(ValueError, match="of the fit"):
        auto(*VALIDATION).certify(*VALIDATION)


@pytest.mark.slow
def test_the_stated_risk_holds_over_divisions() -> None:
    """The share of runs above the stated risk is at most what was stated."""
    members, labels = noisy_members(40_000, seed=11, n_classes=3)
    exceeded = []
    for run in range(40):
        start = 400 * run
        rows = slice(start, start + 200)
        held_out = slice(start + 200, start + 400)
        calibrator = auto(Ensemble(members[:, rows]), labels[rows])
        calibrator.certify(Ensemble(members[:, held_out]), labels[held_out])
        new = slice(30_000, 34_000)
        selected = calibrator.predict_or_abstain(Ensemble(members[:, new]), risk=0.2)
        accepted = selected.accepted
        wrong = selected.labels[accepted] != labels[new][accepted]
        exceeded.append(accepted.any() and wrong.mean() > 0.2)
    # 10 % are allowed: nine or more of forty have a chance of 1 %.
    assert sum(exceeded) < 9


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (NEW.members[0], r"must be a `hokical.Ensemble` of the members of the fit"),
        (Ensemble(NEW.members[:3]), "got 3 without names"),
        (NEW.select(NAMES[:3]), r"got plain, flipped, shifted \(blurred missing\)"),
    ],
)
def test_other_members_are_refused(fitted: Any, rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted.predict(rows)


def test_one_row_of_logits_is_no_ensemble() -> None:
    validation, labels = VALIDATION
    single = auto(validation.members[0], labels)
    with pytest.raises(ValueError, match="one row for each example, as in the fit"):
        single.predict(NEW)
    with pytest.raises(ValueError, match="`most_members` must be None"):
        auto(validation.members[0], labels, most_members=2)
    with pytest.raises(ValueError, match="`most_members` must be an integer"):
        auto(validation, labels, most_members=5)


def test_a_member_of_probabilities_is_noticed() -> None:
    members, labels = noisy_members(200)
    odds = np.exp(members[1])
    members[1] = odds / odds.sum(axis=1, keepdims=True)
    with pytest.warns(FitDataWarning, match=r"members\['flipped'\]. look like prob"):
        auto(Ensemble(members, NAMES), labels)


def test_labels_may_be_names() -> None:
    validation, labels = VALIDATION
    classes = ["ant", "bee", "cat", "dog"]
    texts = np.array(classes)[labels]
    calibrator = auto(validation, texts, classes=classes)
    assert calibrator.class_names == tuple(classes)
    assert (calibrator.predict(NEW) == auto(*VALIDATION).predict(NEW)).all()


def test_torch_members_are_answered_in_torch(fitted: Any) -> None:
    torch = pytest.importorskip("torch")
    tensors = Ensemble([torch.asarray(member) for member in NEW.members], NAMES)
    proba = fitted.predict_proba(tensors)
    assert isinstance(proba, torch.Tensor)
    np.testing.assert_allclose(proba, fitted.predict_proba(NEW), rtol=1e-9)
    validation, labels = VALIDATION
    on_tensors = auto(
        Ensemble([torch.asarray(member) for member in validation.members], NAMES),
        torch.asarray(labels),
    )
    np.testing.assert_allclose(on_tensors.predict_proba(NEW), proba, rtol=1e-6)


@pytest.mark.slow
def test_evaluations_and_comparisons_take_ensembles(fitted: Any) -> None:
    result = hokical.evaluate(fitted, NEW, NEW_LABELS)
    expected = log_loss(fitted.predict_proba(NEW), NEW_LABELS)
    assert result.score("log_loss") == pytest.approx(expected)
    plain = make("uncalibrated").fit(*VALIDATION)
    before = log_loss(plain.predict_proba(NEW), NEW_LABELS)
    assert result.before is not None
    assert result.before.score("log_loss") == pytest.approx(before)
    alone = hokical.evaluate(None, NEW, NEW_LABELS)
    assert alone.score("log_loss") == pytest.approx(before)
    folds = hokical.evaluate("auto", *VALIDATION, folds=4)
    assert folds.score("log_loss") == pytest.approx(expected, abs=0.05)
    comparison = hokical.compare(
        VALIDATION, (NEW, NEW_LABELS), ["uncalibrated", "temps", "auto"]
    )
    assert comparison["auto"].score("log_loss") == pytest.approx(expected)
    assert comparison["uncalibrated"].score("log_loss") == pytest.approx(before)
    assert "auto" in str(comparison)


def test_monitors_and_online_sets_take_ensembles() -> None:
    certified = auto(*VALIDATION).certify(*named(1500, seed=6))
    monitor = hokical.CalibrationMonitor(certified)
    monitor.update_logits(NEW, NEW_LABELS)
    assert monitor.status().n == NEW_LABELS.size
    online = OnlineSets(certified, coverage=0.9)
    covered = []
    for first in range(0, 4000, 400):
        rows = np.arange(first, first + 400)
        members = online.predict_set(NEW[rows], ids=rows).members
        covered.append(members[np.arange(400), NEW_LABELS[rows]])
        online.add_labels(rows, NEW_LABELS[rows])
    assert np.concatenate(covered).mean() == pytest.approx(0.9, abs=0.03)


def test_other_members_are_another_calibrator(fitted: Any) -> None:
    few = auto(*VALIDATION, most_members=2)
    same_rule = few.with_predictor(replace(few.predictor_, rule=fitted.rule_))
    assert same_rule.fitted.fingerprint() != fitted.fitted.fingerprint()


def test_streams_of_ensembles_are_predicted_certified_and_evaluated() -> None:
    calibrator = auto(*VALIDATION)
    cuts = [slice(0, 700), slice(700, 701), slice(701, 4000)]
    chunks = [(NEW[rows], NEW_LABELS[rows]) for rows in cuts]
    parts = streams.predict(calibrator, [scores for scores, _ in chunks])
    whole = calibrator.predict_confidence(NEW)
    assert (np.concatenate(list(parts)) == whole).all()
    certified = streams.certify(auto(*VALIDATION), chunks)
    expected = auto(*VALIDATION).certify(NEW, NEW_LABELS)
    for calibrated in (certified, expected):
        sets = calibrated.predict_set(NEW, coverage=0.9)
        assert sets.sizes.mean() == pytest.approx(2.0, abs=0.3)
    evaluated = hokical.evaluate(calibrator, chunks)
    expected_loss = log_loss(calibrator.predict_proba(NEW), NEW_LABELS)
    assert evaluated.score("log_loss") == pytest.approx(expected_loss, rel=1e-3)
    shift = streams.estimate_shift(calibrator, chunks)
    expected = calibrator.estimate_shift(NEW)
    assert (shift.class_frequencies == expected.class_frequencies).all()
    assert shift.accuracy == expected.accuracy
    with pytest.raises(TypeError, match="chunks of an Ensemble cannot be fitted on"):
        streams.fit(make("temps"), chunks)


def test_hoki_adds_examples_and_does_not_merge_other_pools() -> None:
    first = make("hoki").set_params(noise=Gumbel(1.0)).fit(*VALIDATION)
    second = make("hoki").set_params(noise=Gumbel(1.0)).fit(*named(1000, seed=7))
    with pytest.raises(ValueError, match="must agree to be merged"):
        first.merge(second)
    weights = first.members_.weights
    more = first.partial_fit(NEW, NEW_LABELS)
    assert more.table_.total == 5000
    assert (more.members_.weights == weights).all()


def test_maps_are_no_ensembles(fitted: Any) -> None:
    with pytest.raises(TypeError, match="`logits` must be maps"):
        hokical.Dense("temps").fit(NEW, NEW_LABELS)


def test_weights_that_did_not_converge_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hokical._fitting.pooling.MAX_ITER", 1)
    with pytest.warns(ConvergenceWarning, match="weights of the members did not conv"):
        auto(*VALIDATION)


def test_rows_that_were_passed_as_members_are_told() -> None:
    validation, labels = VALIDATION
    stacked = np.stack(validation.members, axis=1)
    with pytest.raises(ValueError, match="Swap the first two axes"):
        auto(Ensemble(stacked), labels)


def test_a_mapping_of_members_is_led_to_ensembles() -> None:
    validation, labels = VALIDATION
    members = dict(zip(validation.names, validation.members, strict=True))
    with pytest.raises(TypeError, match=r"got dict.*`hokical.Ensemble"):
        auto(members, labels)


def test_members_of_probabilities_are_told_in_one_warning() -> None:
    members, labels = noisy_members(200)
    odds = np.exp(members)
    with pytest.warns(FitDataWarning, match="4 members look like prob") as warned:
        auto(Ensemble(odds / odds.sum(axis=2, keepdims=True), NAMES), labels)
    assert sum("look like prob" in str(w.message) for w in warned) == 1


def test_gains_of_members_that_are_not_used_are_not_told() -> None:
    """The best member, and one that is used beside it; a third one is not."""
    members = PooledMembers(
        names=("a", "b", "c"),
        pool=Pool(np.array([0.7, 0.3, 0.0]), np.ones(3), 0.5),
        losses=np.array([0.5, 0.6, 0.7]),
        order=np.arange(3),
        remaining=np.array([0.500, 0.502, 0.499]),
    )
    assert members.describe() == "3 members, 2 used: a, b"
    few = replace(members, remaining=np.array([0.500, 0.490, 0.489]))
    assert few.describe() == "3 members: 2 give 91% of the gain: a, b"
    none = replace(members, remaining=np.array([0.500, 0.502, 0.503]))
    assert none.describe() == "3 members: a alone is as good as all"


def test_zeros_of_all_members_make_one_warning() -> None:
    members, _ = noisy_members(200)
    votes = np.eye(4)[members.argmax(axis=2)]
    with pytest.warns(FitDataWarning, match="exactly 0 or 1") as warned:
        from_probabilities(Ensemble(votes, NAMES))
    assert len(warned) == 1
