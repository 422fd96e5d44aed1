"""Rank-based metrics against pairs, running means and repeated rows."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical.metrics import aurc, auroc, risk_coverage_curve, selective_risk

from . import twins


@given(twins.rows)
def test_against_twins_under_weights(data: list) -> None:
    confidence, correct, weight = twins.unpack(data)
    long = (np.repeat(confidence, weight), np.repeat(correct, weight))
    found = auroc(confidence, correct, sample_weight=weight)
    assert found == pytest.approx(twins.auroc(*long), nan_ok=True)
    assert aurc(confidence, correct, sample_weight=weight) == pytest.approx(
        np.mean(twins.risks(*long)), abs=1e-12
    )


@given(twins.rows, st.integers(1, 40))
def test_selective_risk_is_the_risk_of_the_first_k(data: list, k: int) -> None:
    confidence, correct, _ = twins.unpack(data)
    k = min(k, len(data))
    found = selective_risk(confidence, correct, coverage=k / len(data))
    assert found == pytest.approx(twins.risks(confidence, correct)[k - 1], abs=1e-12)


@given(twins.rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(data: list, random: object) -> None:
    shuffled = list(data)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    (c, y, w), (c2, y2, w2) = twins.unpack(data), twins.unpack(shuffled)
    for metric in (auroc, aurc, selective_risk):
        first, second = metric(c, y, sample_weight=w), metric(c2, y2, sample_weight=w2)
        assert first == second or (math.isnan(first) and math.isnan(second))


def test_curve_ends_at_the_error_rate_and_gives_selective_risk() -> None:
    confidence, correct = twins.model(500, seed=5)
    confidence = confidence.round(2)
    coverage, risk = risk_coverage_curve(confidence, correct)
    assert coverage[-1] == 1.0
    assert risk[-1] == pytest.approx(1.0 - correct.mean())
    assert selective_risk(confidence, correct, coverage=coverage) == pytest.approx(risk)


def test_one_sided_data() -> None:
    assert math.isnan(auroc([0.5, 0.6], [True, True]))
    assert aurc([0.5, 0.6], [True, True]) == 0.0
    assert aurc([0.5, 0.6], [False, False]) == pytest.approx(1.0)
    assert auroc([0.5, 0.5], [True, False]) == 0.5


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.1, math.nan])
def test_bad_coverage_is_named(coverage: float) -> None:
    with pytest.raises(
        ValueError, match="`coverage` must be above 0 and at most 1; got"
    ):
        selective_risk([0.5], [True], coverage=coverage)


def _exact_auroc(confidence: Any, correct: Any, weight: Any) -> float:
    right = [
        (c, Fraction(w))
        for c, r, w in zip(confidence, correct, weight, strict=True)
        if r
    ]
    wrong = [
        (c, Fraction(w))
        for c, r, w in zip(confidence, correct, weight, strict=True)
        if not r
    ]
    won = sum(
        w * v * Fraction((c > d) * 2 + (c == d), 2) for c, w in right for d, v in wrong
    )
    return float(won / (sum(w for _, w in right) * sum(v for _, v in wrong)))


@pytest.mark.parametrize("power", [1, 17, 150, 300])
@pytest.mark.parametrize("heavy", ["right", "wrong", "any"])
def test_auroc_under_extreme_weights(power: int, heavy: str) -> None:
    rng = np.random.default_rng(power)
    confidence = rng.random(30)
    correct = rng.random(30) < confidence
    weight = 10.0 ** rng.uniform(-power, power, size=30)
    if heavy != "any":
        weight = np.where(correct == (heavy == "right"), 10.0**power, 10.0**-power)
        weight *= rng.uniform(0.5, 2.0, size=30)
    found = auroc(confidence, correct, sample_weight=weight)
    expected = _exact_auroc(confidence.tolist(), correct.tolist(), weight.tolist())
    assert found == pytest.approx(expected, rel=1e-12)
