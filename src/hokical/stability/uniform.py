"""Exact stability under uniform noise: a piecewise polynomial, integrated piece by piece.

With margins d_i = (top - z_i)/width, gamma = integral over u in [0, 1] of prod_i min(u + d_i, 1).
Classes with d_i >= 1 drop out; the others join the product one after the other as u falls below
1 - d_i. Between two such points the integrand is a polynomial, for which Gauss-Legendre with enough
nodes is exact.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from hokical.logits import Logits, rows_per_block
from hokical.parallel import for_row_blocks

FloatArray = NDArray[np.float64]

#: Up to this many classes the plain path is as quick. Not a matter of the number of rows: the two
#: paths agree to 1e-8 only, and a result must not depend on its batch.
_PLAIN_UP_TO = 16


@singledispatch
def stability(logits: Logits, width: float) -> FloatArray:
    """gamma of every row, (n,), over the columns alone."""
    if logits.n_columns <= _PLAIN_UP_TO:
        return plain_stability(logits, width)
    return compiled_stability(logits, width)


def plain_stability(logits: Logits, width: float) -> FloatArray:
    """The NumPy twin of the compiled kernel, exact to rounding; cost grows with classes cubed."""
    out = np.empty(logits.n_rows)

    def work(rows: slice) -> None:
        margins = np.sort(np.minimum(logits.margins(rows) / width, 1.0), axis=1)
        u, weights = _piece_nodes(margins)
        product = np.ones_like(u)
        for column in margins.T[1:]:
            product *= np.minimum(u + column[:, None], 1.0)
        out[rows] = (weights * product).sum(axis=1)

    for_row_blocks(work, logits.n_rows, _plain_rows(logits.n_columns))
    return np.clip(out, 0.0, 1.0)


def compiled_stability(logits: Logits, width: float) -> FloatArray:
    """gamma through the compiled kernel."""
    from hokical.stability.kernels import uniform_stability

    out = np.empty(logits.n_rows)

    def work(rows: slice) -> None:
        uniform_stability(logits.block(rows), logits.top[rows], 1.0 / width, out[rows])

    for_row_blocks(work, logits.n_rows, rows_per_block(4 * logits.n_columns))
    return np.clip(out, 0.0, 1.0)


@singledispatch
def distribution(logits: Logits, width: float) -> FloatArray:
    """pi of every row and class, (n, classes), the classes without a chance at exactly 0.

    pi_k = integral over [0, 1 - d_k] of P(u)/(u + d_k) du, P the product over all classes.
    """
    if logits.n_classes <= _PLAIN_UP_TO:
        return plain_distribution(logits, width)
    return compiled_distribution(logits, width)


def plain_distribution(logits: Logits, width: float) -> FloatArray:
    """The NumPy twin of the compiled kernel, exact to rounding."""
    out = np.empty(logits.values.shape)

    def work(rows: slice) -> None:
        margins = np.minimum(logits.margins(rows) / width, 1.0)
        u, weights = _piece_nodes(np.sort(margins, axis=1))
        product = weights
        for column in margins.T:
            product = product * np.minimum(u + column[:, None], 1.0)
        for k, column in enumerate(margins.T):
            factor = u + column[:, None]
            active = (factor > 0.0) & (factor < 1.0)
            share = np.divide(product, factor, out=np.zeros_like(u), where=active)
            out[rows, k] = share.sum(axis=1)

    for_row_blocks(work, logits.n_rows, _plain_rows(logits.n_classes))
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def compiled_distribution(logits: Logits, width: float) -> FloatArray:
    """pi through the compiled kernel, which takes margins in rising order."""
    from hokical.stability.kernels import uniform_shares

    out = np.empty(logits.values.shape)

    def work(rows: slice) -> None:
        margins = np.minimum(logits.margins(rows) / width, 1.0)
        order = np.argsort(margins, axis=1)
        shares = uniform_shares(np.take_along_axis(margins, order, axis=1))
        np.put_along_axis(out[rows], order, shares, axis=1)

    for_row_blocks(work, logits.n_rows, rows_per_block(4 * logits.n_classes))
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def _piece_nodes(sorted_margins: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes u and weights (rows, pieces * order) that integrate each polynomial piece exactly."""
    n, count = sorted_margins.shape
    x, w = leggauss((count + 1) // 2 + 1)
    high = 1.0 - sorted_margins
    low = np.concatenate([high[:, 1:], np.zeros((n, 1))], axis=1)
    length = high - low
    u = low[:, :, None] + length[:, :, None] * (0.5 * (x + 1.0))
    weights = length[:, :, None] * (0.5 * w)
    return u.reshape(n, -1), weights.reshape(n, -1)


def _plain_rows(n_classes: int) -> int:
    return rows_per_block(n_classes * (n_classes + 1) // 2)
