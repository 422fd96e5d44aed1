"""The summary: its values, its bootstrap, its bounds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given

from hokical import calibration_bound, metrics
from hokical.metrics import METRICS, _bootstrap
from hokical.metrics._bootstrap import Resampler, resample
from hokical.metrics._examples import Predictions, as_examples
from hokical.metrics._metric import SummaryOptions
from tests.conftest import max_examples

from . import twins

VALUES = {
    "accuracy": lambda c, y, **k: np.average(y, weights=k["sample_weight"]),
    "mean_confidence": lambda c, y, **k: np.average(c, weights=k["sample_weight"]),
    "ece": metrics.ece,
    "ece_mass": lambda c, y, **k: metrics.ece(c, y, bins="mass", **k),
    "debiased_ece": metrics.debiased_ece,
    "smooth_ece": metrics.smooth_ece,
    "brier": metrics.brier,
    "log_loss": lambda c, y, **k: metrics.log_loss(c, y, clip=1e-9, **k),
    "auroc": metrics.auroc,
    "aurc": metrics.aurc,
    "selective_risk": metrics.selective_risk,
}


def data_with_classes(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(13)
    proba = rng.dirichlet(np.full(n_classes, 0.2), size=n)
    return proba, (proba.cumsum(axis=1) > rng.uniform(size=(n, 1))).argmax(axis=1)


def row_counts(drawn: Resampler, counts: np.ndarray) -> np.ndarray:
    """How often each example was drawn, (draws, n), from the counts of blocks."""
    rows = np.empty((counts.shape[0], drawn.order.shape[0]))
    rows[:, drawn.order] = counts[:, drawn.block]
    return rows


@max_examples(40)
@given(twins.rows)
def test_a_resample_is_the_metric_under_its_counts(data: list) -> None:
    confidence, correct, _ = twins.unpack(data)
    n, options = len(data), SummaryOptions()
    counts = np.random.default_rng(n).multinomial(n, np.full(n, 1 / n), size=3).astype(float)
    drawn = Resampler.from_examples(as_examples(confidence, correct))
    levels = drawn.levels(counts)
    for name in ("ece", "ece_mass", "auroc", "aurc", "selective_risk"):
        found = METRICS[name].function(levels, options)
        for row, count in enumerate(row_counts(drawn, counts)):
            expected = float(VALUES[name](confidence, correct, sample_weight=count))
            assert found[row] == pytest.approx(expected, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("n_blocks", [7, 1000])
def test_resamples_of_vectors_are_the_metrics_under_their_counts(
    n_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bootstrap, "MOST_BLOCKS", n_blocks)
    proba, labels = data_with_classes(60, 4)
    weight = np.random.default_rng(1).exponential(size=60)
    data = Predictions(proba, labels, weight)
    options = SummaryOptions(n_resamples=3)
    found = resample(data.top_label, data, options)
    drawn = Resampler.from_examples(data.top_label, options.seed, options.n_bins)
    (counts,) = drawn.batches(3, options.seed)
    for row, count in enumerate(row_counts(drawn, counts)):
        for name in ("brier", "log_loss", "classwise_ece", "ece", "auroc"):
            expected = getattr(metrics, name)(proba, labels, sample_weight=count * weight)
            assert found[name][row] == pytest.approx(expected, rel=1e-12), name


def test_blocks_give_the_intervals_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends differ as those of two seeds do: by a tenth of the width or so."""
    monkeypatch.setattr(_bootstrap, "MOST_BLOCKS", 2000)
    confidence, correct = twins.model(2000, seed=21)
    weight = np.random.default_rng(2).exponential(size=2000)
    by_row = metrics.summary(confidence, correct, n_resamples=400, sample_weight=weight)
    monkeypatch.setattr(_bootstrap, "MOST_BLOCKS", 500)
    monkeypatch.setattr(_bootstrap, "_MOST_LEVELS", 300)
    by_block = metrics.summary(confidence, correct, n_resamples=400, sample_weight=weight)
    for name, found in by_row.estimates.items():
        width = found.high - found.low
        assert by_block[name].value == found.value
        if math.isnan(width):
            continue
        assert by_block[name].low == pytest.approx(found.low, abs=0.3 * width), name
        assert by_block[name].high == pytest.approx(found.high, abs=0.3 * width), name


