"""Methods over several data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata
from tests.conftest import synthetic_logits

import hokical
from hokical_paper.study.standings import compare_data_sets

DATA: dict[str, Any] = {
    f"world {seed}": (
        synthetic_logits(400, 4, seed=seed),
        synthetic_logits(600, 4, seed=seed + 50),
    )
    for seed in range(4)
}


@pytest.mark.slow
def test_standings_are_means_of_comparisons() -> None:
    methods = {"softmax": "uncalibrated", "temps": "temps", "hoki": "hoki"}
    known, new = ({name: pair[k] for name, pair in DATA.items()} for k in (0, 1))
    found = compare_data_sets(known, new, methods)
    single = [hokical.compare(*pair, methods) for pair in DATA.values()]
    table = np.array(
        [[one[name].score("log_loss") for name in methods] for one in single]
    )
    ranks = rankdata(table, axis=1).mean(axis=0)
    for row in found.rows:
        place = list(methods).index(row.method)
        assert row.mean == pytest.approx(table[:, place].mean())
        assert row.rank == pytest.approx(ranks[place])
        assert row.mean_interval[0] <= row.mean <= row.mean_interval[1]
    assert [row.rank for row in found.rows] == sorted(row.rank for row in found.rows)
    for record in found.to_dict()["methods"]:
        place = list(methods).index(record["method"])
        assert [record[name] for name in DATA] == table[:, place].tolist()
    assert found.critical_difference == pytest.approx(
        2.343 * (12 / 24) ** 0.5, abs=2e-3
    )
    text = str(found)
    assert "4 data sets, 95% intervals; critical difference of ranks 1.66" in text
    with pytest.raises(ValueError, match="`metric` must be one of"):
        compare_data_sets(known, new, methods, metric="accuracy")
    with pytest.raises(ValueError, match="must have the same data sets, at least one"):
        compare_data_sets({}, {}, methods)
    frame, text = found.to_pandas(), found.to_csv().splitlines()
    assert (
        text[0] == "method,world 0,world 1,world 2,world 3,mean,mean_low,mean_high,rank"
    )
    for line, row in zip(text[1:], found.rows, strict=True):
        assert line.startswith(f"{row.method},")
        assert float(line.split(",")[-4]) == frame.loc[row.method, "mean"] == row.mean
        assert f"{row.mean:.4f}" in found.to_latex()


@pytest.mark.slow
def test_methods_that_some_data_do_not_allow_are_left_out() -> None:
    known = {"two": synthetic_logits(300, 2, seed=1), "four": DATA["world 0"][0]}
    new = {"two": synthetic_logits(300, 2, seed=2), "four": DATA["world 0"][1]}
    found = compare_data_sets(known, new, ["uncalibrated", "temps", "platt"])
    assert {row.method for row in found.rows} == {"uncalibrated", "temps"}
    alone = compare_data_sets(
        {"two": known["two"]}, {"two": new["two"]}, ["uncalibrated", "temps"]
    )
    assert np.isnan(alone.rows[0].mean_interval).all()
    assert "nan" not in str(alone)
    assert "intervals" not in str(alone)


@pytest.mark.slow
def test_the_critical_difference_is_that_of_the_tables() -> None:
    """Demsar (2006), table 5a: q of 2 and 3 methods at 0.05."""
    known, new = ({name: pair[k] for name, pair in DATA.items()} for k in (0, 1))
    methods = ["uncalibrated", "temps", "hoki"]
    for k, q in ((2, 1.960), (3, 2.343)):
        found = compare_data_sets(known, new, methods[:k])
        unit = (k * (k + 1) / (6 * len(DATA))) ** 0.5
        assert found.critical_difference == pytest.approx(q * unit, abs=1e-3)
