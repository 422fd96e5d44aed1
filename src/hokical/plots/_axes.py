"""Axes, colours and legends of the plots: the only module that imports matplotlib."""

import textwrap
from typing import TYPE_CHECKING, Any

from hokical._core.optional import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any  # plots can be computed without matplotlib

#: Distinct for colour-blind readers, and readable on white and on dark ground.
BLUE, ORANGE, GREY = "#3f74b5", "#e08a3c", "#808080"


def axes_or_new(ax: Axes | None) -> Axes:
    """The given Axes, or those of a new figure."""
    if ax is None:
        ax = import_optional("matplotlib.pyplot", "plot").subplots(layout="constrained")[1]
    return ax


def ink(ax: Axes) -> Any:
    """The colour of the Axes' own words: black, or white in `style.use("dark_background")`."""
    return ax.xaxis.label.get_color()


def legend_beside(ax: Axes) -> None:
    """A legend right of the Axes that is never cut, however many and long its names are.

    The figure grows for it if it holds nothing else; otherwise the letters get smaller.
    """
    handles, names = ax.get_legend_handles_labels()
    names = [textwrap.fill(name, 36) for name in names]
    lines = 1.3 * sum(name.count("\n") + 1 for name in names) + 0.6 * len(names) + 1
    figure: Any = ax.figure
    if figure.axes == [ax] and hasattr(figure, "set_layout_engine"):  # not a part of a figure
        figure.set_layout_engine(figure.get_layout_engine() or "constrained")
        width, height = figure.get_size_inches()
        figure.set_size_inches(max(width, 8.0), max(height, 9.0 / 72 * lines + 1.0))
    size = min(9.0, 72 * ax.get_window_extent().height / figure.dpi / lines)
    ax.legend(
        handles, names, fontsize=size, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
    )
