"""A grid of panels and its legend; only drawing imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Room that a legend needs, in inches: for a marker, a letter, a line; and the least
#: for panels.
_MARKER = 0.7
_LETTER = 0.085
_LINE = 0.22
_LEAST = 5.25


def make_panels(
    n: int, *, columns: int, width: float, height: float = 3.4
) -> tuple[Figure, list[Axes]]:
    """A figure with `n` panels in at most so many columns; four are two by two."""
    import matplotlib.pyplot as plt

    columns = 2 if n == 4 and columns == 3 else min(n, columns)
    rows = -(-n // columns)
    size = (max(width * columns, _LEAST), height * rows)
    figure, grid = plt.subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False
    )
    panels = list(grid.flat)
    for ax in panels[n:]:
        ax.set_axis_off()
    return figure, panels


def add_legend(figure: Figure, panels: list[Axes], n: int) -> None:
    """One legend for all panels, each label once: in an empty panel, or below all."""
    handles, labels = panels[0].get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    if n < len(panels) and len(by_label) > 8:
        panels[n].legend(by_label.values(), by_label, loc="center left", frameon=False)
    else:
        legend_below(figure, list(by_label.values()), list(by_label))


def legend_below(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """A legend below all panels, in as few lines as fit; the figure grows by its
    height.
    """
    n = len(labels)
    lines = 1
    while lines < n and _width_of(labels, lines) > figure.get_figwidth():
        lines += 1
    figure.set_figheight(figure.get_figheight() + _LINE * lines)
    columns = -(-n // lines)
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False
    )


def _width_of(labels: list[str], lines: int) -> float:
    """Width of a legend whose columns have so many entries."""
    columns = [labels[at : at + lines] for at in range(0, len(labels), lines)]
    return sum(_MARKER + _LETTER * max(map(len, column)) for column in columns)
