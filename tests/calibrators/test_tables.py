"""Tables of Arrow engines in place of arrays: columns by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from tests.conftest import synthetic_logits

pa = pytest.importorskip("pyarrow")
NAMES = ("cat", "dog", "cow")
LOGITS, LABELS = synthetic_logits(600, 3, seed=4)
SITE = np.array(["north", "south"])[np.arange(600) % 2]


def columns(rows: slice) -> dict[str, Any]:
    found: dict[str, Any] = {"truth": np.array(NAMES)[LABELS[rows]].tolist()}
    found |= {name: LOGITS[rows, k] for k, name in enumerate(NAMES)}
    return found | {"site": SITE[rows].tolist()}


def as_pandas(table: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(table)


def as_polars(table: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(table)


ENGINES = {
    "pyarrow": pa.table,
    "pandas": as_pandas,
    "polars": as_polars,
    "lazy polars": lambda table: as_polars(table).lazy(),
    "duckdb": lambda table: pytest.importorskip("duckdb").from_arrow(pa.table(table)),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_gives_what_arrays_give(engine: str, tmp_path: Path) -> None:
    fit, rest = slice(0, 300), slice(300, 600)
    first, second = (ENGINES[engine](columns(rows)) for rows in (fit, rest))
    cal = hokical.auto(first, labels="truth")
    twin = hokical.auto(LOGITS[fit], LABELS[fit], classes=NAMES)
    np.testing.assert_array_equal(cal.predict_proba(LOGITS), twin.predict_proba(LOGITS))
    assert cal.class_names == NAMES
    cal.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    sets = twin.certify(LOGITS[rest], LABELS[rest]).predict_set(LOGITS, coverage=0.9)
    for each in (cal, loaded):
        found = each.certify(second, "truth").predict_set(LOGITS, coverage=0.9)
        np.testing.assert_array_equal(found.members, sets.members)
    expected = hokical.evaluate(twin, LOGITS[rest], LABELS[rest])
    for each in (cal, loaded):
        assert hokical.evaluate(each, second, "truth").score("ece") == expected.score(
            "ece"
        )


def test_groups_and_weights_by_name() -> None:
    weights = 1.0 + np.arange(600) % 3
    table = pa.table(columns(slice(None)) | {"w": weights})
    cal = hokical.AutoCalibrator().fit(table, "truth", "w", groups=["site"])
    twin = hokical.AutoCalibrator().fit(LOGITS, LABELS, weights, groups={"site": SITE})
    assert (cal.reason_, cal.groups_) == (twin.reason_, twin.groups_)


def test_columns_of_a_table_in_another_order_are_put_in_order() -> None:
    table = pa.table(columns(slice(None)))
    cal = hokical.TemperatureScaling().fit(table, "truth")
    turned = table.select(["cow", "cat", "dog"])
    np.testing.assert_array_equal(cal.predict_proba(turned), cal.predict_proba(LOGITS))
    with pytest.raises(
        ValueError, match="the columns used in `fit`, cat, dog, cow; got cat, wolf"
    ):
        cal.predict(
            table.select(["cat", "dog", "cow"]).rename_columns(["cat", "wolf", "cow"])
        )


def test_a_column_of_lists_holds_the_logits() -> None:
    table = pa.table({"logits": list(LOGITS), "age": np.arange(600), "y": LABELS})
    found = hokical.TemperatureScaling().fit(table, "y")
    assert (
        found.temperature_
        == hokical.TemperatureScaling().fit(LOGITS, LABELS).temperature_
    )


def test_unknown_columns_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"expected a column .*`label`, named by `labels`; found"
    ):
        hokical.auto(pa.table(columns(slice(None))), labels="label")
