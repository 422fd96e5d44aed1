"""A certainty that was wrong has an infinite log loss, on either side and in all print."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import metrics

REASON = "it is infinite, as the outcome had a probability of 0 in {} of 60 examples"


def certain_mistakes(event: int, n_mistakes: int = 1) -> tuple[Any, Any]:
    """Probabilities of an event, of which the first ones were certain and wrong."""
    rng = np.random.default_rng(0)
    probability = rng.uniform(0.05, 0.95, 60)
    outcome = (rng.uniform(size=60) < probability).astype(int)
    probability[:n_mistakes] = 1 - event
    outcome[:n_mistakes] = event
    return probability, outcome


def logits_of(probability: Any) -> Any:
    with warnings.catch_warnings():  # of certainties, whose logits are bounds
        warnings.simplefilter("ignore")
        return hokical.from_probabilities(probability)


@pytest.mark.parametrize("event", [0, 1])
def test_every_way_to_the_log_loss_agrees(event: int) -> None:
    probability, outcome = certain_mistakes(event)
    columns = np.column_stack([1.0 - probability, probability])
    logits = logits_of(probability)
    found = hokical.evaluate(None, logits, outcome)
    halves = [(logits[:30], outcome[:30]), (logits[30:], outcome[30:])]
    streamed = hokical.evaluate(None, halves)
    right = (probability >= 0.5) == outcome
    estimates = [
        found["log_loss"],
        found.binary["log_loss"],
        streamed["log_loss"],
        streamed.binary["log_loss"],
        metrics.summary(columns, outcome)["log_loss"],
        metrics.summary(np.maximum(probability, 1.0 - probability), right)["log_loss"],
        metrics.binary_summary(probability, outcome)["log_loss"],
        metrics.binary_summary(columns, outcome)["log_loss"],
    ]
    assert {estimate.value for estimate in estimates} == {math.inf}
    assert {estimate.reason for estimate in estimates} == {REASON.format(1)}
    assert all(math.isnan(estimate.low + estimate.high) for estimate in estimates)


@pytest.mark.parametrize("event", [0, 1])
def test_printers_say_how_many(event: int, tmp_path: Any) -> None:
    probability, outcome = certain_mistakes(event, 3)
    found = hokical.evaluate(None, logits_of(probability), outcome)
    text = " ".join(str(found).split())
    assert f"log loss has no interval: {REASON.format(3)}." in text
    assert REASON.format(3) in str(metrics.binary_summary(probability, outcome))
    assert REASON.format(3) in str(metrics.summary(probability, outcome))
    page = found.to_html(tmp_path / "page.html").read_text()
    assert REASON.format(3) in page
    assert "infinite to" not in text


@pytest.mark.parametrize("event", [0, 1])
def test_a_small_probability_of_the_outcome_is_finite_on_both_sides(event: int) -> None:
    """1 - 1e-20 is 1: the loss of an event comes from the column of the outcome."""
    probability, outcome = certain_mistakes(event)
    columns = np.column_stack([1.0 - probability, probability])
    columns[0, event] = 1e-20
    expected = metrics.log_loss(columns, outcome)
    assert math.isfinite(expected)
    event_loss = metrics.binary_summary(columns, outcome)["log_loss"]
    assert event_loss.value == pytest.approx(expected, rel=1e-12)
    assert event_loss == metrics.summary(columns, outcome)["log_loss"]
    found = hokical.evaluate(None, np.log(columns), outcome)
    assert found.binary["log_loss"].value == pytest.approx(expected, rel=1e-12)
    brier = metrics.binary_summary(columns, outcome)["brier"].value
    assert brier == pytest.approx(0.5 * metrics.brier(columns, outcome))


def test_a_probability_at_the_floor_is_zero_everywhere() -> None:
    """Through a logarithm it comes back a little above."""
    probability, outcome = certain_mistakes(1)
    probability[0] = 1e-300
    columns = np.column_stack([1.0 - probability, probability])
    losses = [
        metrics.log_loss(columns, outcome),
        metrics.binary_summary(probability, outcome)["log_loss"].value,
        hokical.evaluate(None, np.log(columns), outcome)["log_loss"].value,
    ]
    assert losses == [math.inf] * 3
    probability[0] = 1.1e-300
    columns = np.column_stack([1.0 - probability, probability])
    assert math.isfinite(metrics.log_loss(columns, outcome))


def test_differences_of_infinite_losses_are_undefined() -> None:
    probability, outcome = certain_mistakes(1)
    logits = logits_of(probability)
    learned = logits_of(np.clip(probability, 0.01, 0.99)), outcome
    methods = {
        "uncalibrated": "uncalibrated",
        "sharper": hokical.make("uncalibrated").fit(*learned),
        "platt": hokical.make("platt").fit(*learned),
    }
    comparison = hokical.compare(learned, (logits, outcome), methods)
    same, finite = comparison.differences(against="uncalibrated")
    assert (same.method, same.verdict) == ("sharper", "undefined")
    assert math.isnan(same.value)
    assert math.isnan(same.low)
    if finite.verdict != "undefined":
        assert (finite.value, finite.verdict) == (-math.inf, "better")
    lines = comparison.to_markdown().splitlines()
    assert not any("**infinite**" in line for line in lines)


def test_weights_and_labels_of_several() -> None:
    probability, outcome = certain_mistakes(0, 2)
    weight = np.full(60, 0.5)
    found = metrics.binary_summary(probability, outcome, sample_weight=weight)
    assert "in 1 of 30 examples (by weight)" in found["log_loss"].reason


def test_the_brier_score_of_a_confidence_is_at_most_one() -> None:
    found = metrics.summary([0.9, 0.8, 0.99], [0, 0, 0])["brier"]
    assert found.value <= found.high <= 1.0


def test_a_certain_mistake_moves_the_slope_alike_on_either_side() -> None:
    """Through logits, where a 0 is 5e-324, and as probabilities."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 300)
    event = rng.random(300) < p
    slopes = []
    for certain in (0.0, 1.0):
        proba = p.copy()
        proba[0] = certain
        outcomes = event.astype(int)
        outcomes[0] = int(certain == 0.0)
        logits = hokical.from_probabilities(np.stack([1.0 - proba, proba], axis=1))
        binary = hokical.evaluate(None, logits, outcomes).binary
        assert binary is not None
        slopes.append(binary["slope"].value)
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-6)
