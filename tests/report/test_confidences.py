"""Confidences and signals of answers: cross-fitted, and compared on the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import ConfidenceCalibrator
from hokical.report.confidences import assign_folds


def answers(n: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A rounded, overconfident signal and a sharper one, of which some are missing."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n)
    right = rng.logistic(size=n) < 1.5 * odds
    stated = np.clip(np.round(0.8 + 0.1 * (odds + rng.normal(size=n)), 2), 0.01, 0.99)
    agreed = 1.0 / (1.0 + np.exp(-(2.0 * odds + 1.0 + 0.7 * rng.normal(size=n))))
    partial = np.where(rng.random(n) < 0.2, np.nan, agreed)
    return {
        "stated": stated,
        "agreed": agreed,
        "both": np.column_stack([stated, partial]),
    }, right


@pytest.mark.slow
def test_folds_of_confidences_are_predicted_by_fits_on_the_others() -> None:
    signals, right = answers(200, 0)
    found = hokical.evaluate(ConfidenceCalibrator(), signals["stated"], right, folds=5)
    assert found.folds == 5
    assert found.n == 200
    assert found.before is not None
    assert found.score("log_loss") < found.before.score("log_loss")
    assert "Cross-fitted in 5 folds" in found.headline
    assert not found.summary.bounds
    whole = hokical.calibrate_confidence(signals["stated"], right)
    np.testing.assert_array_equal(
        found.calibrator.predict(signals["stated"]), whole.predict(signals["stated"])
    )
    fold = assign_folds(right.astype(int), 5)
    for number in range(5):
        others = fold != number
        cal = hokical.calibrate_confidence(signals["stated"][others], right[others])
        proba = cal.predict(signals["stated"][~others])
        losses = -np.log(np.where(right[~others], proba, 1.0 - proba))
        np.testing.assert_allclose(found.row_scores["log_loss"][~others], losses)


@pytest.mark.slow
def test_cross_fitted_losses_are_those_of_new_answers() -> None:
    gaps = []
    for seed in range(8):
        signals, right = answers(150, seed)
        new, truth = answers(4000, 100 + seed)
        stated = signals["agreed"]
        found = hokical.evaluate(ConfidenceCalibrator(), stated, right, folds=5)
        loss = hokical.metrics.log_loss(found.calibrator.predict(new["agreed"]), truth)
        gaps.append(found.score("log_loss") - loss)
    assert abs(np.mean(gaps)) < 3.0 * np.std(gaps) / np.sqrt(8)


@pytest.mark.slow
def test_folds_take_scales_weights_groups_and_clusters() -> None:
    signals, right = answers(300, 0)
    topic = np.where(np.arange(300) % 2 == 0, "law", "art")
    weights = np.where(np.arange(300) < 150, 1.0, 2.0)
    question = np.arange(300) // 3
    percent = hokical.evaluate(
        ConfidenceCalibrator(scale=100),
        100.0 * signals["stated"],
        right,
        weights,
        groups=topic,
        cluster=question,
        folds=5,
    )
    plain = hokical.evaluate(
        ConfidenceCalibrator(),
        signals["stated"],
        right,
        weights,
        groups=topic,
        cluster=question,
        folds=5,
    )
    assert percent.score("log_loss") == pytest.approx(plain.score("log_loss"), rel=1e-6)
    assert plain.data.n_clusters == 100
    with pytest.raises(ValueError, match="`folds` must be an integer from 2 to 100"):
        hokical.evaluate(
            ConfidenceCalibrator(),
            signals["stated"],
            right,
            cluster=question,
            folds=101,
        )
    with pytest.raises(TypeError, match="`coverage` cannot be given for confidences"):
        hokical.evaluate(
            ConfidenceCalibrator(), signals["stated"], right, folds=5, coverage=0.9
        )


@pytest.mark.parametrize("n", [10, 97])
def test_folds_have_the_same_share_of_each_class(n: int) -> None:
    labels = np.random.default_rng(0).integers(3, size=n)
    fold = assign_folds(labels, 5)
    sizes = np.bincount(fold, minlength=5)
    assert np.ptp(sizes) <= 1
    for label in range(3):
        assert np.ptp(np.bincount(fold[labels == label], minlength=5)) <= 2


def test_rows_of_a_cluster_are_in_one_fold() -> None:
    cluster = np.random.default_rng(0).integers(40, size=200)
    fold = assign_folds(np.zeros(200, int), 4, cluster)
    assert all(np.unique(fold[cluster == k]).size == 1 for k in np.unique(cluster))
    assert np.unique(fold).size == 4


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_folds_of_logits_keep_clusters_together() -> None:
    """Copies of a row teach nothing about each other: a memory is not rewarded."""
    rng = np.random.default_rng(0)
    logits = np.repeat(rng.normal(size=(60, 3)), 5, axis=0)
    labels = np.repeat(rng.integers(3, size=60), 5)
    item = np.repeat(np.arange(60), 5)
    apart = hokical.evaluate("irova_ts", logits, labels, folds=5)
    together = hokical.evaluate("irova_ts", logits, labels, folds=5, cluster=item)
    assert together.score("brier") > apart.score("brier")


@pytest.mark.slow
def test_signals_are_compared_on_the_same_answers(tmp_path: Path) -> None:
    signals, right = answers(1200, 0)
    new, truth = answers(3000, 1)
    found = hokical.compare((signals, right), (new, truth))
    assert [result.name for result in found.results] == ["stated", "agreed", "both"]
    assert found.subject == "both"
    for result in found.results:
        cal = hokical.calibrate_confidence(signals[result.name], right)
        proba = cal.predict(new[result.name])
        assert result.score("log_loss") == pytest.approx(
            hokical.metrics.log_loss(proba, truth)
        )
        assert result.before is not None
        assert result.fit_seconds is not None
    against = {row.method: row for row in found.differences(against="stated")}
    assert against["agreed"].verdict == against["both"].verdict == "better"
    paired = found["agreed"].row_scores["brier"] - found["stated"].row_scores["brier"]
    brier = found.differences("brier", against="stated")[0]
    assert brier.value == pytest.approx(paired.mean())
    found.to_html(tmp_path / "report.html")
    assert found.validation.n_rows == 1200
    assert found.validation.kind == "confidences"
    assert found.to_dict()["subject"] == "both"


@pytest.mark.slow
def test_differences_of_signals_hold_as_often_as_they_say() -> None:
    """Twice the same signal with noise: a clear difference is as rare as promised."""
    wrong = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        odds = rng.normal(size=600)
        right = rng.logistic(size=600) < odds
        first, second = 1.0 / (1.0 + np.exp(-(odds + rng.normal(size=(2, 600)))))
        fit = {"first": first[:300], "second": second[:300]}
        test = {"first": first[300:], "second": second[300:]}
        found = hokical.compare((fit, right[:300]), (test, right[300:]))
        (difference,) = found.differences(delta=0.1)
        wrong += difference.verdict != "no clear difference"
    # The two fits differ by their own noise: 30 runs at 10 % give 3 on average.
    assert wrong <= 8


@pytest.mark.slow
def test_few_answers_are_compared_by_folds() -> None:
    signals, right = answers(400, 0)
    found = hokical.compare((signals, right), folds=5)
    assert all(result.folds == 5 for result in found.results)
    for result in found.results:
        alone = hokical.evaluate(
            ConfidenceCalibrator(), signals[result.name], right, folds=5
        )
        assert result.score("log_loss") == alone.score("log_loss")
    verdicts = {row.method: row.verdict for row in found.differences(against="stated")}
    assert verdicts == {"agreed": "better", "both": "better"}


def test_calibrators_are_compared_on_the_same_confidences() -> None:
    signals, right = answers(600, 0)
    new, truth = answers(600, 1)
    methods: dict[str, Any] = {
        "uncalibrated": "uncalibrated",
        "free": ConfidenceCalibrator(),
        "monotone": ConfidenceCalibrator(monotone=True),
    }
    pairs = (signals["stated"], right), (new["stated"], truth)
    found = hokical.compare(*pairs, methods, subject="free")
    assert [result.name for result in found.results] == [*methods]
    assert found["uncalibrated"].calibrator is None
    assert found["free"].score("log_loss") < found["uncalibrated"].score("log_loss")
    assert found.differences()[0].method == "uncalibrated"
    assert not methods["free"].is_fitted
    same = hokical.compare(*pairs, [ConfidenceCalibrator])
    assert same["confidence"].score("brier") == found["free"].score("brier")
    fitted = hokical.calibrate_confidence(signals["stated"], right)
    again = hokical.compare(*pairs, {"fitted": fitted})
    assert again["fitted"].calibrator is fitted


def test_groups_are_learned_and_audited() -> None:
    signals, right = answers(1500, 0)
    topic = np.where(np.arange(1500) % 2 == 0, "law", "art")
    right = right & ~((topic == "law") & (np.arange(1500) % 3 == 0))
    fit, test = slice(0, 1000), slice(1000, 1500)
    found = hokical.compare(
        (signals["agreed"][fit], right[fit]),
        (signals["agreed"][test], right[test]),
        [ConfidenceCalibrator()],
        groups=(topic[fit], topic[test]),
    )
    result = found["confidence"]
    assert result.groups is not None
    assert result.calibrator.rule_.coding is not None


def test_mistakes_are_named() -> None:
    signals, right = answers(100, 0)
    pair = (signals, right)
    with pytest.raises(TypeError, match=r"needs `test`, .* or `folds`; got neither"):
        hokical.compare(pair)
    with pytest.raises(TypeError, match="or `folds`; got both"):
        hokical.compare(pair, pair, folds=5)
    with pytest.raises(
        ValueError, match=r"confidences of `validation`.*got \['stated'"
    ):
        hokical.compare(pair, ({"stated": signals["stated"]}, right))
    with pytest.raises(ValueError, match="`subject` must be one of"):
        hokical.compare(pair, folds=5, subject="token")
    with pytest.raises(TypeError, match="calibrators of confidences or 'uncalibrated'"):
        hokical.compare(
            (signals["stated"], right), None, [ConfidenceCalibrator(), "auto"], folds=5
        )
    with pytest.raises(ValueError, match="different names; got 'confidence' twice"):
        hokical.compare(
            (signals["stated"], right), None, [ConfidenceCalibrator()] * 2, folds=5
        )
    with pytest.raises(TypeError, match="`coverage` cannot be given for confidences"):
        hokical.compare(pair, folds=5, coverage=0.9)
    with pytest.raises(TypeError, match="`folds`, which are for confidences"):
        hokical.compare((np.zeros((9, 2)), np.arange(9) % 2), folds=3)
    with pytest.raises(ValueError, match="one `ConfidenceCalibrator` for named"):
        hokical.compare(pair, None, [ConfidenceCalibrator(), "uncalibrated"], folds=5)
    missing = signals | {"agreed": np.where(right, signals["agreed"], np.nan)}
    for test, folds in ((None, 5), (pair, None)):
        with pytest.raises(ValueError, match=r"'agreed': `confidence` must .* got nan"):
            hokical.compare((missing, right), test, folds=folds)
    with pytest.raises(TypeError, match=r"got dict\. .* columns: pass `pandas.DataF"):
        hokical.calibrate_confidence(signals, right)
