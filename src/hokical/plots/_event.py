"""The probability of an event: calibration curve, distribution by outcome, and decision curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.types import FloatArray
from hokical.metrics._levels import Levels
from hokical.metrics._risk_models import (
    BinarySummary,
    CalibrationCurve,
    DecisionCurve,
    RiskBands,
    binary_summary,
    decision_curve,
)
from hokical.plots._axes import BLUE, GREY, ORANGE, Axes, axes_or_new, ink

#: Where axes of probability may end; bars of a histogram; marks of a rug.
_TOPS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_BARS, _MARKS = 25, 120


@dataclass(frozen=True, eq=False)
class EventPicture:
    """What diagrams of an event show, on axes from 0 to `top`.

    `curve` is None where none can be fitted. `events` and `others` (bars,) are shares of the rows
    with and without the event whose probability lies between two of the `edges`; `rug_events` and
    `rug_others` are quantiles of their probabilities.
    """

    top: float
    curve: CalibrationCurve | None
    bands: RiskBands
    edges: FloatArray
    events: FloatArray
    others: FloatArray
    rug_events: FloatArray
    rug_others: FloatArray
    decision: DecisionCurve

    @classmethod
    def from_summary(
        cls, found: BinarySummary, edges: Any = None, top: float | None = None
    ) -> Self:
        """Of a summary; `edges` are those of the bands, `top` the end of the axes."""
        levels, bands = found.levels, found.bands(edges)
        top = axis_top(found) if top is None else top
        cuts = np.linspace(0.0, top, _BARS + 1)
        place = np.minimum((levels.confidence / top * _BARS).astype(np.int64), _BARS - 1)
        sides = (levels.correct, levels.errors)
        events, others = (
            np.bincount(place, weight, _BARS) / (float(weight.sum()) or 1.0) for weight in sides
        )
        rugs = [_quantiles(levels, weight) for weight in sides]
        net = found.decision_curve(top * np.arange(1, 100) / 100.0)
        return cls(top, found.curve, bands, cuts, events, others, rugs[0], rugs[1], net)

    def draw_curve(self, ax: Axes | None, delta: float, **style: Any) -> Axes:
        """The smooth curve with its band, points of bands with intervals, and rugs."""
        ax = axes_or_new(ax)
        ax.plot([0, self.top], [0, self.top], color=GREY, linestyle="--", label="calibrated")
        if self.curve is not None:
            look: dict[str, Any] = {"color": BLUE, "label": "smooth curve"} | style
            (line,) = ax.plot(self.curve.probability, self.curve.observed, **look)
            band: dict[str, Any] = {"color": line.get_color(), "alpha": 0.18, "linewidth": 0}
            ends = (self.curve.low, self.curve.high)
            ax.fill_between(self.curve.probability, *ends, **band, label=f"{1 - delta:.0%} band")
        rows = self.bands.rows
        x, y = [row.mean_probability for row in rows], [row.observed for row in rows]
        ends = ([r.observed - r.low for r in rows], [r.high - r.observed for r in rows])  # type: ignore[assignment]
        marks: dict[str, Any] = {"fmt": "o", "markersize": 4, "elinewidth": 1, "capsize": 2}
        ax.errorbar(x, y, yerr=np.maximum(ends, 0.0), color=ink(ax), label="bands", **marks)
        rug: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 7, "alpha": 0.5}
        ax.plot(
            self.rug_events, np.full(self.rug_events.size, 1.02 * self.top), color=ORANGE, **rug
        )
        ax.plot(self.rug_others, np.full(self.rug_others.size, -0.02 * self.top), color=GREY, **rug)
        ends_of_axis = (-0.05 * self.top, 1.06 * self.top)
        ax.set(xlim=(0, self.top), ylim=ends_of_axis)
        ax.set(xlabel="predicted probability", ylabel="observed share of events")
        ax.legend(loc="upper left", frameon=False)
        return ax


def axis_top(found: BinarySummary) -> float:
    """A round number that nearly all probabilities and observed shares lie below."""
    levels = found.levels
    most = levels.confidence[np.searchsorted(np.cumsum(levels.weight), 0.995 * levels.total)]
    largest = max(float(most), *(row.observed for row in found.bands().rows))
    return next((top for top in _TOPS if top >= largest), 1.0)


def _quantiles(levels: Levels, weight: FloatArray) -> FloatArray:
    reached = np.cumsum(weight)
    count = int(min(_MARKS, np.ceil(reached[-1])))
    if count == 0:
        return np.zeros(0)
    wanted = (np.arange(count) + 0.5) / count * reached[-1]
    place = np.minimum(np.searchsorted(reached, wanted), reached.size - 1)
    return np.asarray(levels.confidence[place])


def draw_calibration_curve(
    probability: Any,
    outcome: Any,
    ax: Axes | None = None,
    *,
    edges: Any = None,
    delta: float = 0.05,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Smooth calibration curve of an event with a band, over bands of probability with intervals.

    Marks above are rows with the event, marks below rows without. `edges` are those of
    `hokical.metrics.risk_bands`, other arguments those of `hokical.metrics.binary_summary`; `style`
    is that of matplotlib's lines.
    """
    found = binary_summary(probability, outcome, sample_weight, delta=delta)
    return EventPicture.from_summary(found, edges).draw_curve(ax, delta, **style)


def draw_distribution(
    probability: Any,
    outcome: Any,
    ax: Axes | None = None,
    *,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Distribution of the probabilities of rows with the event, above, and without, below.

    Arguments are those of `hokical.metrics.binary_summary`; `style` is that of matplotlib's bars.
    """
    found = EventPicture.from_summary(binary_summary(probability, outcome, sample_weight))
    ax = axes_or_new(ax)
    shape: dict[str, Any] = {"width": np.diff(found.edges), "align": "edge"}
    shape |= {"edgecolor": ax.get_facecolor()} | style
    ax.bar(found.edges[:-1], found.events, **({"color": ORANGE, "label": "event"} | shape))
    ax.bar(found.edges[:-1], -found.others, **({"color": GREY, "label": "no event"} | shape))
    ax.axhline(0.0, color=ink(ax), linewidth=0.8)
    ax.set(
        xlim=(0, found.top), xlabel="predicted probability", ylabel="share of the outcome's rows"
    )
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0%}")
    ax.legend(loc="upper right", frameon=False)
    return ax


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
