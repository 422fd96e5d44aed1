"""Work on blocks of rows: joined in order, whatever their size, in every library."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import threads
from hokical._core.arrays import NUMPY, Backend
from hokical._core.logits import (
    by_blocks,
    map_blocks,
    per_row,
    row_slices,
    rows_per_block,
)
from hokical.rules import Logits, as_logits
from tests.libraries import NAMES, get_library

ROWS = np.random.default_rng(0).normal(size=(101, 7))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of five rows of seven numbers."""
    for kind in (Backend, type(NUMPY)):
        monkeypatch.setattr(kind, "block_size", 35)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("small_blocks")
def test_results_are_joined_in_order(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, sizes = get_library(name), []

    def work(block: Logits) -> object:
        sizes.append(block.n_rows)
        return block.margins, block.top

    with library.scope():
        logits = as_logits(library.make(ROWS.copy()))
        monkeypatch.setattr(type(logits.backend), "block_size", 35)  # torch has its own
        margins, top = by_blocks(work, logits)
        np.testing.assert_array_equal(logits.to_host(top), ROWS.max(axis=1))
        np.testing.assert_array_equal(
            logits.to_host(margins), ROWS.max(1, keepdims=True) - ROWS
        )
        last = 2 if logits.is_numpy else 1  # a single row goes twice
        assert sorted(sizes) == [last] + 20 * [5]
        np.testing.assert_array_equal(
            per_row(lambda block: block.top, logits), ROWS.max(axis=1)
        )
        halves = by_blocks(lambda block: block.top, logits, 14)
        np.testing.assert_array_equal(logits.to_host(halves), ROWS.max(axis=1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("small_blocks")
def test_sums_over_blocks(name: str) -> None:
    library = get_library(name)
    with library.scope():
        logits = as_logits(library.make(ROWS.copy()))
        parts = map_blocks(
            lambda rows, block: block.xp.sum(block.margins, axis=0), logits
        )
        total = np.sum([logits.to_host(part) for part in parts], axis=0)
    np.testing.assert_allclose(
        total, (ROWS.max(axis=1, keepdims=True) - ROWS).sum(axis=0)
    )


@pytest.mark.usefixtures("small_blocks")
def test_threads_change_no_sum() -> None:
    logits, found = as_logits(ROWS), []
    for count in (1, 2, 5):
        with threads(count):
            sums = map_blocks(
                lambda rows, block: (rows.start, block.margins.sum(0)), logits
            )
            assert [start for start, _ in sums] == list(range(0, 101, 5))
            found.append(np.sum([part for _, part in sums], axis=0))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@given(st.integers(1, 500), st.integers(1, 10**7))
def test_slices_cover_every_row_once(n_rows: int, floats_per_row: int) -> None:
    slices = list(row_slices(n_rows, floats_per_row))
    assert [i for rows in slices for i in range(rows.start, rows.stop)] == list(
        range(n_rows)
    )
    step = rows_per_block(floats_per_row)
    assert step == 1 or step * floats_per_row <= NUMPY.block_size


def test_threads_do_not_wait_for_each_other() -> None:
    """Each block's margins are its own: no lock is held while they are computed."""
    inside = threading.Barrier(2, timeout=30)

    class Meeting(Logits):
        def new_margins(self, factor: object = 1.0) -> object:
            inside.wait()
            return super().new_margins(factor)

    def ask() -> None:
        assert Meeting(ROWS, ROWS.max(axis=1)).margins.shape == ROWS.shape

    both = [threading.Thread(target=ask) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert not inside.broken
