"""A small suite and its results, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # or the process that only hands tests out would import all libraries
    from hokical_paper.running.results import Results


@pytest.fixture
def suite_folder(tmp_path: Path) -> Path:
    from paper.tests.tiny_suite import write_suite

    return write_suite(tmp_path / "suite")


@pytest.fixture(scope="session")
def ran(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, Path, Results]]:
    """Folder of the suite, folder of the cache, results; with few draws, to be
    quick.
    """
    from hokical_paper.running import experiments
    from paper.tests.tiny_suite import run_quick, write_suite

    base = tmp_path_factory.mktemp("paper")
    folder, cache = write_suite(base / "suite"), base / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "N_DRAWS", 40)
        yield folder, cache, run_quick(folder, cache)


@pytest.fixture(scope="session")
def results(ran: tuple[Path, Path, Results]) -> Results:
    return ran[2]


def run_alone(job: Any, device: Any) -> None:
    """Run one job of a training in one lane."""
    from hokical_paper.making.lanes import run_in_lanes

    run_in_lanes(iter([job]).__next__, 1, device)
