"""Examples of a log-loss fit that are gone through in passes instead of being kept.

The same fits that run on `likelihood.CountedExamples` in memory run on these. What they ask for is
summed over blocks; what they keep per example is made anew in every pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hokical.core.bins import sum_by
from hokical.core.logits import Logits
from hokical.core.types import FloatArray, IntArray
from hokical.fitting import likelihood
from hokical.fitting.impossible import report_left_out
from hokical.fitting.likelihood import CountedExamples, ExampleSet, Parts
from hokical.fitting.partitions import Block, Partition, State

Made = TypeVar("Made")

#: Bits of a float64 that a pass of the search for a median looks at, and those that two leave.
_DIGIT = 20
_LEFT = 63 - 2 * _DIGIT


def count_examples(examples: Partition, who: str) -> ExampleSet:
    """The examples that a log-loss fit of `who` can learn from, with a warning about the others."""
    if examples.in_memory:
        return likelihood.count_block(examples.gather(who))
    return StreamedExamples(examples)


class StreamedExamples(ExampleSet):
    """Examples that are not in memory. A first pass counts them and takes a sample."""

    def __init__(self, examples: Partition) -> None:
        self.examples = examples
        keep = max(likelihood.COARSE_ROWS, -(-likelihood.COARSE_SIZE // examples.n_classes))
        counts, weight, *sample = examples.reduce(
            partial(_survey, keep=keep), partial(_join_surveys, keep=keep)
        )
        self._sample = _Sample(*sample)
        self._weight = float(weight[0])
        n_rows, impossible = counts.tolist()
        report_left_out(impossible, n_rows, weight_left=self._weight)

    @property
    def n_classes(self) -> int:
        return self.examples.n_classes

    @cached_property
    def mean_true_margin(self) -> float:
        return float(self.total(lambda part: np.array([part.mean_true_margin]))[0])

    def prepare(self, make: Callable[[CountedExamples], Made]) -> Parts[Made]:
        return _Passes(self.examples, self._weight, make)

    def coarse(self) -> CountedExamples | None:
        values, labels, weights = self._sample.values, self._sample.labels, self._sample.weights
        if self._sample.stride[0] < 4 or not weights.any():
            return None
        top = values.max(axis=1).astype(np.float64)
        return CountedExamples(Logits(values, top), labels, weights / weights.sum())

    def positive_median(self, values: Callable[[CountedExamples], FloatArray]) -> float:
        """To one part in 10^9, by two passes that each look at some bits of the values."""
        high = self.total(lambda part: _histogram(part, values(part), None))
        if not high.any():
            return 1.0
        goal = likelihood.BARELY_HALF * float(high.sum())
        first = _digit_reaching(high, goal)
        goal -= float(high[:first].sum())
        low = self.total(lambda part: _histogram(part, values(part), first))
        second = _digit_reaching(low, goal)
        bits = ((first << _DIGIT) + second << _LEFT) + (1 << _LEFT - 1)
        return float(np.int64(bits).view(np.float64))


class _Passes(Parts[Made]):
    """Every total is a pass over the stream."""

    def __init__(
        self, examples: Partition, weight: float, make: Callable[[CountedExamples], Made]
    ) -> None:
        self._examples, self._weight, self._make = examples, weight, make

    def total(self, work: Callable[[Made], FloatArray]) -> FloatArray:
        make, weight = self._make, self._weight

        def one(block: Block) -> State:
            possible, _ = likelihood.leave_out_impossible(block)
            return (work(make(likelihood.scale_weights(block, possible, weight))),)

        return np.asarray(self._examples.total(one)[0])


@dataclass(frozen=True, eq=False)
class _Sample:
    """Every `stride`-th row, counted over the whole stream."""

    stride: IntArray
    row: IntArray
    values: NDArray[Any]
    labels: IntArray
    weights: FloatArray

    def thin(self, stride: int) -> Self:
        """Every `stride`-th row of the stream."""
        kept = self.row % stride == 0
        columns = (self.row, self.values, self.labels, self.weights)
        return type(self)(np.array([stride]), *(column[kept] for column in columns))

    def thin_to(self, keep: int) -> Self:
        """With a stride that is the smallest power of 2 that leaves at most 2 `keep` rows."""
        sample, stride = self, int(self.stride[0])
        while sample.row.size > 2 * keep:
            stride *= 2
            sample = sample.thin(stride)
        return sample

    def state(self) -> State:
        return self.stride, self.row, self.values, self.labels, self.weights


def _survey(block: Block, keep: int) -> State:
    """Rows, those with an impossible truth; the weight of the others; and a sample."""
    weights, impossible = likelihood.leave_out_impossible(block)
    part = likelihood.scale_weights(block, weights, 1.0)
    counts = np.array([block.n_rows, np.count_nonzero(impossible)])
    rows = block.first_row + np.arange(block.n_rows)
    stride = 1
    while np.count_nonzero(rows % stride == 0) > 2 * keep:
        stride *= 2
    kept = np.flatnonzero(rows % stride == 0)  # before anything leaves the device of the logits
    values = block.logits.on_host(block.logits.take(kept).values)
    sample = _Sample(np.array([stride]), rows[kept], values, part.labels[kept], weights[kept])
    return (counts, np.array([weights.sum()]), *sample.state())


def _join_surveys(left: State, right: State, keep: int) -> State:
    one, other = _Sample(*left[2:]), _Sample(*right[2:])
    stride = max(int(one.stride[0]), int(other.stride[0]))
    pairs = zip(one.thin(stride).state()[1:], other.thin(stride).state()[1:], strict=True)
    joined = _Sample(np.array([stride]), *(np.concatenate(pair) for pair in pairs))
    return (left[0] + right[0], left[1] + right[1], *joined.thin_to(keep).state())


def _histogram(part: CountedExamples, values: FloatArray, within: int | None) -> FloatArray:
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
