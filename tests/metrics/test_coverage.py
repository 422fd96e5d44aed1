"""How often 95 % intervals hold the true value: at least 93 % of simulations
(docs/metrics.md).

Nightly, of a thousand; else of a fifth of them, which chance misses once in a thousand
times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

import hokical
from hokical import metrics
from hokical.plots import reliability
from tests.conftest import NIGHTLY, hold_often, repetitions

LEAST = 0.93
TRIALS = repetitions(1000, 200)
#: Numbers of rows; the largest takes minutes.
SIZES = [
    200,
    2000,
    pytest.param(
        20_000,
        marks=pytest.mark.skipif(
            not NIGHTLY, reason="HOKICAL_SIMULATE=1 runs it, in minutes"
        ),
    ),
]


def draw(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Confidences: spread evenly over [1/2, 1], or mostly near 1 as those of a
    network.
    """
    network = np.maximum(0.5 * rng.beta(0.4, 2.5, n), 1e-9)
    return rng.uniform(0.5, 1.0, n) if kind == "even" else 1.0 - network


def true_values(kind: str, gap: float) -> dict[str, float]:
    """By a million draws; their noise is a tenth of that of 10,000 rows."""
    rng = np.random.default_rng(0)
    confidence = draw(kind, 1_000_000, rng)
    right = np.maximum(confidence - gap, 0.0)
    losses = -np.log(confidence), -np.log1p(-np.minimum(confidence, 1.0 - 1e-9))
    areas = metrics.auroc(
        np.tile(confidence, 2),
        np.repeat([1, 0], 1_000_000),
        sample_weight=np.concatenate([right, 1.0 - right]),
    )
    return {
        "accuracy": float(right.mean()),
        "mean_confidence": float(confidence.mean()),
        "ece": gap,
        "ece_mass": gap,
        "brier": float(
            (right * (1.0 - confidence) ** 2 + (1.0 - right) * confidence**2).mean()
        ),
        "log_loss": float((right * losses[0] + (1.0 - right) * losses[1]).mean()),
        "auroc": areas,
    }


@pytest.mark.sample(0)
@pytest.mark.parametrize("gap", [0.0, 0.01, 0.02])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["even", "network"])
def test_metrics(kind: str, n: int, gap: float) -> None:
    truth, rng = true_values(kind, gap), np.random.default_rng([n, round(100 * gap)])
    held, bounded = dict.fromkeys(truth, 0), dict[str, int]()
    for _ in range(TRIALS):
        confidence = draw(kind, n, rng)
        found = metrics.summary(confidence, rng.uniform(size=n) < confidence - gap)
        for name, value in truth.items():
            held[name] += not (value < found[name].low or value > found[name].high)
        for method, bound in found.bounds.items():
            bounded[method] = bounded.get(method, 0) + (bound >= gap)
    assert hold_often([*held.values()], TRIALS), held
    assert len(bounded) == 4  # the methods of `calibration_bound`
    assert min(bounded.values()) >= 0.95 * TRIALS, bounded


@pytest.mark.sample(0)
@pytest.mark.parametrize("pattern", ["one bin", "alternating", "one side"])
@pytest.mark.parametrize("n", SIZES)
def test_errors_of_any_pattern(n: int, pattern: str) -> None:
    """Gaps that differ by bin: the interval of the ECE is valid for all."""
    rng = np.random.default_rng(n)
    centre = (np.arange(15) + 0.5) / 15
    gaps = {
        "one bin": np.where(np.arange(15) == 12, 0.15, 0.0),
        "alternating": np.where(np.arange(15) % 2 == 0, 0.05, -0.05),
        "one side": np.where(centre > 0.7, 0.06, 0.0),
    }[pattern]
    used = np.arange(6, 15)
    truth, held = float(np.abs(gaps[used]).mean()), 0
    for _ in range(TRIALS):
        place = rng.choice(used, n)
        found = metrics.summary(
            centre[place], rng.uniform(size=n) < (centre - gaps)[place]
        )["ece"]
        held += found.low <= truth <= found.high
    assert hold_often(held, TRIALS), held


