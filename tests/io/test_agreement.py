"""The share of repeated samples that agree."""

from __future__ import annotations

import numpy as np
import pytest

from hokical.io import agreement


def test_the_most_frequent_answer_and_its_share() -> None:
    answers, share = agreement([[" Paris.", "paris", "Lyon"], ["4"], ["b", "a"]])
    assert answers == ["paris", "4", "b"]
    np.testing.assert_allclose(share, [2 / 3, 1.0, 0.5])


def test_answers_are_compared_as_you_say() -> None:
    answers, share = agreement([["1.0", "1", "2"]], normalize=float)
    assert answers == [1.0]
    np.testing.assert_allclose(share, [2 / 3])


def test_what_is_no_list_of_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a list of answers .*; got 'Paris' in row 0"):
        agreement(["Paris"])
    with pytest.raises(ValueError, match=r"got \[\] in row 1"):
        agreement([["a"], []])
