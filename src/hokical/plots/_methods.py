"""Risk-coverage curves: the share of wrong predictions among the most confident ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical._core.types import FloatArray
from hokical.metrics._ranking import area_under_risk, rank
from hokical.plots._axes import Axes, axes_or_new, legend_beside

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
