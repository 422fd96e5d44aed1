"""Fits for two classes: logistic regression on a few features, and Venn-Abers prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.blocks import per_row
from hokical._core.types import BoolArray, FloatArray
from hokical._fitting.blas import one_blas_thread
from hokical._fitting.examples import Examples
from hokical._fitting.newton import Solution, minimize_dense
from hokical._fitting.pooled_terms import BinaryTerms
from hokical.rules._binary import LARGEST_KEY, log_odds

#: Most Newton steps; a handful is enough as a rule.
MAX_ITER = 200
#: Decides between coefficients that the examples cannot tell apart, and is too small to shrink.
_RIDGE = 1e-10
#: Features that vary less than this are constant.
_LEAST_SPREAD = 1e-90
#: So are those that vary by rounding alone, relative to their size.
_ROUNDING_SPREAD = 1e-12


@dataclass(frozen=True, eq=False)
class BinaryExamples:
    """Scores (log-odds of class 1) (n,), whether class 1 is the true one (n,), and weights (n,)."""

    scores: FloatArray
    hits: BoolArray
    weights: FloatArray

    @property
    def targets(self) -> FloatArray:
        """Platt's: (n1 + 1) / (n1 + 2) for class 1 and 1 / (n0 + 2) for class 0."""
        ones, zeros = (float(self.weights[rows].sum()) for rows in (self.hits, ~self.hits))
        return np.where(self.hits, (ones + 1.0) / (ones + 2.0), 1.0 / (zeros + 2.0))


def read_binary(examples: Examples) -> BinaryExamples:
    """The examples that count and for which both classes are possible."""
    some = examples.learnable
    keep = ~some.logits.to_host(some.logits.single_choice)
    if not keep.any():
        raise ValueError(
            "`logits` must have rows in which both classes are possible; got one class at -inf in "
            "every row. There is nothing to calibrate."
        )
    scores = per_row(log_odds, some.logits)[keep]
    return BinaryExamples(scores, some.labels[keep] == 1, some.counts[keep])


def fit_logistic(
    examples: BinaryExamples, features: Sequence[FloatArray], *, rising: bool = False
) -> tuple[FloatArray, Solution[FloatArray]]:
    """Coefficients of the features (n,) and, last, the intercept, by least log loss on the targets.

    With `rising` none is negative: of the best fits with some of the features, the best one that
    has no negative coefficient.
    """
    centres = [float(np.average(column, weights=examples.weights)) for column in features]
    spreads = [
        float(np.sqrt(np.average((column - centre) ** 2, weights=examples.weights)))
        for column, centre in zip(features, centres, strict=True)
    ]
    sizes = [float(np.abs(column).max()) for column in features]
    useful = [
        k
        for k, spread in enumerate(spreads)
        if spread > max(_LEAST_SPREAD, _ROUNDING_SPREAD * sizes[k])
    ]
    columns = {k: (features[k] - centres[k]) / spreads[k] for k in useful}
    best: tuple[FloatArray, Solution[FloatArray]] | None = None
    for size in range(len(useful), -1, -1):
        for chosen in combinations(useful, size):
            found = _minimize(examples, [columns[k] for k in chosen])
            if rising and (found.x[:-1] < 0.0).any():
                continue
            if best is None or found.value < best[1].value:
                coef = np.zeros(len(features) + 1)
                coef[list(chosen)] = found.x[:-1] / [spreads[k] for k in chosen]
                coef[-1] = found.x[-1] - coef[:-1] @ centres
                best = coef, found
        if best is not None:
            break
    assert best is not None  # the intercept alone always is a candidate
    return best


def _minimize(examples: BinaryExamples, columns: list[FloatArray]) -> Solution[FloatArray]:
    """Each example is one of class 1 and one of class 0, with weights by its target."""
    size, targets = examples.scores.size, examples.targets
    share = examples.weights / examples.weights.sum()
    table = np.tile(np.stack([*columns, np.ones(size)], axis=1), (2, 1))
    weights = np.concatenate([share * targets, share * (1.0 - targets)])
    terms = BinaryTerms(table, np.arange(2 * size) < size, np.zeros(2 * size), weights)
    with one_blas_thread():
        return minimize_dense(
            partial(terms.ridge, penalty=_RIDGE), np.zeros(table.shape[1]), MAX_ITER
        )


def fit_venn_abers(examples: BinaryExamples) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The numbers of a `VennAbersRule`: knots, lower, upper. Takes n log n operations."""
    keys = np.clip(examples.scores, -LARGEST_KEY, LARGEST_KEY).astype(np.float32)
    knots, group = np.unique(keys.astype(np.float64), return_inverse=True)
    counts = sum_by(group, examples.weights, knots.size)
    ones = sum_by(group, examples.weights * examples.hits, knots.size)
    upper = np.append(added_example(counts, ones), 1.0)
    lower = 1.0 - np.append(added_example(counts[::-1], (counts - ones)[::-1]), 1.0)[::-1]
    upper = np.clip(upper, 1e-300, 1.0)  # so many examples that one more is lost in rounding
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
