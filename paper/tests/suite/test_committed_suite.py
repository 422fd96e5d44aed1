"""The suite that comes with the source: whole, small, and as accurate as the paper's
networks.
"""

from __future__ import annotations

import pytest

from hokical.io import DataFileError
from hokical_paper.making.export import LARGEST_FILE
from hokical_paper.making.recipes import RECIPES
from hokical_paper.published import published_number
from hokical_paper.suite.manifest import Suite, open_suite

_MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def suite() -> Suite:
    try:
        return open_suite()
    except DataFileError as error:
        pytest.skip(f"the suite comes with the source code: {error}")


def test_all_eleven_trained_pairs_and_imagenet_are_there(suite: Suite) -> None:
    assert set(suite.names) == {*RECIPES, "imagenet_efficientnet_lite0"}


def test_it_is_small(suite: Suite) -> None:
    files = [pair.folder / name for pair in suite.pairs for name in pair.entry["files"]]
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) <= LARGEST_FILE
    assert sum(sizes) < 30 * _MEGABYTE


@pytest.mark.parametrize("name", RECIPES)
def test_networks_are_as_good_as_the_papers(suite: Suite, name: str) -> None:
    """The logits are read, so checksums are checked too."""
    pair = suite[name]
    data = pair.load()
    accuracy = float(data.test_correct.mean())
    assert accuracy == pair.entry["test_accuracy"]
    published = published_number("ece_15_bins", pair.dataset, pair.network, "test_acc")
    assert published is not None
    assert 100.0 * accuracy > published - 2.0
    assert pair.recal is not None
    assert data.recal_confidence is not None
    assert data.recal_confidence.shape == data.test_labels.shape
