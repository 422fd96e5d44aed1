"""Stability tables: sums of whole numbers that add up, and come back from files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import CalibratorFileError
from hokical._core.storage import read_document, write_document
from hokical.stability import StabilityTable
from tests.conftest import encoded, write_encoded


def random_table(
    seed: int, n: int = 50, levels: int = 20, n_starts: int = 3
) -> StabilityTable:
    rng = np.random.default_rng(seed)
    return StabilityTable.from_examples(
        rng.integers(0, levels + 1, size=n),
        rng.random(n) < 0.6,
        levels=levels,
        sample_weight=rng.integers(0, 4, size=n).astype(float),
        start=rng.integers(0, n_starts, size=n),
        n_starts=n_starts,
    )


def assert_same(left: StabilityTable, right: StabilityTable) -> None:
    np.testing.assert_array_equal(left.weight, right.weight)
    np.testing.assert_array_equal(left.correct, right.correct)


@given(st.integers(0, 10**6))
def test_a_table_counts_every_example(seed: int) -> None:
    rng = np.random.default_rng(seed)
    level, correct = rng.integers(0, 5, size=30), rng.random(30) < 0.5
    table = StabilityTable.from_examples(level, correct, levels=4)
    for k in range(5):
        assert table.weight[0, k] == np.sum(level == k)
        assert table.correct[0, k] == np.sum(correct[level == k])
    assert (table.total, table.levels, table.n_starts) == (30.0, 4, 1)
    assert table.accuracy == correct.mean()


@given(st.integers(0, 10**6))
def test_tables_add_up_in_any_order(seed: int) -> None:
    one, two, three = (random_table(seed + k) for k in range(3))
    assert_same((one + two) + three, three + (two + one))
    assert (one + two).total == one.total + two.total


def test_tables_of_different_shape_do_not_add() -> None:
    with pytest.raises(ValueError, match="equal levels"):
        random_table(0) + random_table(0, levels=21)
    with pytest.raises(TypeError):
        random_table(0) + 1


@given(seed=st.integers(0, 10**6))
def test_a_table_comes_back(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = random_table(seed)
    path = tmp_path_factory.getbasetemp() / "table.json"
    write_document(path, {"table": table})
    assert_same(read_document(path)["table"], table)
    assert_same(pickle.loads(pickle.dumps(table)), table)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_starts", 1),
        ("n_starts", 0),
        ("levels", 3),
        ("levels", 1 << 40),
        ("level", np.zeros(3)),
        ("level", np.array([-1])),
        ("weight", np.array([np.nan])),
        ("weight", np.array([-1.0])),
        ("correct", np.array([1e9])),
    ],
)
def test_a_damaged_table_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    stored = random_table(0).to_stored()
    size = stored["level"].size
    stored[name] = (
        np.resize(value, size) if np.ndim(value) and value.size == 1 else value
    )
    with pytest.raises(ValueError, match=r"table|must"):
        StabilityTable.from_stored(stored)
    record = {"$record": "stability-table", **encoded(stored)}
    write_encoded(tmp_path / "table.json", {"table": record})
    with pytest.raises(CalibratorFileError):
        read_document(tmp_path / "table.json")
