"""Ensemble temperature scaling in its authors' two steps: the temperature, then the weights.

The average is w_1 softmax(z / T) + w_2 softmax(z) + w_3 uniform. T minimises the mean squared error
of a = softmax(z / T) alone, |a - y|^2 = |a|^2 - 2 a_y + 1; that of the average is then convex in
the weights. With Z(b) = sum_k exp(-b d_k) over the margins d_k of a row, a_k is exp(-d_k / T) over
Z(1 / T), and the product of the softmaxes at b and c = 1 / T is Z(b + c) / (Z(b) Z(c)).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hokical._core.blocks import per_row
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import Solution, least_quadratic
from hokical._fitting.temperature import best_temperature, moment_sums
from hokical.rules._probabilities import LEAST

#: Distances, in log temperature, from that of least log loss at which the squared error is looked
#: at until its nearest minimum is bracketed; and the width of differences that give its slope.
_DISTANCES, _WIDTH = (0.1, 0.3, 1.0, 3.0), 1e-4


def fit_ensemble(examples: Examples) -> tuple[Solution[float], FloatArray]:
    """The temperature, with the squared error of the average as its value, and the weights (3,)."""
    found = best_temperature(examples)
    if found.converged:
        found = _least_squared_error(examples, found)
    true, gram = _compare_parts(examples, 1.0 / found.x)
    mean, weights = examples.share @ true, np.eye(3)[0]
    if examples.mean_true_margin > 0.0:  # without a mistake, the sharpest softmax is best
        weights = least_quadratic(-2.0 * mean, 2.0 * gram)
    value = float(1.0 + weights @ gram @ weights - 2.0 * mean @ weights)
    return replace(found, value=value), weights


def _least_squared_error(examples: Examples, found: Solution[float]) -> Solution[float]:
    """The temperature of least mean squared error next to that of least log loss.

    If the error falls for long, that of least log loss is kept.
    """
    from scipy.optimize import brentq

    start = math.log(found.x)
    here = _slope(start, examples)
    # As an argument, not in a closure: SciPy's wrapper of a function is freed only by collection.
    options = {"args": (examples,), "xtol": 1e-10, "full_output": True}
    for distance in _DISTANCES:
        end = start - math.copysign(distance, here)
        if _slope(end, examples) * here < 0.0:
            root, report = brentq(_slope, start, end, **options)
            return replace(found, x=math.exp(root), n_iter=found.n_iter + report.function_calls)
    return found


def _slope(log_temperature: float, examples: Examples) -> float:
    """The difference of mean squared errors at two temperatures close by."""
    after, before = (_error(log_temperature + step, examples) for step in (_WIDTH, -_WIDTH))
    return after - before


def _error(log_temperature: float, examples: Examples) -> float:
    """The mean squared error of the softmax at a temperature, less 1."""
    beta = math.exp(-log_temperature)
    total, square = (_sums(examples, b) for b in (beta, 2.0 * beta))
    true = np.exp(-beta * examples.true_margins) / total
    return float(examples.share @ (square / total**2 - 2.0 * true))


def _compare_parts(examples: Examples, beta: float) -> tuple[FloatArray, FloatArray]:
    """Probabilities (n, 3) of the true classes, and mean inner products (3, 3).

    Of the three distributions over the classes of each row: scaled, plain and uniform.
    """
    margins = examples.true_margins
    a, b, aa, ab, bb = (_sums(examples, each) for each in (beta, 1.0, 2.0 * beta, beta + 1.0, 2.0))
    even = 1.0 / per_row(lambda block: block.possible_counts, examples.logits)
    true = np.stack([np.exp(-margins * beta) / a, np.exp(-margins) / b, even], axis=1)
    rows = (aa / a**2, ab / (a * b), bb / b**2, even)
    first, mixed, second, uniform = (float(examples.share @ row) for row in rows)
    # Any distribution over the possible classes has the same product with the uniform one.
    gram = [[first, mixed, uniform], [mixed, second, uniform], [uniform, uniform, uniform]]
    return np.maximum(true, LEAST), np.array(gram)


def _sums(examples: Examples, beta: float) -> FloatArray:
    """Z(beta) of each row, (n,)."""
    return per_row(lambda block: moment_sums(block, beta)[0], examples.logits)
