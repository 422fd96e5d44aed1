"""Tables and figures of the paper's two theorems on data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hokical_paper.figures.panels import add_legend, make_panels
from hokical_paper.figures.styles import BLUE, GREY, ORANGE
from hokical_paper.running.methods import EXACT
from hokical_paper.running.results import Results
from hokical_paper.running.stamp import made_by, made_note
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.method_columns import heads_of
from hokical_paper.tables.table import Cell, Row, Table, number
from hokical_paper.theory.theorems import BOUNDS, STEPS, bounds_of, simulate_bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sufficiency_table(results: Results) -> Table:
    """The gap of Theorem 1 as the recursion goes on, on validation and test
    examples.
    """
    rows = []
    for pair, facts in _facts(results, "sufficiency"):
        for subset in ("validation", "test"):
            measured = facts[subset]
            by_step = {entry["step"]: entry["error"] for entry in measured}
            last = measured[-1]
            gaps = np.abs(np.subtract(last["implied"], last["confidence"]))
            cells = (
                *(number(by_step.get(step)) for step in STEPS),
                number(last["error"]),
                number(float(gaps.max())),
                Cell(str(len(last["bins"]))),
                Cell(str(facts["n_steps"])),
                Cell(facts["ending"]),
            )
            rows.append(Row(heads_of(pair), subset, cells))
    notes = (
        "Mean over bins, by weight, of |alpha gamma + beta (1 - gamma) - mean "
        "confidence|, after so many steps of exact Hoki and after the last; then the "
        "largest gap of a bin, the bins in use, the steps, and how they ended. Perfect "
        "calibration needs both sides to be equal: on the validation set they are at "
        "the end; on the test set their gap is the ECE.",
        made_note(r.made for r in results.by_cell.values()),
    )
    columns = (
        *(f"step {step}" for step in STEPS),
        "last step",
        "largest gap",
        "bins",
        "steps",
        "ending",
    )
    title = "Theorem 1: the gap between its two sides, by step"
    return Table("theorem_1", title, columns, tuple(rows), notes)


def bounds_table(results: Results) -> Table:
    """Theorem 2 and its corrections: in simulation, and against held-out images."""
    rows = []
    for simulation in simulate_bounds():
        heads = ("simulation", f"{simulation.n:,} examples")
        cells = [number(simulation.mean_bound[name]) for name in BOUNDS]
        rows.append(
            Row(
                heads,
                "mean",
                (number(simulation.mean_ece), number(simulation.true_error), *cells),
            )
        )
        shares = [
            Cell(f"{simulation.coverage[name]:.1%}", simulation.coverage[name])
            for name in BOUNDS
        ]
        rows.append(Row(heads, "holds", (Cell(), Cell(), *shares)))
    for pair, facts in _facts(results, "bounds"):
        bounds = bounds_of(facts["ece"], facts["brier"], facts["n"])
        cells = [number(bound) for bound in bounds.values()]
        heads = heads_of(pair)
        source = f"{facts['n']:,} / {facts['n_held']:,}"
        row = (number(facts["ece"]), number(facts["held_ece"]), *cells)
        rows.append(Row(heads, source, row))
    notes = (
        "Upper bounds on the calibration error with probability 95 %, from the ECE (15 "
        "bins) of a test set. Simulation: the true error is known; 1000 test sets of "
        "each size, and the share for which the bound holds. Pairs: exact Hoki fitted "
        "on half of the validation set, the bound from the other half (first number), "
        "the error on all test examples (second number) in place of the true one.",
        "paper: as published. Its proof has gaps, but at 15 bins it follows from the "
        "union bound, which is smaller.",
        made_note(
            [made_by(), *(r.made for r in results.by_cell.values())]
        ),  # simulated now
    )
    columns = ("ECE", "true or held-out error", *BOUNDS)
    title = "Theorem 2: bounds and errors"
    return Table("theorem_2", title, columns, tuple(rows), notes)


def draw_sufficiency(results: Results) -> Figure:
    """One panel per pair: both sides of Theorem 1 per bin, after the first and the
    last step.
    """
    found = list(_facts(results, "sufficiency"))
    figure, panels = make_panels(len(found), columns=4, width=3.0, height=3.0)
    for at, ((pair, facts), ax) in enumerate(zip(found, panels, strict=False)):
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
    add_legend(figure, panels, len(found))
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
            for _, facts in _facts(results, "bounds")
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


def _facts(results: Results, name: str) -> list[tuple[Pair, dict[str, Any]]]:
    """What was measured with exact Hoki, for the pairs that have it."""
    by_pair = [(pair, results.get(pair, EXACT)) for pair in results.suite.pairs]
    return [
        (pair, r.facts[name])
        for pair, r in by_pair
        if r is not None and name in r.facts
    ]
