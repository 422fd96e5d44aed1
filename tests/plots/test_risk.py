"""The risk-coverage curve, thinned."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical.metrics import (
    aurc,
    decision_curve,
    risk_bands,
    risk_coverage_curve,
    selective_risk,
)
from hokical.plots import (
    draw_calibration_curve,
    draw_decision_curve,
    draw_distribution,
    draw_risk_coverage,
)

Answers = tuple[np.ndarray, np.ndarray]


def drawn(ax: Any, *data: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coverage and risk of the curve."""
    draw_risk_coverage(*data, ax, **options)
    points = np.asarray(ax.lines[-1].get_xydata())
    return points[:, 0], points[:, 1]


def test_every_point_is_the_risk_at_its_coverage(answers: Answers, ax: Any) -> None:
    coverage, risk = drawn(ax, *answers)
    np.testing.assert_allclose(risk, selective_risk(*answers, coverage=coverage))
    assert f"AURC {aurc(*answers):.4f}" in ax.lines[0].get_label()


def test_thinning_keeps_the_end_and_spreads_the_rest(ax: Any) -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(5000)
    correct = rng.random(5000) < confidence
    coverage, risk = drawn(ax, confidence, correct)
    whole = risk_coverage_curve(confidence, correct)
    assert coverage.shape[0] == 200
    assert (coverage[-1], risk[-1]) == (whole[0][-1], whole[1][-1])
    assert set(coverage) <= set(whole[0])
    assert np.diff(coverage, prepend=0.0).max() <= 1 / 200 + 1 / 5000 + 1e-12


def test_a_weight_of_two_is_the_example_twice(answers: Answers, ax: Any) -> None:
    confidence, correct = answers
    weight = np.random.default_rng(0).integers(0, 3, size=confidence.shape[0])
    once = drawn(ax, confidence, correct, sample_weight=weight)
    again = drawn(ax, np.repeat(confidence, weight), np.repeat(correct, weight))
    np.testing.assert_allclose(once, again)


def test_two_curves_on_one_axes_differ_in_style(answers: Answers, ax: Any) -> None:
    coverage, risk = drawn(ax, *answers, label="one")
    assert draw_risk_coverage(*answers, ax, label="two", color="red") is ax
    assert ax.lines[1].get_color() == "red"
    assert len({line.get_linestyle() for line in ax.lines}) == 2
    assert ax.get_ylim()[1] >= risk[coverage >= 0.05].max()


def test_decision_curves_share_axes_and_style(answers: Answers, ax: Any) -> None:
    curve = decision_curve(*answers)
    draw_decision_curve(*answers, ax, label="one")
    assert draw_decision_curve(*answers, ax, label="two", color="red") is ax
    drawn = {line.get_label(): line for line in ax.lines}
    assert list(drawn) == ["treat all", "treat none", "one", "two"]
    assert drawn["two"].get_color() == "red"
    np.testing.assert_allclose(drawn["one"].get_ydata(), curve.net_benefit)
    assert ax.get_ylim()[1] < 1.5 * curve.treat_all.max()


def test_the_calibration_curve_has_the_bands_and_both_rugs(
    answers: Answers, ax: Any
) -> None:
    assert draw_calibration_curve(*answers, ax, edges=[0.3, 0.6], color="red") is ax
    rows = risk_bands(*answers, edges=[0.3, 0.6]).rows
    points = ax.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(
        points, [(row.mean_probability, row.observed) for row in rows]
    )
    assert ax.lines[1].get_color() == "red"
    assert sum(line.get_marker() == "|" for line in ax.lines) == 2


def test_both_outcomes_of_a_distribution_add_up(answers: Answers, ax: Any) -> None:
    draw_distribution(*answers, ax)
    up, down = ([bar.get_height() for bar in bars] for bars in ax.containers)
    np.testing.assert_allclose([sum(up), sum(down)], [1.0, -1.0])
