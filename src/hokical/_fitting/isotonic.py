"""Isotonic regression of the question "is it this class?" on log-probabilities.

The regression is SciPy's, on the host. Log-probabilities are compared as float32 keys,
so that rows that differ only by rounding count as ties.

Where all targets are 0 or all are 1, the regression is 0 or 1; but the next of m equal
entries could be different, with a probability of 1 / (m + 2) by the rule of succession.
The lowest values are kept that far from 0 and the highest from 1 (or at their
neighbour's, if that is nearer), and nothing else is changed. Functions of single classes
share one such example: of n, each keeps 1 / (n + 2) / classes from 0, so that classes
without a hit stay equal to each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, BoolArray, FloatArray
from hokical._core.checks import sum_by
from hokical._core.logits import Logits, per_row
from hokical._fitting.examples import Examples
from hokical.guarantees.control import can_be_counts
from hokical.rules.base import log_norms
from hokical.rules.binary_isotonic import as_key

#: Means of targets that are all 1 may fall short of 1 by this.
_ROUNDING = 1e-12

#: A rising function of the log-probability: knots (k,) and values (k,), k >= 1. Linear
#: from the end of one step to the start of the next (the data say nothing in between),
#: and constant outside the data.
StepCurve = tuple[FloatArray, FloatArray]


def fit_pooled_isotonic(examples: Examples) -> StepCurve:
    """One curve for the log-probabilities of all classes, pooled, of rows with a
    weight.
    """
    keys, counts = _keys_and_counts(examples, 1.0)
    hits = np.arange(examples.n_classes) == examples.labels[:, None]
    return _fit_steps(keys.ravel(), hits.ravel(), np.repeat(counts, examples.n_classes))


def fit_classwise(examples: Examples, temperature: float) -> list[StepCurve]:
    """One curve per class, for the scaled log-probabilities of that class, of such
    rows.
    """
    keys, counts = _keys_and_counts(examples, temperature)
    least = 1.0 / ((float(counts.sum()) + 2.0) * examples.n_classes)
    return [
        _fit_steps(column, examples.labels == k, counts, least)
        for k, column in enumerate(np.ascontiguousarray(keys.T))
    ]


def _keys_and_counts(
    examples: Examples, temperature: float
) -> tuple[NDArray[np.float32], FloatArray]:
    """Log-probabilities (n, classes), as they are compared; and the weights (n,) of the
    rows, scaled to their number unless they are counts.
    """

    def work(block: Logits) -> Array:
        margins = block.margins / temperature
        return as_key(-(margins + log_norms(margins, block)), block.xp)

    are_counts = can_be_counts(examples.weights)
    counts = examples.counts if are_counts else examples.share * examples.n_rows
    return per_row(work, examples.logits), counts


def _fit_steps(
    keys: NDArray[np.float32],
    hits: BoolArray,
    counts: FloatArray,
    least: float | None = None,
) -> StepCurve:
    """The isotonic regression, from `least` up; by default that follows from the
    zeros.
    """
    from scipy.optimize import isotonic_regression

    possible = keys > -np.inf
    if not possible.all():
        keys = keys[possible]
        hits = hits[possible]
        counts = counts[possible]
    knots, knot_index = np.unique(keys, return_inverse=True)
    mass = sum_by(knot_index, counts, knots.size)
    ones = sum_by(knot_index[hits], counts[hits], knots.size)
    first_hit = int(np.argmax(ones > 0.0)) if ones.any() else knots.size
    if least is None:
        least = 1.0 / (float(mass[:first_hit].sum()) + 2.0)
    if first_hit == knots.size:
        return np.zeros(1), np.full(1, least)
    # The last of them ends the lowest step.
    zeros = knots[:first_hit][-1:].astype(np.float64)
    knots = knots[first_hit:]
    mass = mass[first_hit:]
    ones = ones[first_hit:]
    blocks = isotonic_regression(ones / mass, weights=mass).blocks
    first_rows = blocks[:-1]
    last_rows = blocks[1:] - 1
    totals = np.add.reduceat(mass, first_rows)
    levels = np.minimum(
        np.maximum.accumulate(np.add.reduceat(ones, first_rows) / totals), 1.0
    )
    below = int(np.searchsorted(levels, 1.0 - _ROUNDING))
    levels[below:] = max(
        [1.0 - 1.0 / (totals[below:].sum() + 2.0), *levels[:below][-1:]]
    )
    pairs = np.stack([knots[first_rows], knots[last_rows]], axis=1).astype(np.float64)
    is_knot = np.stack(
        [np.ones(first_rows.size, np.bool_), last_rows > first_rows], axis=1
    )
    values = np.broadcast_to(levels[:, None], pairs.shape)[is_knot]
    lowest = np.full(zeros.size, min(least, levels[0]))
    return np.append(zeros, pairs[is_knot]), np.append(lowest, values)
