"""The bet against calibration: its guarantee, its power, and a reference; the test
of inputs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from hokical import CalibrationMonitor
from hokical.monitoring.state import Reference, input_shift
from tests.monitoring.streams import stream

N_BINS = 15
#: Labelled examples between two starts of new bets, and shares of the wealth that are
#: bet.
BLOCK, STAKES = 100, (0.05, 0.1, 0.2, 0.4, 0.8)


def bin_index(confidence: np.ndarray) -> np.ndarray:
    """Bins of equal width."""
    return np.minimum((N_BINS * confidence).astype(int), N_BINS - 1)


def allowances(n: int, tolerance: float) -> np.ndarray:
    """Of a calibrated reference with so many examples; 0 for none."""
    if not n:
        return np.full((2, 1 + N_BINS), tolerance)
    return Reference.from_examples(*stream(n, seed=99), N_BINS).allowances(tolerance)


def feed(
    confidence: np.ndarray, correct: np.ndarray, delta: float, tolerance: float
) -> Any:
    """The test of a monitor without a reference."""
    monitor = CalibrationMonitor(
        None, delta=delta, tolerance=tolerance, window=len(correct)
    )
    return monitor.update(confidence, correct).status().calibration


def slow_log_e(
    confidence: np.ndarray, correct: np.ndarray, allowance: np.ndarray
) -> float:
    """The mean wealth from its definition: every bet by itself, in plain floats."""
    wealth = 0.0
    n_blocks = len(confidence) // BLOCK + 1
    bins = bin_index(confidence)
    for side, sign in enumerate((-1.0, 1.0)):
        for group in range(1 + N_BINS):
            allowed = allowance[side, group]
            share = 0.5 if group == 0 else 0.5 / N_BINS
            inside = np.ones(len(bins), bool) if group == 0 else bins == group - 1
            payoff = np.where(inside, sign * (correct - confidence) - allowed, 0.0)
            for stake in STAKES:
                factor = 1.0 + stake * payoff / (1.0 + allowed)
                bets = [
                    factor[p * BLOCK :].prod() / ((p + 1) * (p + 2))
                    for p in range(n_blocks)
                ]
                late = 1.0 / (n_blocks + 1)
                wealth += share / (2 * len(STAKES)) * (sum(bets) + late)
    return math.log(wealth)


@pytest.mark.parametrize("n", [1, 99, 100, 101, 730])
@pytest.mark.parametrize("known", [False, True])
def test_the_e_process_equals_its_slow_reference(n: int, known: bool) -> None:
    confidence, correct = stream(n, seed=n, gap=0.1)
    allowance = allowances(5000 if known else 0, 0.01)
    monitor = CalibrationMonitor(None)
    if known:
        monitor = CalibrationMonitor.from_validation(None, *stream(5000, seed=99))
    test = monitor.update(confidence, correct).status().calibration
    expected = slow_log_e(confidence, correct, allowance)
    assert test.log_e == pytest.approx(expected, abs=1e-6)
    assert test.log_e <= expected + 1e-12  # rounded down, never up


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_alarm_comes_with_the_very_example_that_calls_for_it(seed: int) -> None:
    confidence, correct = stream(700, seed=seed, gap=0.15)
    alarm = feed(confidence, correct, 0.01, 0.01).alarm
    allowance = allowances(0, 0.01)
    first = next(
        n
        for n in range(1, 701)
        if slow_log_e(confidence[:n], correct[:n], allowance) >= math.log(100.0)
    )
    assert alarm is not None
    assert alarm.n == first
    assert alarm.since % BLOCK == 1
    assert alarm.since <= first


def test_nothing_seen_is_no_evidence() -> None:
    found = CalibrationMonitor(None).status().calibration.log_e
    assert found == pytest.approx(0.0, abs=1e-8)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("gap", "tolerance"), [(0.0, 0.0), (0.01, 0.01), (-0.01, 0.01)]
)
def test_false_alarms_over_all_looks_are_rarer_than_delta(
    gap: float, tolerance: float
) -> None:
    """On the edge of what is allowed, with a look at every example: the guarantee's
    worst case.
    """
    delta, streams = 0.2, 200
    alarms = 0
    for seed in range(streams):
        confidence, correct = stream(6000, seed=seed, gap=gap)
        alarms += feed(confidence, correct, delta, tolerance).alarm is not None
    assert alarms / streams <= delta
    assert alarms / streams < 0.15  # measured: 0.015 to 0.075


def test_a_plain_test_at_every_look_would_raise_more() -> None:
    """Why the bet: a z-test at level 0.2 on what has come so far, looked at as
    often.
    """
    alarms = 0
    for seed in range(200):
        confidence, correct = stream(6000, seed=seed)
        gaps, variance = (
            np.cumsum(correct - confidence),
            np.cumsum(confidence * (1 - confidence)),
        )
        z = np.abs(gaps / np.sqrt(variance))[BLOCK - 1 :: BLOCK]
        alarms += bool((z > 1.2816).any())
    assert alarms / 200 > 0.5


@pytest.mark.sample(1)
@pytest.mark.parametrize("gap", [0.05, -0.05])
def test_five_points_are_found_soon_and_dated(gap: float) -> None:
    delays, began = [], []
    for seed in range(20):
        calm, off = stream(5000, seed=seed), stream(8000, seed=100 + seed, gap=gap)
        confidence, correct = (
            np.concatenate(pair) for pair in zip(calm, off, strict=True)
        )
        alarm = feed(confidence, correct, 0.01, 0.01).alarm
        assert alarm is not None
        assert alarm.direction == ("over" if gap > 0 else "under")
        delays.append(alarm.n - 5000)
        began.append(alarm.since - 5000)
    assert min(delays) > 0
    assert np.median(delays) < 3500
    assert abs(np.median(began)) <= 500


def test_gaps_that_cancel_are_found_in_their_bin() -> None:
    rng = np.random.default_rng(5)
    confidence = np.repeat([0.7, 0.9], 4000)
    rng.shuffle(confidence)
    chance = np.where(
        confidence == 0.7, 0.8, 0.8
    )  # 10 points under here, 10 over there
    alarm = feed(confidence, rng.uniform(size=8000) < chance, 0.01, 0.01).alarm
    assert alarm is not None
    assert (alarm.direction, alarm.bin) in {("under", 10), ("over", 13)}


def test_what_the_fit_could_not_know_is_allowed() -> None:
    small, large = (allowances(n, 0.01) for n in (300, 100_000))
    assert small.shape == (2, 1 + N_BINS)
    assert (small >= large - 1e-12).mean() > 0.9
    assert small[:, 0].max() > 0.02
    assert large[:, 0].max() < 0.012
    assert (large >= 0.01).all()


@pytest.mark.slow
def test_reference_intervals_cover_the_true_gap() -> None:
    """All 16 at once in at least 95 % of references, from a model that is 3 points
    too sure.
    """
    held = 0
    for seed in range(300):
        confidence, correct = stream(2000, seed=seed, gap=0.03, a=2.0)
        known = Reference.from_examples(confidence, correct, N_BINS)
        chance = np.clip(confidence - 0.03, 0.0, 1.0)
        gap = np.bincount(bin_index(confidence), chance - confidence, N_BINS)
        truth = np.append(gap.sum(), gap) / np.append(2000, np.maximum(known.weight, 1))
        over, under = known.allowances(0.0)
        held += bool(((truth >= -over) & (truth <= under)).all())
    assert held / 300 >= 0.95


# inputs


def test_input_p_value_is_that_of_scipy() -> None:
    counts, weights = np.array([30, 50, 120, 300]), np.array([80.0, 90.0, 300.0, 530.0])
    expected = chi2_contingency([counts, weights], correction=False).pvalue
    assert input_shift(counts, weights, 0.01).p_value == pytest.approx(
        expected, rel=1e-10
    )


def test_input_p_values_are_uniform_where_nothing_changed() -> None:
    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.ones(N_BINS))
    found = [
        input_shift(
            rng.multinomial(1000, share), 1.0 * rng.multinomial(3000, share), 0.05
        )
        for _ in range(800)
    ]
    p_values = np.array([shift.p_value for shift in found])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p_values < level) == pytest.approx(
            level, abs=3.5 * (level / 800) ** 0.5
        )
    assert not any(shift.shifted for shift in found)


def test_a_shift_must_be_certain_and_large() -> None:
    even = np.full(10, 1000.0)
    tiny = np.round(1e5 * np.linspace(0.95, 1.05, 10)).astype(int)
    certain = input_shift(tiny, 100 * even, 0.01)
    assert certain.p_value < 1e-6
    assert not certain.shifted
    few = input_shift(np.array([2, 1, 0, 0, 1, 3, 0, 1, 2, 0]), even, 0.01)
    assert not few.shifted
    assert input_shift(np.arange(10) * 40, even, 0.01).shifted


def test_one_bin_for_everything_tells_nothing() -> None:
    found = input_shift(np.array([0, 500, 0]), np.array([0.0, 900.0, 0.0]), 0.01)
    assert (found.p_value, found.shifted) == (1.0, False)
