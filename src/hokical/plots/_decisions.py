"""Decision curves: the net benefit of treating by risk."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical.metrics._risk_models import decision_curve
from hokical.plots._axes import GREY, Axes, axes_or_new, ink


def draw_decision_curve(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    thresholds: Any = None,
    delta: float = 0.05,
    label: str = "model",
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Net benefit by threshold with its band, beside treating all and none.

    Call it again with the same Axes and another `label` to compare. Arguments are as in
    `hokical.metrics.decision_curve`; `style` is that of matplotlib's lines.
    """
    ax = axes_or_new(ax)
    curve = decision_curve(proba, labels, thresholds, delta=delta, sample_weight=sample_weight)
    if not ax.lines:
        ax.plot(curve.threshold, curve.treat_all, color=GREY, linestyle="--", label="treat all")
        ax.axhline(0.0, color=ink(ax), linewidth=0.8, label="treat none")
    (line,) = ax.plot(curve.threshold, curve.net_benefit, **({"label": label} | style))
    band: dict[str, Any] = {"color": line.get_color(), "alpha": 0.15, "linewidth": 0}
    ax.fill_between(curve.threshold, curve.low, curve.high, **band)
    top = max(float(np.max(np.asarray(each.get_ydata()))) for each in ax.lines)
    ax.set(xlim=(0, 1), ylim=(-0.1 * top, 1.15 * top))
    ax.set(xlabel="threshold of the risk", ylabel="net benefit")
    ax.legend(loc="upper right", frameon=False)
    return ax
