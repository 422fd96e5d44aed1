"""The bootstrap: many resamples of the same examples at once, as counts of what was drawn.

Rows are drawn one by one if there are at most 1000, else in 1000 random blocks: a mean over blocks
varies as much as one over rows, and the cost of a resample does not grow with the rows. With the
rows sorted by confidence once, every metric of a resample is a sum, a running sum or a sum over
neighbours; of many rows, neighbouring confidences are merged into levels of about equal weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.bins import bin_index, sum_by
from hokical._core.types import FloatArray, IntArray
from hokical.metrics._examples import Examples, Predictions
from hokical.metrics._levels import Levels, row_dot, run_starts
from hokical.metrics._metric import METRICS, SummaryOptions
from hokical.metrics._vectors import class_gaps, class_scores, top_label_rows

#: About how many counts a batch of resamples holds: small enough for the cache.
_BATCH = 1 << 18
MOST_BLOCKS = 1000
#: About how many levels of confidence there are at most.
_MOST_LEVELS = 2048
#: Blocks x classes x bins up to which the classwise ECE gets an interval: 160 MB.
CLASSWISE_CELLS = 20_000_000


@dataclass(frozen=True, eq=False)
class Resampler:
    """Rows in sorted order: row i is example `order[i]` and in block `block[i]`.

    `weights` and `errors` (blocks, levels), sparse or not, are those of the rows, and of the wrong
    ones; `centre` (levels,) is the mean confidence of each level.
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

        Levels stay inside one of `n_bins` bins of equal width, and equal confidences in one level.
        """
        order = np.lexsort((examples.correct, examples.confidence))
        n, n_blocks = order.shape[0], min(order.shape[0], MOST_BLOCKS)
        block = np.random.default_rng([random_state, n]).permutation(n) % n_blocks
        confidence, weight = examples.confidence[order], examples.filled_weight()[order]
        starts = _level_starts(confidence, n_bins)
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

    def batches(self, n_resamples: int, random_state: int) -> Iterator[FloatArray]:
        """Batches of resamples, as counts (batch, blocks) of what was drawn.

        All resamples draw from one generator, one after the other: the batch size changes nothing.
        """
        rng, n = np.random.default_rng(random_state), self.n_blocks
        step = max(1, _BATCH // n)
        for first in range(0, n_resamples, step):
            counts = np.empty((min(step, n_resamples - first), n))
            for row in counts:
                row[:] = np.bincount(rng.integers(n, size=n), minlength=n)
            yield counts

    def levels(self, counts: FloatArray) -> Levels:
        """Resamples from the counts (batch, blocks) of blocks."""
        # A product with a sparse table comes by columns; the sums that follow run along rows.
        weights, errors = (np.ascontiguousarray(counts @ t) for t in (self.weights, self.errors))
        return Levels(self.centre, weights, errors)


def resample(
    examples: Examples, data: Predictions | None, options: SummaryOptions
) -> dict[str, FloatArray]:
    """Every metric with a bootstrap interval, of every resample, (n_resamples,) each."""
    drawn = Resampler.from_examples(examples, options.seed, options.n_bins)
    weight = examples.filled_weight()
    rows: dict[str, Any] = {"accuracy": examples.correct, "mean_confidence": examples.confidence}
    rows |= top_label_rows(examples.confidence, examples.correct, options.clip)
    rows |= {} if data is None else class_scores(data, options.clip, options.ordered)
    sums = {name: drawn.sums(weight * scores) for name, scores in rows.items()}
    sums = {name: values for name, values in sums.items() if np.isfinite(values).all()}
    cells = None if data is None else _class_cells(data, drawn, options.n_bins)
    batches: dict[str, list[FloatArray]] = {}
    for counts in drawn.batches(options.n_resamples, options.seed):
        levels, total = drawn.levels(counts), row_dot(counts, drawn.sums(weight))
        found = {name: row_dot(counts, values) / total for name, values in sums.items()}
        if data is not None and cells is not None:
            gaps = np.abs(counts @ cells).sum(axis=-1)
            found["classwise_ece"] = gaps / (data.n_classes * total)
        for name, metric in METRICS.items():
            if name not in rows and metric.function is not None and metric.interval is not None:
                found[name] = metric.function(levels, options)
        for name, values in found.items():
            batches.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in batches.items()}


def _class_cells(data: Predictions, drawn: Resampler, n_bins: int) -> FloatArray | None:
    """Sums of 1{label} - probability by block, and class and bin; None of too many."""
    if drawn.n_blocks * data.n_classes * n_bins > CLASSWISE_CELLS:
        return None
    weight = data.filled_weight()
    blocks = (
        Predictions(data.proba[rows], data.labels[rows], weight[rows])
        for rows in drawn.rows_by_block()
    )
    return np.stack([class_gaps(block, n_bins) for block in blocks])


def _sparse_if_mostly_zero(table: FloatArray) -> Any:
    """Blocks of few rows reach few levels: products with those alone take far less."""
    from scipy.sparse import csr_array

    return csr_array(table) if 20 * np.count_nonzero(table) < table.size else table


def _level_starts(confidence: FloatArray, n_bins: int) -> IntArray:
    """Where each level of the sorted confidences begins: ties, or as many as there may be."""
    ties = run_starts(confidence)
    if ties.shape[0] <= _MOST_LEVELS:
        return ties
    even = np.linspace(0, confidence.shape[0], _MOST_LEVELS, endpoint=False)
    edges = run_starts(bin_index(confidence, n_bins))
    return np.union1d(ties[np.searchsorted(ties, even, side="right") - 1], edges)
