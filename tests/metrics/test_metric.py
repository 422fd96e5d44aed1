"""The table of metrics agrees with what is computed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hokical
from hokical import metrics
from hokical.metrics import METRICS

from . import twins

WITHOUT_INTERVAL = (
    "debiased_ece",
    "smooth_ece",
    "classwise_ece",
    "aurc",
    "selective_risk",
)


def test_a_summary_has_every_metric_in_the_order_of_the_table() -> None:
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=200)
    labels = rng.integers(3, size=200)
    found = metrics.summary(proba, labels)
    assert list(found.estimates) == list(METRICS)
    top = metrics.summary(proba.max(axis=1), proba.argmax(axis=1) == labels)
    assert list(top.estimates) == [m.name for m in METRICS.values() if not m.vectors]
    for name, estimate in found.estimates.items():
        if name in WITHOUT_INTERVAL:
            assert math.isnan(estimate.low), name
        else:
            assert 0.0 <= estimate.low < estimate.high <= METRICS[name].upper, name


@pytest.mark.parametrize("name", ["ece", "smooth_ece"])
def test_noise_makes_biased_ones_larger(name: str) -> None:
    """Of a perfect model the true value is 0, and few rows give more than many."""
    few, many = (
        np.mean([getattr(metrics, name)(*_perfect(n, seed)) for seed in range(20)])
        for n in (100, 10_000)
    )
    assert few > 2.0 * many > 0.0


def _perfect(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, seed])
    confidence = rng.uniform(size=n)
    return confidence, rng.uniform(size=n) < confidence


@pytest.mark.parametrize(
    "name", ["brier", "log_loss", "auroc", "aurc", "selective_risk"]
)
def test_the_better_model_is_on_the_better_side(name: str) -> None:
    confidence, correct = twins.model(2000, seed=3)
    better = 0.5 * (confidence + correct)  # it knows more of what is right
    metric, side = getattr(metrics, name), METRICS[name].better
    worse_value, better_value = metric(confidence, correct), metric(better, correct)
    assert (better_value < worse_value) is (side == "lower")


def test_titles_are_distinct_and_values_readable() -> None:
    titles = [metric.full_title for metric in METRICS.values()]
    assert len(set(titles)) == len(titles)
    assert METRICS["ece_mass"].full_title == "ECE, equal mass"
    assert METRICS["accuracy"].format(0.925) == "92.5%"
    assert METRICS["ece"].format(0.01234) == "0.0123"
    assert (
        METRICS["log_loss"].format(math.inf)
        == METRICS["log_loss"].format(None)
        == "infinite"
    )
    assert all(
        metric.better == "lower" for metric in METRICS.values() if metric.ranking
    )


def test_what_is_unknown_is_a_dash() -> None:
    """All rows are right: there is no pair to compare, and nothing is infinite."""
    assert METRICS["auroc"].format(math.nan) == "\N{EN DASH}"
    assert "infinite" not in str(hokical.evaluate(None, [0.9, 0.8, 0.7], [1, 1, 1]))
