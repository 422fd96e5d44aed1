"""Compiled loops of structured scaling without cross terms. They trust their caller.

Each goes through a row twice or so while it is in the cache. `z` is (rows, classes), `shapes`
(3, rows, classes); `rows` of coefficients and sums are (2, classes), scales and biases.
"""

from math import log, log1p

import numpy as np

from hokical.core.fast_exp import exp_minus, log_of
from hokical.core.jit import kernel, max_kernel
from hokical.core.types import AnyArray, FloatArray, IntArray

#: As of the rule: see `hokical.rules.structured`.
_FARTHEST_BELOW, _LEAST_REST = 700.0, 1e-12


@kernel
def shape_rows(
    block: AnyArray,
    top: FloatArray,
    own: IntArray,
    temperature: float,
    z: FloatArray,
    shapes: FloatArray,
) -> None:
    """`shape_features` of rows in which every class is possible, with the label's column `own`."""
    step = 1.0 / (3.0 * temperature)
    for n in range(block.shape[0]):
        row, highest, label = block[n], top[n], own[n]
        sharp, soft = shapes[1, n], shapes[2, n]
        for i in range(row.shape[0]):
            below = (highest - row[i]) * step
            odds = exp_minus(min(below, _FARTHEST_BELOW / 3.0))
            z[n, i] = min(3.0 * below, _FARTHEST_BELOW)
            soft[i] = odds
            sharp[i] = odds * odds * odds
        soft[label] = sharp[label] = 0.0
        rest = softer = 0.0
        for i in range(row.shape[0]):
            rest += sharp[i]
            softer += soft[i]
        soft[label] = sharp[label] = 1.0
        norm = log1p(rest)
        share, soft_share = 1.0 / (1.0 + rest), 1.0 / (1.0 + softer)
        for i in range(row.shape[0]):
            p = sharp[i] * share
            z[n, i] = -(z[n, i] + norm)
            shapes[0, n, i] = log_of(max(1.0 - p, _LEAST_REST))
            sharp[i] = p
            soft[i] = log_of(max(1.0 - soft[i] * soft_share, _LEAST_REST))
        shapes[0, n, label] = log(max(rest, _LEAST_REST)) - norm
        soft[label] = log(max(softer, _LEAST_REST)) - log1p(softer)


@max_kernel
def _score_row(
    z: FloatArray,
    shapes: FloatArray,
    n: int,
    shape: FloatArray,
    rows: FloatArray,
    out: FloatArray,
) -> float:
    """The scores of a row into `out`; their maximum."""
    highest = -np.inf
    a, b, c = shape[0], shape[1], shape[2]
    for i in range(out.shape[0]):
        shift = a * shapes[0, n, i] + b * shapes[1, n, i] + c * shapes[2, n, i]
        out[i] = z[n, i] + z[n, i] * rows[0, i] + rows[1, i] + shift
        highest = max(highest, out[i])
    return highest


@kernel
def probability_rows(
    z: FloatArray,
    shapes: FloatArray,
    labels: IntArray,
    weights: FloatArray,
    shape: FloatArray,
    rows: FloatArray,
    out: FloatArray,
) -> float:
    """Probabilities into `out` (rows, classes); the sum of the weighted log losses."""
    loss = 0.0
    for n in range(z.shape[0]):
        proba = out[n]
        highest = _score_row(z, shapes, n, shape, rows, proba)
        below = highest - proba[labels[n]]
        total = 0.0
        for i in range(proba.shape[0]):
            proba[i] = exp_minus(min(highest - proba[i], _FARTHEST_BELOW))
            total += proba[i]
        share = 1.0 / total
        for i in range(proba.shape[0]):
            proba[i] *= share
        loss += weights[n] * (log(total) + below)
    return loss


@kernel
def _add_row(
    z: FloatArray,
    shapes: FloatArray,
    n: int,
    pull: FloatArray,
    shaped: FloatArray,
    sums: FloatArray,
) -> None:
    """Add `pull` (classes,) times what the coefficients are multiplied with to `shaped`, `sums`."""
    first = second = third = 0.0
    for i in range(pull.shape[0]):
        sums[0, i] += pull[i] * z[n, i]
        sums[1, i] += pull[i]
        first += pull[i] * shapes[0, n, i]
        second += pull[i] * shapes[1, n, i]
        third += pull[i] * shapes[2, n, i]
    shaped[0] += first
    shaped[1] += second
    shaped[2] += third


@kernel
def slope_rows(
    z: FloatArray,
    shapes: FloatArray,
    proba: FloatArray,
    labels: IntArray,
    weights: FloatArray,
    shaped: FloatArray,
    sums: FloatArray,
) -> None:
    """The slope of the log loss, into `shaped` (3,) and `sums`."""
    pull = np.empty(z.shape[1])
    for n in range(z.shape[0]):
        for i in range(pull.shape[0]):
            pull[i] = proba[n, i] * weights[n]
        pull[labels[n]] -= weights[n]
        _add_row(z, shapes, n, pull, shaped, sums)


@kernel
def curvature_rows(
    z: FloatArray,
    shapes: FloatArray,
    proba: FloatArray,
    weights: FloatArray,
    shape: FloatArray,
    rows: FloatArray,
    shaped: FloatArray,
    sums: FloatArray,
) -> None:
    """The Hessian times a direction, `shape` and `rows`, into `shaped` (3,) and `sums`."""
    a, b, c = shape[0], shape[1], shape[2]
    pull = np.empty(z.shape[1])
    for n in range(z.shape[0]):
        mean = 0.0
        for i in range(pull.shape[0]):
            shift = a * shapes[0, n, i] + b * shapes[1, n, i] + c * shapes[2, n, i]
            pull[i] = z[n, i] * rows[0, i] + rows[1, i] + shift
            mean += pull[i] * proba[n, i]
        for i in range(pull.shape[0]):
            pull[i] = (pull[i] - mean) * proba[n, i] * weights[n]
        _add_row(z, shapes, n, pull, shaped, sums)


@kernel
def moment_rows(
    z: FloatArray,
    shapes: FloatArray,
    proba: FloatArray,
    weights: FloatArray,
    spread: FloatArray,
    sums: FloatArray,
) -> None:
    """Variances of the shape terms into `spread` (3,), and of each class into `sums` (3, classes).

    The latter as they are, times z and times its square.
    """
    for n in range(z.shape[0]):
        for i in range(z.shape[1]):
            variance = proba[n, i] * (1.0 - proba[n, i]) * weights[n]
            sums[0, i] += variance
            sums[1, i] += variance * z[n, i]
            sums[2, i] += variance * z[n, i] * z[n, i]
        for j in range(3):
            mean = square = 0.0
            for i in range(z.shape[1]):
                mean += proba[n, i] * shapes[j, n, i]
                square += proba[n, i] * shapes[j, n, i] * shapes[j, n, i]
            spread[j] += weights[n] * (square - mean * mean)
