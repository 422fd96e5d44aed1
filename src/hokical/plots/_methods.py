"""Methods side by side: risk-coverage curves, and calibration error against spread.

The risk is the share of wrong answers if only the most confident are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical._core.types import FloatArray
from hokical.metrics._ranking import area_under_risk, rank
from hokical.metrics._summaries import Summary
from hokical.plots._axes import MARKERS, SERIES, Axes, axes_or_new, legend_beside

#: At lower coverages few examples are left, and their risk does not set the axis.
_READABLE_COVERAGE = 0.05


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Answering where confidence >= `threshold` covers `coverage` at `risk`; (points,) each.

    Points are a subset of the curve's, not interpolated; `area` is the AURC of the whole curve.
    """

    threshold: FloatArray
    coverage: FloatArray
    risk: FloatArray
    area: float


def risk_coverage(
    confidence: Any, correct: Any, *, max_points: int = 200, sample_weight: Any = None
) -> RiskCoverage:
    """The curve at about evenly spaced coverages, and at 1; other arguments as in `ece`.

    >>> data = risk_coverage([0.9, 0.8, 0.8, 0.3], [True, True, False, False])
    >>> data.threshold.tolist(), data.coverage.tolist(), data.risk.round(3).tolist()
    ([0.9, 0.8, 0.3], [0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    check_count(max_points, name="max_points")
    ranked = rank(confidence, correct, sample_weight)
    coverage, risk = ranked.risk_coverage()
    wanted = np.arange(1, max_points + 1) / max_points
    kept = np.unique(np.minimum(np.searchsorted(coverage, wanted), coverage.shape[0] - 1))
    threshold, area = ranked.confidence[::-1], float(area_under_risk(ranked))
    return RiskCoverage(threshold[kept], coverage[kept], risk[kept], area)


def draw_risk_coverage(
    data: RiskCoverage, ax: Axes | None = None, *, label: str | None = None
) -> Axes:
    """One curve; call it again with the same Axes and another `label` to compare."""
    ax = axes_or_new(ax)
    style = ("-", "--", "-.", ":")[len(ax.lines) % 4]
    shown = f"AURC {data.area:.4f}" if label is None else f"{label} (AURC {data.area:.4f})"
    ax.plot(data.coverage, data.risk, linestyle=style, label=shown)
    curves = [np.asarray(line.get_xydata()) for line in ax.lines]
    top = max(points[points[:, 0] >= _READABLE_COVERAGE, 1].max() for points in curves)
    ax.set(xlim=(0, 1), ylim=(0, max(1.1 * top, 1e-3)))
    ax.set(xlabel="share of examples answered, most confident first", ylabel="share of them wrong")
    if len(ax.lines) > 6:  # more names than fit above the curves
        legend_beside(ax)
    else:
        ax.legend(loc="upper left", frameon=False)
    return ax


@dataclass(frozen=True, eq=False)
class ErrorAgainstVariance:
    """One point per method, (methods,) each; interval ends are NaN if there are none."""

    names: tuple[str, ...]
    ece: FloatArray
    ece_low: FloatArray
    ece_high: FloatArray
    variance: FloatArray


def error_against_variance(summaries: Mapping[str, Summary]) -> ErrorAgainstVariance:
    """ECE and variance of confidence from a summary per method.

    The paper's figure. A method that says the accuracy for every example has no calibration error
    and no information. The good corner is at the bottom right: small error, large spread.

    >>> from hokical.metrics import summary
    >>> one = summary([0.9, 0.7], [True, False], n_resamples=0)
    >>> data = error_against_variance({"mine": one})
    >>> data.names, data.ece.round(3).tolist(), data.variance.round(3).tolist()
    (('mine',), [0.4], [0.01])
    """
    if not summaries:
        raise ValueError("`summaries` must hold at least one method; got none.")
    both = [(found["ece"], found["sharpness"]) for found in summaries.values()]
    rows = [(error.value, error.low, error.high, variance.value) for error, variance in both]
    return ErrorAgainstVariance(tuple(summaries), *np.array(rows).T)


def draw_variance(data: ErrorAgainstVariance, ax: Axes | None = None) -> Axes:
    """A labelled marker with its interval per method, the error on a log scale."""
    ax = axes_or_new(ax)
    positive = data.ece[data.ece > 0.0]
    floor = 0.25 * float(positive.min()) if positive.size else 1e-6  # where 0 is shown
    for place, name in enumerate(data.names):
        ends = np.array([data.ece_low[place], data.ece_high[place]])
        color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
        x, y = data.variance[place], max(data.ece[place], floor)
        ax.plot([x], [y], linestyle="none", label=name, color=color, marker=marker)
        if np.isfinite(ends).all():
            ax.vlines(x, *np.maximum(ends, floor), color=color, linewidth=1, alpha=0.6)
    ax.set(yscale="log", xlabel="variance of confidence (more is more informative)")
    ax.locator_params(axis="x", nbins=5)
    ax.set_ylabel("ECE (less is better)")
    legend_beside(ax)  # points often overlap, so names are not in the plot
    return ax
