"""Fits of two classes: logistic regression, and Venn-Abers predictors."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np

from hokical._core.arrays import FloatArray
from hokical._core.checks import sum_by
from hokical._core.logits import per_row
from hokical._core.runtime import one_blas_thread
from hokical._fitting.examples import Examples
from hokical._fitting.partial_pooling import BinaryTerms
from hokical._fitting.searches import MAX_ITER, Solution, minimize_dense
from hokical.rules.binary_isotonic import LARGEST_KEY, binary_log_odds

#: Decides between coefficients that the examples cannot distinguish, and is too small
#: to shrink.
_RIDGE = 1e-10
#: Features that vary less than this are constant.
_LEAST_SPREAD = 1e-90
#: So are those that vary by rounding alone, relative to their size.
_ROUNDING_SPREAD = 1e-12


def with_both_classes(examples: Examples) -> Examples:
    """The examples that count and for which both classes are possible."""
    learnable = examples.learnable
    keep = learnable.logits.to_host(learnable.logits.possible_counts) > 1.0
    if not keep.any():
        raise ValueError(
            "`logits` must have rows in which both classes are possible; got one class "
            "at -inf in every row: nothing to calibrate."
        )
    return learnable.take(keep)


def fit_logistic(
    examples: Examples, features: FloatArray
) -> tuple[FloatArray, Solution[FloatArray]]:
    """Coefficients of features (n, k) and, last, the intercept, by least log loss on
    the targets.

    Those of several features are not negative: of the best fits with some of the
    features, it is the best one that has no negative coefficient.
    """
    centre = examples.share @ features
    spread = np.sqrt(examples.share @ (features - centre) ** 2)
    varies = spread > np.maximum(
        _LEAST_SPREAD, _ROUNDING_SPREAD * np.abs(features).max(axis=0)
    )
    useful = np.flatnonzero(varies).tolist()
    for size in range(len(useful), -1, -1):
        fits = []
        for chosen in map(list, combinations(useful, size)):
            solution = _minimize(
                examples, (features[:, chosen] - centre[chosen]) / spread[chosen]
            )
            if centre.size == 1 or (solution.x[:-1] >= 0.0).all():
                coef = np.zeros(centre.size + 1)
                coef[chosen] = solution.x[:-1] / spread[chosen]
                coef[-1] = solution.x[-1] - coef[:-1] @ centre
                fits.append((coef, solution))
        if fits:  # the intercept alone always is one
            break
    return min(fits, key=lambda fit: fit[1].value)


def _minimize(examples: Examples, columns: FloatArray) -> Solution[FloatArray]:
    """On Platt's targets, (n1 + 1) / (n1 + 2) for class 1 and 1 / (n0 + 2) for class 0.

    Each example is one of class 1 and one of class 0, with weights by its target.
    """
    size = examples.n_rows
    hits = examples.labels == 1
    counts = examples.counts
    ones, zeros = (float(counts[rows].sum()) for rows in (hits, ~hits))
    targets = np.where(hits, (ones + 1.0) / (ones + 2.0), 1.0 / (zeros + 2.0))
    table = np.tile(np.column_stack([columns, np.ones(size)]), (2, 1))
    weights = np.concatenate(
        [examples.share * targets, examples.share * (1.0 - targets)]
    )
    terms = BinaryTerms(table, np.arange(2 * size) < size, np.zeros(2 * size), weights)
    with one_blas_thread():
        start = np.zeros(table.shape[1])
        return minimize_dense(partial(terms.ridge, penalty=_RIDGE), start, MAX_ITER)


def fit_venn_abers(examples: Examples) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The numbers of a `VennAbersRule`: knots, lower, upper. Takes n log n
    operations.
    """
    odds = per_row(binary_log_odds, examples.logits)
    keys = np.clip(odds, -LARGEST_KEY, LARGEST_KEY).astype(np.float32)
    knots, group = np.unique(keys.astype(np.float64), return_inverse=True)
    counts = sum_by(group, examples.counts, knots.size)
    ones = sum_by(group, examples.counts * (examples.labels == 1), knots.size)
    upper = np.append(added_example(counts, ones), 1.0)
    lower = (
        1.0 - np.append(added_example(counts[::-1], (counts - ones)[::-1]), 1.0)[::-1]
    )
    # One more of very many examples is rounded away.
    upper = np.clip(upper, 1e-300, 1.0)
    lower = np.clip(lower, 0.0, np.minimum(np.append(1.0, upper[:-1]), 1.0 - 2.0**-53))
    steps = (np.diff(lower) > 0.0) | (np.diff(upper) > 0.0)
    steps[0] |= not steps.any()
    is_step = np.append(True, steps)
    return knots[steps], lower[is_step], upper[is_step]


def added_example(counts: FloatArray, ones: FloatArray) -> FloatArray:
    """Isotonic regression (k,) at an example of class 1 that is added to each group in
    turn.

    The regression is the slope of the greatest convex minorant of the cumulative sums.
    Its corners to the right of the added example are kept on a stack while the example
    moves from group to group, as in algorithms 1 and 2 of Vovk, Petej and Fedorova,
    2015.
    """
    x = [-1.0, 0.0, *np.cumsum(counts).tolist()]
    y = [-1.0, 0.0, *np.cumsum(ones).tolist()]
    corners: list[tuple[float, float]] = []
    for point in zip(reversed(x), reversed(y), strict=True):
        _add_corner(corners, point)
    slopes = []
    for i in range(1, len(x) - 1):
        (left, low), (right, high) = corners[-1], corners[-2]
        slopes.append((high - low) / (right - left))
        x[i] = x[i - 1] + x[i + 1] - x[i]
        y[i] = y[i - 1] + y[i + 1] - y[i]
        # Below the minorant.
        if (y[i] - low) * (right - left) < (high - low) * (x[i] - left):
            corners.pop()
            _add_corner(corners, (x[i], y[i]))
    return np.maximum.accumulate(np.array(slopes))


def _add_corner(corners: list[tuple[float, float]], point: tuple[float, float]) -> None:
    """Put a point to the left of a convex chain, without the corners that are now
    above it.
    """
    while len(corners) > 1:
        (x1, y1), (x2, y2) = corners[-1], corners[-2]
        if (y1 - point[1]) * (x2 - point[0]) < (y2 - point[1]) * (x1 - point[0]):
            break
        corners.pop()
    corners.append(point)
