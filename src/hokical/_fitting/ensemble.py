"""Ensemble temperature scaling in its authors' two steps: the temperature, then the weights.

The average is w_1 softmax(z / T) + w_2 softmax(z) + w_3 uniform. T minimises the loss of
softmax(z / T) alone; then the loss of the average is convex in the weights.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from hokical._core.arrays import Array
from hokical._core.blocks import per_row
from hokical._core.logits import Logits
from hokical._core.special import row_dots, row_sums
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import Solution
from hokical._fitting.simplex import least_log_loss, least_quadratic
from hokical._fitting.temperature import best_temperature
from hokical.rules._probabilities import LEAST

Loss = Literal["mse", "log"]

#: Distances, in log temperature, from that of least log loss at which the squared error is looked
#: at until its minimum is bracketed.
_DISTANCES = (0.1, 0.3, 1.0, 3.0)


def fit_ensemble(
    examples: Examples, loss: Loss, bounds: tuple[float, float], max_iter: int
) -> tuple[Solution[float], FloatArray]:
    """The temperature, with the loss of the average as its value, and the weights (3,)."""
    found = best_temperature(examples, bounds=bounds, max_iter=max_iter)
    if loss == "mse" and found.converged:
        found = _least_squared_error(examples, found, bounds)
    alone = examples.mean_true_margin == 0.0  # without a mistake, the sharpest softmax is best
    true, gram = _compare_parts(examples, found.x)
    if loss == "log":
        weights = np.eye(3)[0] if alone else least_log_loss(true, examples.share)
        value = -float(examples.share @ np.log(true @ weights))
    else:
        mean = examples.share @ true
        weights = np.eye(3)[0] if alone else least_quadratic(-2.0 * mean, 2.0 * gram)
        value = float(1.0 + weights @ gram @ weights - 2.0 * mean @ weights)
    return replace(found, value=value), weights


def _least_squared_error(
    examples: Examples, found: Solution[float], bounds: tuple[float, float]
) -> Solution[float]:
    """The temperature of least mean squared error next to that of least log loss.

    If the error falls for long, that of least log loss is kept.
    """
    from scipy.optimize import brentq

    start, (low, high) = math.log(found.x), np.log(bounds)
    here = _squared_error_slope(start, examples)
    for distance in _DISTANCES:
        end = min(max(start - math.copysign(distance, here), low), high)
        if _squared_error_slope(end, examples) * here < 0.0:
            options = {"args": (examples,), "xtol": 1e-10, "full_output": True}
            root, report = brentq(_squared_error_slope, start, end, **options)
            return replace(found, x=math.exp(root), n_iter=found.n_iter + report.function_calls)
    return found


def _squared_error_slope(log_temperature: float, examples: Examples) -> float:
    """The derivative of the mean squared error |a - y|^2, a = softmax(z / T), by log T.

    With x_i = (top - z_i) / T and m the mean of x under a, that of a_i is a_i (x_i - m).
    """
    beta = math.exp(-log_temperature)

    def work(block: Logits) -> Array:
        xp, (x, term, counted) = block.xp, _terms(block, beta)
        parts = row_sums(counted, xp), row_dots(counted, x, xp), row_dots(counted, term, xp)
        return xp.stack([*parts, row_dots(counted * term, x, xp)], axis=1)

    total, first, square, first_square = per_row(work, examples.logits).T
    mean, x = first / total, examples.true_margins * beta
    products = (first_square - mean * square) / total**2
    true = np.exp(-x) / total * (x - mean)
    return float(2.0 * examples.share @ (products - true))


def _compare_parts(examples: Examples, temperature: float) -> tuple[FloatArray, FloatArray]:
    """Probabilities (n, 3) of the true classes, and mean inner products (3, 3).

    Of the three distributions over the classes of each row: scaled, plain and uniform.
    """
    logits, share, margins = examples.logits, examples.share, examples.true_margins

    def work(block: Logits) -> Array:
        (_, scaled, counted), (_, plain, once) = (
            _terms(block, 1.0 / t) for t in (temperature, 1.0)
        )
        xp = block.xp
        pairs = (counted, scaled), (counted, plain), (once, plain)
        dots = [row_dots(*pair, xp) for pair in pairs]
        return xp.stack([row_sums(counted, xp), row_sums(once, xp), *dots], axis=1)

    a, b, aa, ab, bb = per_row(work, logits).T
    even = 1.0 / per_row(lambda block: block.possible_counts, logits)
    true = np.stack([np.exp(-margins / temperature) / a, np.exp(-margins) / b, even], axis=1)
    rows = (aa / a**2, ab / (a * b), bb / b**2, even)
    first, mixed, second, uniform = (float(share @ row) for row in rows)
    # Any distribution over the possible classes has the same product with the uniform one.
    gram = [[first, mixed, uniform], [mixed, second, uniform], [uniform, uniform, uniform]]
    return np.maximum(true, LEAST), np.array(gram)


def _terms(block: Logits, beta: float) -> tuple[Array, Array, Array]:
    """x_i = beta (top - z_i), exp(-x_i), and the same times the number of classes that have it.

    Classes without a column make one column together.
    """
    xp, tail, margins = block.xp, block.tail, block.margins
    if tail is not None:
        margins = xp.concat([margins, tail.margin[:, None]], axis=1)
    x = margins * beta
    term = xp.exp(-x)
    if tail is None:
        return x, term, term
    return x, term, xp.concat([term[:, :-1], (term[:, -1] * tail.count)[:, None]], axis=1)