def weights(n: int, kind: str, rng: np.random.Generator) -> np.ndarray | None:
    return None if kind == "none" else rng.exponential(size=n) + 0.05


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ["none", "exponential"])
@pytest.mark.parametrize("n", SIZES)
def test_shares_of_groups_and_bins(n: int, kind: str) -> None:
    """The observed share of a group, and the accuracy of a bin: Clopper and
    Pearson's.
    """
    rng, held, seen = np.random.default_rng(n), np.zeros(2), np.zeros(2)
    for _ in range(200):
        confidence, group = rng.uniform(0.6, 0.9, n), rng.integers(0, 3, n).astype(str)
        right, weight = rng.uniform(size=n) < confidence, weights(n, kind, rng)
        rows = metrics.group_table(confidence, right, group, sample_weight=weight).rows
        held[0] += sum(row.low <= 0.75 <= row.high for row in rows)
        seen[0] += len(rows)
        bins = reliability(np.full(n, 0.75), right, sample_weight=weight)
        held[1] += ((bins.accuracy_low <= 0.75) & (bins.accuracy_high >= 0.75)).sum()
        seen[1] += bins.low.size
    assert (held / seen >= LEAST).all(), held / seen


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", [1.0, 0.7])
@pytest.mark.parametrize("kind", ["even", "rare"])
def test_net_benefit(kind: str, scale: float, n: int) -> None:
    """At every threshold, also where hardly anybody is treated; risks of a tenth on
    average too.
    """
    thresholds = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])

    def risks(size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(size=size) if kind == "even" else rng.beta(1.0, 6.0, size)

    many = risks(2_000_000, np.random.default_rng(0))
    odds = thresholds / (1.0 - thresholds)
    gain = [(scale * many - (1.0 - scale * many) * odd) for odd in odds]
    truth = [
        float((g * (many >= t)).mean()) for g, t in zip(gain, thresholds, strict=True)
    ]
    rng, held = np.random.default_rng(n), np.zeros(thresholds.size)
    for _ in range(TRIALS):
        risk = risks(n, rng)
        found = metrics.decision_curve(
            risk, rng.uniform(size=n) < scale * risk, thresholds
        )
        held += (found.low <= truth) & (truth <= found.high)
    assert hold_often(held, TRIALS), held


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", [200, 2000])
def test_differences_of_methods_and_sets(n: int) -> None:
    """The paired difference in log loss, the coverage of sets and their mean size."""
    methods = ["uncalibrated", "temps"]
    fitted = hokical.make("temps").fit(*_world(1000, 1))
    big = _world(200_000, 2)
    both = hokical.make("uncalibrated").fit(*big), fitted
    truth = np.subtract(
        *(metrics.log_loss(cal.predict_proba(big[0]), big[1]) for cal in both)
    )
    certified = hokical.make("temps").fit(*_world(1000, 1)).certify(*_world(500, 3))
    sets = hokical.evaluate(certified, *big, coverage=0.9).sets
    held = np.zeros(3)
    trials = repetitions(300, 60)
    for seed in range(trials):
        data = _world(n, seed + 10)
        found = hokical.compare(
            data, data, dict(zip(methods, both, strict=True)), subject="temps"
        )
        (difference,) = found.differences()
        own = hokical.evaluate(certified, *data, coverage=0.9).sets
        held += (
            difference.low <= truth <= difference.high,
            own.overall.low <= sets.overall.coverage <= own.overall.high,
            own.size_low <= sets.overall.mean_size <= own.size_high,
        )
    assert hold_often(held, trials), held


def _world(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, seed])
    logits = 1.5 * rng.normal(size=(n, 4))
    return 1.3 * logits, (logits + rng.gumbel(size=(n, 4))).argmax(axis=1)


def test_a_simulation_fails_where_an_interval_does_not_hold() -> None:
    """The bootstrap-like interval of a plain normal error does not hold an ECE of 0."""
    held = 0
    for confidence, right in _perfect(TRIALS):
        value = metrics.ece(confidence, right)
        error = math.sqrt(float(np.var(right - confidence)) / right.size)
        held += value - 1.96 * error <= 0.0
    assert not hold_often(held, TRIALS)


def _perfect(trials: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    for _ in range(trials):
        confidence = rng.uniform(0.5, 1.0, 500)
        yield confidence, rng.uniform(size=500) < confidence


def rare_errors(
    kind: str, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of labels and the probability that each is right: 0.3 to 2 % are
    wrong.
    """
    log_odds = np.abs(rng.normal(0.0, 40.0 if kind == "calibrated" else 12.0, n))
    if kind == "calibrated":
        return log_odds, 1.0 / (1.0 + np.exp(-log_odds))
    return log_odds, np.full(n, 0.995) if kind == "label noise" else 1.0 / (
        1.0 + np.exp(-log_odds)
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", [30, 150, 1500])
@pytest.mark.parametrize("kind", ["calibrated", "overconfident", "label noise"])
def test_few_errors(kind: str, n: int) -> None:
    """A sample without errors does not know how bad they are; AUROC with at least
    five of them.
    """
    scale = 2.0 if kind == "overconfident" else 1.0
    log_odds, right = rare_errors(kind, 400_000, np.random.default_rng(0))
    confidence = np.minimum(1.0 / (1.0 + np.exp(-scale * log_odds)), 1.0 - 1e-15)
    wrong = 1.0 - right
    truth = {
        "mean_confidence": confidence.mean(),
        "brier": (right * (1.0 - confidence) ** 2 + wrong * confidence**2).mean(),
        "log_loss": (
            -right * np.log(confidence) - wrong * np.log1p(-confidence)
        ).mean(),
        "auroc": metrics.auroc(
            np.tile(confidence, 2),
            np.repeat([1, 0], right.size),
            sample_weight=np.concatenate([right, wrong]),
        ),
    }
    rng, held, given = np.random.default_rng(n), dict.fromkeys(truth, 0), 0
    for _ in range(TRIALS):
        log_odds, right = rare_errors(kind, n, rng)
        confidence = np.minimum(1.0 / (1.0 + np.exp(-scale * log_odds)), 1.0 - 1e-15)
        found = metrics.summary(confidence, rng.uniform(size=n) < right)
        given += not found["auroc"].reason
        for name, value in truth.items():
            held[name] += not (value < found[name].low or value > found[name].high)
    assert hold_often([*held.values()], TRIALS), held
    assert n > 30 or given < 0.1 * TRIALS


@pytest.mark.parametrize("vectors", [False, True])
def test_without_an_error_intervals_allow_for_one(vectors: bool) -> None:
    """A hundred rows without an error: up to 3.6 % may be wrong, and would cost what
    errors do.
    """
    confidence = np.full(100, 0.99)
    proba = np.stack([1.0 - confidence, confidence], axis=1)
    found = metrics.summary(
        *((proba, np.ones(100, int)) if vectors else (confidence, [1] * 100))
    )
    assert found["brier"].high > 0.036 * 0.99**2 * (1 + vectors)
    assert found["log_loss"].high > 0.036 * -math.log(0.01)
    assert "five" in found["auroc"].reason
    assert "no interval: it takes five" in str(found)
