"""Plots: `x(...)` computes the numbers of a plot, `draw_x(numbers, ax)` draws them on an Axes.

Computing needs no matplotlib; drawing does (the extra `plot`).
"""

from hokical.plots._hoki import (
    NoiseWidths,
    StabilityCurve,
    draw_noise_widths,
    draw_stability_curve,
    noise_widths,
    stability_curve,
)
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
    "ConfidenceHistogram", "NoiseWidths", "Reliability", "RiskCoverage", "StabilityCurve",
    "confidence_histogram", "draw_histogram", "draw_noise_widths", "draw_reliability",
    "draw_risk_coverage", "draw_sets", "draw_stability_curve", "noise_widths", "reliability",
    "risk_coverage", "stability_curve",
]  # fmt: skip
