"""The classifier's own scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hokical import TopK, make
from hokical.guarantees.scores import (
    LEVELS,
    confidence_log_odds,
    conservative_levels,
    label_log_odds,
    level_log_odds,
    score_levels,
)
from hokical.rules import as_logits
from tests.conftest import synthetic_logits


def rows(seed: int, scale: float, dtype: str) -> np.ndarray:
    """Logits with masked classes, ties, and a row with one possible class."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(200, 17))
    logits[:50, 3] = -np.inf
    logits[7, 1:] = -np.inf
    logits[8] = 0.0
    logits[9, [4, 5]] = logits[9].max()
    return logits.astype(dtype)


def test_log_odds_are_those_of_the_softmax() -> None:
    logits = rows(0, 2.0, "float64")
    odds = label_log_odds(as_logits(logits))
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        expected = np.log(proba.max(axis=1)) - np.log1p(-proba.max(axis=1))
    np.testing.assert_allclose(odds, expected, rtol=1e-9)
    assert odds[7] == np.inf


def slow_log_odds(row: np.ndarray) -> float:
    label = int(np.argmax(row))
    others = np.delete(row.astype(np.longdouble), label) - row[label].astype(
        np.longdouble
    )
    return float(-np.log(np.exp(others).sum()))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.1, 5.0, 80.0])
def test_log_odds_of_the_label(dtype: Any, spread: float) -> None:
    rng = np.random.default_rng(3)
    values = (spread * rng.normal(size=(50, 7))).astype(dtype)
    values[0] = 0.0  # all tied
    values[1, 3:] = -np.inf
    expected = [slow_log_odds(row) for row in values]
    np.testing.assert_allclose(
        label_log_odds(as_logits(values)), expected, rtol=2e-6, atol=2e-6
    )


def test_nothing_is_lost_where_the_softmax_is_1() -> None:
    rows = np.array(
        [[0.0, -300.0, -300.0], [0.0, -301.0, -400.0], [0.0, -np.inf, -np.inf]]
    )
    for values in (rows, rows.astype(np.float32)):
        found = label_log_odds(as_logits(values))
        np.testing.assert_allclose(found[:2], [300.0 - np.log(2.0), 301.0])
        assert found[2] == np.inf
        assert score_levels(found).tolist() == [*score_levels(found[:2]), LEVELS - 1]


def test_levels_rise_and_start_where_they_say() -> None:
    assert (np.diff(score_levels(np.linspace(-40, 2000, 100_001))) >= 0).all()
    assert score_levels([-np.inf, np.inf]).tolist() == [0, LEVELS - 1]
    for level in range(1, LEVELS, 37):
        start = level_log_odds(level)
        assert score_levels(start + 1e-9 * max(1.0, abs(start))) == level
        assert score_levels(start - 1e-9 * max(1.0, abs(start))) == level - 1
    np.testing.assert_allclose(
        confidence_log_odds(np.array([0.5, 0.9])), [0.0, np.log(9.0)]
    )


def test_scores_of_top_k_are_those_of_its_softmax() -> None:
    values, _ = synthetic_logits(40, 8, seed=5, stretch=1.0)
    best = np.argsort(-values, axis=1)[:, :3]
    seen = as_logits(TopK(np.take_along_axis(values, best, axis=1), best, 8))
    softmax = (
        make("uncalibrated").fit(values, np.arange(40) % 8).predict_confidence(seen)
    )
    np.testing.assert_allclose(
        label_log_odds(seen), confidence_log_odds(softmax), atol=1e-9
    )


def test_wrong_examples_count_as_high_as_they_may_come() -> None:
    odds = np.array([level_log_odds(700)] * 2)
    found = conservative_levels([odds, odds], np.array([True, False]), np.zeros(2))
    np.testing.assert_array_equal(found, [700, 699])
    far = conservative_levels(
        [np.array([np.inf, -np.inf])], np.array([False, True]), np.zeros(2)
    )
    np.testing.assert_array_equal(far, [LEVELS - 1, 0])