@max_examples(40)
@given(twins.rows)
def test_an_interval_holds_its_value(data: list) -> None:
    confidence, correct, weight = twins.unpack(data)
    result = metrics.summary(confidence, correct, n_resamples=8, sample_weight=weight)
    for name, found in result.estimates.items():
        if not math.isnan(found.low):
            assert found.low <= found.value <= found.high, name
            assert found.low <= (found.corrected or 0.0) <= found.high or found.corrected is None


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_the_functions(weighted: bool) -> None:
    confidence, correct = twins.model(700, seed=14)
    weight = np.random.default_rng(1).exponential(size=700) if weighted else None
    result = metrics.summary(confidence, correct, clip=1e-9, n_resamples=50, sample_weight=weight)
    assert set(result.estimates) == set(VALUES)
    for name, metric in VALUES.items():
        expected = float(metric(confidence, correct, sample_weight=weight))
        assert result[name].value == pytest.approx(expected, rel=1e-10), name
        if METRICS[name].interval is None:
            assert math.isnan(result[name].low), name
            continue
        assert 0.0 <= result[name].low < result[name].high, name
    assert bool(result.bounds) is not weighted


def test_bounds_are_those_of_the_core() -> None:
    confidence, correct = twins.model(700, seed=15)
    result = metrics.summary(confidence, correct, n_bins=10, delta=0.01, n_resamples=0)
    error, score = metrics.ece(confidence, correct, n_bins=10), metrics.brier(confidence, correct)
    assert result.bounds == {
        "mcdiarmid": calibration_bound(error, 700, 10, 0.01, brier=score),
        "bousquet": calibration_bound(error, 700, 10, 0.01, method="bousquet", brier=score),
        "union": calibration_bound(error, 700, 10, 0.01, method="union"),
        "paper": calibration_bound(error, 700, 10, 0.01, method="paper"),
    }


def test_probabilities_of_all_classes_are_scored() -> None:
    pair = data_with_classes(400, 5)
    result = metrics.summary(*pair, n_resamples=100)
    assert result.vectors
    for name in ("brier", "log_loss", "classwise_ece"):
        assert result[name].value == pytest.approx(getattr(metrics, name)(*pair), rel=1e-14)
        assert result[name].low < result[name].high
    top = pair[0].max(axis=1), pair[0].argmax(axis=1) == pair[1]
    of_label = metrics.summary(*top, n_resamples=0)
    assert not of_label.vectors
    assert result.bounds == of_label.bounds


def test_too_much_classwise_work_gives_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bootstrap, "CLASSWISE_CELLS", 1000)
    result = metrics.summary(*data_with_classes(100, 3), n_resamples=10)
    assert math.isnan(result["classwise_ece"].low)
    assert result["brier"].low < result["brier"].high


def test_the_seed_decides_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    confidence, correct = twins.model(300, seed=16)
    confidence = confidence.round(2)
    first = metrics.summary(confidence, correct, n_resamples=40, random_state=3)
    np.random.default_rng().uniform(size=10)
    assert str(metrics.summary(confidence, correct, n_resamples=40, random_state=3)) == str(first)
    assert str(metrics.summary(confidence, correct, n_resamples=40, random_state=4)) != str(first)
    order = np.random.default_rng(2).permutation(300)
    monkeypatch.setattr(_bootstrap, "_BATCH", 700)
    mixed = metrics.summary(confidence[order], correct[order], n_resamples=40, random_state=3)
    for name, estimate in first.estimates.items():
        assert mixed[name].low == pytest.approx(estimate.low, abs=1e-12, nan_ok=True), name
        assert mixed[name].high == pytest.approx(estimate.high, abs=1e-12, nan_ok=True), name


