"""Calibration slope and intercept, and net benefit, of risks and of confidences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hokical.metrics import calibration_slope, decision_curve
from tests.conftest import hold_often, repetitions


def risks(n: int, seed: int, slope: float = 1.0, intercept: float = 0.0) -> tuple:
    rng = np.random.default_rng([n, seed])
    x = rng.normal(-1.5, 1.3, n)
    event = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-(intercept + slope * x)))
    return 1.0 / (1.0 + np.exp(-x)), event


def test_the_slope_is_that_of_a_logistic_regression() -> None:
    risk, event = risks(3000, 0, slope=0.7, intercept=0.3)
    x = np.log(risk / (1.0 - risk))
    known = LogisticRegression(C=np.inf, tol=1e-10).fit(x[:, None], event)
    found = calibration_slope(risk, event)
    assert found.slope.value == pytest.approx(known.coef_[0, 0], rel=1e-4)
    assert found.slope.low < 0.7 < found.slope.high < 1.0
    both = np.column_stack([1.0 - risk, risk])
    again = calibration_slope(both, event.astype(int))
    assert again.slope.value == pytest.approx(found.slope.value, rel=1e-9)
    chunks = [(risk[:99], event[:99]), (risk[99:], event[99:])]
    assert calibration_slope(chunks).intercept == found.intercept


def test_the_intercept_makes_the_mean_right() -> None:
    risk, event = risks(2000, 1, intercept=-0.5)
    found = calibration_slope(risk, event).intercept
    moved = 1.0 / (1.0 + np.exp(-(np.log(risk / (1.0 - risk)) + found.value)))
    assert moved.mean() == pytest.approx(event.mean(), rel=1e-9)
    assert found.low < -0.5 < found.high < 0.0


def test_weight_two_is_the_row_twice() -> None:
    risk, event = risks(500, 2)
    whole = calibration_slope(risk, event, sample_weight=np.full(500, 2.0)).slope
    assert whole.value == pytest.approx(calibration_slope(risk, event).slope.value, rel=1e-9)
    assert whole.low == pytest.approx(calibration_slope(risk, event).slope.low, rel=1e-9)


def test_what_cannot_be_known_is_nan() -> None:
    assert math.isnan(calibration_slope([0.2, 0.9], [False, True]).slope.value)
    assert math.isnan(calibration_slope([0.2, 0.9], [True, True]).intercept.value)
    with pytest.raises(ValueError, match="`proba` must be of two classes"):
        calibration_slope(np.full((3, 3), 1 / 3), [0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 2000, 20_000])
def test_intervals_hold(n: int) -> None:
    """Of slope, intercept and net benefit: at least 93 % of data sets, as far as these tell."""
    held, short, trials = np.zeros(3), np.zeros(3), repetitions(500, 25 if n > 2000 else 100)
    big = risks(1_000_000, 0)
    truth = decision_curve(*big, [0.2]).net_benefit[0]
    for seed in range(trials):
        slope = calibration_slope(*risks(n, seed, slope=0.7)).slope
        intercept = calibration_slope(*risks(n, seed, intercept=0.3)).intercept
        curve = decision_curve(*risks(n, seed), [0.2])
        found = (
            (slope.low, slope.high, 0.7),
            (intercept.low, intercept.high, 0.3),
            (curve.low[0], curve.high[0], truth),
        )
        held += [low <= value <= high for low, high, value in found]
        short += [abs(value - (low + high) / 2) <= (high - low) / 6 for low, high, value in found]
    assert hold_often(held, trials), held / trials
    for each in short:  # a third of an interval does not pass for a whole one
        assert not hold_often(each, trials), short / trials


def test_net_benefit_is_its_definition() -> None:
    risk, event = risks(400, 3)
    weight = np.random.default_rng(0).integers(1, 4, 400)
    curve = decision_curve(risk, event, [0.05, 0.3, 0.999], sample_weight=weight)
    for t, found, every in zip(curve.threshold, curve.net_benefit, curve.treat_all, strict=True):
        price = t / (1.0 - t)
        gains = np.where(event, 1.0, -price)
        assert found == pytest.approx(np.average(gains * (risk >= t), weights=weight), abs=1e-12)
        assert every == pytest.approx(np.average(gains, weights=weight))
    assert curve.low[1] < curve.net_benefit[1] < curve.high[1]
    assert curve.low[2] < 0.0 < curve.high[2]  # nobody is treated
    assert decision_curve(risk, event).threshold.size == 99
    with pytest.raises(ValueError, match="`thresholds` must lie strictly between 0 and 1"):
        decision_curve(risk, event, [0.0])
