"""The bootstrap: many resamples of the same examples at once, as counts of what was drawn.

With the rows sorted by confidence once, every metric of a resample is a sum, a running sum or a sum
over neighbours, so NumPy computes a whole batch of resamples together. Of many rows, random blocks
are drawn instead of rows, and neighbouring confidences are merged into cells: a mean over blocks
varies as much as one over rows, and the cost of a resample no longer grows with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hokical.core.bins import bin_index, sum_by
from hokical.core.types import FloatArray, IntArray
from hokical.metrics.checks import Examples
from hokical.metrics.ranked import RankedExamples, run_starts

#: About how many counts a batch of resamples holds: small enough for the cache.
_BATCH = 1 << 18
#: With more rows than this, blocks of rows are drawn.
MOST_ROWS = 10_000
N_BLOCKS = 1000
#: About how many groups of neighbouring confidences blocks are counted in.
_N_CELLS = 2048


@dataclass(frozen=True, eq=False)
class Resampler:
    """Rows in sorted order: row i is example `order[i]`, and belongs to `block[i]` if not None."""

    examples: Examples
    order: IntArray
    block: IntArray | None = None

    @classmethod
    def from_examples(cls, examples: Examples, seed: int = 0) -> Resampler:
        """Sort by confidence, then by correctness: the given order does not matter."""
        order = np.lexsort((examples.correct, examples.confidence))
        n, block = examples.n_rows, None
        if n > MOST_ROWS:
            block = np.random.default_rng([seed, n]).permutation(n) % N_BLOCKS
        return cls(examples, order, block)

    @property
    def n_units(self) -> int:
        """How many rows or blocks a resample draws."""
        return self.examples.n_rows if self.block is None else N_BLOCKS

    def unit_sums(self, values: FloatArray) -> FloatArray:
        """Weighted sum of values (n,), in the given order of rows, by row or block, (units,)."""
        weight = self.examples.weight
        ordered = (values if weight is None else values * weight)[self.order]
        return ordered if self.block is None else sum_by(self.block, ordered, N_BLOCKS)

    def batches(
        self, n_resamples: int, seed: int, n_bins: int = 1
    ) -> Iterator[tuple[RankedExamples, FloatArray]]:
        """Batches of resamples, each with the counts (batch, units) of what was drawn.

        All resamples draw from one generator, one after the other: the batch size changes nothing.
        Cells stay inside one of `n_bins` bins of equal width.
        """
        rng, n = np.random.default_rng(seed), self.n_units
        merge = self.merge_ties if self.block is None else self._merge_cells(self.block, n_bins)
        step = max(1, _BATCH // n)
        for first in range(0, n_resamples, step):
            counts = np.empty((min(step, n_resamples - first), n))
            for row in counts:
                row[:] = np.bincount(rng.integers(n, size=n), minlength=n)
            yield merge(counts), counts

    def merge_ties(self, counts: FloatArray) -> RankedExamples:
        """Resamples from the counts (batch, n) of rows; rows of equal confidence are merged."""
        weight = counts
        if self.examples.weight is not None:
            weight = counts * self.examples.weight[self.order]
        confidence = self.examples.confidence[self.order]
        errors = weight * ~self.examples.correct[self.order]
        starts = run_starts(confidence)
        if starts.shape[0] < confidence.shape[0]:
            errors = np.add.reduceat(errors, starts, axis=-1)
            weight = np.add.reduceat(weight, starts, axis=-1)
        return RankedExamples(confidence[starts], weight, errors)

    def _merge_cells(self, block: IntArray, n_bins: int) -> Callable[[FloatArray], RankedExamples]:
        """A function like `merge_ties` of the counts of blocks, with cells instead of ties."""
        confidence, wrong = self.examples.confidence[self.order], ~self.examples.correct[self.order]
        weight = self.examples.filled_weight()[self.order]
        ties = run_starts(confidence)
        even = np.linspace(0, confidence.shape[0], _N_CELLS, endpoint=False)
        edges = run_starts(bin_index(confidence, n_bins))
        starts = np.union1d(ties[np.searchsorted(ties, even, side="right") - 1], edges)
        cell = np.zeros(confidence.shape[0], np.int64)
        cell[starts[1:]] = 1
        place = block * starts.shape[0] + np.cumsum(cell)
        shape = (N_BLOCKS, starts.shape[0])
        weights, errors = (
            sum_by(place, values, shape[0] * shape[1]).reshape(shape)
            for values in (weight, weight * wrong)
        )
        centre = np.add.reduceat(weight * confidence, starts) / np.add.reduceat(weight, starts)
        return lambda counts: RankedExamples(centre, counts @ weights, counts @ errors)
