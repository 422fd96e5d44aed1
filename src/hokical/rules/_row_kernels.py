"""Compiled steps on one row of logits, for answers and for fits. They trust their caller."""

from math import log, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.fast_exp import FAR, exp_minus, log_of
from hokical._core.jit import kernel
from hokical._core.types import AnyArray, FloatArray

Row = NDArray[Any]  # (classes,) float32 or float64

#: Least probability of another class that the shape terms can tell from 0.
LEAST_REST = 1e-12


@kernel
def odds_row(row: Row, highest: float, beta: float, out: AnyArray) -> float:
    """out[i] = exp(-beta (highest - row[i])), nearly 0 where impossible; their sum.

    `out` is not `row`: the compiler could not tell, and would take one number at a time.
    """
    total = 0.0
    for i in range(row.shape[0]):
        odds = exp_minus(min(max((highest - row[i]) * beta, 0.0), FAR))
        out[i] = odds
        total += odds
    return total


@kernel
def floor_row(row: Row, share: float, floor: float, out: FloatArray) -> None:
    """Odds in `out` become log(p + floor) for p = odds times share; -inf where impossible."""
    for i in range(row.shape[0]):
        value = log_of(out[i] * share + floor)
        out[i] = value if row[i] > -np.inf else -np.inf


@kernel
def shape_row(
    row: Row, highest: float, label: int, step: float, z: Row, miss: Row, p: Row, softer: Row
) -> None:
    """`shape_features` of a row, but for impossible classes, whose numbers mean nothing.

    `step` is 1 / three temperatures: at one temperature, exp is the cube of what it is at three.
    """
    for i in range(row.shape[0]):
        below = (highest - row[i]) * step
        odds = exp_minus(min(below, FAR / 3.0))
        z[i] = min(3.0 * below, FAR)
        softer[i] = odds
        p[i] = odds * odds * odds
    softer[label] = p[label] = 0.0
    rest = soft_rest = 0.0
    for i in range(row.shape[0]):
        rest += p[i]
        soft_rest += softer[i]
    softer[label] = p[label] = 1.0
    norm = log1p(rest)
    share, soft_share = 1.0 / (1.0 + rest), 1.0 / (1.0 + soft_rest)
    for i in range(row.shape[0]):
        chance = p[i] * share
        z[i] = -(z[i] + norm)
        miss[i] = log_of(max(1.0 - chance, LEAST_REST))
        p[i] = chance
        softer[i] = log_of(max(1.0 - softer[i] * soft_share, LEAST_REST))
    miss[label] = log(max(rest, LEAST_REST)) - norm
    softer[label] = log(max(soft_rest, LEAST_REST)) - log1p(soft_rest)
