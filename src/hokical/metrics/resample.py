"""The bootstrap: many resamples of the same examples at once, as counts of the sorted rows.

A resample is a count per row. Sorted by confidence once, every metric of it is a sum, a running sum
or a sum over neighbours, so a whole batch of resamples goes through NumPy together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hokical.metrics.checks import Examples
from hokical.metrics.ranked import Ranked, run_starts

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: About how many counts a batch of resamples holds: small enough to stay in the cache.
_BATCH = 1 << 18


@dataclass(frozen=True, eq=False)
class Resampler:
    """Rows in sorted order: `order` (n,) leads from the examples to them."""

    examples: Examples
    order: IntArray

    @classmethod
    def from_examples(cls, examples: Examples) -> Resampler:
        """Sort by confidence, then by correctness, so that the rows' own order does not matter."""
        return cls(examples, np.lexsort((examples.correct, examples.confidence)))

    def batches(self, n_resamples: int, seed: int) -> Iterator[tuple[Ranked, FloatArray]]:
        """Batches of resamples, each with the weights (batch, n) of its sorted rows.

        Every resample draws n rows from one generator, one after the other, so the batch size
        changes nothing.
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
            yield self.merged(counts), counts

    def merged(self, weight: FloatArray) -> Ranked:
        """Resamples with rows of equal confidence merged."""
        confidence = self.examples.confidence[self.order]
        wrong = ~self.examples.correct[self.order]
        starts = run_starts(confidence)
        errors = weight * wrong
        if starts.shape[0] < confidence.shape[0]:
            errors = np.add.reduceat(errors, starts, axis=-1)
            weight = np.add.reduceat(weight, starts, axis=-1)
        return Ranked(confidence[starts], weight, errors)
