"""Isotonic regression of "is it this class?" on log-probabilities, by SciPy on the host.

Log-probabilities are compared as float32 keys, so that rows that differ only by rounding count as
the ties they are.

Where all targets are 0 or all are 1, so is the regression; but of m entries that came out alike,
the next could be different, with a probability of 1 / (m + 2) by the rule of succession. The lowest
values are kept that far from 0 and the highest from 1 (or at their neighbour's, if that is nearer),
and nothing else is changed. Functions of single classes share one such example: of n, each keeps
1 / (n + 2) / classes from 0, so that classes without a hit stay equal to each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array
from hokical._core.bins import sum_by
from hokical._core.blocks import per_row
from hokical._core.logits import Logits
from hokical._core.types import BoolArray, FloatArray
from hokical._fitting.examples import Examples
from hokical.guarantees._control import can_be_counts
from hokical.rules._isotonic import as_key
from hokical.rules._probabilities import log_norms

#: Means of targets that are all 1 may fall short of 1 by this.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class StepCurve:
    """A rising function of the log-probability: `values` (k,) at `knots` (k,), k >= 1.

    Linear from the end of one step to the start of the next (the data say nothing in between), and
    constant outside the data.
    """

    knots: FloatArray
    values: FloatArray


def fit_pooled_isotonic(examples: Examples) -> StepCurve:
    """One curve for the log-probabilities of all classes, pooled."""
    examples = examples.without_weightless()
    keys, counts = _keys(examples, 1.0), _counts(examples)
    hits = np.arange(examples.n_classes) == examples.labels[:, None]
    return _fit_curve(keys.ravel(), hits.ravel(), np.repeat(counts, examples.n_classes))


def fit_classwise(examples: Examples, temperature: float) -> list[StepCurve]:
    """One curve per class, for the scaled log-probabilities of that class."""
    examples = examples.without_weightless()
    keys, counts = _keys(examples, temperature), _counts(examples)
    least = 1.0 / ((float(counts.sum()) + 2.0) * examples.n_classes)
    return [
        _fit_curve(column, examples.labels == k, counts, least)
        for k, column in enumerate(np.ascontiguousarray(keys.T))
    ]


def _keys(examples: Examples, temperature: float) -> NDArray[np.float32]:
    """Log-probabilities (n, classes) as they are compared."""

    def work(block: Logits) -> Array:
        margins = block.margins / temperature
        return as_key(-(margins + log_norms(margins, block)), block.xp)

    return per_row(work, examples.logits)


def _counts(examples: Examples) -> FloatArray:
    """Weights (n,), scaled to the number of rows unless they are counts."""
    if can_be_counts(examples.weights):
        return examples.counts
    return examples.share * examples.n_rows


def _fit_curve(
    keys: NDArray[np.float32], hits: BoolArray, counts: FloatArray, least: float | None = None
) -> StepCurve:
    """The isotonic regression, from `least` up; by default that follows from the zeros."""
    from scipy.optimize import isotonic_regression

    possible = keys > -np.inf
    if not possible.all():
        keys, hits, counts = keys[possible], hits[possible], counts[possible]
    knots, place = np.unique(keys, return_inverse=True)
    mass = sum_by(place, counts, knots.size)
    ones = sum_by(place[hits], counts[hits], knots.size)
    first_hit = int(np.argmax(ones > 0.0)) if ones.any() else knots.size
    if least is None:
        least = 1.0 / (float(mass[:first_hit].sum()) + 2.0)
    if first_hit == knots.size:
        return StepCurve(np.zeros(1), np.full(1, least))
    zeros = knots[:first_hit][-1:].astype(np.float64)  # the last of them ends the lowest step
    knots, mass, ones = knots[first_hit:], mass[first_hit:], ones[first_hit:]
    blocks = isotonic_regression(ones / mass, weights=mass).blocks
    starts, ends = blocks[:-1], blocks[1:] - 1
    totals = np.add.reduceat(mass, starts)
    levels = np.minimum(np.maximum.accumulate(np.add.reduceat(ones, starts) / totals), 1.0)
    below = int(np.searchsorted(levels, 1.0 - _ROUNDING))
    levels[below:] = max([1.0 - 1.0 / (totals[below:].sum() + 2.0), *levels[:below][-1:]])
    pairs = np.stack([knots[starts], knots[ends]], axis=1).astype(np.float64)
    kept = np.stack([np.ones(starts.size, np.bool_), ends > starts], axis=1)
    values = np.broadcast_to(levels[:, None], pairs.shape)[kept]
    lowest = np.full(zeros.size, min(least, levels[0]))
    return StepCurve(np.append(zeros, pairs[kept]), np.append(lowest, values))
