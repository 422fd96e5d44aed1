"""Examples sorted by confidence with ties merged, the input of rank-based metrics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hokical.core.bins import sum_by
from hokical.core.types import AnyArray, FloatArray, IntArray
from hokical.metrics.checks import Examples
from hokical.metrics.chunked import read_examples


@dataclass(frozen=True, eq=False)
class RankedExamples:
    """`confidence` (groups,) ascending and distinct; `weight` and `errors` (..., groups).

    `errors` is the weight of the wrong examples. Leading axes are resamples of the same examples;
    there a group may have weight 0.
    """

    confidence: FloatArray
    weight: FloatArray
    errors: FloatArray

    @classmethod
    def from_examples(cls, examples: Examples) -> RankedExamples:
        """Sort and merge ties, which makes the metrics independent of the row order."""
        values, place = np.unique(examples.confidence, return_inverse=True)
        weight = examples.filled_weight()
        return cls(
            values,
            sum_by(place, weight, values.shape[0]),
            sum_by(place, weight * ~examples.correct, values.shape[0]),
        )

    @cached_property
    def correct(self) -> FloatArray:
        """Weight of the correct examples, (..., groups)."""
        return self.weight - self.errors

    @cached_property
    def gap(self) -> FloatArray:
        """Sum of 1{correct} - confidence, (..., groups)."""
        return self.weight * (1.0 - self.confidence) - self.errors

    @cached_property
    def weight_above(self) -> FloatArray:
        """Weight at or above each confidence, kept by a threshold there, (..., groups)."""
        return _sum_from_top(self.weight)

    @cached_property
    def errors_above(self) -> FloatArray:
        """Weight of the errors at or above each confidence, (..., groups)."""
        return _sum_from_top(self.errors)

    @cached_property
    def gap_upto(self) -> FloatArray:
        """Sum of `gap` at or below each confidence, (..., groups)."""
        return np.cumsum(self.gap, axis=-1)

    @property
    def total(self) -> FloatArray:
        """Sum of the weights, (...)."""
        return np.asarray(self.weight_above[..., 0])


def rank(confidence: Any, correct: Any, sample_weight: Any = None) -> RankedExamples:
    """Ranked examples from a metric's arguments."""
    return RankedExamples.from_examples(read_examples(confidence, correct, sample_weight))


def _sum_from_top(values: FloatArray) -> FloatArray:
    return np.cumsum(values[..., ::-1], axis=-1)[..., ::-1]


def row_dot(values: FloatArray, other: FloatArray) -> FloatArray:
    """Sum of products along the last axis, (...); does not depend on the number of threads."""
    return np.asarray(np.einsum("...g,...g->...", values, other))


def run_starts(sorted_values: AnyArray) -> IntArray:
    """Where each run of equal values begins, for `np.add.reduceat`.

    >>> run_starts(np.array([3, 3, 5, 7, 7]))
    array([0, 2, 3])
    """
    changed = np.flatnonzero(sorted_values[1:] != sorted_values[:-1]) + 1
    return np.concatenate([[0], changed]).astype(np.int64)
