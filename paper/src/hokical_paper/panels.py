"""A grid of panels and its legend; only drawing imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Room that an entry of a legend needs, in inches: across and down.
_ENTRY, _LINE = 1.75, 0.22


def make_panels(
    n: int, *, columns: int, width: float, height: float = 3.4
) -> tuple[Figure, list[Axes]]:
    """A figure with `n` panels in at most so many columns; four are two by two."""
    import matplotlib.pyplot as plt

    columns = 2 if n == 4 and columns == 3 else min(n, columns)
    rows = -(-n // columns)
    size = (max(width * columns, 3 * _ENTRY), height * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    panels = list(grid.flat)
    for ax in panels[n:]:
        ax.set_axis_off()
    return figure, panels


def add_legend(figure: Figure, panels: list[Axes], n: int) -> None:
    """One legend for all panels, each label once: in an empty panel, or below all."""
    handles, labels = panels[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if n < len(panels) and len(once) > 8:
        panels[n].legend(once.values(), once, loc="center left", frameon=False)
    else:
        legend_below(figure, list(once.values()), list(once))


def legend_below(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """A legend below all panels, in as few lines as fit; the figure grows by its height."""
    most = max(1, int(figure.get_figwidth() / _ENTRY))
    lines = -(-len(labels) // most)
    figure.set_figheight(figure.get_figheight() + _LINE * lines)
    columns = -(-len(labels) // lines)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
