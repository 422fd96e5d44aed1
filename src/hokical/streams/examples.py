"""Examples of a log-loss fit that are gone through in passes instead of being kept.

The same fits that run on `likelihood.Examples` in memory run on these. What they ask for is summed
over blocks; what they keep per example is made anew in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hokical._warnings import warn_user
from hokical.bins import sum_by
from hokical.likelihood import (
    BARELY_HALF,
    COARSE_ROWS,
    COARSE_SIZE,
    Examples,
    ExampleSet,
    Parts,
)
from hokical.logits import Logits
from hokical.streams.blocks import Blocks, State
from hokical.streams.checking import Block

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Made = TypeVar("Made")

#: Bits of a float64 that a pass of the search for a median looks at, and those that two leave.
_DIGIT = 20
_LEFT = 63 - 2 * _DIGIT


class StreamedExamples(ExampleSet):
    """The countable examples of a stream; see `likelihood.countable_examples`.

    Making it takes one pass, which counts and takes a sample.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        keep = max(COARSE_ROWS, -(-COARSE_SIZE // blocks.n_classes))
        counts, weight, *sample = blocks.reduce(
            partial(_survey, keep=keep), partial(_joined_survey, keep=keep)
        )
        self._sample = _Sample(*sample)
        self._weight = float(weight[0])
        n_rows, impossible = counts.tolist()
        _warn_about_impossible(n_rows, impossible, self._weight)

    @property
    def n_classes(self) -> int:
        return self.blocks.n_classes

    @cached_property
    def mean_true_margin(self) -> float:
        return float(self.total(_true_margin)[0])

    def prepared(self, make: Callable[[Examples], Made]) -> Parts[Made]:
        return _Passes(self.blocks, self._weight, make)

    def coarse(self) -> Examples | None:
        values, labels, weights = self._sample.values, self._sample.labels, self._sample.weights
        if self._sample.stride[0] < 4 or not weights.any():
            return None
        top = values.max(axis=1).astype(np.float64)
        return Examples(Logits(values, top), labels, weights / weights.sum())

    def positive_median(self, values: Callable[[Examples], FloatArray]) -> float:
        """To one part in 10^9, by two passes that each look at some bits of the values."""
        high = self.total(lambda part: _histogram(part, values(part), None))
        if not high.any():
            return 1.0
        goal = BARELY_HALF * float(high.sum())
        first = _digit_reaching(high, goal)
        goal -= float(high[:first].sum())
        low = self.total(lambda part: _histogram(part, values(part), first))
        second = _digit_reaching(low, goal)
        bits = ((first << _DIGIT) + second << _LEFT) + (1 << _LEFT - 1)
        return float(np.int64(bits).view(np.float64))


class _Passes(Parts[Made]):
    """Every total is a pass over the stream."""

    def __init__(self, blocks: Blocks, weight: float, make: Callable[[Examples], Made]) -> None:
        self._blocks, self._weight, self._make = blocks, weight, make

    def total(self, work: Callable[[Made], FloatArray]) -> FloatArray:
        make, weight = self._make, self._weight
        (found,) = self._blocks.total(lambda block: (work(make(_countable(block, weight))),))
        return np.asarray(found)


class _Sample:
    """Every `stride`-th row, counted over the whole stream."""

    def __init__(
        self,
        stride: IntArray,
        row: IntArray,
        values: NDArray[np.floating],
        labels: IntArray,
        weights: FloatArray,
    ) -> None:
        self.stride, self.row, self.values = stride, row, values
        self.labels, self.weights = labels, weights

    def thinned(self, stride: int) -> _Sample:
        kept = self.row % stride == 0
        return _Sample(
            np.array([stride]),
            self.row[kept],
            self.values[kept],
            self.labels[kept],
            self.weights[kept],
        )

    def thinned_to(self, keep: int) -> _Sample:
        """With a stride that is the smallest power of 2 that leaves at most 2 `keep` rows."""
        sample, stride = self, int(self.stride[0])
        while sample.row.size > 2 * keep:
            stride *= 2
            sample = sample.thinned(stride)
        return sample

    def state(self) -> State:
        return self.stride, self.row, self.values, self.labels, self.weights


def _survey(block: Block, keep: int) -> State:
    """Rows, those with an impossible truth; the weight of the others; and a sample."""
    part = _countable(block, 1.0)
    weights = np.ones(block.n_rows) if block.weights is None else block.weights
    impossible = int(np.count_nonzero((weights > 0.0) & (part.weights == 0.0)))
    rows = block.first_row + np.arange(block.n_rows)
    everything = _Sample(np.array([1]), rows, block.logits.values, part.labels, part.weights)
    counts = np.array([block.n_rows, impossible])
    return (counts, np.array([part.weights.sum()]), *everything.thinned_to(keep).state())


def _joined_survey(left: State, right: State, keep: int) -> State:
    one, other = _Sample(*left[2:]), _Sample(*right[2:])
    stride = max(int(one.stride[0]), int(other.stride[0]))
    pairs = zip(one.thinned(stride).state()[1:], other.thinned(stride).state()[1:], strict=True)
    joined = _Sample(np.array([stride]), *(np.concatenate(pair) for pair in pairs))
    return (left[0] + right[0], left[1] + right[1], *joined.thinned_to(keep).state())


def _countable(block: Block, weight: float) -> Examples:
    """A block's examples, with weights divided by the whole stream's; see `countable_examples`."""
    weights = np.ones(block.n_rows) if block.weights is None else block.weights
    impossible = block.logits.of_class(block.labels) == -np.inf
    if not impossible.any():
        return Examples(block.logits, block.labels, weights / weight)
    return Examples(
        block.logits,
        np.where(impossible, block.logits.labels, block.labels),
        np.where(impossible, 0.0, weights) / weight,
    )


def _warn_about_impossible(n_rows: int, impossible: int, weight: float) -> None:
    if weight == 0.0 and impossible == 0:
        raise ValueError("`sample_weight` must not be zero everywhere. Give some example a weight.")
    if weight == 0.0:
        raise ValueError(
            "`labels` must name a possible class in at least one example; the logit of the true "
            "class is -inf in all of them. Mask only classes that cannot occur."
        )
    if impossible:
        warn_user(
            f"{impossible} of {n_rows} examples are left out of the fit: the logit of their true "
            "class is -inf, which makes the log loss infinite whatever is fitted. Mask only "
            "classes that cannot occur.",
            RuntimeWarning,
        )


def _true_margin(part: Examples) -> FloatArray:
    return np.array([part.mean_true_margin])


def _histogram(part: Examples, values: FloatArray, within: int | None) -> FloatArray:
    """Weight by the first digit of the values' bits; or by the second, of those with a first.

    The bits of positive floats, read as integers, are in the order of the floats.
    """
    rows = (values > 0.0) & (part.weights > 0.0)
    digits = values[rows].view(np.int64) >> _LEFT
    first = digits >> _DIGIT
    weights = part.weights[rows]
    if within is None:
        return sum_by(first, weights, 1 << _DIGIT)
    inside = first == within
    return sum_by(digits[inside] & ((1 << _DIGIT) - 1), weights[inside], 1 << _DIGIT)


def _digit_reaching(histogram: FloatArray, goal: float) -> int:
    """The first cell up to which the weight reaches the goal."""
    reached = np.cumsum(histogram)
    return int(min(np.searchsorted(reached, goal), np.flatnonzero(histogram)[-1]))
