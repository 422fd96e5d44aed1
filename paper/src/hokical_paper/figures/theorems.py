"""Both theorems on data as figures; only drawing imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hokical_paper.figures.panels import add_legend, make_panels
from hokical_paper.figures.styles import BLUE, GREY, ORANGE
from hokical_paper.running.results import Results
from hokical_paper.tables.method_columns import heads_of
from hokical_paper.tables.theorems import facts_of
from hokical_paper.theory.theorems import BOUNDS, bounds_of, simulate_bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_sufficiency(results: Results) -> Figure:
    """One panel per pair: both sides of Theorem 1 per bin, after the first and the
    last step.
    """
    measured = facts_of(results, "sufficiency")
    figure, panels = make_panels(len(measured), columns=4, width=3.0, height=3.0)
    for at, ((pair, facts), ax) in enumerate(zip(measured, panels, strict=False)):
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, zorder=1)
        for entry in facts["validation"][:-1]:
            _draw_bins(
                ax, entry, color=GREY, alpha=0.55, label="validation, earlier steps"
            )
        _draw_bins(
            ax, facts["test"][-1], color=ORANGE, label="test, last step", zorder=3
        )
        _draw_bins(
            ax,
            facts["validation"][-1],
            color=BLUE,
            label="validation, last step",
            zorder=4,
        )
        ax.set(title=", ".join(heads_of(pair)), xlim=(0, 1), ylim=(0, 1))
        ax.set_xlabel("mean confidence")
        ax.set_ylabel("" if at % 4 else "implied accuracy")
    add_legend(figure, panels, len(measured))
    return figure


def draw_bounds(results: Results) -> Figure:
    """Each bound against the error that it bounds: by simulated size, and for every
    pair.
    """
    figure, (left, right) = make_panels(2, columns=2, width=5.2, height=4.2)
    simulated = simulate_bounds()
    sizes = [simulation.n for simulation in simulated]
    for name, marker in zip(BOUNDS, "osD^v", strict=True):
        left.plot(
            sizes, [f.mean_bound[name] for f in simulated], marker=marker, label=name
        )
        points = [
            (
                facts["held_ece"],
                bounds_of(facts["ece"], facts["brier"], facts["n"])[name],
            )
            for _, facts in facts_of(results, "bounds")
        ]
        right.plot(
            *zip(*points, strict=True), marker=marker, linestyle="none", label=name
        )
    left.plot(sizes, [f.true_error for f in simulated], color="black", label="error")
    left.set(
        xscale="log",
        yscale="log",
        title="Simulation",
        xlabel="test examples",
        ylabel="bound",
    )
    left.set_xticks(sizes, [f"{n:,}" for n in sizes])
    left.minorticks_off()
    errors = np.linspace(
        *right.get_xlim(), 100
    )  # equality is a curve: only one axis is a log
    right.plot(errors, errors, color="black", label="error")
    right.set(yscale="log", title="Exact Hoki on the suite's pairs")
    right.set(xlabel="error on held-out examples", ylabel="bound")
    right.locator_params(axis="x", nbins=5)
    add_legend(figure, [left], 1)
    return figure


def _draw_bins(ax: Axes, entry: dict[str, Any], **style: Any) -> None:
    """A point per bin, its area by the share of examples in it."""
    weight = np.array(entry["weight"])
    ax.scatter(
        entry["confidence"],
        entry["implied"],
        s=8 + 90 * weight / weight.sum(),
        linewidth=0,
        **style,
    )
