"""Tables of the paper's two theorems on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical_paper.running.methods import EXACT
from hokical_paper.running.results import Results
from hokical_paper.running.stamp import made_by, made_note
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.method_columns import heads_of
from hokical_paper.tables.table import Cell, Row, Table, number
from hokical_paper.theory.theorems import BOUNDS, STEPS, bounds_of, simulate_bounds


def sufficiency_table(results: Results) -> Table:
    """The gap of Theorem 1 as the recursion goes on, on validation and test
    examples.
    """
    rows = []
    for pair, facts in facts_of(results, "sufficiency"):
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
        "the end; on the test set their gap is the ECE, of the curve as printed: exact "
        "Hoki departs from it where no example was seen.",
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
    for pair, facts in facts_of(results, "bounds"):
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


def facts_of(results: Results, name: str) -> list[tuple[Pair, dict[str, Any]]]:
    """What was measured with exact Hoki, for the pairs that have it."""
    by_pair = [(pair, results.get(pair, EXACT)) for pair in results.suite.pairs]
    return [
        (pair, r.facts[name])
        for pair, r in by_pair
        if r is not None and name in r.facts
    ]
