"""The bootstrap: many resamples of the same examples at once, as counts of what was drawn.

Rows are drawn one by one if there are at most 1000, else in 1000 random blocks: a mean over blocks
varies as much as one over rows, and the cost of a resample does not grow with the rows. With the
rows sorted by confidence once, every metric of a resample is a sum, a running sum or a sum over
neighbours; of many rows, neighbouring confidences are merged into cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hokical.core.bins import bin_index, sum_by
from hokical.core.types import FloatArray, IntArray
from hokical.metrics.checks import Examples
from hokical.metrics.ranking import RankedExamples, run_starts

#: About how many counts a batch of resamples holds: small enough for the cache.
_BATCH = 1 << 18
MOST_BLOCKS = 1000
#: About how many groups of neighbouring confidences there are at most.
_MOST_CELLS = 2048


@dataclass(frozen=True, eq=False)
class Resampler:
    """Rows in sorted order: row i is example `order[i]` and in block `block[i]`.

    `weights` and `errors` (blocks, cells) are those of the rows, and of the wrong ones, whose
    confidences are neighbours; `centre` (cells,) is the mean confidence of each cell.
    """

    order: IntArray
    block: IntArray
    n_blocks: int
    centre: FloatArray
    weights: FloatArray
    errors: FloatArray

    @classmethod
    def from_examples(cls, examples: Examples, random_state: int = 0, n_bins: int = 1) -> Resampler:
        """Sorted by confidence, then by correctness, so that the given order does not matter.

        Cells stay inside one of `n_bins` bins of equal width, and equal confidences in one cell.
        """
        order = np.lexsort((examples.correct, examples.confidence))
        n, n_blocks = order.shape[0], min(order.shape[0], MOST_BLOCKS)
        block = np.random.default_rng([random_state, n]).permutation(n) % n_blocks
        confidence, weight = examples.confidence[order], examples.filled_weight()[order]
        starts = _cell_starts(confidence, n_bins)
        centre = np.add.reduceat(weight * confidence, starts) / np.add.reduceat(weight, starts)
        # Of a tie the mean may be off by rounding, and so fall into another bin.
        centre = np.clip(centre, confidence[starts], confidence[np.append(starts[1:], n) - 1])
        place = np.searchsorted(starts, np.arange(n), side="right") - 1
        cells, shape = block * starts.shape[0] + place, (n_blocks, starts.shape[0])
        tables = (
            sum_by(cells, values, n_blocks * starts.shape[0]).reshape(shape)
            for values in (weight, weight * ~examples.correct[order])
        )
        return cls(order, block, n_blocks, centre, *tables)

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum of values (n,), in the given order of rows, by block, (blocks,)."""
        return sum_by(self.block, values[self.order], self.n_blocks)

    def rows_by_block(self) -> list[IntArray]:
        """The examples of each block."""
        ends = np.cumsum(np.bincount(self.block, minlength=self.n_blocks))[:-1]
        return np.split(self.order[np.argsort(self.block, kind="stable")], ends)

    def batches(
        self, n_resamples: int, random_state: int
    ) -> Iterator[tuple[RankedExamples, FloatArray]]:
        """Batches of resamples, each with the counts (batch, blocks) of what was drawn.

        All resamples draw from one generator, one after the other: the batch size changes nothing.
        """
        rng, n = np.random.default_rng(random_state), self.n_blocks
        step = max(1, _BATCH // n)
        for first in range(0, n_resamples, step):
            counts = np.empty((min(step, n_resamples - first), n))
            for row in counts:
                row[:] = np.bincount(rng.integers(n, size=n), minlength=n)
            yield self.rank(counts), counts

    def rank(self, counts: FloatArray) -> RankedExamples:
        """Resamples from the counts (batch, blocks) of blocks."""
        return RankedExamples(self.centre, counts @ self.weights, counts @ self.errors)


def _cell_starts(confidence: FloatArray, n_bins: int) -> IntArray:
    """Where each cell of the sorted confidences begins: ties, or as many as there may be."""
    ties = run_starts(confidence)
    if ties.shape[0] <= _MOST_CELLS:
        return ties
    even = np.linspace(0, confidence.shape[0], _MOST_CELLS, endpoint=False)
    edges = run_starts(bin_index(confidence, n_bins))
    return np.union1d(ties[np.searchsorted(ties, even, side="right") - 1], edges)
