"""Isotonic regression of "is it this class?" on log-probabilities, exact and in one pass.

A target is 1 where the class is the true one and 0 elsewhere. Between two targets of 1 there are
only zeros, and zeros never start a new step of a rising function. So the steps can begin at the
targets of 1 alone: it is enough to know how much weight falls between one of them and the next,
and 25 million entries shrink to as many numbers as there are examples. Nothing is approximated by
this; the one rounding is that log-probabilities are compared as float32 (`as_key`), which makes
one value of those that agree to 6e-8 of their size. That is what lets rows that differ only by
rounding, as after a shift of their logits, count as the ties they are.

The function is linear in the log-probability from the end of one step to the start of the next
(the data say nothing in between) and constant outside the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
KeyArray = NDArray[np.float32]

#: Share of the probability mixed into every fitted value. It keeps classes apart that fall on the
#: same step, and leaves the probabilities themselves in a row whose fitted values are all 0.
IDENTITY_SHARE = 1e-9


@dataclass(frozen=True)
class Curve:
    """A rising function of the log-probability: `values` (k,) at `knots` (k,), k >= 1."""

    knots: FloatArray
    values: FloatArray

    def __call__(self, keys: KeyArray) -> FloatArray:
        return np.asarray(np.interp(keys, self.knots, self.values), np.float64)


@dataclass(frozen=True)
class Tally:
    """What lies below the first edge, then between each edge and the next: all of (edges + 1,).

    `mass` is the weight of the entries and `last` the largest of them, -inf where there is none.
    """

    mass: FloatArray
    last: KeyArray

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.mass + other.mass, np.maximum(self.last, other.last))


@singledispatch
def log_norms(logits: Logits, temperature: float) -> FloatArray:
    """Minus the log-probability of every row's label, (n,), precise for probabilities near 1."""
    out = np.empty(logits.n_rows)

    def work(rows: slice) -> None:
        out[rows] = log_norm_of(logits.margins(rows) / temperature, logits.labels[rows])

    for_row_blocks(work, logits.n_rows, rows_per_block(logits.n_classes))
    return out


def log_norm_of(margins: FloatArray, labels: IntArray) -> FloatArray:
    """log(1 + the sum over the other classes of exp(-margin)), (rows,)."""
    odds = np.exp(-margins)
    odds[np.arange(labels.size), labels] = 0.0
    return np.asarray(np.log1p(odds.sum(axis=1)))


def as_key(log_proba: FloatArray) -> KeyArray:
    """Log-probabilities as they are compared."""
    with np.errstate(over="ignore"):  # below -3.4e38 is as good as -inf
        return log_proba.astype(np.float32)


def own_keys(
    logits: Logits, log_norm: FloatArray, classes: IntArray, temperature: float
) -> KeyArray:
    """The key of one given class per row, (n,)."""
    return as_key(-((logits.top - logits.of_class(classes)) / temperature + log_norm))


@singledispatch
def count_rows(
    logits: Logits, labels: IntArray, weights: FloatArray | None
) -> tuple[Logits, IntArray, FloatArray | None]:
    """The examples without those of weight 0, which must leave no trace."""
    if weights is None or weights.all():
        return logits, labels, weights
    rows = np.flatnonzero(weights)
    return logits.take(rows), labels[rows], weights[rows]


def sum_hits(keys: KeyArray, weights: FloatArray | None) -> tuple[KeyArray, FloatArray]:
    """The distinct finite keys of the true classes, rising, and the weight at each."""
    possible = keys > -np.inf
    kept = None if weights is None else weights[possible]
    edges, where = np.unique(keys[possible], return_inverse=True)
    return edges, np.bincount(where, kept, edges.size).astype(np.float64)


def tally(keys: KeyArray, weights: FloatArray | None, edges: KeyArray) -> Tally:
    """Cut `keys` (any order, fastest when sorted) at `edges` (rising)."""
    place = np.searchsorted(edges, keys, side="right")
    mass = np.bincount(place, weights, edges.size + 1).astype(np.float64)
    last = np.full(edges.size + 1, -np.inf, np.float32)
    np.maximum.at(last, place, keys)
    return Tally(mass, last)


def fit_curve(edges: KeyArray, hits: FloatArray, counted: Tally) -> Curve:
    """The isotonic regression from the weight of the ones at each edge and the tally of all.

    Without any ones it is 0 everywhere.
    """
    if edges.size == 0:
        return Curve(np.zeros(1), np.zeros(1))
    mass = counted.mass[1:]
    blocks = isotonic_regression(hits / mass, weights=mass).blocks
    starts, ends = blocks[:-1], blocks[1:] - 1
    means = np.add.reduceat(hits, starts) / np.add.reduceat(mass, starts)
    levels = np.minimum(np.maximum.accumulate(means), 1.0)
    return _curve_of_steps(edges[starts], counted.last[1:][ends], levels, counted.last[0])


def checked_curve(knots: FloatArray, values: FloatArray) -> Curve:
    """A curve that was stored, or a ValueError if these numbers are none."""
    if knots.ndim != 1 or knots.shape != values.shape or not knots.size:
        raise ValueError(f"knots and values have shapes {knots.shape} and {values.shape}")
    rising = (np.diff(knots) > 0.0).all() and (np.diff(values) >= 0.0).all()
    if not rising or not np.isfinite(knots).all() or values[0] < 0.0 or values[-1] > 1.0:
        raise ValueError("knots and values must rise, the values within [0, 1]")
    return Curve(knots, values)


def _curve_of_steps(
    first: KeyArray, last: KeyArray, levels: FloatArray, last_zero: np.float32
) -> Curve:
    """Knots at both ends of every step, and one where the zeros below the first step end."""
    knots = np.stack([first, last], axis=1).astype(np.float64)
    kept = np.stack([np.ones(first.size, np.bool_), last > first], axis=1)
    values = np.broadcast_to(levels[:, None], knots.shape)
    if last_zero == -np.inf:
        return Curve(knots[kept], values[kept])
    return Curve(np.append(float(last_zero), knots[kept]), np.append(0.0, values[kept]))
