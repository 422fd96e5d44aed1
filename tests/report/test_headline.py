"""An evaluation in words, for readers new to calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hokical
from hokical.plots import reliability
from tests.conftest import synthetic_logits


def overconfident(n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Confidences of .97 that are right in 80 % of the cases, and of .62 in 60 %."""
    confidence = np.where(np.arange(n) < 0.7 * n, 0.97, 0.62)
    right = np.arange(n) % 10 < np.where(confidence > 0.9, 8, 6)
    return confidence, right


def test_the_finding_tells_the_worst_claim() -> None:
    evaluation = hokical.evaluate(None, *overconfident())
    assert evaluation.finding == (
        "700 predictions claimed more than 93% confidence (97.0% on average), and "
        "20.0% of them were wrong."
    )


def test_below_high_confidence_it_counts_what_was_right() -> None:
    confidence = np.full(200, 0.55)
    evaluation = hokical.evaluate(None, confidence, np.arange(200) % 10 < 8)
    assert evaluation.finding == (
        "200 predictions claimed a confidence of 53% to 60% (55.0% on average), and "
        "80.0% of them were right."
    )


def test_the_finding_compares_the_same_range_after_calibration() -> None:
    confidence, right = overconfident()
    cal = hokical.ConfidenceCalibrator().fit(confidence, right)
    evaluation = hokical.evaluate(cal, *overconfident(3000))
    assert evaluation.finding == (
        "Before calibration, 2,100 predictions claimed more than 93% confidence (97.0% "
        "on average), and 20.0% of them were wrong. After it, none does."
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_finding_is_the_largest_part_of_the_ece(seed: int) -> None:
    logits, labels = synthetic_logits(800, 4, seed=seed)
    evaluation = hokical.evaluate(None, logits, labels)
    bins = reliability(evaluation.levels, None, n_bins=15)
    worst = int(np.argmax(bins.count * np.abs(bins.gap)))
    assert evaluation.finding.startswith(f"{bins.count[worst]:,} predictions claimed")
    assert f"({bins.confidence[worst]:.1%} on average)" in evaluation.finding


@pytest.mark.parametrize(("rows", "useful"), [(60, False), (600, True)])
def test_a_bound_that_tells_nothing_is_not_shown(rows: int, useful: bool) -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.4, 1.0, rows)
    result = hokical.evaluate(None, confidence, rng.random(rows) < confidence)
    few = "These examples are too few to bound the calibration error with 95%"
    assert (few in result.details) is not useful
    assert ("With 95% confidence the calibration" in result.details) is useful
    assert (result.summary.bounds["bousquet"] < 0.5) is useful


def test_an_infinite_log_loss_is_said(comparison: Any) -> None:
    confidence = np.array([1.0] * 50 + [0.5] * 50)
    right = np.arange(100) % 2 == 0
    evaluation = hokical.evaluate(None, confidence, right)
    assert evaluation.details.startswith("Log loss is infinite; the calibration error")


def test_several_labels_are_present_or_absent() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(400, 3))
    labels = (rng.uniform(size=scores.shape) < 1.0 / (1.0 + np.exp(-scores))).astype(
        int
    )
    cal = hokical.MultilabelCalibrator().fit(scores[:200], labels[:200])
    evaluation = hokical.evaluate(cal, scores[200:], labels[200:])
    share = f"{labels[200:].mean():.1%}"
    assert f"on average and {share} of the labels were present; with" in (
        evaluation.verdict
    )
    assert "right" not in evaluation.verdict


def test_lines_of_an_evaluation_fit_80_columns() -> None:
    logits, labels = synthetic_logits(800, 4, seed=1)
    cal = hokical.make("temps").fit(*synthetic_logits(800, 4, seed=2))
    lines = str(hokical.evaluate(cal, logits, labels)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("The model said")
