"""The bootstrap: many resamples of the same examples at once, as counts of what was drawn.

Rows are drawn one by one if there are at most 1000, else in 1000 random blocks: a mean over blocks
varies as much as one over rows, and the cost of a resample does not grow with the rows. With the
rows sorted by confidence once, every metric of a resample is a sum, a running sum or a sum over
neighbours; of many rows, neighbouring confidences are merged into cells. Sums here are plain
float64; the tests compare them with the public functions under the same weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, sum_by
from hokical._core.types import FloatArray, IntArray
from hokical.metrics._binned_sums import GapSums
from hokical.metrics._examples import Examples, Predictions
from hokical.metrics._metric import Measures, evaluate
from hokical.metrics._ranking import RankedExamples, row_dot, run_starts
from hokical.metrics._smooth import grid_masses, own_bandwidth

#: About how many counts a batch of resamples holds: small enough for the cache.
_BATCH = 1 << 18
MOST_BLOCKS = 1000
#: About how many groups of neighbouring confidences there are at most.
_MOST_CELLS = 2048


@dataclass(frozen=True, eq=False)
class Resampler:
    """Rows in sorted order: row i is example `order[i]` and in block `block[i]`.

    `weights` and `errors` (blocks, cells), sparse or not, are those of the rows, and of the wrong
    ones, whose confidences are neighbours; `centre` (cells,) is the mean confidence of each cell.
    """

    order: IntArray
    block: IntArray
    n_blocks: int
    centre: FloatArray
    weights: Any
    errors: Any

    @classmethod
    def from_examples(cls, examples: Examples, random_state: int = 0, n_bins: int = 1) -> Self:
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
        return cls(order, block, n_blocks, centre, *(_sparse_if_mostly_zero(t) for t in tables))

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
        # A product with a sparse table comes by columns; the sums that follow run along rows.
        weights, errors = (np.ascontiguousarray(counts @ t) for t in (self.weights, self.errors))
        return RankedExamples(self.centre, weights, errors)


def _sparse_if_mostly_zero(table: FloatArray) -> Any:
    """Blocks of few rows reach few cells: products with those alone take far less."""
    from scipy.sparse import csr_array

    return csr_array(table) if 20 * np.count_nonzero(table) < table.size else table


def _cell_starts(confidence: FloatArray, n_bins: int) -> IntArray:
    """Where each cell of the sorted confidences begins: ties, or as many as there may be."""
    ties = run_starts(confidence)
    if ties.shape[0] <= _MOST_CELLS:
        return ties
    even = np.linspace(0, confidence.shape[0], _MOST_CELLS, endpoint=False)
    edges = run_starts(bin_index(confidence, n_bins))
    return np.union1d(ties[np.searchsorted(ties, even, side="right") - 1], edges)


def top_statistics(
    ranked: RankedExamples, *, n_bins: int, coverage: float, cells: int
) -> dict[str, FloatArray]:
    """The top-label metrics that are no means over examples: smooth ECE on a grid of `cells`."""
    scores = {
        "ece_mass": _mass_errors(ranked, n_bins),
        "smooth_ece": own_bandwidth(grid_masses(ranked, cells), 1e-6),
    }
    return evaluate(Measures(_bin_groups(ranked, n_bins), ranked, coverage, scores))


def block_means(
    counts: FloatArray,
    weight: FloatArray,
    sums: dict[str, FloatArray],
    cells: FloatArray | None,
    n_classes: int,
) -> dict[str, FloatArray]:
    """Means of resamples, (batch,) each, from the counts (batch, blocks) of what they drew.

    Of the blocks are `weight` (blocks,), the weighted `sums` (blocks,) by metric, and `cells`, the
    residuals of (class, bin) cells, (blocks, classes * bins); None for no classwise ECE.
    """
    total = row_dot(counts, weight)
    finite = {name: values for name, values in sums.items() if np.isfinite(values).all()}
    found = {name: row_dot(counts, values) / total for name, values in finite.items()}
    if cells is not None:
        found["classwise_ece"] = np.abs(counts @ cells).sum(axis=-1) / (n_classes * total)
    return found


def class_cells(data: Predictions, blocks: list[IntArray], n_bins: int) -> FloatArray:
    """Weighted residuals by block and (class, bin) cell, (blocks, classes * n_bins)."""
    cells = np.empty((len(blocks), data.n_classes * n_bins))
    weight = data.filled_weight()
    for place, rows in enumerate(blocks):
        proba = data.proba[rows].astype(np.float64)
        cell = n_bins * np.arange(data.n_classes) + bin_index(proba, n_bins)
        proba[np.arange(rows.shape[0]), data.labels[rows]] -= 1.0
        residual = -proba * weight[rows, None]
        cells[place] = sum_by(cell.ravel(), residual.ravel(), cells.shape[1])
    return cells


def _bin_groups(ranked: RankedExamples, n_bins: int) -> GapSums:
    """Sums by equal-width bin: those of neighbours, since the groups are sorted."""
    starts = run_starts(bin_index(ranked.confidence, n_bins))
    gap = np.add.reduceat(ranked.gap, starts, axis=-1)
    weight = np.add.reduceat(ranked.weight, starts, axis=-1)
    correct = weight - np.add.reduceat(ranked.errors, starts, axis=-1)
    return GapSums(gap, weight, correct)


def _mass_errors(ranked: RankedExamples, n_bins: int) -> FloatArray:
    """ECE over equal-mass bins of each resample: differences of a running sum at the cuts."""
    # Twice the weight above the middle of each group.
    above = n_bins * (2.0 * ranked.weight_above - ranked.weight)
    # A group is below cut j if 2 n_bins whole - twice < 2 whole j, as in `mass_index`.
    wanted = np.multiply.outer(2.0 * ranked.total, np.arange(n_bins - 1, 0, -1))
    rows = zip(above[:, ::-1], wanted, strict=True)
    kept = np.stack([np.searchsorted(twice, cut, side="right") for twice, cut in rows])
    cuts = above.shape[1] - kept
    at_cuts = np.take_along_axis(ranked.gap_upto, np.maximum(cuts - 1, 0), axis=-1)
    at_cuts = np.where(cuts > 0, at_cuts, 0.0)
    ends = (np.zeros((len(cuts), 1)), at_cuts, ranked.gap_upto[:, -1:])
    gaps = np.diff(np.concatenate(ends, axis=-1), axis=-1)
    return np.asarray(np.abs(gaps).sum(axis=-1) / ranked.total)
