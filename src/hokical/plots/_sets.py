"""Prediction sets: how large they are, and how often sets of each size hold the true class."""

from __future__ import annotations

from typing import Any

from hokical.metrics._sets import summarize_sets
from hokical.plots._axes import BLUE, GREY, ORANGE, Axes, axes_or_new


def draw_sets(
    members: Any, labels: Any, ax: Axes | None = None, *, goal: float | None = None, **style: Any
) -> Axes:
    """Share of the sets of each size as bars, and their coverage with intervals as points.

    `members` (n, classes), bool, are those of `predict_set`, `labels` (n,) the true classes; `goal`
    is the coverage that was asked for. `style` is that of matplotlib's bars.
    """
    found = summarize_sets(members, labels, goal=goal)
    axes, rows, n = axes_or_new(ax), found.by_size, found.overall.n
    places = list(range(len(rows)))
    bars: dict[str, Any] = {"color": BLUE, "alpha": 0.5, "label": "share of sets"} | style
    axes.bar(places, [row.n / n for row in rows], **bars)
    ends = [[row.coverage - row.low for row in rows], [row.high - row.coverage for row in rows]]
    heights = [row.coverage for row in rows]
    axes.errorbar(places, heights, yerr=ends, fmt="o", color=ORANGE, label="true class inside")
    if found.goal is not None:
        axes.axhline(found.goal, color=GREY, linestyle="--", label="asked for")
    axes.set_xticks(places, [row.name for row in rows])
    axes.set(xlabel="classes in the set", ylim=(0.0, 1.02))
    axes.legend(frameon=False, loc="center")
    return axes
