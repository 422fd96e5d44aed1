"""Groups in the default: what they learn, that they do no harm, and how they are
passed.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import hokical
from hokical.metrics import log_loss
from tests.conftest import grouped_examples
from tests.fitted import fingerprint


@pytest.fixture(scope="module")
def fitted() -> hokical.AutoCalibrator:
    logits, labels, site = grouped_examples(3000, seed=0)
    return hokical.auto(logits, labels, groups=site)


def test_groups_that_matter_are_used(fitted: hokical.AutoCalibrator) -> None:
    logits, labels, site = grouped_examples(5000, seed=1)
    plain = hokical.auto(*grouped_examples(3000, seed=0)[:2])
    loss = log_loss(fitted.predict_proba(logits, groups=site), labels)
    assert loss < log_loss(plain.predict_proba(logits), labels) - 0.05
    assert fitted.groups_ == ["group"]
    assert "Groups: 'group' was used (held-out log loss lower by" in fitted.reason_


def test_the_answer_is_what_the_rule_says(fitted: hokical.AutoCalibrator) -> None:
    logits, _, site = grouped_examples(50, seed=2)
    rule = fitted.rule_
    assert rule.needed_groups is not None
    inner = (
        hokical.AutoCalibrator()
        .fit(*grouped_examples(3000, seed=0)[:2])
        .predict_proba(logits)
    )
    code = rule.coding.codes(site, 50)[:, 0]
    expected = softmax(
        (1 + rule.scale[code])[:, None] * np.log(inner) + rule.bias[code], axis=1
    )
    found = fitted.predict_proba(logits, groups=site)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert fitted.predict(logits, groups=site).tolist() == found.argmax(axis=1).tolist()
    assert (
        fitted.predict_confidence(logits, groups=site).tolist()
        == found.max(axis=1).tolist()
    )


@pytest.mark.parametrize("keep", [True, False])
def test_the_most_likely_class_is_predicted_unless_labels_are_kept(keep: bool) -> None:
    logits, labels, site = grouped_examples(2000, seed=0)
    options = {"keep_labels": True} if keep else {}
    cal = hokical.auto(logits, labels, groups=site, **options)
    assert cal.rule_.needed_groups is not None
    found, proba = (
        cal.predict(logits, groups=site),
        cal.predict_proba(logits, groups=site),
    )
    own = logits.argmax(axis=1)
    np.testing.assert_array_equal(found, own if keep else proba.argmax(axis=1))
    assert (proba.argmax(axis=1) != own).any()
    confidence = cal.predict_confidence(logits, groups=site)
    np.testing.assert_array_equal(confidence, proba[np.arange(2000), found])


def test_unknown_groups_get_the_common_answer_and_are_counted(
    fitted: hokical.AutoCalibrator,
) -> None:
    logits = grouped_examples(3, seed=3)[0]
    # Copies: each calibrator warns once.
    with pytest.warns(
        UserWarning, match=r"of 3, .* not in the fit: 2 in 'group'\. They get"
    ):
        mixed = deepcopy(fitted).predict_proba(logits, groups=["a", None, "elsewhere"])
    with pytest.warns(UserWarning, match="3 in 'group'"):
        none = deepcopy(fitted).predict_proba(logits, groups=[None, None, None])
    np.testing.assert_array_equal(mixed[1:], none[1:])
    assert not np.allclose(mixed[0], none[0])


def test_a_group_is_never_guessed(fitted: hokical.AutoCalibrator) -> None:
    logits, labels, site = grouped_examples(10, seed=4)
    for call in (fitted.predict, fitted.predict_proba, fitted.predict_or_abstain):
        with pytest.raises(
            ValueError, match="`groups` must be given, as in the fit: group"
        ):
            call(logits)
    with pytest.raises(ValueError, match="`groups` must be given"):
        fitted.certify(logits, labels)
    with pytest.raises(ValueError, match="one entry per row"):
        fitted.predict(logits, groups=site[:4])


def test_columns_without_meaning_are_left_out() -> None:
    rng = np.random.default_rng(5)
    logits, labels, site = grouped_examples(2000, seed=5)
    groups = {"noise": rng.integers(0, 8, 2000), "site": site, "one": np.zeros(2000)}
    cal = hokical.auto(logits, labels, groups=groups)
    assert cal.groups_ == ["site"]
    assert "'noise' was left out" in cal.reason_
    assert "'one' has one group" in cal.reason_
    frame = pd.DataFrame({"site": site[:5], "noise": 0})
    expected = cal.predict_proba(logits[:5], groups={"site": site[:5]})
    np.testing.assert_array_equal(cal.predict_proba(logits[:5], groups=frame), expected)
    with pytest.raises(ValueError, match="columns of the fit, site; got noise, town"):
        cal.predict(logits, groups={"noise": groups["noise"], "town": site})


def test_groups_that_do_not_differ_change_nothing() -> None:
    logits, labels, site = grouped_examples(1500, seed=6, effect=0.0)
    cal, plain = hokical.auto(logits, labels, groups=site), hokical.auto(logits, labels)
    assert cal.groups_ == []
    np.testing.assert_array_equal(
        cal.predict_proba(logits, groups=site), plain.predict_proba(logits)
    )
    assert fingerprint(cal) == fingerprint(plain)


def test_columns_add_up_and_numbers_are_cut() -> None:
    rng = np.random.default_rng(7)
    logits, n = 2.0 * rng.normal(size=(4000, 3)), 4000
    age, sex = rng.integers(20, 80, n), rng.choice(["f", "m"], n)
    scores = (
        logits
        + 1.5 * np.outer(age > 50, [1, 0, 0])
        + 1.5 * np.outer(sex == "f", [0, 1, 0])
    )
    labels = np.argmax(scores + rng.gumbel(size=logits.shape), axis=1)
    cal = hokical.auto(logits, labels, groups={"age": age, "sex": sex})
    assert set(cal.groups_) == {"age", "sex"}
    assert "'age', cut at 26, " in cal.reason_
    groups = {"sex": ["f", "m", "f", "m"], "age": [70, 70, 30, 30]}
    proba = cal.predict_proba(np.zeros((4, 3)), groups=groups)
    expected = softmax([[1.5, 1.5, 0], [1.5, 0, 0], [0, 1.5, 0], [0, 0, 0]], axis=1)
    np.testing.assert_allclose(proba, expected, atol=0.06)


def test_many_classes_have_a_scale_by_group() -> None:
    logits, labels, site = grouped_examples(1500, seed=8, n_classes=40)
    cal = hokical.auto(logits, labels, groups=site)
    rule = cal.rule_
    assert rule.needed_groups is not None
    assert rule.bias.shape == (6, 1)
    assert cal.predict_proba(logits[:4], groups=site[:4]).shape == (4, 40)


def test_a_file_and_what_it_answers(
    fitted: hokical.AutoCalibrator, tmp_path: Path
) -> None:
    logits, _, site = grouped_examples(40, seed=10)
    fitted.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    expected = fitted.predict_proba(logits, groups=site)
    np.testing.assert_array_equal(loaded.predict_proba(logits, groups=site), expected)
    assert loaded.groups_ == ["group"]


def test_guarantees_go_by_the_groups(
    fitted: hokical.AutoCalibrator, tmp_path: Path
) -> None:
    held, new = grouped_examples(2000, seed=11), grouped_examples(2000, seed=12)
    fitted.save(tmp_path / "cal.json")
    cal = hokical.load(tmp_path / "cal.json").certify(*held[:2], groups=held[2])
    logits, labels, site = new
    sets = cal.predict_set(logits, coverage=0.9, groups=site)
    assert abs(sets.members[np.arange(2000), labels].mean() - 0.9) < 0.03
    by_group = cal.predict_set(logits, coverage=0.9, by="group", groups=site)
    for name in "abcde":
        covered = by_group.members[np.arange(2000), labels][site == name].mean()
        assert abs(covered - 0.9) < 0.06
    chosen = cal.predict_or_abstain(logits, risk=0.3, groups=site)
    assert (chosen.labels != labels)[chosen.accepted].mean() < 0.33
    assert cal.predict_interval(logits, groups=site).shape == (2000, 2)
    assert cal.predict_action(logits, 1 - np.eye(4), groups=site).actions.shape == (
        2000,
    )
    assert cal.detect(logits, 1, recall=0.9, groups=site).flagged.shape == (2000,)
    assert cal.score(logits, labels, groups=site) < 0.0


def test_blocks_and_order_change_nothing(fitted: hokical.AutoCalibrator) -> None:
    logits, _, site = grouped_examples(700, seed=13)
    whole = fitted.predict_proba(logits, groups=site)
    order = np.random.default_rng(0).permutation(700)
    parts = [
        fitted.predict_proba(logits[i : i + 1], groups=site[i : i + 1])
        for i in range(9)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole[:9])
    np.testing.assert_array_equal(
        fitted.predict_proba(logits[order], groups=site[order]), whole[order]
    )


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_arrays_of_other_libraries(
    fitted: hokical.AutoCalibrator, library: str
) -> None:
    xp = pytest.importorskip(library)
    logits, _, site = grouped_examples(60, seed=14)
    given = xp.asarray(logits.astype(np.float32))
    found = fitted.predict_proba(given, groups=site)
    assert type(found) is type(given)
    expected = fitted.predict_proba(logits.astype(np.float32), groups=site)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)


def test_impossible_classes_stay_impossible() -> None:
    logits, labels, site = grouped_examples(1500, seed=15)
    logits[np.arange(1500), (labels + 1) % 4] = -np.inf
    cal = hokical.auto(logits, labels, groups=site)
    proba = cal.predict_proba(logits, groups=site)
    assert (proba[np.isinf(logits)] == 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def test_the_best_classes_alone_are_refused() -> None:
    logits, labels, site = grouped_examples(200, seed=16)
    best = np.argsort(-logits, axis=1)[:, :2]
    top = hokical.TopK(np.take_along_axis(logits, best, axis=1), best, 4)
    with pytest.raises(
        TypeError, match=r"\(n, classes\) where there are `groups`; got a TopK"
    ):
        hokical.auto(top, labels, groups=site)


def test_streams_go_by_the_groups_of_all_rows(
    fitted: hokical.AutoCalibrator, tmp_path: Path
) -> None:
    logits, _, site = grouped_examples(100, seed=3)
    chunks = [logits[:30], logits[30:90], logits[90:]]
    expected = fitted.predict_proba(logits, groups=site)
    found = hokical.streams.predict(fitted, chunks, what="proba", groups=site)
    np.testing.assert_array_equal(np.concatenate(list(found)), expected)
    target = tmp_path / "proba.npy"
    hokical.streams.predict_to(fitted, chunks, target, what="proba", groups=site)
    np.testing.assert_array_equal(np.load(target), expected)
    for wrong in (site[:-1], np.append(site, "a")):
        with pytest.raises(ValueError, match=r"`groups` must be .* per row \(100\)"):
            list(hokical.streams.predict(fitted, chunks, groups=wrong))


def test_rows_of_weight_0_do_not_move_the_cuts() -> None:
    logits, labels, site = grouped_examples(2000, seed=8)
    number = np.searchsorted(["a", "b", "c", "d", "e"], site) + np.linspace(
        0.0, 0.9, 2000
    )
    odd = np.arange(2000) % 2 == 1
    moved = np.where(odd, number, 100.0 + number)
    cal = hokical.auto(logits, labels, odd.astype(float), groups=moved)
    alone = hokical.auto(logits[odd], labels[odd], groups=number[odd])
    found, expected = (c.predict_proba(logits, groups=number) for c in (cal, alone))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert cal.groups_ == ["group"]


def test_sets_by_group_know_a_number_by_its_text() -> None:
    logits, labels, site = grouped_examples(2000, seed=9)
    number = np.searchsorted(["a", "b", "c", "d", "e"], site)
    cal = hokical.auto(*grouped_examples(500, seed=10)[:2]).certify(
        logits, labels, groups=number
    )
    found, same = (
        cal.predict_set(logits, coverage=0.9, by="group", groups=given).members
        for given in (number, number.astype(str))
    )
    np.testing.assert_array_equal(found, same)


def test_two_columns_of_thousands_of_groups_are_refused() -> None:
    rng = np.random.default_rng(0)
    right = rng.random(6000) < 0.5
    groups = {
        name: rng.integers(0, 3000, 6000).astype(str) for name in ("user", "shop")
    }
    with pytest.raises(ValueError, match="one column of very many groups; got"):
        hokical.calibrate_confidence(rng.random(6000), right, groups=groups)


def paired(n: int, seed: int, effect: float) -> tuple[Any, Any, dict[str, Any]]:
    """Sites differ, and so do women of one site; odd and even rows do not."""
    rng = np.random.default_rng(seed)
    sex, site = rng.choice(["f", "m"], n), rng.choice(list("abcd"), n)
    logits = 2.0 * rng.normal(size=(n, 3))
    scores = logits + np.outer(site == "a", [1.0, 0.0, 0.0])
    scores += np.outer((sex == "f") & (site == "b"), [0.0, effect, 0.0])
    labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    return logits, labels, {"sex": sex, "site": site, "odd": np.arange(n) % 2}


@pytest.mark.slow
def test_pairs_of_groups_are_learned_where_they_matter(tmp_path: Path) -> None:
    logits, labels, groups = paired(2000, 0, 3.0)
    new, truth, theirs = paired(4000, 1, 3.0)
    cal = hokical.auto(logits, labels, groups=groups)
    assert "'sex' x 'site' was used" in cal.reason_
    assert "'sex' x 'odd' was left out" in cal.reason_
    loss = log_loss(cal.predict_proba(new, groups=theirs), truth)
    alone = [
        hokical.auto(logits, labels, groups={name: groups[name]})
        for name in ("sex", "site")
    ]
    for one in alone:
        assert loss < log_loss(one.predict_proba(new, groups=theirs), truth) - 0.005
    cal.save(tmp_path / "cal.json")
    again = hokical.load(tmp_path / "cal.json")
    found = again.predict_proba(new, groups=theirs)
    np.testing.assert_array_equal(found, cal.predict_proba(new, groups=theirs))


def test_pairs_that_do_not_matter_are_left_out() -> None:
    logits, labels, groups = paired(1500, 2, 0.0)
    cal = hokical.auto(logits, labels, groups=groups)
    assert {len(term) for term in cal.rule_.terms} == {1}
    assert "'sex' x 'site' was left out" in cal.reason_


def test_a_pair_adds_to_its_columns() -> None:
    logits, labels, groups = paired(2000, 0, 3.0)
    cal = hokical.auto(
        logits, labels, groups={name: groups[name] for name in ("sex", "site")}
    )
    rule, row = cal.rule_, logits[:1]
    assert {len(term) for term in rule.terms} == {1, 2}
    sizes = [[rule.coding.sizes[k] for k in term] for term in rule.terms]
    firsts = np.cumsum([0, *map(np.prod, sizes)])
    table = rule.bias[firsts[-2] :].reshape(*sizes[-1], 3)
    assert not table[-1].any()  # nobody is known to be of the pair
    assert not table[:, -1].any()
    inner = np.log(hokical.auto(logits, labels).predict_proba(row))[0]
    for name in ({"sex": [s], "site": [t]} for s in "fm" for t in "ab"):
        code = rule.coding.codes(name, 1)[0]
        own = [
            np.ravel_multi_index(code[[*t]], n)
            for t, n in zip(rule.terms, sizes, strict=True)
        ]
        rows = firsts[:-1] + own
        expected = softmax(
            (1 + rule.scale[rows].sum()) * inner + rule.bias[rows].sum(axis=0)
        )
        np.testing.assert_allclose(
            cal.predict_proba(row, groups=name)[0], expected, atol=1e-9
        )


def test_pairs_of_too_many_groups_are_left_out() -> None:
    logits, labels, _ = paired(1500, 4, 0.0)
    many = {"shop": np.arange(1500) % 200, "town": np.arange(1500) % 75}
    many = {name: column.astype(str) for name, column in many.items()}
    cal = hokical.auto(logits, labels, groups=many)
    assert "'shop' x 'town' has too many combinations" in cal.reason_


def test_many_examples_cut_numbers_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(17)
    logits, age = 2.0 * rng.normal(size=(7000, 3)), rng.integers(0, 60, 7000)
    scores = logits + 2.0 * np.outer(np.abs(age - 30) < 3, [1, 0, 0])
    labels = np.argmax(scores + rng.gumbel(size=logits.shape), axis=1)
    fit, new = slice(0, 3000), slice(3000, None)
    coarse = hokical.auto(logits[fit], labels[fit], groups={"age": age[fit]})
    monkeypatch.setattr("hokical._core.groups.FINE_FROM", 3000)
    fine = hokical.auto(logits[fit], labels[fit], groups={"age": age[fit]})
    assert [len(cal.rule_.coding.levels[0]) for cal in (coarse, fine)] == [9, 29]
    first, second, *_, last = fine.rule_.coding.levels[0]
    assert f"cut at {first:g}, {second:g}, ..., " in fine.reason_
    assert f", {last:g}, was used" in fine.reason_
    losses = [
        log_loss(cal.predict_proba(logits[new], groups={"age": age[new]}), labels[new])
        for cal in (coarse, fine)
    ]
    assert losses[1] < losses[0] - 0.005


def test_names_of_groups_follow_the_columns_of_the_fit() -> None:
    logits, labels, site = grouped_examples(3000, seed=0)
    sex = np.where(np.arange(3000) % 2, "f", "m")
    cal = hokical.auto(logits, labels, groups={"site": site, "sex": sex})
    assert cal.groups_ == ["site"]
    new_logits, new_labels, new_site = grouped_examples(2000, seed=1)
    swapped = {"sex": sex[:2000], "site": new_site}

    def wrong(proba: Any, labels: Any, threshold: Any) -> Any:
        return (proba.argmax(axis=1) != labels) & (proba.max(axis=1) >= threshold)

    found = cal.control_risk(
        new_logits,
        new_labels,
        groups=swapped,
        loss=wrong,
        risk=0.5,
        delta=0.1,
        by="group",
    )
    assert {name[0] for name in found.by_group} == {*"abcde"}
