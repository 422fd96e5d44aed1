"""Isotonic regression of "is it this class?" on log-probabilities, exact and in one pass.

A target is 1 where the class is the true one and 0 elsewhere. Between two targets of 1 there are
only zeros, and zeros never start a new step of a rising function. So the steps can begin at the
targets of 1 alone: it is enough to know how much weight falls between one of them and the next,
and 25 million entries shrink to as many numbers as there are examples. Nothing is approximated by
this; the one rounding is that log-probabilities are compared as float32 keys, which makes one value
of those that agree to 6e-8 of their size. That is what lets rows that differ only by rounding, as
after a shift of their logits, count as the ties they are.

Where all targets are 0 or all are 1, the regression says so; but of m entries that came out alike,
the next could be different, with a probability of 1 / (m + 2) by the rule of succession. The lowest
values are kept that far from 0 and the highest from 1 (or at their neighbour's, if that is nearer),
and nothing else is changed. Functions of single classes share one such example: of n, each keeps
1 / (n + 2) / classes from 0, so that classes without a hit stay equal to each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, ignore_overflow
from hokical._core.blocks import by_blocks, row_slices, rows_per_block
from hokical._core.logits import MAX_MARGIN, Logits
from hokical._core.parallel import map_slices
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.partitions import Block
from hokical._fitting.tallies import EdgeTally, KeyArray, tally_rows
from hokical.guarantees._score_table import can_be_counts
from hokical.rules._isotonic import as_key
from hokical.rules._probabilities import log_norms

#: Means of targets that are all 1 may fall short of 1 by this.
_ROUNDING = 1e-12
#: The sum of all weights is at most 2^61 units.
_BITS = 61
#: Entries that NumPy sorts at a time; other libraries take what their blocks hold.
_SORT_AT_ONCE = 1 << 20
#: Arrays of float64 that it takes to make keys: together they are as large as a block.
_ARRAYS_OF_KEYS = 4


@dataclass(frozen=True, eq=False)
class StepCurve:
    """A rising function of the log-probability: `values` (k,) at `knots` (k,), k >= 1.

    Linear from the end of one step to the start of the next (the data say nothing in between), and
    constant outside the data.
    """

    knots: FloatArray
    values: FloatArray


@dataclass(frozen=True, eq=False)
class KeyedExamples:
    """Examples that count, with what their keys need.

    `norm` (n,) is minus the log-probability of each label at the temperature, beside the logits;
    `units` (n,) are the weights in whole units, None where all are 1.
    """

    block: Block
    temperature: float
    norm: Array
    unit: float
    units: IntArray | None

    @classmethod
    def of(cls, block: Block, temperature: float) -> KeyedExamples:
        def norms(part: Logits) -> Array:
            return log_norms(part.margins / temperature, part)[:, 0]

        norm, weights = by_blocks(norms, block.logits), block.weights
        if weights is None:
            return cls(block, temperature, norm, 1.0, None)
        total = float(weights.sum()) * block.logits.n_classes
        unit = math.ldexp(1.0, math.frexp(total)[1] - _BITS)
        units = np.maximum(np.rint(weights / unit), 1.0).astype(np.int64)
        return cls(block, temperature, norm, unit, units)

    def keys(self, rows: slice, columns: slice) -> Array:
        """Log-probabilities (rows, columns) as they are compared, float32."""
        logits = self.block.logits
        values, top, norm = logits.values[rows, columns], logits.top[rows], self.norm[rows, None]

        def make(some: slice) -> Array:
            part = Logits(values[some, ...], top[some], logits.backend)
            return as_key(-(part.margins / self.temperature + norm[some, ...]), logits.xp)

        if not logits.is_numpy:
            return make(slice(None))
        found = np.empty(values.shape, np.float32)
        for some in row_slices(top.size, _ARRAYS_OF_KEYS * values.shape[1]):
            found[some] = make(some)
        return found

    @cached_property
    def examples_per_unit(self) -> float:
        """What a unit of weight counts; weights that are no counts are relative."""
        if can_be_counts(self.block.weights):
            return self.unit
        return self.unit * (self.block.n_rows / float(self.block.counts.sum()))

    def curve(
        self, edges: KeyArray, hits: NDArray[Any], counted: EdgeTally, least: float | None = None
    ) -> StepCurve:
        """The isotonic regression, from `least` up; by default that follows from the counts."""
        mass = np.asarray(counted.mass * self.examples_per_unit, np.float64)
        least = 1.0 / (mass[0] + 2.0) if least is None else least
        return _regress(edges, hits * self.examples_per_unit, mass, counted.last, least)

    def sum_hits(self, keys: KeyArray, rows: IntArray | slice) -> tuple[KeyArray, NDArray[Any]]:
        """The distinct finite keys of the true classes of `rows`, rising, and the units there."""
        possible = keys > -np.inf
        edges, where = np.unique(keys[possible], return_inverse=True)
        if self.units is None:
            return edges, np.bincount(where, minlength=edges.size)
        hits = np.zeros(edges.size, np.int64)
        np.add.at(hits, where, self.units[rows][possible])
        return edges, hits


def fit_pooled(block: Block) -> StepCurve:
    """One curve for the log-probabilities of all classes, pooled."""
    examples = KeyedExamples.of(block.without_weightless(), 1.0)
    logits, units = examples.block.logits, examples.units
    edges, hits = examples.sum_hits(_true_keys(examples), slice(None))

    def work(rows: slice) -> EdgeTally:
        keys = logits.xp.reshape(examples.keys(rows, slice(None)), (1, -1))
        each = None if units is None else logits.from_host(np.repeat(units[rows], logits.n_columns))
        return tally_rows(keys, each, [edges], logits)[0]

    size = _SORT_AT_ONCE if logits.is_numpy else logits.backend.block_size
    step = rows_per_block(logits.n_columns, size)
    tallies = map_slices(work, logits.n_rows, step, threads=logits.is_numpy)
    return examples.curve(edges, hits, sum(tallies[1:], tallies[0]))


def fit_classwise(block: Block, temperature: float) -> list[StepCurve]:
    """One curve per class, for the scaled log-probabilities of that class.

    Columns are taken some at a time, because rows lie together in memory.
    """
    examples = KeyedExamples.of(block.without_weightless(), temperature)
    logits, labels, xp = examples.block.logits, examples.block.labels, examples.block.logits.xp
    by_class = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[by_class], np.arange(logits.n_classes + 1))
    units = None if examples.units is None else logits.from_host(examples.units)
    total = logits.n_rows if examples.units is None else int(examples.units.sum())
    least = 1.0 / ((total * examples.examples_per_unit + 2.0) * logits.n_classes)

    def work(columns: slice) -> list[StepCurve]:
        keys = xp.permute_dims(examples.keys(slice(None), columns), (1, 0))
        keys = np.ascontiguousarray(keys) if logits.is_numpy else keys
        rows = by_class[ends[columns.start] : ends[columns.stop]]
        true_keys = _take_pairs(keys, labels[rows] - columns.start, rows, logits)
        cuts = ends[columns.start + 1 : columns.stop] - ends[columns.start]
        parts = zip(np.split(true_keys, cuts), np.split(rows, cuts), strict=True)
        hits = [examples.sum_hits(*part) for part in parts]
        tallies = tally_rows(keys, units, [edges for edges, _ in hits], logits)
        pairs = zip(hits, tallies, strict=True)
        return [examples.curve(*hit, tally, least) for hit, tally in pairs]

    step = rows_per_block(logits.n_rows, logits.backend.block_size)
    parts = map_slices(work, logits.n_columns, step, threads=logits.is_numpy)
    return [curve for part in parts for curve in part]


def _take_pairs(keys: Array, row: IntArray, column: IntArray, logits: Logits) -> KeyArray:
    """keys[row, column] of host indices (m,), on the host."""
    flat = logits.xp.reshape(keys, (-1,))
    index = logits.from_host(row * keys.shape[1] + column)
    return np.asarray(logits.to_host(logits.xp.take(flat, index)))


def _true_keys(examples: KeyedExamples) -> KeyArray:
    """The keys (n,) of the true classes at temperature 1, on the host.

    Differences and sums are rounded alike everywhere, so these are the keys that are sorted.
    """
    logits = examples.block.logits
    with ignore_overflow():
        margins = logits.to_host(logits.top) - logits.of_class(examples.block.labels)
    log_proba = -(np.minimum(margins, MAX_MARGIN) + logits.to_host(examples.norm))
    return np.asarray(as_key(log_proba, np))


def _regress(
    edges: KeyArray, hits: FloatArray, mass: FloatArray, last: KeyArray, least: float
) -> StepCurve:
    from scipy.optimize import isotonic_regression

    if edges.size == 0:
        return StepCurve(np.zeros(1), np.full(1, least))
    mass = mass[1:]
    blocks = isotonic_regression(hits / mass, weights=mass).blocks
    starts, ends = blocks[:-1], blocks[1:] - 1
    counts = np.add.reduceat(mass, starts)
    levels = np.minimum(np.maximum.accumulate(np.add.reduceat(hits, starts) / counts), 1.0)
    below = int(np.searchsorted(levels, 1.0 - _ROUNDING))
    levels[below:] = max([1.0 - 1.0 / (counts[below:].sum() + 2.0), *levels[:below][-1:]])
    return _curve_of_steps(edges[starts], last[1:][ends], levels, last[0], min(least, levels[0]))


def _curve_of_steps(
    first: KeyArray, last: KeyArray, levels: FloatArray, last_zero: np.float32, least: float
) -> StepCurve:
    """Knots at both ends of every step, and one where the zeros below the first step end."""
    knots = np.stack([first, last], axis=1).astype(np.float64)
    kept = np.stack([np.ones(first.size, np.bool_), last > first], axis=1)
    values = np.broadcast_to(levels[:, None], knots.shape)
    if last_zero == -np.inf:
        return StepCurve(knots[kept], values[kept])
    return StepCurve(np.append(float(last_zero), knots[kept]), np.append(least, values[kept]))
