"""Rank-based metrics against pairs, running means and repeated rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical.metrics import aurc, auroc, ks_error, risk_coverage_curve, selective_risk

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
    assert ks_error(confidence, correct, sample_weight=weight) == pytest.approx(
        twins.ks_error(*long), abs=1e-14
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
    for metric in (auroc, aurc, ks_error, selective_risk):
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
    with pytest.raises(ValueError, match="`coverage` must be above 0 and at most 1; got"):
        selective_risk([0.5], [True], coverage=coverage)