def test_intervals_of_a_mean_have_the_textbook_width() -> None:
    confidence, correct = twins.model(2000, seed=18)
    interval = metrics.summary(confidence, correct, n_resamples=1000)["brier"]
    expected = 2 * 1.96 * np.std((correct - confidence) ** 2) / np.sqrt(2000)
    assert interval.high - interval.low == pytest.approx(expected, rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.08])
def test_intervals_hold_the_true_error(shift: float) -> None:
    """Coverage of a true ECE of 0 and 0.08: 95 % aimed at, at least 85 %."""
    rng = np.random.default_rng(19)
    held = 0
    for seed in range(30):
        confidence = rng.uniform(0.4, 1.0, size=400)
        correct = rng.uniform(size=400) < confidence - shift
        estimate = metrics.summary(confidence, correct, n_resamples=60, random_state=seed)["ece"]
        held += estimate.low <= shift <= estimate.high
    assert held >= 25


@pytest.mark.parametrize(
    ("confidence", "correct"),
    [
        ([0.5], [True]),
        ([1.0, 1.0], [True, True]),
        ([0.0, 1.0], [True, False]),
        ([0.3] * 5, [0] * 5),
    ],
)
def test_degenerate_data_gives_numbers_not_warnings(confidence: list, correct: list) -> None:
    result = metrics.summary(confidence, correct, n_resamples=20)
    for name, estimate in result.estimates.items():
        if name == "auroc" and len(set(correct)) == 1:
            assert math.isnan(estimate.value)
        elif name == "log_loss" and confidence == [0.0, 1.0]:
            assert estimate == metrics.Estimate(math.inf, math.inf, math.inf)
        elif METRICS[name].interval is not None:
            assert 0.0 <= estimate.low <= estimate.high, name


def test_it_prints_and_turns_into_plain_data() -> None:
    confidence, correct = twins.model(300, seed=20)
    result = metrics.summary(confidence, correct, n_resamples=20)
    text = str(result)
    assert text.startswith("300 examples, 95% intervals\naccuracy ")
    assert "true calibration error <" in text
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["estimates"]["ece"]["value"] == result["ece"].value
    assert plain["options"]["seed"] == 0
    with pytest.raises(KeyError, match="no metric 'ECE' in this summary"):
        result["ECE"]


def test_no_resamples_no_intervals() -> None:
    estimate = metrics.summary([0.5, 0.9], [True, False], n_resamples=0)["ece"]
    assert estimate.value == pytest.approx(0.7)
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "`delta` must lie strictly between 0 and 1; got 0.0"),
        ({"n_resamples": -1}, "`n_resamples` must be an integer of at least 0; got -1"),
        ({"random_state": None}, "`random_state` must be an integer of at least 0; got None"),
        ({"coverage": 0.0}, "`coverage` must be above 0 and at most 1; got 0.0"),
    ],
)
def test_bad_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.summary([0.5], [True], **options)


def test_the_ranked_score_of_classes_in_order() -> None:
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(4), size=400)
    labels = rng.integers(4, size=400)
    weight = rng.integers(0, 3, size=400)
    options = {"sample_weight": weight, "n_resamples": 200}
    found = metrics.summary(proba, labels, **options, ordered=True)["ranked_probability_score"]
    exact = metrics.ranked_probability_score(proba, labels, sample_weight=weight)
    assert found.value == pytest.approx(exact, rel=1e-12)
    assert found.low < exact < found.high
    assert "ranked_probability_score" not in metrics.summary(proba, labels, **options).estimates
    with pytest.raises(ValueError, match=r"`ordered` needs `proba` \(n, classes\)"):
        metrics.summary(proba.max(axis=1), labels == 0, ordered=True)
