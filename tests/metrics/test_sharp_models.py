"""Intervals of sharp models: few rows with an unexpected outcome decide them.

Nearly all of their probabilities are near 0 or 1, so samples without a surprise are
common, and say little about how frequent surprises are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit

from hokical import metrics
from hokical.metrics import intervals, summaries
from hokical.metrics.groups import event_p_value
from hokical.metrics.levels import Outcomes
from tests.conftest import hold_often, repetitions

TRIALS = repetitions(1000, 200)
#: (predicted probability, true probability, rows) of each part of a data set.
DESIGNS = {
    "calibrated, 45 events": [(0.97, 0.97, 45), (1e-4, 1e-4, 255)],
    "calibrated, 100 events": [(0.99, 0.99, 100), (1e-4, 1e-4, 900)],
    "too sure of events": [(0.9999, 0.98, 51), (1e-4, 1e-4, 149)],
    "too sure of both": [(0.99, 0.97, 50), (1e-4, 0.01, 150)],
    "log-odds twice too large": [
        (expit(8.0), expit(4.0), 100),
        (expit(-8.0), expit(-4.0), 100),
    ],
    "not sharp": [(0.1, 0.15, 300), (0.4, 0.4, 100)],
    "rare events, and rows at one half": [(0.5, 0.4, 12), (0.001, 0.002, 588)],
}


def repeat_design(design: Any) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true probabilities, (n,) each."""
    predicted, true, counts = zip(*design, strict=True)
    return np.repeat(predicted, counts), np.repeat(true, counts)


