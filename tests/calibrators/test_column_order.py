"""Columns by name and rows by index: put in order, or refused, on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hokical
from tests.conftest import synthetic_logits

LOGITS, LABELS = synthetic_logits(600, 3, seed=4)
NAMES = ["logit_cat", "logit_dog", "logit_cow"]
FRAME = pd.DataFrame(LOGITS, columns=NAMES, index=np.arange(600) + 7)
TRUTH = pd.Series(LABELS, index=FRAME.index)
TURNED = FRAME[NAMES[::-1]]


class Frame(pd.DataFrame):  # type: ignore[misc]
    """A frame that extends that of pandas, as those of geopandas do."""

    @property
    def _constructor(self) -> type[Frame]:
        return Frame


def as_arrow(frame: Any) -> Any:
    return pytest.importorskip("pyarrow").table(frame.reset_index(drop=True))


def as_polars(frame: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(frame.to_dict("list"))


@pytest.mark.parametrize("engine", [lambda frame: frame, as_polars, as_arrow])
@pytest.mark.parametrize("fitted", [False, True])
def test_compare_puts_columns_in_order(engine: Any, fitted: bool) -> None:
    method = hokical.make("temps")
    methods = [method.fit(TURNED[:300], 2 - LABELS[:300]) if fitted else method]
    val, new = (FRAME[:300], LABELS[:300]), (LOGITS[300:], LABELS[300:])
    if fitted:  # whose classes are counted from the other end
        val, new = (
            (FRAME[:300], 2 - LABELS[:300]),
            (LOGITS[300:, ::-1], 2 - LABELS[300:]),
        )
    plain = hokical.compare(
        (val[0].to_numpy()[:, :: 1 - 2 * fitted], val[1]), new, methods
    )
    found = hokical.compare(
        (engine(val[0]), val[1]), (engine(TURNED[300:]), new[1]), methods
    )
    assert found.results[0].score("brier") == plain.results[0].score("brier")
    renamed = engine(TURNED[300:].set_axis(["x", "y", "z"], axis=1))
    with pytest.raises(ValueError, match="the columns used in `fit`"):
        hokical.compare((engine(val[0]), val[1]), (renamed, new[1]), methods)


def test_equal_names_of_columns_go_by_place() -> None:
    frame = FRAME.set_axis(["a", "a", "b"], axis=1)
    cal = hokical.make("temps").fit(frame, LABELS)
    np.testing.assert_array_equal(cal.predict_proba(frame), cal.predict_proba(LOGITS))


def test_compare_refuses_methods_of_other_columns() -> None:
    methods = {
        "first": hokical.make("temps").fit(FRAME, LABELS),
        "second": hokical.make("temps").fit(TURNED, 2 - LABELS),
    }
    with pytest.raises(ValueError, match="the same columns in the same order"):
        hokical.compare((FRAME, LABELS), (FRAME, LABELS), methods)


@pytest.mark.parametrize("first", [[0, 1, 2], [2, 0, 1], [3, 5, 4]])
def test_numbered_columns_are_put_in_order(first: list[int]) -> None:
    frame = pd.DataFrame(LOGITS, columns=first)
    cal = hokical.make("temps").fit(frame, LABELS)
    expected = cal.predict_proba(LOGITS)
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        np.testing.assert_array_equal(cal.predict_proba(frame.iloc[:, order]), expected)
    plain = pd.DataFrame(LOGITS)
    named = hokical.make("temps").fit(FRAME, LABELS)
    np.testing.assert_array_equal(
        named.predict_proba(plain), named.predict_proba(LOGITS)
    )
    array = hokical.make("temps").fit(LOGITS, LABELS)
    np.testing.assert_array_equal(array.predict_proba(plain[[2, 1, 0]]), expected)
    np.testing.assert_array_equal(
        array.predict_proba(TURNED), array.predict_proba(LOGITS[:, ::-1])
    )


def test_columns_of_a_frame_that_extends_another_are_put_in_order() -> None:
    cal = hokical.make("temps").fit(FRAME, LABELS)
    expected = cal.predict_proba(FRAME)
    np.testing.assert_array_equal(cal.predict_proba(Frame(TURNED)), expected)
    with pytest.raises(ValueError, match="rows in the order of"):
        hokical.make("temps").fit(Frame(FRAME), TRUTH[::-1])


def test_missing_and_extra_columns_are_named() -> None:
    cal = hokical.make("temps").fit(FRAME, LABELS)
    with pytest.raises(ValueError, match=r"\(not in the fit: site\)\. Select"):
        cal.predict(FRAME.assign(site=1.0))
    with pytest.raises(ValueError, match=r"\(missing: logit_dog\)\. Rename"):
        cal.predict(FRAME.drop(columns="logit_dog"))


def test_signals_are_put_in_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    signals = pd.DataFrame(
        {"stated": rng.uniform(0.3, 1, 600), "token": rng.uniform(0.1, 1, 600)}
    )
    cal = hokical.calibrate_confidence(signals, rng.random(600) < signals.stated)
    cal.save(tmp_path / "cal.json")
    for each in (cal, hokical.load(tmp_path / "cal.json")):
        found = each.predict(signals[["token", "stated"]])
        np.testing.assert_array_equal(found, cal.predict(signals))
        with pytest.raises(
            ValueError, match=r"`confidence` must have the columns .*missing: token"
        ):
            each.predict(signals.rename(columns={"token": "other"}))


def test_rows_in_another_order_are_refused() -> None:
    turned, site = TRUTH[::-1], pd.Series(["a", "b"] * 300, FRAME.index)
    cal = hokical.make("temps").fit(FRAME, TRUTH)
    pair, watch = (
        (FRAME, TRUTH),
        hokical.CalibrationMonitor.from_validation(cal, LOGITS, LABELS),
    )
    for ask in (
        lambda: hokical.evaluate(cal, FRAME, turned),
        lambda: hokical.evaluate(cal, FRAME, TRUTH, groups=site[::-1]),
        lambda: hokical.compare((FRAME, turned), pair, ["temps"]),
        lambda: hokical.compare(pair, (FRAME, turned), ["temps"]),
        lambda: hokical.compare(pair, pair, ["temps"], groups=(None, site[::-1])),
        lambda: watch.update_logits(FRAME, turned),
        lambda: watch.update_logits(FRAME, TRUTH, groups=site[::-1]),
        lambda: hokical.auto(FRAME, TRUTH, groups=site[::-1]),
    ):
        with pytest.raises(ValueError, match="rows in the order of"):
            ask()
