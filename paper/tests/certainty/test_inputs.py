"""What transformed inputs change, over divisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hokical_paper.certainty.contests import Divisions
from hokical_paper.certainty.divisions import run_inputs
from hokical_paper.certainty.inputs import (
    USES,
    input_network_table,
    input_table,
    mean_change,
)
from hokical_paper.running.cache import Cache
from hokical_paper.running.methods import AUTO_BESIDE
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import open_suite


@pytest.mark.slow
def test_changes_by_inputs(ran: tuple[Path, Path, Results]) -> None:
    """Rows of a network and of all; the mean is that of the stored changes."""
    suite = open_suite(ran[0])
    computed = run_inputs(suite, Cache(ran[1]), n_divisions=2, jobs=1)
    pairs = [pair for pair in suite.pairs if pair.has_views]
    assert {(r.pair, r.division) for r in computed} == {
        (pair.name, division) for pair in pairs for division in (0, 1)
    }
    divisions = Divisions.of(computed, [pair.name for pair in pairs])
    table = input_table(divisions, pairs)
    rows = {(*row.heads, row.source): row.cells for row in table.rows}
    cells = rows["all", f"{len(pairs)} networks", "beside auto's confidence"]
    changes = [r.facts["change"]["brier"] for r in computed if r.method == AUTO_BESIDE]
    assert cells[0].value == pytest.approx(np.mean(changes))
    assert cells[-1].text == f"{sum(x < 0.0 for x in changes)} of {len(changes)}"
    assert "2 random divisions" in table.notes[1]
    assert len(input_network_table(divisions, pairs).rows) == len(pairs) * len(USES)


def test_the_interval_of_a_change_covers() -> None:
    """Networks that differ, measured on the same images over overlapping divisions."""
    rng = np.random.default_rng(0)
    truth, spread, error = -0.1, 0.05, 0.08
    covered = 0
    for _ in range(400):
        networks = truth + spread * rng.normal(size=(5, 1))
        images = error * rng.normal()
        changes = networks + images + 0.02 * rng.normal(size=(5, 20))
        change = mean_change(changes, np.full(5, error))
        covered += change.low <= truth <= change.high
    assert covered >= 0.93 * 400
