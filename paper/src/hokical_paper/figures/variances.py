"""ECE against the variance of the confidences: the paper's figure, one panel per
network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hokical_paper.figures.styles import style_of
from hokical_paper.running.methods import title_of
from hokical_paper.running.results import Result, Results
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.method_columns import heads_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Space next to the outermost points, as a share of their range.
_MARGIN = 0.12
#: A point further away from the others than this many times their range is an outlier
#: and is not shown. The figure is about calibrated methods, so the limit is lower for
#: the uncalibrated one.
_FAR = 3.0
_FAR_UNCALIBRATED = 0.5


def draw_panel(results: Results, pair: Pair, ax: Axes) -> None:
    """A marker with its interval per method; outliers get an arrow at the edge
    instead.
    """
    by_method = {method: results.get(pair, method) for method in results.methods}
    ran = {method: result for method, result in by_method.items() if result is not None}
    inside = _drop_outliers({method: r.score("sharpness") for method, r in ran.items()})
    floor = _lowest_shown(list(ran.values()))
    for method in results.methods:
        # Missing methods and outliers keep their place in the legend.
        shown = ran[method] if method in inside else None
        _draw_point(ax, method, shown, floor)
    ax.set(yscale="log", title=heads_of(pair)[1])
    ax.set_xlabel("variance (higher is more informative)")
    ax.set_ylabel("ECE (lower is better)")
    ax.locator_params(axis="x", nbins=5)
    if inside:
        values = list(inside.values())
        room = _MARGIN * (max(values) - min(values)) or 0.1 * max(values) or 1e-3
        ax.set_xlim(min(values) - room, max(values) + room)
    _annotate_outliers([ran[method] for method in ran if method not in inside], ax)


def _drop_outliers(variances: dict[str, float]) -> dict[str, float]:
    """The methods without outliers, which would dominate the axis."""
    remaining = dict(variances)
    if _is_outlier("uncalibrated", remaining, _FAR_UNCALIBRATED):
        del remaining["uncalibrated"]
    while remaining:
        middle = float(np.median(list(remaining.values())))
        farthest = max(remaining, key=lambda name: abs(remaining[name] - middle))
        if not _is_outlier(farthest, remaining, _FAR):
            break
        del remaining[farthest]
    return remaining


def _is_outlier(name: str, variances: dict[str, float], ranges: float) -> bool:
    """Whether the distance to the nearest other method exceeds `ranges` times their
    range.
    """
    remaining = [value for method, value in variances.items() if method != name]
    if name not in variances or len(remaining) < 3:
        return False
    nearest = min(abs(variances[name] - value) for value in remaining)
    return nearest > ranges * (max(remaining) - min(remaining))


def _draw_point(ax: Axes, method: str, result: Result | None, floor: float) -> None:
    style = style_of(method)
    label = title_of(method)
    if result is None:
        ax.plot([np.nan], [np.nan], linestyle="none", label=label, **style.points)
        return
    error = result.scores["ece"]
    x = result.score("sharpness")
    ax.plot(
        [x], [max(error.value, floor)], linestyle="none", label=label, **style.points
    )
    interval = np.array([error.low, error.high])
    if np.isfinite(interval).all():
        ax.vlines(
            x, *np.maximum(interval, floor), color=style.colour, linewidth=1, alpha=0.6
        )


def _annotate_outliers(far: list[Result], ax: Axes) -> None:
    """Text with an arrow at the edge for each method beyond it."""
    right = ax.get_xlim()[1]
    for result in far:
        variance = result.score("sharpness")
        error = result.score("ece")
        is_right = variance > right
        arrow = "{} \N{RIGHTWARDS ARROW}" if is_right else "\N{LEFTWARDS ARROW} {}"
        text = f"{title_of(result.method)}: ECE {error:.3f}, variance {variance:.3f}"
        ax.annotate(
            arrow.format(text),
            (0.98 if is_right else 0.02, error),
            xycoords=ax.get_yaxis_transform(),  # x as a share of the panel, y in data
            ha="right" if is_right else "left",
            va="center",
            fontsize=8,
        )
        ax.update_datalim([(right, error)], updatex=False)
    ax.autoscale_view(scalex=False)


def _lowest_shown(shown: list[Result]) -> float:
    """The position on the log scale of an error, or of an interval's end, that is 0."""
    positive = [error for result in shown if (error := result.score("ece")) > 0.0]
    return 0.25 * min(positive) if positive else 1e-6
