"""Prediction sets at a glance: how large they are, and how often sets of each size are right."""

from __future__ import annotations

from hokical.metrics._sets import SetSummary
from hokical.plots._axes import BLUE, GREY, ORANGE, Axes, axes_or_new


def draw_sets(found: SetSummary, ax: Axes | None = None) -> Axes:
    """Share of the sets of each size as bars, and their coverage with intervals as points."""
    axes, rows, n = axes_or_new(ax), found.by_size, found.overall.n
    places = list(range(len(rows)))
    axes.bar(places, [row.n / n for row in rows], color=BLUE, alpha=0.5, label="share of sets")
    ends = [[row.coverage - row.low for row in rows], [row.high - row.coverage for row in rows]]
    heights = [row.coverage for row in rows]
    axes.errorbar(places, heights, yerr=ends, fmt="o", color=ORANGE, label="true class inside")
    if found.goal is not None:
        axes.axhline(found.goal, color=GREY, linestyle="--", label="asked for")
    axes.set_xticks(places, [row.name for row in rows])
    axes.set(xlabel="classes in the set", ylim=(0.0, 1.02))
    axes.legend(frameon=False, loc="center")
    return axes
