"""Logits of which only the best of each row are known: what they hold, and what is
refused.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import TopK
from hokical.rules import Logits, as_logits
from tests.conftest import topk_rows


def test_order_within_a_row_does_not_matter_and_ties_go_to_the_smaller_class() -> None:
    seen = TopK([[1.0, 3.0, 3.0], [0.0, -1.0, 2.0]], [[4, 9, 2], [1, 0, 3]], 10)
    assert seen.indices.tolist() == [[2, 9, 4], [3, 1, 0]]
    assert seen.values.tolist() == [[3.0, 3.0, 1.0], [2.0, 0.0, -1.0]]
    assert seen.labels.tolist() == [2, 3]
    assert seen.hidden.tolist() == [7, 7]
    assert seen.ceiling.tolist() == [1.0, -1.0]
    assert repr(seen) == "TopK(2 rows, the best 3 of 10 classes, the rest unknown)"


@given(st.integers(2, 30), st.integers(1, 8), st.integers(0, 2**20))
def test_one_class_per_row_is_found_whether_seen_or_hidden(
    n_classes: int, k: int, seed: int
) -> None:
    dense = topk_rows(n_classes + 1, 2.0, seed)[2:]
    seen = TopK.from_logits(dense, k, keep_rest=False)
    classes = np.random.default_rng(seed).integers(n_classes + 1, size=len(dense))
    filled = seen.fill()
    assert np.array_equal(seen.of_class(classes), filled.of_class(classes))
    assert np.array_equal(seen.possible_counts, filled.possible_counts)
    assert np.array_equal(seen.labels, dense.argmax(axis=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [[0]], 3), "`values` must be 2-D"),
        (
            ([[1.0, 2.0]], [[0]], 3),
            r"`indices` must have the shape of `values`, \(1, 2\)",
        ),
        (
            ([[1.0, 2.0]], [[0, 3]], 3),
            r"lie in \[0, 2\], or be -1 .*; got 3 in row 0, (place|column) 1",
        ),
        (([[1.0, 2.0]], [[0, -2]], 3), "got -2 in row 0"),
        (([[1.0, 2.0]], [[1, 1]], 3), r"each class once per row; got \[1 1\] in row 0"),
        (
            ([[1.0, 2.0]], [[0, 1]], 1),
            "`n_classes` must be an integer of at least 2; got 1",
        ),
        (([[1.0, 2.0, 3.0]], [[0, 1, 2]], 2), "from 1 to n_classes = 2 columns"),
        (
            ([[1.0, np.nan]], [[0, 1]], 3),
            "must not hold NaN or .inf; got NaN in row 0, column 1",
        ),
        (([[1.0, np.inf]], [[0, 1]], 3), "got .inf in row 0"),
        (([[-np.inf, -np.inf]], [[0, 1]], 3), "row 0 has no finite value"),
    ],
)
def test_bad_arguments(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopK(*arguments)


def test_more_bad_arguments() -> None:
    with pytest.raises(TypeError, match=r"`indices` must be integers.*float64"):
        TopK([[1.0, 2.0]], [[0.0, 1.0]], 3)
    with pytest.raises(
        ValueError,
        match=r"`ceiling` must be at most .*; got 1.5 in row 0. The smallest seen is 1;",
    ):
        TopK([[1.0, 2.0]], [[0, 1]], 3, ceiling=1.5)
    with pytest.raises(
        ValueError, match=r"`ceiling` must be 1-D with .* Or pass a number"
    ):
        TopK([[1.0, 2.0]], [[0, 1]], 3, ceiling=[0.0, 0.0])
    with pytest.raises(
        ValueError,
        match=r"`rest` must be .*; got 3.0 in row 0. Here that is log\(2\) [+] 1 =",
    ):
        TopK([[1.0, 2.0]], [[0, 1]], 4, rest=3.0)
    with pytest.raises(
        ValueError, match=r"sum to at most 1, .*; got 1.4.* in row 0. The 2 .* can"
    ):
        TopK.from_log_probabilities(np.log([[0.7, 0.7]]), [[0, 1]], 4)
    with pytest.raises(
        ValueError, match=r"classes can hold what is left; got 0.4.* in row 0"
    ):
        TopK.from_log_probabilities(np.log([[0.3, 0.1]]), [[0, 1]], 4)


def test_plain_logits_have_no_tail() -> None:
    plain = as_logits([[1.0, 2.0, 0.0]])
    assert type(plain) is Logits
    assert plain.tail is None
    assert plain.gaps.tolist() == [1.0]
    assert TopK([[1.0]], [[3]], 5, ceiling=-1.0).gaps.tolist() == [2.0]


@given(st.integers(0, 2**20))
def test_some_rows_are_those_rows(seed: int) -> None:
    seen = TopK.from_logits(topk_rows(9, 2.0, seed), 4)
    chosen = np.array([6, 0, 3])
    for part in (
        seen[chosen],
        seen.take(chosen),
        pickle.loads(pickle.dumps(seen)).take(chosen),
    ):
        assert len(part) == 3
        assert np.array_equal(part.values, seen.values[chosen])
        assert np.array_equal(part.indices, seen.indices[chosen])
        assert np.array_equal(part.tail.margin, seen.tail.margin[chosen])
        assert np.array_equal(part.rest, seen.rest[chosen])
    assert np.array_equal(seen.take(slice(2, 5)).labels, seen.labels[2:5])
    assert np.array_equal(seen.take(slice(None, None, 3)).top, seen.top[::3])
    assert np.array_equal(seen[seen.top > 1.0].top, seen.top[seen.top > 1.0])


def test_the_best_of_checked_logits() -> None:
    dense = topk_rows(9, 2.0, seed=3)
    seen = TopK.from_logits(as_logits(dense), 4)
    assert np.array_equal(seen.values, TopK.from_logits(dense, 4).values)
    with pytest.raises(
        ValueError, match="`from_logits` needs the logit of every class"
    ):
        TopK.from_logits(seen, 2)
