"""Compiled loops of structured scaling without cross terms. They trust their caller.

`data` are z (rows, classes), the shape terms (3, rows, classes), labels and weights (rows,);
z, shapes and probabilities are float64;
`coef` and `sums` are w (3,), then scales and biases (2, classes).
"""

from math import log

import numpy as np

from hokical._core.fast_exp import FAR, exp_minus
from hokical._core.jit import kernel, max_kernel
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.rules._row_kernels import shape_row

Data = tuple[AnyArray, AnyArray, IntArray, FloatArray]
Coef = tuple[FloatArray, FloatArray]


@kernel
def shape_rows(
    block: AnyArray, top: FloatArray, own: IntArray, step: float, z: AnyArray, shapes: AnyArray
) -> None:
    """`shape_row` of rows in which every class is possible; `own` is the label's column."""
    for n in range(block.shape[0]):
        first, second, third = shapes[0, n], shapes[1, n], shapes[2, n]
        shape_row(block[n], top[n], own[n], step, z[n], first, second, third)


@kernel
def change_row(data: Data, n: int, coef: Coef, out: FloatArray) -> None:
    """What coefficients add to the scores of a row, into `out` (classes,)."""
    z, first, second, third = data[0][n], data[1][0, n], data[1][1, n], data[1][2, n]
    (a, b, c), scale, bias = coef[0], coef[1][0], coef[1][1]
    for i in range(out.shape[0]):
        out[i] = z[i] * scale[i] + bias[i] + a * first[i] + b * second[i] + c * third[i]


@max_kernel
def add_scores(row: FloatArray, z: AnyArray) -> float:
    """Add z (classes,) to a row; the maximum."""
    highest = -np.inf
    for i in range(row.shape[0]):
        row[i] += z[i]
        highest = max(highest, row[i])
    return highest


@kernel
def probability_rows(data: Data, coef: Coef, out: AnyArray) -> float:
    """Probabilities into `out` (rows, classes); the sum of the weighted log losses."""
    loss, row = 0.0, np.empty(out.shape[1])
    for n in range(out.shape[0]):
        proba = out[n]
        change_row(data, n, coef, row)
        highest = add_scores(row, data[0][n])
        below = highest - row[data[2][n]]
        total = 0.0
        for i in range(row.shape[0]):
            row[i] = exp_minus(min(highest - row[i], FAR))
            total += row[i]
        share = 1.0 / total
        for i in range(row.shape[0]):
            proba[i] = row[i] * share
        loss += data[3][n] * (log(total) + below)
    return loss


@kernel
def add_row(data: Data, n: int, residual: FloatArray, sums: Coef) -> None:
    """Add `residual` (classes,) times what the coefficients of a row are multiplied with."""
    z, first, second, third = data[0][n], data[1][0, n], data[1][1, n], data[1][2, n]
    shaped, scaled, plain = sums[0], sums[1][0], sums[1][1]
    a = b = c = 0.0
    for i in range(residual.shape[0]):
        scaled[i] += residual[i] * z[i]
        plain[i] += residual[i]
        a += residual[i] * first[i]
        b += residual[i] * second[i]
        c += residual[i] * third[i]
    shaped[0] += a
    shaped[1] += b
    shaped[2] += c


@kernel
def slope_rows(data: Data, proba: AnyArray, sums: Coef) -> None:
    """Add the slope of the log loss to `sums`."""
    residual = np.empty(proba.shape[1])
    for n in range(proba.shape[0]):
        weight = data[3][n]
        for i in range(residual.shape[0]):
            residual[i] = proba[n, i] * weight
        residual[data[2][n]] -= weight
        add_row(data, n, residual, sums)


@kernel
def curvature_rows(data: Data, proba: AnyArray, direction: Coef, sums: Coef) -> None:
    """Add the Hessian times a direction to `sums`."""
    residual = np.empty(proba.shape[1])
    for n in range(proba.shape[0]):
        change_row(data, n, direction, residual)
        mean, weight = 0.0, data[3][n]
        for i in range(residual.shape[0]):
            mean += residual[i] * proba[n, i]
        for i in range(residual.shape[0]):
            residual[i] = (residual[i] - mean) * proba[n, i] * weight
        add_row(data, n, residual, sums)


@kernel
def moment_rows(data: Data, proba: AnyArray, first: Coef, second: Coef) -> None:
    """Add each class's variance times z and 1, and the Hessian's diagonal; w's are 0 at first."""
    for n in range(proba.shape[0]):
        z, weight = data[0][n], data[3][n]
        for i in range(z.shape[0]):
            variance = proba[n, i] * (1.0 - proba[n, i]) * weight
            first[1][0, i] += variance * z[i]
            first[1][1, i] += variance
            second[1][0, i] += variance * z[i] * z[i]
            second[1][1, i] += variance
        for place in range(3):
            shape = data[1][place, n]
            mean = square = 0.0
            for i in range(z.shape[0]):
                mean += proba[n, i] * shape[i]
                square += proba[n, i] * shape[i] * shape[i]
            second[0][place] += weight * (square - mean * mean)
