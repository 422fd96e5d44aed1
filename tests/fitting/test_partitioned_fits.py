"""A fit on examples that come in pieces is the fit on all of them."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import Gaussian, Hoki, select_noise
from hokical._fitting.examples import Partition
from hokical.calibrators import Calibrator, Examples, make
from hokical.rules import as_logits
from tests.conftest import max_examples, synthetic_logits
from tests.fitted import label_scores


class Pieces(Partition):
    """Blocks of some rows each, as files or workers would give them."""

    def __init__(
        self,
        logits: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray | None,
        size: int,
    ) -> None:
        self.arrays = logits, labels, weights
        self.size, self.n_classes = size, logits.shape[1]
        self.passes = 0

    def blocks(self) -> Iterator[Examples]:
        logits, labels, weights = self.arrays
        for start in range(0, len(labels), self.size):
            rows = slice(start, start + self.size)
            part = None if weights is None else weights[rows]
            yield Examples(as_logits(logits[rows]), labels[rows], part, start)

    def reduce(self, work: Callable[[Examples], Any]) -> Any:
        self.passes += 1
        return reduce(operator.add, map(work, self.blocks()))


def examples(
    n: int, weighted: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    logits, labels = synthetic_logits(n, 5, seed=n)
    weights = (
        np.random.default_rng(0).integers(0, 3, size=n).astype(float)
        if weighted
        else None
    )
    return logits, labels, weights


@pytest.mark.slow
@max_examples(20)
@given(
    size=st.integers(1, 700),
    weighted=st.booleans(),
)
def test_hoki_in_pieces_is_hoki_bit_for_bit(size: int, weighted: bool) -> None:
    data = examples(600, weighted)
    if weighted and not any(
        block.counts.any() for block in Pieces(*data, size).blocks()
    ):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = Hoki(noise=Gaussian(2.5)).fit(*data)
        pieces = Hoki(noise=Gaussian(2.5)).fit_partition(Pieces(*data, size))
        half = Hoki(noise=Gaussian(2.5)).fit(
            *(part_of(array, 0, 250) for array in data)
        )
        rest = [part_of(array, 250, 600) for array in data]
        half.partial_fit_partition(Pieces(*rest, size))
    for found in (pieces, half):
        np.testing.assert_array_equal(found.table_.weight, whole.table_.weight)
        np.testing.assert_array_equal(found.alpha_, whole.alpha_)
        assert (label_scores(found) is None) == weighted
        if not weighted:
            wrong = [label_scores(each).wrong for each in (found, whole)]
            np.testing.assert_array_equal(*wrong)


def part_of(array: np.ndarray | None, start: int, stop: int) -> np.ndarray | None:
    return None if array is None else array[start:stop]


@pytest.mark.parametrize("name", ["irm", "irova_ts", "auto", "temps", "vecs", "ets"])
def test_few_examples_in_pieces_give_the_same_fit(name: str) -> None:
    data = examples(400, weighted=True)
    whole: Calibrator = make(name).fit(*data)
    pieces = make(name).fit_partition(Pieces(*data, 90))
    np.testing.assert_array_equal(
        pieces.predict_proba(data[0]), whole.predict_proba(data[0])
    )


def test_blocks_without_weight_change_nothing() -> None:
    logits, labels, _ = examples(400, weighted=False)
    weights = np.r_[np.zeros(100), np.ones(300)]
    found = Hoki().fit_partition(Pieces(logits, labels, weights, 50))
    assert found.noise_ == select_noise(logits[100:], labels[100:]).noise
    with pytest.raises(ValueError, match="must not be zero everywhere"):
        Hoki(noise=Gaussian(1.0)).fit_partition(
            Pieces(logits, labels, np.zeros(400), 50)
        )
