"""Fits of few numbers or of none: logistic regression for two classes, Venn-Abers, isotonic.

Isotonic regression of "is it this class?" on log-probabilities is SciPy's, on the host.
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
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, BoolArray, FloatArray
from hokical._core.checks import sum_by
from hokical._core.logits import Logits, per_row
from hokical._core.parallel import one_blas_thread
from hokical._fitting.examples import Examples
from hokical._fitting.newton import Solution, minimize_dense
from hokical._fitting.pooled_terms import BinaryTerms
from hokical.guarantees.control import can_be_counts
from hokical.rules.base import log_norms
from hokical.rules.binary_isotonic import LARGEST_KEY, as_key, log_odds

#: Most Newton steps; a handful is enough as a rule.
MAX_ITER = 200
#: Decides between coefficients that the examples cannot distinguish, and is too small to shrink.
_RIDGE = 1e-10
#: Features that vary less than this are constant.
_LEAST_SPREAD = 1e-90
#: So are those that vary by rounding alone, relative to their size.
_ROUNDING_SPREAD = 1e-12


def with_both_classes(examples: Examples) -> Examples:
    """The examples that count and for which both classes are possible."""
    some = examples.learnable
    keep = some.logits.to_host(some.logits.possible_counts) > 1.0
    if not keep.any():
        raise ValueError(
            "`logits` must have rows in which both classes are possible; got one class at -inf in "
            "every row. There is nothing to calibrate."
        )
    return some.take(keep)


def binary_scores(examples: Examples) -> FloatArray:
    """Log-odds of class 1, (n,)."""
    return per_row(log_odds, examples.logits)


def fit_logistic(
    examples: Examples, features: FloatArray, *, rising: bool = False
) -> tuple[FloatArray, Solution[FloatArray]]:
    """Coefficients of features (n, k) and, last, the intercept, by least log loss on the targets.

    With `rising` none is negative: of the best fits with some of the features, the best one that
    has no negative coefficient.
    """
    centre = examples.share @ features
    spread = np.sqrt(examples.share @ (features - centre) ** 2)
    varies = spread > np.maximum(_LEAST_SPREAD, _ROUNDING_SPREAD * np.abs(features).max(axis=0))
    useful = np.flatnonzero(varies).tolist()
    for size in range(len(useful), -1, -1):
        fits = []
        for chosen in map(list, combinations(useful, size)):
            found = _minimize(examples, (features[:, chosen] - centre[chosen]) / spread[chosen])
            if not (rising and (found.x[:-1] < 0.0).any()):
                coef = np.zeros(centre.size + 1)
                coef[chosen] = found.x[:-1] / spread[chosen]
                coef[-1] = found.x[-1] - coef[:-1] @ centre
                fits.append((coef, found))
        if fits:  # the intercept alone always is one
            break
    return min(fits, key=lambda fit: fit[1].value)


def _minimize(examples: Examples, columns: FloatArray) -> Solution[FloatArray]:
    """On Platt's targets, (n1 + 1) / (n1 + 2) for class 1 and 1 / (n0 + 2) for class 0.

    Each example is one of class 1 and one of class 0, with weights by its target.
    """
    size, hits, counts = examples.n_rows, examples.labels == 1, examples.counts
    ones, zeros = (float(counts[rows].sum()) for rows in (hits, ~hits))
    targets = np.where(hits, (ones + 1.0) / (ones + 2.0), 1.0 / (zeros + 2.0))
    table = np.tile(np.column_stack([columns, np.ones(size)]), (2, 1))
    weights = np.concatenate([examples.share * targets, examples.share * (1.0 - targets)])
    terms = BinaryTerms(table, np.arange(2 * size) < size, np.zeros(2 * size), weights)
    with one_blas_thread():
        return minimize_dense(
            partial(terms.ridge, penalty=_RIDGE), np.zeros(table.shape[1]), MAX_ITER
        )


def fit_venn_abers(examples: Examples) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The numbers of a `VennAbersRule`: knots, lower, upper. Takes n log n operations."""
    keys = np.clip(binary_scores(examples), -LARGEST_KEY, LARGEST_KEY).astype(np.float32)
    knots, group = np.unique(keys.astype(np.float64), return_inverse=True)
    counts = sum_by(group, examples.counts, knots.size)
    ones = sum_by(group, examples.counts * (examples.labels == 1), knots.size)
    upper = np.append(added_example(counts, ones), 1.0)
    lower = 1.0 - np.append(added_example(counts[::-1], (counts - ones)[::-1]), 1.0)[::-1]
    upper = np.clip(upper, 1e-300, 1.0)  # so many examples that one more is rounded away
    lower = np.clip(lower, 0.0, np.minimum(np.append(1.0, upper[:-1]), 1.0 - 2.0**-53))
    steps = (np.diff(lower) > 0.0) | (np.diff(upper) > 0.0)
    steps[0] |= not steps.any()
    kept = np.append(True, steps)
    return knots[steps], lower[kept], upper[kept]


def added_example(counts: FloatArray, ones: FloatArray) -> FloatArray:
    """Isotonic regression (k,) at an example of class 1 that is added to each group in turn.

    The regression is the slope of the greatest convex minorant of the cumulative sums. Its corners
    to the right of the added example are kept on a stack while the example moves from group to
    group, as in algorithms 1 and 2 of Vovk, Petej and Fedorova, 2015.
    """
    x = [-1.0, 0.0, *np.cumsum(counts).tolist()]
    y = [-1.0, 0.0, *np.cumsum(ones).tolist()]
    corners: list[tuple[float, float]] = []
    for point in zip(reversed(x), reversed(y), strict=True):
        _add_corner(corners, point)
    found = []
    for i in range(1, len(x) - 1):
        (left, low), (right, high) = corners[-1], corners[-2]
        found.append((high - low) / (right - left))
        x[i], y[i] = x[i - 1] + x[i + 1] - x[i], y[i - 1] + y[i + 1] - y[i]
        if (y[i] - low) * (right - left) < (high - low) * (x[i] - left):  # below the minorant
            corners.pop()
            _add_corner(corners, (x[i], y[i]))
    return np.maximum.accumulate(np.array(found))


def _add_corner(corners: list[tuple[float, float]], point: Any) -> None:
    """Put a point to the left of a convex chain, without the corners that are now above it."""
    while len(corners) > 1:
        (x1, y1), (x2, y2) = corners[-1], corners[-2]
        if (y1 - point[1]) * (x2 - point[0]) < (y2 - point[1]) * (x1 - point[0]):
            break
        corners.pop()
    corners.append(point)


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
