"""The risk-coverage curve, thinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hokical.metrics import aurc, risk_coverage_curve
from hokical.plots import draw_risk_coverage, risk_coverage

Answers = tuple[np.ndarray, np.ndarray]


def test_every_point_is_what_its_threshold_gives(answers: Answers) -> None:
    confidence, correct = answers
    data = risk_coverage(confidence, correct)
    for threshold, coverage, risk in zip(data.threshold, data.coverage, data.risk, strict=True):
        kept = confidence >= threshold
        assert (coverage, risk) == pytest.approx((kept.mean(), (~correct[kept]).mean()))
    assert data.area == aurc(confidence, correct)


@pytest.mark.parametrize("max_points", [1, 5, 37])
def test_thinning_keeps_the_end_and_spreads_the_rest(answers: Answers, max_points: int) -> None:
    data = risk_coverage(*answers, max_points=max_points)
    coverage, risk = risk_coverage_curve(*answers)
    assert 1 <= data.coverage.shape[0] <= max_points
    assert (data.coverage[-1], data.risk[-1]) == (coverage[-1], risk[-1])
    assert set(data.coverage) <= set(coverage)
    largest_step = np.diff(coverage, prepend=0.0).max()
    assert np.diff(data.coverage, prepend=0.0).max() <= 1 / max_points + largest_step


def test_a_weight_of_two_is_the_example_twice(answers: Answers) -> None:
    confidence, correct = answers
    weight = np.random.default_rng(0).integers(0, 3, size=confidence.shape[0])
    once = risk_coverage(confidence, correct, sample_weight=weight)
    again = risk_coverage(np.repeat(confidence, weight), np.repeat(correct, weight))
    for name in ("threshold", "coverage", "risk"):
        assert getattr(once, name) == pytest.approx(getattr(again, name))


def test_max_points_is_checked(answers: Answers) -> None:
    with pytest.raises(ValueError, match=r"`max_points` must be an integer of at least 1; got 0"):
        risk_coverage(*answers, max_points=0)


def test_two_curves_on_one_axes_differ_in_style(answers: Answers, ax: Any) -> None:
    data = risk_coverage(*answers)
    draw_risk_coverage(data, ax, label="one")
    assert draw_risk_coverage(data, ax, label="two") is ax
    assert len({line.get_linestyle() for line in ax.lines}) == 2
    assert ax.get_ylim()[1] >= data.risk[data.coverage >= 0.05].max()
