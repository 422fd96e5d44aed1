"""The risk-coverage curve, thinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hokical.metrics import aurc, risk_coverage_curve
from hokical.metrics._chunked import read_levels
from hokical.plots import draw_risk_coverage
from hokical.plots._risk import RiskCoverage

Answers = tuple[np.ndarray, np.ndarray]


def risk_coverage(confidence: Any, correct: Any, sample_weight: Any = None) -> RiskCoverage:
    return RiskCoverage.from_levels(read_levels(confidence, correct, sample_weight))


def test_every_point_is_what_its_threshold_gives(answers: Answers) -> None:
    confidence, correct = answers
    data = risk_coverage(confidence, correct)
    for threshold, coverage, risk in zip(data.threshold, data.coverage, data.risk, strict=True):
        kept = confidence >= threshold
        assert (coverage, risk) == pytest.approx((kept.mean(), (~correct[kept]).mean()))
    assert data.area == aurc(confidence, correct)


def test_thinning_keeps_the_end_and_spreads_the_rest() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(5000)
    correct = rng.random(5000) < confidence
    data = risk_coverage(confidence, correct)
    coverage, risk = risk_coverage_curve(confidence, correct)
    assert data.coverage.shape[0] == 200
    assert (data.coverage[-1], data.risk[-1]) == (coverage[-1], risk[-1])
    assert set(data.coverage) <= set(coverage)
    assert np.diff(data.coverage, prepend=0.0).max() <= 1 / 200 + 1 / 5000 + 1e-12


def test_a_weight_of_two_is_the_example_twice(answers: Answers) -> None:
    confidence, correct = answers
    weight = np.random.default_rng(0).integers(0, 3, size=confidence.shape[0])
    once = risk_coverage(confidence, correct, sample_weight=weight)
    again = risk_coverage(np.repeat(confidence, weight), np.repeat(correct, weight))
    for name in ("threshold", "coverage", "risk"):
        assert getattr(once, name) == pytest.approx(getattr(again, name))


def test_two_curves_on_one_axes_differ_in_style(answers: Answers, ax: Any) -> None:
    data = risk_coverage(*answers)
    draw_risk_coverage(*answers, ax, label="one")
    assert draw_risk_coverage(*answers, ax, label="two", color="red") is ax
    assert ax.lines[1].get_color() == "red"
    assert len({line.get_linestyle() for line in ax.lines}) == 2
    assert ax.get_ylim()[1] >= data.risk[data.coverage >= 0.05].max()
