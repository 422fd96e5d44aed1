"""The audit by group: exact tests, a family-wise guarantee, and groups of every
kind.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from hokical._core.groups import GroupCoding
from hokical.metrics import group_table
from hokical.metrics.groups import holm, mean_p_values, sum_distribution, sum_p_value
from tests.conftest import repetitions


def learn(groups: object, n_rows: int) -> GroupCoding:
    return GroupCoding.read(groups, n_rows)[0]


def reference_distribution(probabilities: np.ndarray) -> np.ndarray:
    found = np.ones(1)
    for p in probabilities:
        found = np.convolve(found, [1.0 - p, p])
    return found


def whole(probabilities: np.ndarray) -> np.ndarray:
    first, found = sum_distribution(probabilities)
    k, most = first + np.arange(found.size), probabilities.size
    inside = (k >= 0) & (k <= most)
    assert found[~inside].sum() < 1e-10
    table = np.zeros(most + 1)
    table[k[inside]] = found[inside]
    return table


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60))
def test_the_number_of_events_has_its_distribution(events: list[float]) -> None:
    p = np.array(events)
    np.testing.assert_allclose(whole(p), reference_distribution(p), atol=1e-11)


def test_many_events_are_close_and_never_less_spread() -> None:
    p = np.random.default_rng(0).beta(8, 1, 3000)
    found, expected = whole(p), reference_distribution(p)
    np.testing.assert_allclose(found.cumsum(), expected.cumsum(), atol=1e-4)
    k = np.arange(p.size + 1)
    spread = [np.sum(p * k**2) - np.sum(p * k) ** 2 for p in (found, expected)]
    assert spread[0] > spread[1] * (1 - 1e-6)


def test_equal_confidences_give_the_binomial_test() -> None:
    right = np.arange(40) < 25
    table = group_table(np.full(40, 0.8), right, np.zeros(40))
    row = table.rows[0]
    assert table[0] == table[0.0] == table["0"] == row
    assert row.p_value == pytest.approx(2 * binom.cdf(25, 40, 0.8), rel=1e-6)
    assert row.z == pytest.approx((25 - 32) / np.sqrt(40 * 0.16))
    assert (row.n, row.predicted, row.observed) == (40, pytest.approx(0.8), 25 / 40)


@pytest.mark.slow
def test_the_verdict_holds_for_all_groups_and_segments_at_once() -> None:
    flagged, n_trials = np.zeros(2), repetitions(200, 80)
    for seed in range(n_trials):
        rng = np.random.default_rng(seed)
        confidence, draw = rng.beta(6, 1, 250), rng.uniform(size=250)
        groups = {"a": rng.integers(0, 4, 250), "b": rng.integers(0, 2, 250)}
        for k, gap in enumerate((0.0, 0.2)):
            right = draw < confidence - gap * (groups["b"] == 1)
            table = group_table(confidence, right, groups)
            flagged[k] += bool(table.flagged) or bool(table.segments)
    most = 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_trials)
    assert flagged[0] / n_trials <= most
    assert flagged[1] / n_trials > 0.9  # where a group is miscalibrated


def test_a_part_of_a_group_is_found_where_the_group_is_right_on_average() -> None:
    rng = np.random.default_rng(3)
    confidence, site = rng.uniform(0.3, 0.9, 4000), rng.choice(["a", "b"], 4000)
    off = np.where(site == "b", np.sign(confidence - 0.6) * 0.15, 0.0)
    table = group_table(confidence, rng.uniform(size=4000) < confidence - off, site)
    assert not table.flagged
    assert {row.name.split(",")[0] for row in table.segments} == {"b"}
    assert "but a part is, b, confidence " in table.verdict


def test_a_group_inside_two_columns_is_found() -> None:
    rng = np.random.default_rng(1)
    groups = {"sex": rng.choice(["f", "m"], 6000), "age": rng.integers(20, 80, 6000)}
    confidence = rng.uniform(0.5, 1.0, 6000)
    bad = (groups["sex"] == "f") & (groups["age"] < 32)
    right = rng.uniform(size=6000) < confidence - 0.25 * bad
    table = group_table(confidence, right, groups)
    assert table.worst(1)[0].name.startswith("sex=f, age=")
    assert "groups are miscalibrated, most clearly sex=f, age=" in table.verdict
    assert table.segments[0].p_value < 1e-4
    assert table.to_dict()["rows"][0]["name"] == "sex=f"


def test_probabilities_are_judged_by_their_label() -> None:
    proba = np.array([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5]])
    table = group_table(proba, [0, 0, 0], ["a", "a", "b"])
    assert [(row.full_name, row.predicted, row.observed) for row in table.rows] == [
        ("a", pytest.approx(0.65), 0.5),
        ("b", pytest.approx(0.5), 1.0),
        ("a (class 1)", pytest.approx(0.45), 0.0),
        ("b (class 1)", pytest.approx(0.5), 0.0),
    ]
    assert "Asked: is the label right, and class 1?" in str(table)
    assert group_table(np.eye(3), [0, 1, 2], ["a", "a", "b"]).asked == ("label",)


def test_a_wrong_risk_is_found_where_labels_are_right_as_often_as_predicted() -> None:
    """Risks of one site are too high on one side of 1/2 and too low on the other."""
    rng = np.random.default_rng(0)
    risk, site = rng.uniform(0.05, 0.95, 4000), rng.choice(["a", "b"], 4000)
    truth = np.where(site == "b", risk + 0.08, risk)
    labels = (rng.uniform(size=4000) < truth).astype(int)
    table = group_table(
        np.column_stack([1 - risk, risk]), labels, site, classes=("no", "yes")
    )
    assert [row.full_name for row in table.flagged] == ["b (yes)"]
    assert table["b (yes)"].gap < -0.05
    with pytest.raises(
        ValueError, match="`classes` must have a name for each of the 2"
    ):
        group_table(np.column_stack([1 - risk, risk]), labels, site, classes=("yes",))


def test_a_wrong_certainty_is_infinite() -> None:
    table = group_table([1.0, 1.0], [True, False], ["a", "a"])
    assert table.rows[0].z == -np.inf
    assert table.rows[0].flagged


def test_groups_of_every_kind_have_the_same_codes() -> None:
    frame = pd.DataFrame({"sex": ["f", "m", None, "m"], "site": [1, 2, 2, 1]})
    coding = learn(frame, 4)
    expected = [[0, 0], [1, 1], [2, 1], [1, 0]]
    pairs = list(zip(frame["sex"], frame["site"], strict=True))
    same = {
        "sex": [*frame["sex"]],
        "site": np.array([1.0, 2.0, 2.0, 1.0]),
        "other": [0] * 4,
    }
    fields = np.array(pairs, dtype=[("sex", object), ("site", int)])
    for groups in (frame, same, fields):
        assert coding.codes(groups, 4).tolist() == expected
    assert learn(np.array(pairs, object), 4).codes(pairs, 4).tolist() == expected
    assert coding.full_names(0) == ["sex=f", "sex=m", "sex=missing or unknown"]
    assert coding.codes({"sex": ["x"], "site": [9]}, 1).tolist() == [[2, 2]]


def test_numbers_are_cut_at_deciles_and_text_is_not() -> None:
    coding = learn(np.arange(100.0), 100)
    assert np.bincount(coding.codes(np.arange(100.0), 100)[:, 0]).tolist() == [10] * 10
    assert coding.codes([-5.0, 95, np.nan, "x"], 4)[:, 0].tolist() == [0, 9, 10, 10]
    assert coding.full_names(0)[:2] == ["below 10", "10 to 20"]
    text = learn([str(k) for k in range(100)], 100)
    assert text.sizes == (101,)


def test_errors_name_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"one entry per row \(3\); got shape \(2,\)"):
        group_table([0.5] * 3, [1] * 3, ["a", "b"])
    coding = learn({"sex": ["f"], "site": [1]}, 1)
    with pytest.raises(ValueError, match="columns of the fit, sex, site; got sex"):
        coding.codes({"sex": ["f"]}, 1)
    with pytest.raises(ValueError, match="at least one column"):
        learn({}, 1)


@pytest.mark.slow
def test_many_columns_of_many_groups_have_a_table() -> None:
    rng = np.random.default_rng(0)
    columns = {f"c{k}": rng.integers(0, 300, 500).astype(str) for k in range(9)}
    found = group_table(np.full(500, 0.7), rng.random(500) < 0.7, columns)
    assert not found.flagged
    with pytest.raises(KeyError, match="no group is called 'north'; there are c0=0, "):
        found["north"]


def test_a_number_and_its_text_are_one_name_unless_both_are_known() -> None:
    coding = learn(["1", "02", "x", "2.5"], 4)
    given = np.array([1.0, 2.0, 2.5, 3.0])
    assert coding.codes(given, 4).ravel().tolist() == [
        *(coding.levels[0].index(name) for name in ("1", "02", "2.5")),
        len(coding.levels[0]),
    ]
    assert learn([1, 2], 2).codes(["2", "1.0"], 2).ravel().tolist() == [1, 0]
    both = learn(["3", "03"], 2)
    assert both.codes(["03", "3"], 2).ravel().tolist() == [0, 1]
    assert both.codes([3, 3], 2).ravel().tolist() == [2, 2]
    long = learn(["9007199254740993", "x"], 2)
    assert long.codes(["9007199254740992", None], 2).ravel().tolist() == [2, 2]
    assert learn(["None", "x"], 2).codes([None, "None"], 2).ravel().tolist() == [2, 0]


@given(st.integers(0, 99))
def test_numbers_stay_on_their_side_of_a_cut_in_single_precision(seed: int) -> None:
    numbers = np.random.default_rng(seed).normal(size=200)
    numbers[: seed % 150] = numbers.min()
    coding = learn(numbers, 200)
    codes = coding.codes(numbers, 200)
    np.testing.assert_array_equal(codes, coding.codes(numbers.astype(np.float32), 200))
    np.testing.assert_array_equal(codes, coding.codes(numbers.astype(str), 200))
    assert set(codes.ravel().tolist()) == set(range(len(coding.levels[0]) + 1))


def test_numbers_that_are_nearly_all_the_least_have_two_groups() -> None:
    numbers = np.append(np.zeros(975), np.arange(1.0, 26.0))
    coding = learn(numbers, 1000)
    assert coding.full_names(0)[:2] == ["below 1", "1 or more"]


def test_whole_numbers_that_came_as_fractions_are_named_as_whole() -> None:
    assert learn(np.array([1.0, 2.5, np.nan]), 3).full_names(0)[:2] == ["1", "2.5"]


def test_weights_of_one_size_change_no_share() -> None:
    rng = np.random.default_rng(0)
    says, site = rng.uniform(0.5, 1.0, 3000), rng.choice(["a", "b", "c"], 3000)
    right = rng.uniform(size=3000) < says - 0.1 * (site == "b")
    plain = group_table(says, right, site)
    weighted = group_table(says, right, site, sample_weight=np.full(3000, 7.0))
    for one, two in zip(plain.rows, weighted.rows, strict=True):
        np.testing.assert_allclose(
            [two.n, two.predicted, two.observed, two.low, two.high, two.z],
            [one.n, one.predicted, one.observed, one.low, one.high, one.z],
            rtol=1e-9,
        )
    assert (
        [row.name for row in weighted.flagged]
        == ["b"]
        == [row.name for row in plain.flagged]
    )
    half = np.where(site == "c", 0.0, 1.0)
    assert [
        row.name for row in group_table(says, right, site, sample_weight=half).rows
    ] == [
        "a",
        "b",
    ]


def alarms(
    n_groups: int, size: int, low: float, weight: str, trials: int, gap: float = 0.0
) -> float:
    """Share of data sets with a flagged group; the first half of them is off by
    `gap`.
    """
    found = 0
    for seed in range(trials):
        rng = np.random.default_rng([seed, size])
        n = n_groups * size
        p = rng.uniform(low, 1.0, n)
        draw = {"even": np.ones, "exponential": rng.exponential, "heavy": None}[weight]
        weights = draw(size=n) if draw is rng.exponential else np.ones(n)
        weights = np.exp(1.5 * rng.normal(size=n)) if draw is None else weights
        groups = np.repeat(np.arange(n_groups), size).astype(str)
        right = rng.uniform(size=n) < p - gap * (np.arange(n) < n // 2)
        table = group_table(p, right, groups, sample_weight=weights)
        found += bool(table.flagged) or bool(table.segments)
    return found / trials


@pytest.mark.sample(0)
@pytest.mark.parametrize("weight", ["even", "exponential", "heavy"])
@pytest.mark.parametrize(
    ("n_groups", "size", "low"),
    [(50, 10, 0.95), (50, 10, 0.5), (20, 100, 0.99), (4, 300, 0.7)],
)
def test_weighted_groups_have_few_false_alarms(
    n_groups: int, size: int, low: float, weight: str
) -> None:
    """At most delta = 5 %; the normal approximation had 48 % of the first."""
    trials = repetitions(100, 40)
    found = alarms(n_groups, size, low, weight, trials)
    assert found <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / trials)
    assert alarms(n_groups, size, low, weight, trials=5, gap=0.3) > 0.5


@pytest.mark.parametrize("size", [30, 2000])
def test_p_values_of_weighted_sums_keep_their_level(size: int) -> None:
    """Conservative of few rows, exact of many."""
    rng = np.random.default_rng(size)
    p, weight = rng.uniform(0.3, 1.0, size), rng.uniform(0.5, 1.0, size)
    found = np.array([sum_p_value(p, rng.random(size) < p, weight) for _ in range(200)])
    for level in (0.05, 0.2, 0.5):
        slack = 3.5 * np.sqrt(level / 200)
        assert (0.3 * level if size < 100 else level - slack) <= np.mean(found <= level)
        assert np.mean(found <= level) <= level + slack


def test_weighted_certainties_that_are_wrong_are_impossible() -> None:
    p, right = np.array([1.0, 1.0, 0.9]), np.array([False, True, True])
    assert sum_p_value(p, right, np.array([1.0, 2.0, 1.0])) <= 1e-10
    assert sum_p_value(p, right | True, np.array([1.0, 2.0, 1.0])) == 1.0


@given(st.integers(1, 200), st.floats(0.01, 0.99), st.floats(0, 1))
def test_means_alone_bound_the_p_value_from_above(
    n: int, predicted: float, share: float
) -> None:
    hits = round(share * n)
    bound = float(mean_p_values(np.array(n), np.array(predicted), np.array(hits / n)))
    few = hits < n * predicted
    one_sided = (
        binom.cdf(hits, n, predicted) if few else binom.sf(hits - 1, n, predicted)
    )
    assert bound >= min(1.0, one_sided) - 1e-12


def test_holm_is_never_below_the_given_and_ignores_nan() -> None:
    adjusted = holm(np.array([0.04, np.nan, 0.01]))
    np.testing.assert_allclose(adjusted, [0.04, np.nan, 0.02])


def test_whole_numbers_alone_are_names() -> None:
    ids = np.arange(600) % 40
    assert learn(ids, 600).cut == (False,)
    assert learn(ids.tolist(), 600).sizes == (41,)
    assert learn(ids + 0.5, 600).cut == (True,)
    assert learn({"age": ids}, 600).cut == (True,)
    coding = learn(ids, 600)
    np.testing.assert_array_equal(coding.codes(ids.astype(float), 600), ids[:, None])


def test_the_former_name_of_classes_is_accepted_until_the_next_version() -> None:
    proba = np.array([[0.8, 0.2], [0.3, 0.7]] * 20)
    rows = (proba, [0, 1] * 20, ["a"] * 40)
    with pytest.warns(FutureWarning, match=r"`class_names` is `classes` now.*0\.7"):
        former = group_table(*rows, class_names=("no", "yes"))
    assert former == group_table(*rows, classes=("no", "yes"))
