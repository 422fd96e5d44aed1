"""Plots: `x(...)` computes the numbers of a plot, `draw_x(numbers, ax)` draws them on an Axes.

Computing needs no matplotlib; drawing does (the extra `plot`).
"""

from hokical.plots._methods import (
    RiskCoverage,
    draw_risk_coverage,
    risk_coverage,
)
from hokical.plots._reliability import (
    ConfidenceHistogram,
    Reliability,
    confidence_histogram,
    draw_histogram,
    draw_reliability,
    reliability,
)
from hokical.plots._sets import draw_sets

__all__ = [
    "ConfidenceHistogram", "Reliability", "RiskCoverage", "confidence_histogram", "draw_histogram",
    "draw_reliability", "draw_risk_coverage", "draw_sets", "reliability", "risk_coverage",
]  # fmt: skip
