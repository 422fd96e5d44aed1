"""Labels that do not exclude each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hokical
from hokical import MultilabelCalibrator, from_binary_probabilities

N_LABELS = 12


def tags(n: int, seed: int = 0, *, calibrated: bool = False) -> tuple[Any, Any]:
    """Scores and labels; the curves of labels are alike but not equal, and some are
    rare.
    """
    rng = np.random.default_rng(seed)
    base = np.linspace(-5.0, 0.0, N_LABELS)
    odds = base + 2.0 * rng.normal(size=(n, N_LABELS))
    labels = (rng.logistic(size=odds.shape) < odds).astype(int)
    if calibrated:
        return odds, labels
    own = np.random.default_rng(99).normal(size=(2, N_LABELS)) * [[0.2], [0.5]]
    return (1.8 + own[0]) * odds + 1.0 + own[1], labels


def log_loss(proba: Any, labels: Any) -> float:
    return float(-np.log(np.where(labels == 1, proba, 1.0 - proba)).mean())


@pytest.fixture(scope="module")
def fitted() -> MultilabelCalibrator:
    return MultilabelCalibrator().fit(*tags(600))


def test_rare_labels_borrow_strength(fitted: Any) -> None:
    from sklearn.linear_model import LogisticRegression

    scores, labels = tags(600)
    test, truth = tags(20_000, 1)
    alone = np.empty(test.shape)
    for k in range(N_LABELS):
        model = LogisticRegression(C=1e6).fit(scores[:, k : k + 1], labels[:, k])
        alone[:, k] = model.predict_proba(test[:, k : k + 1])[:, 1]
    own = 1.0 / (1.0 + np.exp(-test))
    pooled = log_loss(fitted.predict_proba(test), truth)
    assert pooled < log_loss(alone, truth) < log_loss(own, truth)
    ideal = log_loss(1.0 / (1.0 + np.exp(-tags(20_000, 1, calibrated=True)[0])), truth)
    assert pooled - ideal < 0.35 * (log_loss(alone, truth) - ideal) + 1e-3
    assert fitted.reason_.startswith(
        "log-odds were averaged: 0% uncalibrated, 100% curves"
    )


def test_calibrated_scores_are_hardly_changed() -> None:
    harm = []
    for seed in range(5):
        cal = MultilabelCalibrator().fit(*tags(300, seed, calibrated=True))
        test, truth = tags(5000, 50 + seed, calibrated=True)
        own = 1.0 / (1.0 + np.exp(-test))
        harm.append(log_loss(cal.predict_proba(test), truth) - log_loss(own, truth))
    assert np.mean(harm) < 5e-4


@pytest.mark.sample(1)
@pytest.mark.parametrize("n_labels", [1, N_LABELS])
def test_few_examples_are_enough_and_do_little_harm(n_labels: int) -> None:
    gains, harm = [], []
    for seed in range(15):
        for kind, calibrated in ((gains, False), (harm, True)):
            scores, labels = (
                part[:, -n_labels:] for part in tags(40, seed, calibrated=calibrated)
            )
            test, truth = (
                part[:, -n_labels:]
                for part in tags(4000, 50 + seed, calibrated=calibrated)
            )
            proba = MultilabelCalibrator().fit(scores, labels).predict_proba(test)
            own = 1.0 / (1.0 + np.exp(-test))
            kind.append(log_loss(proba, truth) - log_loss(own, truth))
    assert np.mean(gains) < -0.04
    assert np.mean(harm) < 6e-3
    assert max(harm) < 0.08


def test_unknown_labels_are_left_out() -> None:
    scores, labels = tags(400)
    half = labels.astype(float)
    half[200:] = np.nan
    one, two = MultilabelCalibrator().fit(scores, half), MultilabelCalibrator()
    two.fit(scores, labels, sample_weight=np.arange(400) < 200)
    np.testing.assert_allclose(one.rule_.slope, two.rule_.slope, rtol=0.05)
    some = np.where(np.random.default_rng(0).random(labels.shape) < 0.3, np.nan, labels)
    found = MultilabelCalibrator().fit(scores, some).predict_proba(scores)
    assert log_loss(found, labels) < log_loss(1.0 / (1.0 + np.exp(-scores)), labels)


def test_a_label_without_positives_stays_modest() -> None:
    scores, labels = tags(400)
    labels[:, 0] = 0
    proba = MultilabelCalibrator().fit(scores, labels).predict_proba(scores)
    assert 0.0 < proba[:, 0].mean() < 0.05


def test_few_examples_keep_the_probabilities_and_none_is_certain() -> None:
    scores, labels = tags(9)
    with pytest.warns(
        hokical.FitDataWarning, match=r"9 examples are too few \(at least 10"
    ):
        cal = MultilabelCalibrator().fit(scores, labels)
    assert cal.reason_.startswith("the probabilities were kept")
    np.testing.assert_allclose(cal.predict_proba(scores), 1.0 / (1.0 + np.exp(-scores)))
    proba = MultilabelCalibrator().fit(
        scores.repeat(9, axis=0), (scores > 0).repeat(9, axis=0)
    )
    extreme = proba.predict_proba(np.where(scores > 0, np.inf, -np.inf))
    assert ((extreme > 0.0) & (extreme < 1.0)).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("digits", [0, 1, 2])
def test_rounded_probabilities_are_as_sure_as_their_examples(digits: int) -> None:
    def rounded(n: int, seed: int) -> tuple[Any, Any]:
        scores, labels = tags(n, seed)
        return np.round(1.0 / (1.0 + np.exp(-scores)), digits), labels

    given, labels = rounded(3000, 1)
    cal = MultilabelCalibrator().fit(from_binary_probabilities(given), labels)
    new, truth = rounded(20_000, 2)
    proba = cal.predict_proba(from_binary_probabilities(new))
    np.testing.assert_array_equal(
        cal.predict_proba(np.where(new == 0, -np.inf, np.where(new == 1, np.inf, 0.0)))[
            new == 1
        ],
        proba[new == 1],
    )
    for value in (0.0, 1.0):
        pile, known = new == value, (given == value).sum()
        share = truth[pile].mean()
        assert abs(proba[pile].mean() - share) < 4.0 * np.sqrt(
            share * (1.0 - share) / known
        )
    ideal = np.empty(proba.shape)  # knows how often each value is there, for each label
    for k in range(N_LABELS):
        place = np.unique(new[:, k], return_inverse=True)[1]
        ideal[:, k] = (np.bincount(place, truth[:, k]) / np.bincount(place))[place]
    ideal = np.clip(ideal, 1e-9, 1.0 - 1e-9)
    flattered = (
        0.5 * (10**digits + 1) / len(new)
    )  # as it knows them from the same examples
    assert log_loss(proba, truth) - log_loss(ideal, truth) < 0.001 + flattered


def test_no_score_is_surer_than_the_fit_bears_out(fitted: Any) -> None:
    extreme = fitted.predict_proba(
        np.array([[-np.inf], [np.inf]]).repeat(N_LABELS, axis=1)
    )
    seen = tags(600)[0]
    assert extreme[0].min() > 1e-6
    assert extreme[1].max() < 1.0 - 1e-6
    assert fitted.rule_.ends[0] <= seen.min() < seen.max() <= fitted.rule_.ends[1]
    one = MultilabelCalibrator().fit(
        np.full((50, 2), np.inf), np.arange(100).reshape(50, 2) % 3 > 0
    )
    np.testing.assert_allclose(one.predict_proba([[np.inf, np.inf]]), 2 / 3, atol=0.05)


def test_answers_in_other_libraries(fitted: Any) -> None:
    scores = tags(50, 3)[0]
    wanted = fitted.predict_proba(scores)
    torch = pytest.importorskip("torch")
    given = torch.tensor(scores, requires_grad=True)
    found = fitted.predict_proba(given)
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12)
    found.sum().backward()
    assert torch.isfinite(given.grad).all()
    assert fitted.predict(given).dtype == torch.bool
    jax = pytest.importorskip("jax")
    answer = fitted.predict_proba(jax.numpy.asarray(scores, dtype="float32"))
    np.testing.assert_allclose(np.asarray(answer), wanted, rtol=2e-5)


def test_as_a_torch_module(fitted: Any) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    scores = tags(50, 3)[0]
    wanted, module = fitted.predict_proba(scores), as_module(fitted)
    np.testing.assert_allclose(module(torch.tensor(scores)).numpy(), wanted, rtol=1e-12)
    narrow = module.half()(torch.tensor(scores, dtype=torch.float32))
    assert narrow.dtype == torch.float32
    np.testing.assert_allclose(narrow.numpy(), wanted, rtol=2e-5)
    with pytest.raises(ValueError, match="must have 12 labels"):
        module(torch.zeros(4, 3))


def test_least_cost(fitted: Any) -> None:
    scores = tags(200, 4)[0]
    proba = fitted.predict_proba(scores)
    np.testing.assert_array_equal(fitted.predict(scores), proba >= 0.5)
    np.testing.assert_array_equal(
        fitted.predict(scores, costs=(1.0, 9.0)), proba >= 0.1
    )
    by_label = np.ones((N_LABELS, 2))
    by_label[3, 1] = 4.0
    found = fitted.predict(scores, costs=by_label)
    np.testing.assert_array_equal(found[:, 3], proba[:, 3] >= 0.2)
    with pytest.raises(ValueError, match="`costs` must be positive"):
        fitted.predict(scores, costs=(1.0, 0.0))


@pytest.mark.slow
def test_recall_keeps_its_guarantee() -> None:
    cal = MultilabelCalibrator().fit(*tags(600))
    test, truth = tags(40_000, 5)
    kept = []
    for seed in range(40):
        cal.certify(*tags(400, 1000 + seed))
        found = cal.predict_proba(test) >= cal.recall_thresholds(0.8, delta=0.2)
        kept.append([found[truth[:, k] == 1, k].mean() >= 0.8 for k in range(N_LABELS)])
    shares = np.mean(kept, axis=0)
    # Twelve labels, forty draws: three standard errors below 1 - delta.
    assert shares.min() >= 0.8 - 3.0 * np.sqrt(0.8 * 0.2 / 40)
    few = cal.certify(*tags(5, 1)).recall_thresholds(0.9)
    assert (few == 0.0).any()
    assert (cal.predict_proba(test[:3]) >= few)[:, few == 0.0].all()


@pytest.mark.slow
def test_sets_keep_their_guarantee() -> None:
    """Over draws of the certified examples: three standard errors below what is
    guaranteed.
    """
    cal = MultilabelCalibrator().fit(*tags(600))
    test, truth = tags(20_000, 5)
    there = truth == 1
    rows, labels, sure = [], [], []
    for seed in range(60):
        cal.certify(*tags(300, 1000 + seed))
        sets = cal.predict_set(test, coverage=0.8)
        rows.append(
            (sets.possible | ~there).all(axis=1) & (~sets.inside | there).all(axis=1)
        )
        sets = cal.predict_set(test, coverage=0.8, by="label")
        kept = [
            np.where(there, sets.possible, np.nan),
            np.where(there, np.nan, ~sets.inside),
        ]
        labels.append([np.nanmean(part, axis=0) for part in kept])
        sets = cal.predict_set(test, coverage=0.8, by="label", delta=0.2)
        sure.append([np.nanmean(np.where(there, sets.possible, np.nan), axis=0) >= 0.8])
    kept = np.mean(rows, axis=1)
    assert 0.8 - 3.0 * kept.std() / np.sqrt(60) <= kept.mean() <= 0.8 + 1.0 / 301 + 0.01
    found = np.array(labels)
    assert (
        found.mean(axis=0) >= 0.8 - 3.0 * found.std(axis=0) / np.sqrt(60) - 1e-9
    ).all()
    assert np.mean(sure, axis=0).min() >= 0.8 - 3.0 * np.sqrt(0.8 * 0.2 / 60)


def test_sets_by_hand(fitted: Any, tmp_path: Path) -> None:
    scores, labels = tags(200, 8)
    cal = MultilabelCalibrator().fit(*tags(600)).certify(scores, labels)
    proba, new = cal.predict_proba(scores), tags(50, 9)[0]
    said = cal.predict_proba(new)
    worst = np.sort(np.where(labels == 1, 1.0 - proba, proba).max(axis=1))[181 - 1]
    sets = cal.predict_set(new, coverage=0.9)
    np.testing.assert_array_equal(sets.inside, said > worst)
    np.testing.assert_array_equal(sets.outside, said < 1.0 - worst)
    np.testing.assert_array_equal(sets.open, (said <= worst) & (said >= 1.0 - worst))
    k = N_LABELS - 1
    own = np.sort(proba[labels[:, k] == 1, k])[::-1]
    needed = int(np.ceil((own.size + 1) * 0.9))
    sets = cal.predict_set(new, coverage=0.9, by="label")
    np.testing.assert_array_equal(sets.outside[:, k], said[:, k] < own[needed - 1])
    assert not (sets.inside & sets.outside).any()
    few = MultilabelCalibrator().fit(*tags(600)).certify(scores[:4], labels[:4])
    for by in ("row", "label"):
        assert few.predict_set(new, coverage=0.9, by=by).open.all()
    assert (
        "12 are never out and 12 are never in"
        in few.predict_set(new, coverage=0.9).guarantee
    )
    cal.save(tmp_path / "cal.json")
    twin = hokical.load(tmp_path / "cal.json").predict_set(
        new, coverage=0.9, by="label"
    )
    np.testing.assert_array_equal(twin.open, sets.open)
    torch = pytest.importorskip("torch")
    found = cal.predict_set(
        torch.tensor(new, dtype=torch.float32), coverage=0.9, by="label"
    )
    np.testing.assert_array_equal(found.open.numpy(), sets.open)
    with pytest.raises(
        ValueError,
        match=r"`by` must be one of \['row', 'label', 'group', 'new group'\]; got 'class'",
    ):
        cal.predict_set(new, coverage=0.9, by="class")


def test_files(fitted: Any, tmp_path: Path) -> None:
    cal = MultilabelCalibrator().fit(*tags(300)).certify(*tags(300, 8))
    cal.save(tmp_path / "cal.json")
    twin = hokical.load(tmp_path / "cal.json")
    scores = tags(20, 9)[0]
    np.testing.assert_array_equal(twin.predict_proba(scores), cal.predict_proba(scores))
    np.testing.assert_array_equal(
        twin.recall_thresholds(0.8), cal.recall_thresholds(0.8)
    )
    assert twin.reason_ == cal.reason_


def test_errors(fitted: Any) -> None:
    scores, labels = tags(30)
    with pytest.raises(ValueError, match="one column per label of the fit, 12; got 3"):
        fitted.predict_proba(scores[:, :3])
    with pytest.raises(ValueError, match=r"For one class per row use `hokical\.auto`"):
        MultilabelCalibrator().fit(scores, labels[:, 0])
    with pytest.raises(
        ValueError, match=r"must be 0, 1 or NaN \(not known\); got 2 in row 0"
    ):
        MultilabelCalibrator().fit(scores, labels * 0 + 2)
    bad = scores.copy()
    bad[2, 1] = np.nan
    with pytest.raises(
        ValueError, match="must not hold NaN; got nan in row 2, column 1"
    ):
        fitted.predict_proba(bad)
    with pytest.raises(ValueError, match="Call `certify"):
        fitted.recall_thresholds(0.9)
    with pytest.raises(ValueError, match="NaN everywhere"):
        MultilabelCalibrator().fit(scores, labels * np.nan)
    with pytest.raises(ValueError, match="not fitted"):
        MultilabelCalibrator().predict_proba(scores)
    with pytest.raises(
        ValueError, match=r"must lie in \[0, 1\]; got 1.5 in row 0, column 1"
    ):
        from_binary_probabilities([[0.5, 1.5]])


def test_other_calibrators_name_this_one() -> None:
    scores, labels = tags(40)
    with pytest.raises(
        ValueError, match=r"a multilabel problem, for `hokical\.MultilabelCalibrator`"
    ):
        hokical.auto(scores, labels)
    one_hot = np.eye(N_LABELS, dtype=int)[np.arange(40) % N_LABELS]
    cal = hokical.auto(scores, one_hot)  # are labels
    with pytest.raises(ValueError, match=r"one-hot rows use `.argmax\(axis=1\)`"):
        cal.certify(scores + 0.1, one_hot)
    with pytest.raises(TypeError, match=r"0\.5 in row 1 .*regression target"):
        hokical.auto(scores[:2], np.array([1.0, 0.5]))
    with pytest.raises(TypeError, match=r"become integers by `.astype\(int\)`"):
        hokical.auto(scores[:2], np.array([1.0, 0.0]))


def test_log_odds_of_probabilities_of_any_shape() -> None:
    p = np.random.default_rng(0).random((2, 3, 4))
    found = from_binary_probabilities(p)
    assert found.shape == p.shape
    np.testing.assert_allclose(1.0 / (1.0 + np.exp(-found)), p)


def test_examples_to_certify_may_be_of_any_library(fitted: Any) -> None:
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    scores, labels = tags(500, 7)
    expected = fitted.certify(scores, labels).recall_thresholds(0.8)
    kinds = (jax.numpy.asarray(scores), torch.tensor(scores, requires_grad=True))
    for given in kinds:
        found = fitted.certify(given, labels).recall_thresholds(0.8)
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_what_looks_wrong_is_said(fitted: Any) -> None:
    scores, labels = tags(200)
    with pytest.warns(hokical.FitDataWarning, match="look like probabilities"):
        MultilabelCalibrator().fit(1.0 / (1.0 + np.exp(-scores)), labels)
    with pytest.raises(ValueError, match=r"shape \(2,\) or \(12, 2\); got \(1, 2, 3\)"):
        fitted.predict(scores, costs=(1, 2, 3))
    with pytest.warns(
        hokical.FitDataWarning, match="all 2400 labels are 0; the probabilities are"
    ):
        none = MultilabelCalibrator().fit(scores, 0 * labels)
    assert "all 2400 labels are 0" in none.reason_


def test_rows_of_the_fit_cannot_certify_it(tmp_path: Path) -> None:
    scores, labels = tags(300)
    MultilabelCalibrator().fit(scores, labels).save(tmp_path / "cal.json")
    cal = hokical.load(tmp_path / "cal.json")
    with pytest.raises(ValueError, match=r"`scores` must be of .* got rows of the fit"):
        cal.certify(scores[::-2].astype(np.float32), labels[::-2])
    assert cal.certify(scores, labels, reused="ignore").held_out_ is not None
    with pytest.raises(
        ValueError, match=r"`reused` must be one of \['refuse', 'ignore'\]"
    ):
        cal.certify(scores, labels, reused="yes")
    assert cal.certify(*tags(300, 8)).held_out_ is not None


def test_labels_that_share_some_names_with_scores_must_share_all() -> None:
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    labels = pd.DataFrame(rng.integers(2, size=(60, 3)), columns=list("abc"))
    cal = MultilabelCalibrator()
    with pytest.raises(ValueError, match=r"`labels` must have .*Rename them, or pass"):
        cal.fit(scores, labels[["c", "b", "a"]].rename(columns={"b": "bb"}))
    cal.fit(scores, labels.rename(columns=str.upper))  # other names: by place
