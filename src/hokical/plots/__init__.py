"""Plots: `x(...)` computes the numbers of a plot, `draw_x(numbers, ax)` draws them on an Axes.

Computing needs no matplotlib; drawing does (the extra `plot`).
"""

from hokical.plots.noise_width import NoiseWidths, draw_noise_widths, noise_widths
from hokical.plots.reliability import (
    ConfidenceHistogram,
    Reliability,
    confidence_histogram,
    draw_histogram,
    draw_reliability,
    reliability,
)
from hokical.plots.risk import RiskCoverage, draw_risk_coverage, risk_coverage
from hokical.plots.stability_curve import StabilityCurve, draw_stability_curve, stability_curve
from hokical.plots.variance import ErrorAgainstVariance, draw_variance, error_against_variance

__all__ = [
    "ConfidenceHistogram", "ErrorAgainstVariance", "NoiseWidths", "Reliability", "RiskCoverage",
    "StabilityCurve", "confidence_histogram", "draw_histogram", "draw_noise_widths",
    "draw_reliability", "draw_risk_coverage", "draw_stability_curve", "draw_variance",
    "error_against_variance", "noise_widths", "reliability", "risk_coverage", "stability_curve",
]  # fmt: skip
