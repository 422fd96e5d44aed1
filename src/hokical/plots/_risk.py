"""Risk-coverage curves: the share of wrong predictions among the most confident ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.types import FloatArray
from hokical.metrics._chunked import read_levels
from hokical.metrics._levels import Levels
from hokical.metrics._ranking import area_under_risk, risk_coverage
from hokical.plots._axes import Axes, axes_or_new, legend_beside

#: At lower coverages few examples are left, and their risk does not set the axis.
_READABLE_COVERAGE = 0.05
_POINTS = 200


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Answering where confidence >= `threshold` covers `coverage` at `risk`; (points,) each.

    About 200 points at evenly spaced coverages, a subset of the curve's, not interpolated; `area`
    is the AURC of the whole curve.
    """

    threshold: FloatArray
    coverage: FloatArray
    risk: FloatArray
    area: float

    @classmethod
    def from_levels(cls, levels: Levels) -> Self:
        """The curve of a table of levels."""
        coverage, risk = risk_coverage(levels)
        wanted = np.arange(1, _POINTS + 1) / _POINTS
        kept = np.unique(np.minimum(np.searchsorted(coverage, wanted), coverage.shape[0] - 1))
        curve = (levels.confidence[::-1][kept], coverage[kept], risk[kept])
        return cls(*curve, area_under_risk(levels))


def draw_risk_coverage(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    label: str | None = None,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """One curve; call it again with the same Axes and another `label` to compare.

    `proba`, `labels` and `sample_weight` are as in `ece`; `style` is that of matplotlib's lines.
    """
    data, ax = RiskCoverage.from_levels(read_levels(proba, labels, sample_weight)), axes_or_new(ax)
    shown = f"AURC {data.area:.4f}" if label is None else f"{label} (AURC {data.area:.4f})"
    dashes = ("-", "--", "-.", ":")[len(ax.lines) % 4]
    ax.plot(data.coverage, data.risk, **({"linestyle": dashes, "label": shown} | style))
    curves = [np.asarray(line.get_xydata()) for line in ax.lines]
    top = max(points[points[:, 0] >= _READABLE_COVERAGE, 1].max() for points in curves)
    ax.set(xlim=(0, 1), ylim=(0, max(1.1 * top, 1e-3)))
    ax.set(xlabel="coverage (most confident first)", ylabel="risk (share wrong)")
    if len(ax.lines) > 6:  # more names than fit above the curves
        legend_beside(ax)
    else:
        ax.legend(loc="upper left", frameon=False)
    return ax
