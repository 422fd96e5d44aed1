"""The fingerprint of the rows of a fit: the smallest hashes, however many rows there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical.guarantees._row_sketch import _KEPT, RowSketch
from tests.conftest import max_examples


@pytest.mark.parametrize("distinct", [3, _KEPT - 1, 2 * _KEPT, 10**9])
@max_examples(20)
@given(seed=st.integers(0, 10**6), size=st.integers(0, 40 * _KEPT))
def test_the_smallest_hashes_are_kept_and_counted(distinct: int, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    hashes = rng.integers(distinct, size=size) / distinct
    counts = rng.integers(1, 4, size=size)
    found = RowSketch.from_counts(hashes, counts)
    assert np.array_equal(found.hashes, np.unique(hashes)[:_KEPT])
    assert found.counts.tolist() == [int(counts[hashes == each].sum()) for each in found.hashes]
