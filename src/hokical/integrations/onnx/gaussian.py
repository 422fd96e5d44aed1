"""Exact Gaussian stability in a graph: the Chebyshev moments of `hokical.stability.gaussian`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Rows
from hokical.integrations.onnx.special import log_erfc
from hokical.stability.gaussian import DEGREE, REACH, TAIL_LIMIT, Rule, gaussian_rule, switch_tables

FloatArray = NDArray[np.float64]

#: Moments up to here are summed as they are; those above come from squares and products.
_HALF = DEGREE // 2
_SQUARED = range(_HALF // 2 + 1, _HALF + 1)
_MULTIPLIED = range(_HALF // 2, _HALF)


def stability(rows: Rows, scale: float) -> Value:
    """gamma of every row, (n, 1)."""
    rule = gaussian_rule()
    survival = log_survival(rows.margins, rows.n_classes, scale, rule).exp()
    return (survival * rule.weights).sum().clipped(0.0, 1.0)


def log_survival(margins: Value, n_classes: int, scale: float, rule: Rule) -> Value:
    """Sum of log Phi(u + d_i) over all classes but the label at every node, (n, K)."""
    t = (margins * (2.0 / (REACH * scale))).at_most(2.0) - 1.0
    if margins.graph.precision == np.float32:
        return _careful_sums(t) @ rule.series[1:] - rule.own
    moments = _quick_moments(n_classes)
    slopes: FloatArray = moments[:-1] @ rule.series
    base: FloatArray = moments[-1] @ rule.series - rule.own
    return _quick_sums(t) @ slopes + base


def _careful_sums(t: Value) -> Value:
    """sum_i (T_r(t_i) - 1) for r = 1 ... DEGREE, (n, DEGREE).

    The series is 0 at the end of its reach, where every T_r is 1; so T_r - 1 does as well as T_r,
    and what is out of reach adds exactly 0.
    """
    less = t - 1.0
    twice, added = t + t, less + less
    before, current = None, less
    sums = [current.sum()]
    for _ in range(DEGREE - 1):
        ahead = twice * current + added
        before, current = current, ahead if before is None else ahead - before
        sums.append(current.sum())
    return t.graph.concat(*sums)


def _quick_sums(t: Value) -> Value:
    """The sums over classes of T_1 ... T_half, of their squares and of neighbours' products.

    Which give all moments, for T_2r = 2 T_r^2 - 1 and T_(2r+1) = 2 T_r T_(r+1) - T_1, with a third
    less work.
    """
    twice = t + t
    terms = [t, twice * t - 1.0]
    while len(terms) < _HALF:
        terms.append(twice * terms[-1] - terms[-2])
    sums = [term.sum() for term in terms]
    sums += [terms[r - 1].sum_of_squares() for r in _SQUARED]
    sums += [(terms[r - 1] * terms[r]).sum() for r in _MULTIPLIED]
    return t.graph.concat(*sums)


def _quick_moments(n_classes: int) -> FloatArray:
    """The matrix from the sums above, and a last 1, to the moments: (sums + 1, DEGREE + 1)."""
    out = np.zeros((_HALF + len(_SQUARED) + len(_MULTIPLIED) + 1, DEGREE + 1))
    out[-1, 0] = n_classes
    out[np.arange(_HALF), np.arange(_HALF) + 1] = 1.0
    for k, r in enumerate(_SQUARED):
        out[_HALF + k, 2 * r], out[-1, 2 * r] = 2.0, -n_classes
    for k, r in enumerate(_MULTIPLIED):
        out[_HALF + len(_SQUARED) + k, 2 * r + 1], out[0, 2 * r + 1] = 2.0, -1.0
    return out


def distribution(rows: Rows, scale: float) -> Value:
    """The chance (n, classes) of every class to be the noisy argmax; rows sum to 1."""
    rule = gaussian_rule(-TAIL_LIMIT)
    hazard, points_to_series = switch_tables()
    products = (log_survival(rows.margins, rows.n_classes, scale, rule) + rule.own).exp()
    series = (products @ hazard).log() @ points_to_series
    margins = rows.margins / float(scale)
    t = margins.at_most(REACH) * (2.0 / REACH) - 1.0
    log_pi = _row_series(t, series, points_to_series.shape[1])
    beyond = log_erfc(margins * 0.5) - log_erfc(rows.graph.constant(0.5 * REACH))
    pi = (margins > REACH).where(log_pi + beyond, log_pi).exp()
    pi = rows.possible.where(pi, 0.0)
    return pi / pi.sum()


def _row_series(t: Value, series: Value, count: int) -> Value:
    """Clenshaw's recurrence with coefficients of each row's own, series (n, count)."""
    twice = t + t
    current: Value = series.columns(count - 1, count)
    before: Value | float = 0.0
    for r in range(count - 2, 0, -1):
        current, before = twice * current - before + series.columns(r, r + 1), current
    return t * current - before + series.columns(0, 1)
