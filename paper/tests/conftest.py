"""A small suite and its results, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hokical_paper import experiments
from hokical_paper.cache import Cache
from hokical_paper.methods import INPUT, METHODS, MIXED, SLOW
from hokical_paper.results import Results
from hokical_paper.running import run_suite
from hokical_paper.suite import open_suite
from paper.tests.tiny_suite import write_suite

QUICK = [name for name in METHODS if name not in SLOW]


def run_quick(folder: Path, cache: Path, **options: Any) -> Results:
    """All but the matrix methods, with few resamples."""
    methods = [*QUICK, INPUT, MIXED]
    settings = {"methods": methods, "jobs": 1, "n_resamples": 20} | options
    return run_suite(open_suite(folder), Cache(cache), **settings)


@pytest.fixture
def suite_folder(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite")


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Results]]:
    """Folder of the suite, folder of the cache, results; with few draws, to be quick."""
    base = tmp_path_factory.mktemp("paper")
    folder, cache = write_suite(base / "suite"), base / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "N_DRAWS", 40)
        patch.setattr(experiments, "N_RESAMPLES", 20)
        yield folder, cache, run_quick(folder, cache)


@pytest.fixture(scope="session")
def results(ran: tuple[Path, Path, Results]) -> Results:
    return ran[2]


def run_alone(job: Any, device: Any) -> None:
    """Run one job of a training in one lane."""
    from hokical_paper.making.lanes import run_in_lanes

    run_in_lanes(iter([job]).__next__, 1, device)
