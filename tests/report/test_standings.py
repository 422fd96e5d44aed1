"""Methods of other libraries, several data sets, and steps told in lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import hokical
from tests.conftest import synthetic_logits


class Mine:
    """A method that nobody knows: the softmax at a temperature from a grid."""

    def fit(self, logits: Any, labels: Any) -> Mine:
        def loss(t: float) -> float:
            return -np.log(self._at(logits, t)[np.arange(len(labels)), labels]).mean()

        self.best = min([0.5, 1.0, 1.5, 2.0, 3.0], key=loss)
        return self

    @staticmethod
    def _at(logits: Any, t: float) -> Any:
        powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / t)
        return powers / powers.sum(axis=1, keepdims=True)

    def predict_proba(self, logits: Any) -> Any:
        return self._at(logits, self.best)


DATA: dict[str, Any] = {
    f"world {seed}": (synthetic_logits(400, 4, seed=seed), synthetic_logits(600, 4, seed=seed + 50))
    for seed in range(4)
}


def test_any_object_with_fit_and_predict_proba_takes_part() -> None:
    validation, test = DATA["world 0"]
    mine, forest = Mine(), RandomForestClassifier(10, random_state=0)
    methods = {"uncalibrated": "uncalibrated", "mine": mine, "forest": forest}
    found = hokical.compare(validation, test, methods, coverage=0.9)
    assert not hasattr(mine, "best")  # a copy was fitted
    logits, labels = test
    own = Mine().fit(*validation).predict_proba(logits)
    expected = -np.log(own[np.arange(600), labels]).mean()
    assert found["mine"].score("log_loss") == pytest.approx(expected, rel=1e-9)
    assert found["mine"].label == "mine"
    assert found["forest"].sets is not None
    named = hokical.compare(validation, test, [Mine, LogisticRegression()])
    assert [result.name for result in named.results] == ["Mine", "LogisticRegression"]
    assert "mine" in found.to_markdown()
    with pytest.raises(TypeError, match="objects with `fit` and `predict_proba`; got object"):
        hokical.compare(validation, test, {"odd": object()})


def test_columns_of_classes_that_were_not_seen_are_empty() -> None:
    (logits, labels), test = DATA["world 1"]
    rows = labels != 2
    methods = {"lr": LogisticRegression(max_iter=500)}
    found = hokical.compare((logits[rows], labels[rows]), test, methods)
    proba = found["lr"].calibrator.predict_proba(test[0])
    own = LogisticRegression(max_iter=500).fit(logits[rows], labels[rows]).predict_proba(test[0])
    np.testing.assert_allclose(proba[:, [0, 1, 3]], own, atol=1e-12)
    assert (proba[:, 2] < 1e-12).all()


@pytest.mark.parametrize("wrong", [np.ones((600, 4)), np.full((600, 3), 1 / 3), np.full(600, 0.5)])
def test_wrong_probabilities_are_named(wrong: Any) -> None:
    class Odd(Mine):
        def predict_proba(self, logits: Any) -> Any:
            return wrong[: len(logits)]

    with pytest.raises(ValueError, match="`predict_proba` of Odd must give probabilities"):
        hokical.compare(*DATA["world 0"], {"odd": Odd()})


@pytest.mark.slow
def test_standings_are_means_of_comparisons() -> None:
    methods = {"softmax": "uncalibrated", "temps": "temps", "mine": Mine()}
    known, new = ({name: pair[k] for name, pair in DATA.items()} for k in (0, 1))
    found = hokical.compare(known, new, methods)
    single = [hokical.compare(*pair, methods) for pair in DATA.values()]
    table = np.array([[one[name].score("log_loss") for name in methods] for one in single])
    ranks = rankdata(table, axis=1).mean(axis=0)
    for row in found.rows:
        place = list(methods).index(row.method)
        assert row.mean == pytest.approx(table[:, place].mean())
        assert row.rank == pytest.approx(ranks[place])
        assert row.mean_interval[0] <= row.mean <= row.mean_interval[1]
        assert row.rank_interval[0] <= row.rank <= row.rank_interval[1]
    assert [row.rank for row in found.rows] == sorted(row.rank for row in found.rows)
    np.testing.assert_array_equal(np.sort(found.table()), np.sort(table))
    assert found.critical_difference == pytest.approx(2.343 * (12 / 24) ** 0.5, abs=2e-3)
    text = str(found)
    assert "4 data sets, 95% intervals; critical difference of ranks 1.66" in text
    with pytest.raises(ValueError, match="`metric` must be one of"):
        hokical.compare(known, new, methods, metric="accuracy")
    with pytest.raises(ValueError, match="must have the same data sets, at least one"):
        hokical.compare({}, {}, methods)
    frame, text = found.to_pandas(), found.to_csv().splitlines()
    assert text[0] == "method,world 0,world 1,world 2,world 3,mean,rank"
    for line, row in zip(text[1:], found.rows, strict=True):
        assert line.startswith(f"{row.method},")
        assert float(line.split(",")[-2]) == frame.loc[row.method, "mean"] == row.mean
        assert f"{row.mean:.4f}" in found.to_latex()


def test_methods_that_some_data_do_not_allow_are_left_out() -> None:
    known = {"two": synthetic_logits(300, 2, seed=1), "four": DATA["world 0"][0]}
    new = {"two": synthetic_logits(300, 2, seed=2), "four": DATA["world 0"][1]}
    found = hokical.compare(known, new, ["uncalibrated", "temps", "platt"])
    assert {row.method for row in found.rows} == {"uncalibrated", "temps"}
    alone = hokical.compare({"two": known["two"]}, {"two": new["two"]}, ["uncalibrated", "temps"])
    assert np.isnan(alone.rows[0].mean_interval).all()
    assert "nan" not in str(alone)
    assert "intervals" not in str(alone)


def test_the_critical_difference_is_that_of_the_tables() -> None:
    """Demsar (2006), table 5a: q of 2 and 3 methods at 0.05."""
    known, new = ({name: pair[k] for name, pair in DATA.items()} for k in (0, 1))
    methods = ["uncalibrated", "temps", "hoki"]
    for k, q in ((2, 1.960), (3, 2.343)):
        found = hokical.compare(known, new, methods[:k])
        unit = (k * (k + 1) / (6 * len(DATA))) ** 0.5
        assert found.critical_difference == pytest.approx(q * unit, abs=1e-3)
