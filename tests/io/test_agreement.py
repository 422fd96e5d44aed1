"""The share of repeated samples that agree."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hokical.io import agreement

NAN = float("nan")


def test_the_most_frequent_answer_comes_back_as_given() -> None:
    found = agreement([[" Paris.", "paris", "Lyon"], ["4"], ["b", "a"]])
    assert found.answers == [" Paris.", "4", "b"]
    np.testing.assert_allclose(found.share, [2 / 3, 1.0, 0.5])
    np.testing.assert_array_equal(found.n_samples, [3, 1, 2])


def test_one_of_one_is_not_ten_of_ten() -> None:
    found = agreement([["a"], ["a"] * 10, ["a"] * 5 + ["b"] * 5])
    np.testing.assert_array_equal(found.share, [1.0, 1.0, 0.5])
    np.testing.assert_allclose(found.confidence, [2 / 3, 11 / 12, 0.5])
    np.testing.assert_array_equal(found.n_samples, [1, 10, 10])


@pytest.mark.slow
def test_the_confidence_is_the_probability_that_another_sample_agrees() -> None:
    """Of questions whose answers are of all shares alike (a uniform prior)."""
    rng = np.random.default_rng(2)
    rate = rng.random(40_000)
    sizes = rng.choice([1, 3, 10], rate.size)
    hits = rng.binomial(sizes, rate)
    another = rng.random(rate.size) < rate
    rows = [["a"] * k + ["b"] * (n - k) for k, n in zip(hits, sizes, strict=True)]
    found = agreement(rows)
    is_a = np.array([answer == "a" for answer in found.answers])
    agrees = another == is_a
    for size in (1, 3, 10):
        for confidence in np.unique(found.confidence[sizes == size]):
            rows_of = (sizes == size) & (found.confidence == confidence)
            error = 0.5 / np.sqrt(rows_of.sum())
            assert abs(agrees[rows_of].mean() - confidence) < 4.0 * error


@pytest.mark.parametrize("missing", [None, "", "  \n", NAN, np.nan, np.float32("nan")])
def test_missing_samples_do_not_count(missing: Any) -> None:
    found = agreement([["a", missing, missing, "a", "b"], [missing, missing], []])
    assert found.answers == ["a", None, None]
    np.testing.assert_allclose(found.share, [2 / 3, NAN, NAN])
    np.testing.assert_allclose(found.confidence, [0.6, NAN, NAN])
    np.testing.assert_array_equal(found.n_samples, [3, 0, 0])


def test_missing_values_of_pandas_do_not_count() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"first": ["a", None], "second": [pandas.NA, pandas.NaT]})
    found = agreement(table.to_numpy())
    assert found.answers == ["a", None]
    np.testing.assert_array_equal(found.n_samples, [1, 0])


@pytest.mark.parametrize(
    "equal",
    [
        ["Paris", "**Paris**", "paris.", '"Paris"', "__Paris__", "`paris`", " PARIS!"],
        ["(A)", "A", "a", "A.", "A)", "[A]", "**(A)**", "(a).", "$A$"],
        [
            "1,000",
            "1000",
            "1000.0",
            1000,
            1000.0,
            "**1,000**",
            r"\boxed{1000}",
            "+1000",
        ],
        ["0.5", ".5", 0.5, np.float32(0.5), "$0.50$"],
        ["-3", -3, "-3.0", np.int64(-3), "\u22123", r"\(-3\)"],
        ["New  York", "new york", "\u201cNew York\u201d", "New\u00a0York"],
        [True, "True", "true.", np.bool_(True)],
        ["0", 0, "0.0", "-0"],
        ["0.5", Fraction(1, 2), Decimal("0.50")],
        [r"\boxed{\frac{1}{2}}", r"$\frac{1}{2}$", r"\[\frac{1}{2}\]"],
        [
            r"\boxed{\text{Paris}}",
            "\u201eParis\u201c",
            "\u300cParis\u300d",
            "Paris\u3002",
        ],
        ["Paris", "\u200bParis", "\ufeffParis"],
        ["x\u00b2", "x^2"],
    ],
)
def test_spellings_of_an_answer_are_equal(equal: list[Any]) -> None:
    found = agreement([equal])
    assert found.answers[0] is equal[0]
    np.testing.assert_array_equal(found.share, [1.0])


@pytest.mark.parametrize(
    "different",
    [
        ["50%", "50", "$50", "5"],
        ["C", "C++", "C#"],
        ["007", "7"],
        ["1,5", "1.5", "15"],
        ["f(x)", "f(y)", "x"],
        ["-1", "1"],
        ["A and B", "A", "B"],
        ["...", "?", "!"],
        [2**53, 2**53 + 1],
        ["9" * 30 + "1", "9" * 30 + "2"],
        ["10\u00b2", "102", "10"],
        ["+", "-", "*"],
        ["inf", float("inf")],
    ],
)
def test_different_answers_stay_different(different: list[Any]) -> None:
    found = agreement([different])
    np.testing.assert_allclose(found.share, [1 / len(different)])


def test_answers_are_compared_as_you_say() -> None:
    found = agreement([["1.0", "1", "2"]], normalize=float)
    assert found.answers == ["1.0"]
    np.testing.assert_allclose(found.share, [2 / 3])

    def last_number(text: str) -> str | None:
        return next((word for word in text.split()[::-1] if word.isdigit()), None)

    texts = ["it is 4", "I do not know", "2 + 2 is 4", "5"]
    found = agreement([texts], normalize=last_number)
    assert found.answers == ["it is 4"]
    np.testing.assert_array_equal(found.n_samples, [3])


def test_frames_have_a_question_in_each_row() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"first": ["**a**", "x"], "second": ["A", None]}
    rows = pyarrow.array([["**a**", "A"], ["x", None]])
    tables = [pandas.DataFrame(columns), polars.DataFrame(columns)]
    for samples in [*tables, pyarrow.table(columns), rows]:
        found = agreement(samples)
        assert found.answers == ["**a**", "x"]
        np.testing.assert_array_equal(found.share, [1.0, 1.0])
        np.testing.assert_array_equal(found.n_samples, [2, 1])


def test_times_that_are_missing_do_not_count() -> None:
    day = np.datetime64("2024-01-01")
    found = agreement([[day, np.datetime64("NaT"), Decimal("NaN")]])
    assert found.answers == [day]
    np.testing.assert_array_equal(found.n_samples, [1])


def test_an_endless_row_of_signs_is_an_answer() -> None:
    signs = "*" * 20_000
    found = agreement([[signs, f"{signs}.", f"{signs}a"]])
    np.testing.assert_allclose(found.share, [2 / 3])


def test_normalize_is_a_function() -> None:
    with pytest.raises(TypeError, match="`normalize` must be a function; got 5"):
        agreement([["a"]], normalize=5)  # type: ignore[arg-type]


def test_no_questions() -> None:
    found = agreement([])
    assert found.answers == []
    assert found.share.shape == found.confidence.shape == found.n_samples.shape == (0,)


@pytest.mark.parametrize("samples", ["Paris", 4, None])
def test_what_is_no_list_of_samples_is_refused(samples: Any) -> None:
    with pytest.raises(ValueError, match=r"a list of answers .*; got .* in row 1"):
        agreement([["a"], samples])


def test_answers_that_cannot_be_compared_need_a_function() -> None:
    with pytest.raises(TypeError, match=r"got \['a'\] in row 0. Pass `normalize=`"):
        agreement([[["a"], ["b"]]])
    assert agreement([[["a"], ["a"]]], normalize=str).answers == [["a"]]
