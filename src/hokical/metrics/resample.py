"""The bootstrap: many resamples of the same examples at once, as counts of the sorted rows.

With the rows sorted by confidence once, every metric of a resample is a sum, a running sum or a sum
over neighbours, so NumPy computes a whole batch of resamples together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hokical.core.types import FloatArray, IntArray
from hokical.metrics.checks import Examples
from hokical.metrics.ranked import RankedExamples, run_starts

#: About how many counts a batch of resamples holds: small enough for the cache.
_BATCH = 1 << 18


@dataclass(frozen=True, eq=False)
class Resampler:
    """Rows in sorted order: row i is example `order[i]`."""

    examples: Examples
    order: IntArray

    @classmethod
    def from_examples(cls, examples: Examples) -> Resampler:
        """Sort by confidence, then by correctness: the given order does not matter."""
        return cls(examples, np.lexsort((examples.correct, examples.confidence)))

    def batches(self, n_resamples: int, seed: int) -> Iterator[tuple[RankedExamples, FloatArray]]:
        """Batches of resamples, each with the weights (batch, n) of its sorted rows.

        All resamples draw from one generator, one after the other: the batch size changes nothing.
        """
        rng = np.random.default_rng(seed)
        n = self.examples.n_rows
        step = max(1, _BATCH // n)
        for first in range(0, n_resamples, step):
            counts = np.empty((min(step, n_resamples - first), n))
            for row in counts:
                row[:] = np.bincount(rng.integers(n, size=n), minlength=n)
            if self.examples.weight is not None:
                counts *= self.examples.weight[self.order]
            yield self.merge_ties(counts), counts

    def merge_ties(self, weight: FloatArray) -> RankedExamples:
        """Resamples with the given weights (batch, n), rows of equal confidence merged."""
        confidence = self.examples.confidence[self.order]
        wrong = ~self.examples.correct[self.order]
        starts = run_starts(confidence)
        errors = weight * wrong
        if starts.shape[0] < confidence.shape[0]:
            errors = np.add.reduceat(errors, starts, axis=-1)
            weight = np.add.reduceat(weight, starts, axis=-1)
        return RankedExamples(confidence[starts], weight, errors)