def true_values(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    share = true.mean()
    error = (true * (1.0 - predicted) ** 2 + (1.0 - true) * predicted**2).mean()

    def excess(shift: float) -> float:
        return float((expit(logit(predicted) + shift) - true).sum())

    surprise = -true * np.log(predicted) - (1.0 - true) * np.log1p(-predicted)
    return {
        "oe_ratio": share / predicted.mean(),
        "log_loss": surprise.mean(),
        "scaled_brier": 1.0 - error / (share * (1.0 - share)),
        "intercept": brentq(excess, -50.0, 50.0),
        "brier": error,
        "mean_probability": predicted.mean(),
    }


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", DESIGNS)
def test_intervals_hold(name: str) -> None:
    predicted, true = repeat_design(DESIGNS[name])
    truth = true_values(predicted, true)
    rng = np.random.default_rng(0)
    trials = repetitions(1000, 60)
    held = dict.fromkeys(truth, 0)
    of_classes = 0
    for _ in range(trials):
        outcome = rng.uniform(size=true.size) < true
        found = metrics.binary_summary(predicted, outcome)
        for metric, value in truth.items():
            held[metric] += found[metric].low <= value <= found[metric].high
        found = metrics.summary(np.column_stack([1.0 - predicted, predicted]), outcome)
        of_classes += (
            found["log_loss"].low <= truth["log_loss"] <= found["log_loss"].high
        )
    assert hold_often(of_classes, trials), of_classes
    assert hold_often([*held.values()], trials), held


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_the_ratio_holds_where_rows_are_drawn_and_risks_are_wrong(n: int) -> None:
    """Which risks come up moves the expected number: 83 to 85 % without it."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-4.0, 3.0, 1_000_000)
    truth = expit(0.5 * log_odds + 1.5).mean() / expit(log_odds).mean()
    trials = repetitions(1000, 200)
    held = 0
    for _ in range(trials):
        drawn = rng.choice(log_odds, n)
        happened = rng.uniform(size=n) < expit(0.5 * drawn + 1.5)
        found = metrics.binary_summary(expit(drawn), happened)["oe_ratio"]
        held += found.low <= truth <= found.high
    assert hold_often(held, trials), held


@pytest.mark.sample(0)
def test_the_auroc_where_rows_out_of_order_are_rare() -> None:
    """A third of the samples have none: 88 % of the intervals held."""
    levels = np.array([0.01, 0.5, 0.99])
    shares = np.array([0.6, 0.05, 0.35])
    events = shares * levels / (shares @ levels)
    others = shares * (1.0 - levels) / (1.0 - shares @ levels)
    truth = float(events @ (np.cumsum(others) - 0.5 * others))
    rng = np.random.default_rng(0)
    trials = repetitions(1000, 200)
    stated = 0
    held = 0
    for _ in range(trials):
        risk = rng.choice(levels, 120, p=shares)
        happened = rng.uniform(size=120) < risk
        table = summaries.clustered_levels(None, risk, happened, event=True)
        low, high = summaries.roc_ends(table, summaries.SummaryOptions())
        if math.isfinite(low):
            stated += 1
            held += low <= truth <= high
    assert hold_often(held, stated), (held, stated)


@pytest.mark.parametrize("in_chunks", [False, True])
def test_heavy_rows_that_are_the_uncertain_ones(in_chunks: bool) -> None:
    """Weights for a harder population: by the weights alone, 82 to 85 % held."""
    rng = np.random.default_rng(0)
    held = dict.fromkeys(("accuracy", "brier", "mean_confidence"), 0)
    for _ in range(TRIALS):
        is_hard = rng.uniform(size=800) < 0.05
        confidence = np.where(is_hard, rng.choice([0.5, 0.7], 800), 0.999)
        rows = Outcomes(
            confidence,
            rng.uniform(size=800) < confidence,
            np.where(is_hard, 3.0, 1.0),
        )
        levels = summaries.count_levels(rows)
        if in_chunks:
            halves = [slice(0, 400), slice(400, 800)]
            columns = (rows.confidence, rows.correct, rows.weight)
            parts = [Outcomes(*(column[k] for column in columns)) for k in halves]
            first, second = map(summaries.count_levels, parts)
            levels = first + second
        truth = {
            "accuracy": (0.15 * 0.6 + 0.95 * 0.999) / 1.1,
            "mean_confidence": (0.15 * 0.6 + 0.95 * 0.999) / 1.1,
            "brier": (0.15 * 0.23 + 0.95 * 0.000999) / 1.1,
        }
        for name, value in truth.items():
            metric = summaries.METRICS[name]
            found = summaries.metric_estimate(
                metric, levels, summaries.SummaryOptions()
            )
            held[name] += found.low <= value <= found.high
    assert hold_often([*held.values()], TRIALS), held


def test_rows_at_one_half_alone_have_intervals() -> None:
    """Either outcome scores the same, and a row of another kind may come."""
    found = metrics.summary(np.full(40, 0.5), np.arange(40) % 3 == 0)
    for name in ("log_loss", "brier"):
        assert found[name].low <= found[name].value < found[name].high


def test_rows_at_one_half_say_nothing_about_rare_events() -> None:
    """None of 588 rows with .001 has the event: 31 % of samples."""
    predicted, true = repeat_design(DESIGNS["rare events, and rows at one half"])
    truth = true_values(predicted, true)["log_loss"]
    outcome = np.arange(true.size) < 5
    proba = np.column_stack([1.0 - predicted, predicted])
    assert metrics.binary_summary(predicted, outcome)["log_loss"].high > truth
    assert metrics.summary(proba, outcome)["log_loss"].high > truth


@pytest.mark.slow
def test_a_headline_agrees_with_the_exact_test() -> None:
    """All of 45 events with .97: 25 % of samples, and no evidence of anything."""
    predicted, _ = repeat_design(DESIGNS["calibrated, 45 events"])
    outcome = predicted > 0.5
    found = metrics.binary_summary(predicted, outcome)["oe_ratio"]
    assert found.low < 1.0 < found.high
    rng = np.random.default_rng(1)
    for _ in range(repetitions(2000, 300)):
        risk = expit(rng.normal(-1.0, rng.uniform(0.5, 6.0), rng.integers(20, 200)))
        happened = rng.uniform(size=risk.size) < risk
        ratio = metrics.binary_summary(risk, happened)["oe_ratio"]
        if ratio.low > 1.0 or ratio.high < 1.0:
            counts = np.ones(risk.size)
            assert event_p_value(risk, counts, float(happened.sum())) <= 0.05


def test_a_slope_that_hangs_on_one_row_has_no_interval() -> None:
    predicted = np.repeat([0.6, 1e-4], [100, 900])
    outcome = np.arange(1000) < 60
    outcome[-1] = True  # the only event among the low risks
    found = metrics.binary_summary(predicted, outcome)
    assert math.isfinite(found["slope"].value)
    assert math.isnan(found["slope"].low)
    assert "a single row" in found["slope"].reason
    assert "a single row" in str(found)
    outcome[-6:] = True
    assert math.isfinite(metrics.binary_summary(predicted, outcome)["slope"].low)


@pytest.mark.parametrize(
    ("n", "usual", "rare", "share"),
    [(30, 0.8, 0.99, 0.01), (30, 0.9999, 0.6, 0.03), (300, 0.99, 0.4, 0.004)],
)
def test_mean_of_confidences_that_are_nearly_all_equal(
    n: int, usual: float, rare: float, share: float
) -> None:
    truth = usual + share * (rare - usual)
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(TRIALS):
        confidence = np.where(rng.uniform(size=n) < share, rare, usual)
        levels = summaries.count_levels(Outcomes(confidence, confidence > 0.5))
        low, high = summaries.confidence_ends(levels, summaries.SummaryOptions())
        held += low <= truth <= high
    assert hold_often(held, TRIALS), held


@pytest.mark.parametrize(
    ("n_classes", "n", "share"), [(100, 300, 0.01), (100, 300, 0.004), (5, 300, 0.3)]
)
def test_mean_size_with_a_few_large_sets(n_classes: int, n: int, share: float) -> None:
    truth = 1.0 + share * (n_classes - 1)
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(TRIALS):
        size = np.where(rng.uniform(size=n) < share, n_classes, 1)
        members = np.arange(n_classes) < size[:, None]
        found = summaries.summarize_sets(members, np.zeros(n, int))
        held += found.size_low <= truth <= found.size_high
    assert hold_often(held, TRIALS), held


def test_many_ordinary_rows_have_a_normal_interval() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(size=20_000)
    below, above = intervals.deviation_ends(
        values - values.mean(), np.ones(values.size), (0.5, 0.5), 0.05
    )
    normal = 1.96 * math.sqrt(values.size * values.var())
    assert below == pytest.approx(normal, rel=0.02)
    assert above == pytest.approx(normal, rel=0.02)


@pytest.mark.sample(1)
@pytest.mark.parametrize("risks", ["rare", "sharp", "many events"])
def test_hosmer_and_lemeshow_keep_their_level(risks: str) -> None:
    """Few expected events in a band: the p-value is simulated, and it is said."""
    rng = np.random.default_rng(0)
    trials = repetitions(1000, 150)
    rejected = 0
    for _ in range(trials):
        if risks == "rare":
            risk = rng.beta(0.5, 20.0, 300)
        elif risks == "sharp":
            risk = expit(rng.normal(0.0, 4.0, 300))
        else:
            risk = rng.uniform(0.1, 0.9, 1500)
        bands = metrics.risk_bands(risk, rng.uniform(size=risk.size) < risk)
        rejected += bands.p_value <= 0.05
        assert ("simulated" in str(bands)) == (risks != "many events")
    assert rejected <= 0.05 * trials + 3.0 * math.sqrt(0.05 * 0.95 * trials)
    assert rejected > 0


def test_hosmer_and_lemeshow_see_what_is_wrong() -> None:
    rng = np.random.default_rng(0)
    risk = rng.beta(0.5, 20.0, 2000)
    outcome = rng.uniform(size=2000) < np.minimum(3.0 * risk, 1.0)
    bands = metrics.risk_bands(risk, outcome)
    assert bands.p_value < 0.001
    weighted = metrics.risk_bands(risk, outcome, sample_weight=np.full(2000, 0.5))
    assert "approximate" in str(weighted)


#: (log-odds, true slope, rows, share of high risks): of each, half of the samples or
#: fewer determine a slope, and a normal interval held in 66 to 92 % of them.
SLOPES = [
    (6.0, 0.5, 200, 0.05),
    *(
        pytest.param(*values, marks=pytest.mark.slow)
        for values in (
            (4.0, 2.0, 2000, 0.5),
            (8.0, 0.5, 200, 0.5),
            (10.0, 0.5, 200, 0.5),
            (4.0, 0.5, 200, 0.05),
            (4.0, 1.0, 200, 0.05),
        )
    ),
]


@pytest.mark.sample(0)
@pytest.mark.parametrize(("size", "slope", "n", "share"), SLOPES)
def test_slopes_of_very_sharp_models(
    size: float, slope: float, n: int, share: float
) -> None:
    rng = np.random.default_rng(0)
    trials = repetitions(1000, 200)
    stated = 0
    held = 0
    for _ in range(trials):
        log_odds = np.where(rng.uniform(size=n) < share, size, -size)
        outcome = rng.uniform(size=n) < expit(slope * log_odds)
        found = metrics.calibration_slope(expit(log_odds), outcome).slope
        if math.isfinite(found.low):
            stated += 1
            held += found.low <= slope <= found.high
    assert hold_often(held, stated), (held, stated)
