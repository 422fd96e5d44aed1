"""The summary: its values, its intervals, its bounds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import calibration_bound, metrics
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


@max_examples(40)
@given(twins.rows)
def test_an_interval_holds_its_value(data: list) -> None:
    confidence, correct, weight = twins.unpack(data)
    result = metrics.summary(confidence, correct, sample_weight=weight)
    for name, found in result.estimates.items():
        if not math.isnan(found.low):
            assert found.low <= found.value <= found.high, name


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_the_functions(weighted: bool) -> None:
    confidence, correct = twins.model(700, seed=14)
    weight = np.random.default_rng(1).exponential(size=700) if weighted else None
    result = metrics.summary(confidence, correct, sample_weight=weight)
    assert set(result.estimates) == set(VALUES)
    for name, metric in VALUES.items():
        expected = float(metric(confidence, correct, sample_weight=weight))
        assert result[name].value == pytest.approx(expected, rel=1e-10), name
        assert math.isnan(result[name].low) or result[name].low < result[name].high, (
            name
        )
    assert bool(result.bounds) is not weighted


def test_bounds_are_those_of_the_core() -> None:
    confidence, correct = twins.model(700, seed=15)
    result = metrics.summary(confidence, correct, n_bins=10, delta=0.01)
    error, score = (
        metrics.ece(confidence, correct, n_bins=10),
        metrics.brier(confidence, correct),
    )
    assert result.bounds == {
        "mcdiarmid": calibration_bound(error, 700, 10, 0.01, brier=score),
        "bousquet": calibration_bound(
            error, 700, 10, 0.01, method="bousquet", brier=score
        ),
        "union": calibration_bound(error, 700, 10, 0.01, method="union"),
        "paper": calibration_bound(error, 700, 10, 0.01, method="paper"),
    }


def test_probabilities_of_all_classes_are_scored() -> None:
    pair = data_with_classes(400, 5)
    result = metrics.summary(*pair)
    assert result.vectors
    for name in ("brier", "log_loss", "classwise_ece"):
        assert result[name].value == pytest.approx(
            getattr(metrics, name)(*pair), rel=1e-14
        )
        assert name == "classwise_ece" or result[name].low < result[name].high
    top = pair[0].max(axis=1), pair[0].argmax(axis=1) == pair[1]
    of_label = metrics.summary(*top)
    assert not of_label.vectors
    assert result.bounds == of_label.bounds


@max_examples(20)
@given(twins.rows, st.randoms(use_true_random=False))
def test_intervals_do_not_depend_on_the_order_of_rows(
    data: list, random: object
) -> None:
    mixed = list(data)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    first, second = (metrics.summary(*twins.unpack(rows)[:2]) for rows in (data, mixed))
    assert str(first) == str(second)


def test_weights_of_one_size_change_no_interval() -> None:
    confidence, correct = twins.model(300, seed=16)
    plain = metrics.summary(confidence, correct)
    same = metrics.summary(confidence, correct, sample_weight=np.full(300, 2.5))
    for name, estimate in plain.estimates.items():
        if name not in (
            "aurc",
            "debiased_ece",
        ):  # which read weights as numbers of rows
            ends = [(found.low, found.high) for found in (same[name], estimate)]
            np.testing.assert_allclose(*ends, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("unit", [1e-310, 1e-200, 1e200])
@pytest.mark.parametrize("clusters", [None, np.arange(60) // 3])
def test_weights_without_squares_have_no_intervals(
    unit: float, clusters: np.ndarray | None
) -> None:
    proba, labels = data_with_classes(60, 3)
    weight = unit * np.random.default_rng(0).uniform(0.5, 2.0, 60)
    with pytest.raises(ValueError, match="divide them by their largest"):
        metrics.summary(proba, labels, sample_weight=weight, cluster=clusters)
    scaled = weight / weight.max()
    found = metrics.summary(proba, labels, sample_weight=scaled, cluster=clusters)
    accuracy = metrics.summary(proba, labels, sample_weight=0.1 * scaled)["accuracy"]
    assert found["accuracy"].value == pytest.approx(accuracy.value)


def test_unequal_weights_widen_intervals() -> None:
    confidence, correct = twins.model(3000, seed=16)
    weight = np.random.default_rng(0).exponential(size=3000)
    plain = metrics.summary(confidence, correct)
    weighted = metrics.summary(confidence, correct, sample_weight=weight)
    for name in ("accuracy", "brier", "log_loss", "auroc", "ece"):
        widths = [found[name].high - found[name].low for found in (plain, weighted)]
        assert widths[0] < widths[1] < 2.0 * widths[0], name


def test_intervals_of_a_mean_have_the_textbook_width() -> None:
    confidence, correct = twins.model(2000, seed=18)
    interval = metrics.summary(confidence, correct)["brier"]
    expected = 2 * 1.96 * np.std((correct - confidence) ** 2) / np.sqrt(2000)
    assert interval.high - interval.low == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("confidence", "correct"),
    [
        ([0.5], [True]),
        ([1.0, 1.0], [True, True]),
        ([0.0, 1.0], [True, False]),
        ([0.3] * 5, [0] * 5),
    ],
)
def test_degenerate_data_gives_numbers_not_warnings(
    confidence: list, correct: list
) -> None:
    result = metrics.summary(confidence, correct)
    for name, estimate in result.estimates.items():
        if name == "auroc" and len(set(correct)) == 1:
            assert math.isnan(estimate.value)
        elif name == "log_loss" and confidence == [0.0, 1.0]:
            assert estimate.value == math.inf
            assert math.isnan(estimate.low)
            assert "in 2 of 2 examples" in estimate.reason
        else:
            assert math.isfinite(estimate.value)
            assert math.isnan(estimate.low) or 0.0 <= estimate.low <= estimate.high, (
                name
            )


def test_it_prints_and_turns_into_plain_data() -> None:
    confidence, correct = twins.model(300, seed=20)
    result = metrics.summary(confidence, correct)
    text = str(result)
    assert text.startswith("300 examples, 95% intervals\naccuracy ")
    assert "true calibration error <" in text
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["estimates"]["ece"]["value"] == result["ece"].value
    assert plain["options"]["n_bins"] == 15
    with pytest.raises(KeyError, match="no metric 'ECE' in this summary"):
        result["ECE"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "`delta` must lie strictly between 0 and 1; got 0.0"),
        ({"n_bins": 0}, "`n_bins` must be an integer of at least 1; got 0"),
    ],
)
def test_bad_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.summary([0.5], [True], **options)


def test_very_sure_and_right_predictions_have_values() -> None:
    """The cubes of their losses are too small for floats."""
    sure = np.exp(-150.0 - np.arange(40) / 100)
    found = metrics.summary(np.stack([sure, np.ones(40)], axis=1), np.ones(40, int))
    assert found["brier"].value < 1e-100
    assert (
        found["brier"].low < 1e-100 < 0.01 < found["brier"].high
    )  # an error may come yet
