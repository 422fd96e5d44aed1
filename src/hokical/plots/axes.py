"""Axes and colours of the plots: the only module that imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any  # plots can be computed without matplotlib

#: Distinct for colour-blind readers, and by lightness in grey print.
BLUE, ORANGE, GREEN, GREY = "#2f5d9b", "#e08a3c", "#1b7f5c", "#555555"
SERIES = (BLUE, ORANGE, GREEN, "#8a4f9e", "#a03040", "#333333")
#: One more than colours, so that pairs repeat only after 42.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def axes_or_new(ax: Axes | None) -> Axes:
    """The given Axes, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "drawing needs matplotlib, which is not installed: pip install 'hokical[plot]'. "
            "The numbers of a plot can be computed without it."
        ) from error
    return plt.subplots(layout="constrained")[1]
