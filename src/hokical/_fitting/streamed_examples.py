"""Examples of a log-loss fit that are gone through in passes instead of being kept.

The same fits that run on `likelihood.WeightedExamples` in memory run on these. What they ask for is
summed over blocks; what they keep per example is made anew in every pass.
"""

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.logits import Logits
from hokical._core.types import FloatArray, IntArray
from hokical._fitting import likelihood
from hokical._fitting.impossible import report_left_out
from hokical._fitting.likelihood import ExampleSet, WeightedExamples
from hokical._fitting.partitions import Block, Partition, State, join_states

#: Bits of a float64 that a pass of the search for a median looks at, and those that two leave.
_DIGIT = 20
_LEFT = 63 - 2 * _DIGIT


def count_examples(examples: Partition, caller: str) -> ExampleSet:
    """The examples that a log-loss fit of `caller` learns from; a warning about the others."""
    if examples.in_memory:
        return likelihood.count_block(examples.gather(caller))
    return StreamedExamples(examples)


class StreamedExamples(ExampleSet):
    """Examples that are not in memory. A first pass counts them and takes a sample."""

    def __init__(self, examples: Partition) -> None:
        self.examples = examples
        keep = max(likelihood.COARSE_ROWS, -(-likelihood.COARSE_SIZE // examples.n_classes))
        counts, weight, *self._sample = examples.reduce(
            partial(_survey, keep=keep), partial(_join_surveys, keep=keep)
        )
        self._weight = float(weight[0])
        n_rows, impossible, self.n_counting = counts.tolist()
        report_left_out(impossible, n_rows, weight_left=self._weight)

    @property
    def n_classes(self) -> int:
        return self.examples.n_classes

    @cached_property
    def mean_true_margin(self) -> float:
        return float(self.total(lambda part: np.array([part.mean_true_margin]))[0])

    def total(self, work: Callable[[WeightedExamples], FloatArray]) -> FloatArray:
        weight = self._weight

        def one(block: Block) -> State:
            possible, _ = likelihood.leave_out_impossible(block)
            return (work(likelihood.scale_weights(block, possible, weight)),)

        return np.asarray(self.examples.total(one)[0])

    def coarse(self) -> WeightedExamples | None:
        stride, _, values, labels, weights = self._sample
        if stride[0] < 4 or not weights.any():
            return None
        top = values.max(axis=1).astype(np.float64)
        return WeightedExamples(Logits(values, top), labels, weights / weights.sum())

    def positive_median(self, values: Callable[[WeightedExamples], FloatArray]) -> float:
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


def _survey(block: Block, keep: int) -> State:
    """Rows, those with an impossible truth, those that count; the weight of these; and a sample.

    The sample is every `stride`-th row of the stream: the stride, then numbers, values, labels and
    weights of the rows.
    """
    weights, impossible = likelihood.leave_out_impossible(block)
    part = likelihood.scale_weights(block, weights, 1.0)
    counts = np.array([block.n_rows, np.count_nonzero(impossible), np.count_nonzero(weights)])
    rows = block.first_row + np.arange(block.n_rows)
    stride = _find_stride(rows, 1, keep)
    kept = np.flatnonzero(rows % stride == 0)  # before anything leaves the device of the logits
    values = block.logits.to_host(block.logits.take(kept).values)
    sample = (np.array([stride]), rows[kept], values, part.labels[kept], weights[kept])
    return (counts, np.array([weights.sum()]), *sample)


def _join_surveys(left: State, right: State, keep: int) -> State:
    rows, *columns = join_states([left[3:], right[3:]])
    stride = _find_stride(rows, max(int(left[2][0]), int(right[2][0])), keep)
    kept = rows % stride == 0
    sample = (np.array([stride]), *(column[kept] for column in (rows, *columns)))
    return (left[0] + right[0], left[1] + right[1], *sample)


def _find_stride(rows: IntArray, stride: int, keep: int) -> int:
    """The stride, doubled until it leaves at most 2 `keep` rows."""
    while np.count_nonzero(rows % stride == 0) > 2 * keep:
        stride *= 2
    return stride


def _histogram(part: WeightedExamples, values: FloatArray, within: int | None) -> FloatArray:
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
