"""Plots: each `draw_...` takes the arrays of a metric, an Axes to draw on, and matplotlib's styles.

Drawing needs matplotlib (the extra `plot`); `reliability` computes numbers without it.
"""

from hokical.plots._event import draw_calibration_curve, draw_decision_curve, draw_distribution
from hokical.plots._reliability import draw_histogram, draw_reliability, reliability
from hokical.plots._risk import draw_risk_coverage
from hokical.plots._sets import draw_sets

__all__ = [
    "draw_calibration_curve", "draw_decision_curve", "draw_distribution", "draw_histogram",
    "draw_reliability", "draw_risk_coverage", "draw_sets", "reliability",
]  # fmt: skip
